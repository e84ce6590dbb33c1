// SPDX-License-Identifier: GPL-2.0

//! A target: it stores half blocks in place, and makes the transfers itself, out of the service's
//! memory and into it.

use crate::control::{self, code, Body, Refusal};
use crate::io_message::{Bytes, IoMessage, Kind, Limits};
use crate::members::Storage;
use crate::sbc::Geometry;
use crate::states::{LifeCycle, State};

/// One of the three targets.
#[derive(Debug)]
pub struct Target<S> {
    name: &'static str,
    storage: S,
    geometry: Geometry,
    life: LifeCycle,
    transactions: u32,
}

impl<S: Storage> Target<S> {
    /// A target that was asked nothing yet.
    pub const fn new(name: &'static str, storage: S, geometry: Geometry) -> Self {
        Self {
            name,
            storage,
            geometry,
            life: LifeCycle::NEW,
            transactions: 0,
        }
    }

    /// Its name, which is that of what it stores.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Answers a control message.
    pub fn control(&mut self, request: &[u8]) -> Vec<u8> {
        control::answer(request, |_, body| self.handle(body))
    }

    fn handle(&mut self, request: Body) -> Result<Body, Refusal> {
        let after = self.life.after(&request);
        let life = after.map_err(|why| Refusal::new(code::BAD_STATE, why))?;
        let response = match request {
            Body::QueryRequest => Body::QueryResponse {
                total_bytes: self.geometry.content_bytes(),
                block_bytes: self.geometry.half_bytes,
            },
            Body::InitRequest { transactions, .. } => {
                self.transactions = transactions;
                Body::InitResponse
            }
            Body::ConnectRequest(connection) => Body::ConnectResponse(connection),
            Body::StartRequest => Body::StartResponse,
            Body::StopRequest => Body::StopResponse,
            // The life lets no other request through.
            _ => {
                let flushed = self.storage.flush();
                flushed.map_err(|why| Refusal::new(code::IO_FAILED, why))?;
                Body::ShutdownResponse
            }
        };
        self.life = life;
        Ok(response)
    }

    /// Carries out an IO message over the memory of the service; returns the answer.
    pub fn serve(&self, message: &Bytes, memory: &mut [u8]) -> Bytes {
        IoMessage::answered(message, |request| {
            let done = request
                .map_err(|why| Refusal::new(code::INVALID_VALUE, why))
                .and_then(|request| self.carry_out(&request, memory));
            done.map_or_else(|refusal| self.tell(refusal), |()| code::SUCCESS)
        })
    }

    fn carry_out(&self, request: &IoMessage, memory: &mut [u8]) -> Result<(), Refusal> {
        let state = self.life.state();
        if state != State::Running {
            let why = format_args!("no IO in the state {state:?}");
            return Err(Refusal::new(code::BAD_STATE, why));
        }
        let limits = Limits {
            transactions: self.transactions,
            block_bytes: self.geometry.half_bytes,
            storage_bytes: self.geometry.content_bytes(),
            memory_bytes: memory.len(),
        };
        let invalid = |why| Refusal::new(code::INVALID_VALUE, why);
        request.check(&limits).map_err(invalid)?;
        // Checked: they are within memory.
        let from = request.requester_offset as usize;
        let data = memory.get_mut(from..from + request.io_bytes as usize);
        let data = data.unwrap_or_default();
        let done = match request.kind {
            Kind::Read => self.storage.read(request.storage_offset, data),
            _ => self.storage.write(request.storage_offset, data),
        };
        done.map_err(|why| Refusal::new(code::IO_FAILED, why))
    }

    /// An answer has a number only: what it means goes to the log.
    fn tell(&self, why: Refusal) -> u32 {
        eprintln!("{}: {why}", self.name);
        why.code
    }
}
