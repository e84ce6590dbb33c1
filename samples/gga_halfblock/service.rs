// SPDX-License-Identifier: GPL-2.0

//! The service: it has one initiator and three targets, forwards the commands of the one to the
//! others, and has the workers.

use crate::control::{self, code, Body, Connection, Message, Refusal, Role};
use crate::matrix::{Matrix, MatrixType};
use crate::members::Storage;
use crate::sbc::Geometry;
use crate::states::{LifeCycle, State};
use crate::statistics::Core;
use crate::target::Target;
use crate::worker::{DataPath, Recovery, Worker};

/// The names of the targets, in their order.
pub const NAMES: [&str; 3] = ["data_1", "data_2", "data_p"];

/// Memory of all transactions of all workers, at most.
const REGION_MAX_BYTES: usize = 1 << 30;

/// The settings with which the service is started.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Threads that an initiator may ask for.
    pub cores_max: u32,
    /// The construction of the parity.
    pub matrix: MatrixType,
    /// The reads that rebuild a half.
    pub recovery: Recovery,
    /// Whether there is memory for writes.
    pub is_written: bool,
}

/// The service.
#[derive(Debug)]
pub struct Service<S> {
    path: DataPath<S>,
    workers: Vec<Worker>,
    cores_max: u32,
    life: LifeCycle,
    next_id: u32,
}

impl<S: Storage> Service<S> {
    /// A service that is connected to three targets, which are asked for their size later.
    pub fn new(members: [(S, Geometry); 3], settings: &Settings) -> Self {
        let [first, second, parity] = members;
        let [name_1, name_2, name_p] = NAMES;
        let target = |name, (storage, geometry)| Target::new(name, storage, geometry);
        let path = DataPath {
            targets: [
                target(name_1, first),
                target(name_2, second),
                target(name_p, parity),
            ],
            geometry: Geometry {
                half_bytes: 0,
                blocks: 0,
            },
            matrix: Matrix::new(settings.matrix),
            recovery: settings.recovery,
            is_written: settings.is_written,
        };
        Self {
            path,
            workers: Vec::new(),
            cores_max: settings.cores_max,
            life: LifeCycle::NEW,
            next_id: 0,
        }
    }

    /// Answers a control message of the initiator.
    pub fn control(&mut self, request: &[u8]) -> Vec<u8> {
        control::answer(request, |correlation, body| self.handle(correlation, body))
    }

    /// The workers, and what they share; there is no worker unless IO is done.
    pub fn data_path(&mut self) -> (&mut [Worker], &DataPath<S>) {
        let is_running = self.life.state() == State::Running;
        let workers = if is_running {
            self.workers.as_mut_slice()
        } else {
            &mut []
        };
        (workers, &self.path)
    }

    /// Returns what the workers have done.
    pub fn statistics(&self) -> Vec<Core> {
        self.workers.iter().map(Worker::statistics).collect()
    }

    fn handle(&mut self, correlation: u32, request: Body) -> Result<Body, Refusal> {
        let after = self.life.after(&request);
        let life = after.map_err(|why| Refusal::new(code::BAD_STATE, why))?;
        let response = match request {
            Body::QueryRequest => self.query(correlation)?,
            Body::InitRequest {
                transactions,
                cores,
                ..
            } => self.init(correlation, transactions, cores)?,
            Body::StopRequest => {
                self.forward(correlation, &request, &Body::StopResponse)?;
                // It has stopped, also if a worker has failed.
                self.life = life;
                self.first_failure()?;
                Body::StopResponse
            }
            Body::StartRequest => {
                self.forward(correlation, &request, &Body::StartResponse)?;
                Body::StartResponse
            }
            _ => {
                self.forward(correlation, &request, &Body::ShutdownResponse)?;
                Body::ShutdownResponse
            }
        };
        self.life = life.with_connections_made();
        Ok(response)
    }

    /// The size of the storage is twice that of a target, if all have the same.
    fn query(&mut self, correlation: u32) -> Result<Body, Refusal> {
        let mut sizes = Vec::new();
        for index in 0..self.path.targets.len() {
            match self.ask(index, correlation, Body::QueryRequest)? {
                Body::QueryResponse {
                    total_bytes,
                    block_bytes,
                } => sizes.push((total_bytes, block_bytes)),
                other => return Err(unexpected(&other)),
            }
        }
        let (total, half_bytes) = sizes.first().copied().unwrap_or_default();
        if sizes.iter().any(|&size| size != (total, half_bytes)) {
            let each: Vec<String> = NAMES
                .iter()
                .zip(&sizes)
                .map(|(name, (total, block))| {
                    format!("{name} has {total} bytes in blocks of {block}")
                })
                .collect();
            let text = format_args!("the targets differ: {}", each.join(", "));
            return Err(Refusal::new(code::INVALID_VALUE, text));
        }
        let blocks = total.checked_div(half_bytes.into()).unwrap_or(0);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.path.geometry = Geometry { half_bytes, blocks };
        Ok(Body::QueryResponse {
            total_bytes: total.saturating_mul(2),
            block_bytes: self.path.geometry.block_bytes(),
        })
    }

