// SPDX-License-Identifier: GPL-2.0

//! The initiator: it leads the service through its life, and sends IO messages.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use clap::ValueEnum;
use rustix::thread::{sched_setaffinity, CpuSet};
use serde::Serialize;

use crate::control::{code, Body, Message, Refusal};
use crate::io_message::{IoMessage, Kind, BLOCKS_MAX};
use crate::members::Storage;
use crate::service::{response, Service};
use crate::statistics::{Core, Initiator, Thread};
use crate::worker::{DataPath, Worker};

/// Memory of a thread, at most.
const MEMORY_MAX_BYTES: usize = 256 << 20;

/// The test that a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Strategy {
    /// Reads, looks at no data
    ReadThroughputTest,
    /// Writes
    WriteThroughputTest,
    /// Writes all blocks, reads them, compares
    ReadWriteDataValidityTest,
    /// Reads all blocks, compares with --storage-plain-content
    ReadOnlyDataValidityTest,
}

impl Strategy {
    /// Whether it writes.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::WriteThroughputTest | Self::ReadWriteDataValidityTest
        )
    }
}

/// The work that is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The test.
    pub strategy: Strategy,
    /// Requests of a thread, of a throughput test.
    pub operations: u64,
    /// Requests that have memory of their own.
    pub transactions: u32,
    /// Blocks of a request.
    pub blocks_per_io: u32,
    /// The processors to which threads are bound; without any, one thread that is not bound.
    pub cpus: Vec<usize>,
    /// The content of the storage, padded with zeroes to whole blocks.
    pub plain: Vec<u8>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The test.
    pub strategy: Strategy,
    /// Length of a block.
    pub block_bytes: u32,
    /// Length of the storage.
    pub total_bytes: u64,
    /// The work that the workers have done.
    pub cores: Vec<Core>,
    /// The measurements.
    pub initiator: Initiator,
    /// The reason why the run has ended early.
    pub failure: Option<String>,
}

/// A storage in use.
#[derive(Debug)]
pub struct Session<'a, S> {
    service: &'a mut Service<S>,
    next_id: u32,
    /// Length of a block.
    pub block_bytes: u32,
    /// Length of the storage.
    pub total_bytes: u64,
}

impl<'a, S: Storage> Session<'a, S> {
    /// Asks for the size.
    ///
    /// # Errors
    ///
    /// Returns the refusal.
    pub fn connect(service: &'a mut Service<S>) -> Result<Self, Refusal> {
        let mut session = Self {
            service,
            next_id: 0,
            block_bytes: 0,
            total_bytes: 0,
        };
        if let Body::QueryResponse {
            total_bytes,
            block_bytes,
        } = session.ask(Body::QueryRequest)?
        {
            (session.total_bytes, session.block_bytes) = (total_bytes, block_bytes);
        }
        if session.block_bytes == 0 {
            return Err(Refusal::new(code::INVALID_VALUE, "blocks of no bytes"));
        }
        Ok(session)
    }

    /// Has the service begin.
    ///
    /// # Errors
    ///
    /// Returns the refusal.
    pub fn start(&mut self, transactions: u32, cores: u32) -> Result<(), Refusal> {
        self.ask(Body::InitRequest {
            transactions,
            cores,
            memory: Vec::new(),
        })?;
        self.ask(Body::StartRequest).map(drop)
    }

    /// The workers, and what they share.
    pub fn data_path(&mut self) -> (&mut [Worker], &DataPath<S>) {
        self.service.data_path()
    }

    /// Has the service end, also if the work has failed.
    ///
    /// # Errors
    ///
    /// Returns the first refusal, which is that of the work if it has failed.
    pub fn end(&mut self) -> Result<(), Refusal> {
        let stopped = self.ask(Body::StopRequest);
        let shut_down = self.ask(Body::ShutdownRequest);
        stopped.and(shut_down).map(drop)
    }

    fn ask(&mut self, body: Body) -> Result<Body, Refusal> {
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let request = Message {
            id,
            correlation: id,
            body,
        };
        response(&self.service.control(&request.encode()), id, id)
    }
}