    /// Makes the workers with their memory, and connects each to each target twice. Transactions
    /// are doubled: the initiator may send the next message before the worker knows that its answer
    /// has arrived.
    fn init(&mut self, correlation: u32, transactions: u32, cores: u32) -> Result<Body, Refusal> {
        let refuse = |text: String| Err(Refusal::new(code::INVALID_VALUE, text));
        if cores == 0 || cores > self.cores_max {
            return refuse(format!("{cores} cores: there are 1 to {}", self.cores_max));
        }
        let chunk = self.path.chunk_bytes();
        let doubled = transactions.checked_mul(2).filter(|&doubled| doubled != 0);
        let region = doubled
            .and_then(|doubled| chunk.checked_mul(doubled as usize))
            .and_then(|bytes| bytes.checked_mul(cores as usize));
        let (Some(doubled), Some(0..=REGION_MAX_BYTES)) = (doubled, region) else {
            return refuse(format!(
                "{transactions} transactions on each of {cores} cores: none, or more memory than \
                 {REGION_MAX_BYTES} bytes"
            ));
        };
        let request = Body::InitRequest {
            transactions: doubled,
            cores,
            memory: OWN_MEMORY.to_vec(),
        };
        self.forward(correlation, &request, &Body::InitResponse)?;
        for context in 0..cores {
            for role in [Role::Data, Role::Control] {
                self.connect(correlation, context, role)?;
            }
        }
        self.workers = (0..cores as usize)
            .map(|core| Worker::new(core, doubled, chunk))
            .collect();
        Ok(Body::InitResponse)
    }

    fn connect(&mut self, correlation: u32, context: u32, role: Role) -> Result<(), Refusal> {
        for index in 0..self.path.targets.len() {
            let connection = Connection {
                context,
                role,
                details: OWN_MEMORY.to_vec(),
            };
            let answer = self.ask(index, correlation, Body::ConnectRequest(connection))?;
            if !matches!(answer, Body::ConnectResponse(_)) {
                return Err(unexpected(&answer));
            }
        }
        Ok(())
    }

    fn first_failure(&self) -> Result<(), Refusal> {
        let failure = self.workers.iter().find_map(Worker::failure);
        failure.map_or(Ok(()), |text| Err(Refusal::new(code::IO_FAILED, text)))
    }

    /// Sends the same request to each target; each must give this response.
    fn forward(
        &mut self,
        correlation: u32,
        request: &Body,
        response: &Body,
    ) -> Result<(), Refusal> {
        for index in 0..self.path.targets.len() {
            let answer = self.ask(index, correlation, request.clone())?;
            if answer != *response {
                return Err(unexpected(&answer));
            }
        }
        Ok(())
    }

    /// Sends a message to a target, and takes the response to it.
    fn ask(&mut self, index: usize, correlation: u32, body: Body) -> Result<Body, Refusal> {
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let request = Message {
            id,
            correlation,
            body,
        };
        let Some(target) = self.path.targets.get_mut(index) else {
            return Err(Refusal::new(code::INVALID_VALUE, "there is no such target"));
        };
        let name = target.name();
        let of_target = |refusal: Refusal| Refusal {
            text: format!("{name}: {}", refusal.text),
            ..refusal
        };
        response(&target.control(&request.encode()), id, correlation).map_err(of_target)
    }
}

/// Takes the response to a message: who asks checks that it is that.
///
/// # Errors
///
/// Returns the refusal, or what is wrong with the response.
pub fn response(bytes: &[u8], id: u32, correlation: u32) -> Result<Body, Refusal> {
    let invalid = |defect| Refusal::new(code::INVALID_VALUE, defect);
    let (message, _) = Message::decode(bytes).map_err(invalid)?;
    match message.body {
        Body::Error(refusal) => Err(refusal),
        body if (message.id, message.correlation) == (id, correlation) => Ok(body),
        _ => Err(Refusal::new(
            code::INVALID_VALUE,
            "a response to another message",
        )),
    }
}

fn unexpected(body: &Body) -> Refusal {
    let number = body.number();
    Refusal::new(
        code::INVALID_VALUE,
        format_args!("a message of type {number} is no response to the request"),
    )
}

/// All peers are in one process: none needs a blob to find the memory.
const OWN_MEMORY: &[u8] = b"this process";