/// Fills a block with what a validity test writes: it can be compressed, and no two are equal.
pub fn pattern(number: u64, block: &mut [u8]) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for group in block.chunks_mut(16) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let noise = state.to_le_bytes();
        for (index, to) in group.iter_mut().enumerate() {
            // Four bytes of noise, twelve of what is the same in all groups of the block.
            *to = match noise.get(index) {
                Some(&byte) if index < 4 => byte,
                _ => number.to_le_bytes().get(index % 8).copied().unwrap_or(0),
            };
        }
    }
}

/// Carries out a plan.
///
/// # Errors
///
/// Returns the refusal if it could not begin.
pub fn run<S: Storage + Send>(service: &mut Service<S>, plan: &Plan) -> Result<Report, Refusal> {
    let mut session = Session::connect(service)?;
    let (block_bytes, total_bytes) = (session.block_bytes, session.total_bytes);
    let blocks = total_bytes / u64::from(block_bytes);
    let refuse = |text: String| Err(Refusal::new(code::INVALID_VALUE, text));
    let memory = (block_bytes as usize)
        .saturating_mul(plan.blocks_per_io as usize)
        .saturating_mul(plan.transactions as usize);
    if plan.blocks_per_io == 0 || plan.blocks_per_io > BLOCKS_MAX || memory > MEMORY_MAX_BYTES {
        return refuse(format!(
            "{} transactions of {} blocks: not 1 to {BLOCKS_MAX} blocks, or more memory than \
             {MEMORY_MAX_BYTES} bytes",
            plan.transactions, plan.blocks_per_io
        ));
    }
    if plan.strategy == Strategy::ReadOnlyDataValidityTest {
        let expected = (plan.plain.len() as u64).next_multiple_of(block_bytes.into());
        if expected != total_bytes {
            return refuse(format!(
                "the plain content is {expected} bytes of blocks, the storage {total_bytes}"
            ));
        }
    }
    let cores = u32::try_from(plan.cpus.len().max(1)).unwrap_or(u32::MAX);
    session.start(plan.transactions, cores)?;
    let begin = Instant::now();
    let stop = Mutex::new(None);
    let (workers, path) = session.data_path();
    let threads: Vec<Thread> = thread::scope(|scope| {
        let share = blocks.div_ceil(u64::from(cores));
        let running: Vec<_> = (0..)
            .zip(workers)
            .map(|(index, worker)| {
                let first = share.saturating_mul(index).min(blocks);
                let end = first.saturating_add(share).min(blocks);
                let mut lane = Lane {
                    worker,
                    path,
                    plan,
                    stop: &stop,
                    share: first..end,
                    block: block_bytes,
                    memory: vec![0; memory],
                    measured: Thread::default(),
                    turn: 0,
                };
                scope.spawn(move || lane.work(index as usize))
            })
            .collect();
        let ended = running.into_iter().map(|thread| thread.join().ok());
        ended.flatten().collect()
    });
    let initiator = Initiator::of(&threads, begin.elapsed());
    let refused = session.end().err().map(|refusal| refusal.text);
    let failure = stop.into_inner().unwrap_or_default().or(refused);
    Ok(Report {
        strategy: plan.strategy,
        block_bytes,
        total_bytes,
        cores: service.statistics(),
        initiator,
        failure,
    })
}

/// Sends a request for blocks in `memory` from `offset` on to a worker; returns the error number.
///
/// # Errors
///
/// Returns the error number.
pub fn request<S: Storage>(
    worker: &mut Worker,
    path: &DataPath<S>,
    message: &IoMessage,
    memory: &mut [u8],
) -> Result<(), u32> {
    let answer = worker.io(path, &message.encode(), memory);
    match IoMessage::decode(&answer) {
        Ok(answer) if answer.result == code::SUCCESS => Ok(()),
        Ok(answer) => Err(answer.result),
        Err(_) => Err(code::INVALID_VALUE),
    }
}

/// A thread of the initiator, with the worker that serves it.
struct Lane<'a, S> {
    worker: &'a mut Worker,
    path: &'a DataPath<S>,
    plan: &'a Plan,
    /// The reason why all threads end.
    stop: &'a Mutex<Option<String>>,
    /// Its blocks.
    share: Range<u64>,
    block: u32,
    memory: Vec<u8>,
    measured: Thread,
    turn: u64,
}

impl<S: Storage> Lane<'_, S> {
    fn work(&mut self, index: usize) -> Thread {
        if let Err(why) = self.bind(index).and_then(|()| self.test()) {
            if let Ok(mut stop) = self.stop.lock() {
                stop.get_or_insert(why);
            }
        }
        self.measured
    }

    fn bind(&self, index: usize) -> Result<(), String> {
        let Some(&cpu) = self.plan.cpus.get(index) else {
            return Ok(());
        };
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|why| format!("processor {cpu}: {why}"))
    }

    fn test(&mut self) -> Result<(), String> {
        match self.plan.strategy {
            Strategy::ReadThroughputTest => self.throughput(Kind::Read),
            Strategy::WriteThroughputTest => self.throughput(Kind::Write),
            Strategy::ReadWriteDataValidityTest => {
                self.each(|lane, blocks| lane.io(Kind::Write, blocks))?;
                self.each(Self::compare)
            }
            Strategy::ReadOnlyDataValidityTest => self.each(Self::compare),
        }
    }

    /// Walks round the share.
    fn throughput(&mut self, kind: Kind) -> Result<(), String> {
        let mut left = self.plan.operations;
        while left != 0 && !self.share.is_empty() && !self.is_stopped() {
            let mut at = self.share.start;
            while left != 0 && at < self.share.end {
                let blocks = self.blocks_from(at);
                at = blocks.end;
                left -= 1;
                self.io(kind, blocks)?;
            }
        }
        Ok(())
    }

    /// Does something with all blocks of the share once, a request at a time.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut Self, Range<u64>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut at = self.share.start;
        while at < self.share.end && !self.is_stopped() {
            let blocks = self.blocks_from(at);
            at = blocks.end;
            act(self, blocks)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.lock().map_or(true, |stop| stop.is_some())
    }

    fn blocks_from(&self, first: u64) -> Range<u64> {
        let end = first.saturating_add(self.plan.blocks_per_io.into());
        first..end.min(self.share.end)
    }

    /// Returns the place of the next transaction's memory, for so many blocks.
    fn slot(&self, blocks: &Range<u64>) -> Range<usize> {
        let slot = self.turn % u64::from(self.plan.transactions);
        let block = self.block as usize;
        let first = slot as usize * self.plan.blocks_per_io as usize * block;
        first..first + (blocks.end - blocks.start) as usize * block
    }

    fn io(&mut self, kind: Kind, blocks: Range<u64>) -> Result<(), String> {
        let slot = self.slot(&blocks);
        let data = self.memory.get_mut(slot.clone()).unwrap_or_default();
        if kind == Kind::Write {
            for (number, block) in blocks
                .clone()
                .zip(data.chunks_exact_mut(self.block as usize))
            {
                pattern(number, block);
            }
        } else {
            data.fill(0);
        }
        let io_bytes = self.block * (blocks.end - blocks.start) as u32;
        let message = IoMessage {
            kind,
            user_data: self.turn % u64::from(self.plan.transactions),
            result: 0,
            io_bytes,
            requester_offset: slot.start as u64,
            storage_offset: blocks.start * u64::from(self.block),
        };
        let begin = Instant::now();
        let done = request(self.worker, self.path, &message, &mut self.memory);
        done.map_err(|code| {
            self.worker
                .failure()
                .map_or(format!("error {code}"), String::from)
        })?;
        self.measured.count(io_bytes, begin.elapsed());
        self.turn += 1;
        Ok(())
    }

    fn compare(&mut self, blocks: Range<u64>) -> Result<(), String> {
        let slot = self.slot(&blocks);
        self.io(Kind::Read, blocks.clone())?;
        let data = self.memory.get(slot).unwrap_or_default();
        let mut expected = vec![0; self.block as usize];
        for (number, read) in blocks.zip(data.chunks_exact(self.block as usize)) {
            self.fill_expected(number, &mut expected);
            if let Some(at) = read.iter().zip(&expected).position(|(read, is)| read != is) {
                return Err(format!("block {number}: byte {at} is not what was written"));
            }
        }
        Ok(())
    }

    /// Fills a block with what it must have.
    fn fill_expected(&self, number: u64, block: &mut [u8]) {
        if self.plan.strategy.writes() {
            return pattern(number, block);
        }
        let at = number as usize * block.len();
        let plain = self.plan.plain.get(at..).unwrap_or_default();
        block.fill(0);
        for (to, &byte) in block.iter_mut().zip(plain) {
            *to = byte;
        }
    }
}
