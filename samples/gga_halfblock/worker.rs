// SPDX-License-Identifier: GPL-2.0

//! A thread of the service: it carries out the IO messages of the initiator, by IO messages to the
//! three targets. Blocks of a request are done one after the other.

use crate::control::{code, Refusal};
use crate::io_message::{Bytes, IoMessage, Kind, Limits};
use crate::matrix::{Half, Matrix};
use crate::members::Storage;
use crate::sbc::Geometry;
use crate::statistics::Core;
use crate::stored;
use crate::target::Target;

/// The reads that rebuild a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Each n-th block of a worker, the first half and the second in turn; 0 is none.
    EveryNth(u32),
    /// Each, this half.
    Always(Half),
}

/// The objects that the workers share.
#[derive(Debug)]
pub struct DataPath<S> {
    pub(crate) targets: [Target<S>; 3],
    pub(crate) geometry: Geometry,
    pub(crate) matrix: Matrix,
    pub(crate) recovery: Recovery,
    /// Transactions have memory for writes.
    pub(crate) is_written: bool,
}

/// A thread of the service.
#[derive(Debug)]
pub struct Worker {
    /// The memory of all transactions.
    region: Vec<u8>,
    /// The bytes of the memory of one.
    chunk: usize,
    transactions: u32,
    /// Blocks that were read.
    reads: u64,
    statistics: Core,
    failure: Option<String>,
}

impl<S> DataPath<S> {
    /// Memory of a transaction: source, both halves and parity; a source is for writes only.
    pub const fn chunk_bytes(&self) -> usize {
        let halves = if self.is_written { 5 } else { 3 };
        self.geometry.half_bytes as usize * halves
    }

    const fn half(&self) -> usize {
        self.geometry.half_bytes as usize
    }

    /// Returns where in a transaction's memory its first half is; the second and the parity follow.
    const fn halves_at(&self) -> usize {
        self.chunk_bytes() - 3 * self.half()
    }
}

impl Worker {
    /// A worker with its memory.
    pub fn new(core: usize, transactions: u32, chunk: usize) -> Self {
        Self {
            region: vec![0; chunk.saturating_mul(transactions as usize)],
            chunk,
            transactions,
            reads: 0,
            statistics: Core {
                core,
                ..Core::default()
            },
            failure: None,
        }
    }

    /// Returns what it has done.
    pub const fn statistics(&self) -> Core {
        self.statistics
    }

    /// Returns why it has stopped, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Carries out an IO message over the memory of the initiator; returns the answer. After the
    /// first that fails it refuses all others: the specification's run ends there.
    pub fn io<S: Storage>(
        &mut self,
        path: &DataPath<S>,
        message: &Bytes,
        memory: &mut [u8],
    ) -> Bytes {
        IoMessage::answered(message, |request| {
            let done = request
                .map_err(|why| Refusal::new(code::INVALID_VALUE, why))
                .and_then(|request| self.carry_out(path, &request, memory));
            if let Err(refusal) = done {
                self.failure.get_or_insert(refusal.text);
                return refusal.code;
            }
            self.statistics.operations += 1;
            code::SUCCESS
        })
    }

    fn carry_out<S: Storage>(
        &mut self,
        path: &DataPath<S>,
        request: &IoMessage,
        memory: &mut [u8],
    ) -> Result<(), Refusal> {
        if self.failure.is_some() {
            return Err(Refusal::new(code::BAD_STATE, "the worker has stopped"));
        }
        let block = path.geometry.block_bytes();
        let limits = Limits {
            transactions: self.transactions,
            block_bytes: block,
            storage_bytes: path.geometry.content_bytes().saturating_mul(2),
            memory_bytes: memory.len(),
        };
        let invalid = |why| Refusal::new(code::INVALID_VALUE, why);
        request.check(&limits).map_err(invalid)?;
        if request.kind == Kind::Write && !path.is_written {
            return Err(Refusal::new(
                code::NOT_SUPPORTED,
                "a write, but the service was started for reads only",
            ));
        }
        // Checked: both are within memory.
        let first = request.requester_offset as usize;
        let data = memory.get_mut(first..first + request.io_bytes as usize);
        let data = data.unwrap_or_default();
        let number = request.storage_offset / u64::from(block);
        for (number, data) in (number..).zip(data.chunks_exact_mut(block as usize)) {
            let place = Place {
                transaction: request.user_data,
                number,
            };
            let done = match request.kind {
                Kind::Write => self.write(path, place, data),
                _ => self.read(path, place, data),
            };
            done.map_err(|mut refusal| {
                refusal.text = format!("block {number}: {}", refusal.text);
                refusal
            })?;
        }
        Ok(())
    }

    /// The memory of a transaction, which is one of this worker's.
    fn memory(&mut self, place: Place) -> &mut [u8] {
        let at = self.chunk.saturating_mul(place.transaction as usize);
        let memory = self.region.get_mut(at..).unwrap_or_default();
        memory.get_mut(..self.chunk).unwrap_or_default()
    }

    /// Writes a block: compress, cut, make parity, overwrite three half blocks.
    fn write<S: Storage>(
        &mut self,
        path: &DataPath<S>,
        place: Place,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let (source, area) = self.memory(place).split_at_mut(path.halves_at());
        source.copy_from_slice(data);
        let refused = |why| Refusal::new(code::NOT_SUPPORTED, why);
        stored::encode(source, area).map_err(refused)?;
        let (halves, parity) = area.split_at_mut(2 * path.half());
        let (first, second) = halves.split_at(path.half());
        path.matrix.create(first, second, parity);
        for (index, target) in path.targets.iter().enumerate() {
            self.ask(path, Kind::Write, place, index, target)?;
        }
        Ok(())
    }

    /// Reads a block: two half blocks, of which one may be rebuilt, decompressed into the memory of
    /// the initiator.
    fn read<S: Storage>(
        &mut self,
        path: &DataPath<S>,
        place: Place,
        data: &mut [u8],
    ) -> Result<(), Refusal> {
        self.reads += 1;
        let lost = self.rebuilt(path.recovery);
        let skipped = match lost {
            Some(Half::First) => 0,
            Some(Half::Second) => 1,
            None => 2,
        };
        let targets = path.targets.iter().enumerate();
        for (index, target) in targets.filter(|&(index, _)| index != skipped) {
            self.ask(path, Kind::Read, place, index, target)?;
        }
        let halves_at = path.halves_at();
        let area = self.memory(place).get_mut(halves_at..).unwrap_or_default();
        let (halves, parity) = area.split_at_mut(2 * path.half());
        let (first, second) = halves.split_at_mut(path.half());
        match lost {
            Some(half @ Half::First) => path.matrix.recover(half, second, parity, first),
            Some(half @ Half::Second) => path.matrix.recover(half, first, parity, second),
            None => {}
        }
        let failed = |defect| Refusal::new(code::IO_FAILED, defect);
        stored::decode(halves, data).map_err(failed)?;
        self.statistics.recoveries += u64::from(lost.is_some());
        Ok(())
    }

    /// The half that this read rebuilds.
    const fn rebuilt(&self, recovery: Recovery) -> Option<Half> {
        match recovery {
            Recovery::Always(half) => Some(half),
            Recovery::EveryNth(0) => None,
            Recovery::EveryNth(n) if self.reads % n as u64 != 0 => None,
            Recovery::EveryNth(_) if self.statistics.recoveries % 2 == 0 => Some(Half::First),
            Recovery::EveryNth(_) => Some(Half::Second),
        }
    }

    /// Sends an IO message to a target, and takes its answer.
    fn ask<S: Storage>(
        &mut self,
        path: &DataPath<S>,
        kind: Kind,
        place: Place,
        index: usize,
        target: &Target<S>,
    ) -> Result<(), Refusal> {
        let at = self.chunk.saturating_mul(place.transaction as usize);
        let request = IoMessage {
            kind,
            user_data: place.transaction,
            result: 0,
            io_bytes: path.geometry.half_bytes,
            requester_offset: (at + path.halves_at() + index * path.half()) as u64,
            storage_offset: place.number.saturating_mul(path.half() as u64),
        };
        let answer = target.serve(&request.encode(), &mut self.region);
        self.statistics.target_operations += 1;
        let wrong =
            |why: &str| Refusal::new(code::IO_FAILED, format_args!("{}: {why}", target.name()));
        let answer = IoMessage::decode(&answer).map_err(|why| wrong(&why.to_string()))?;
        if answer != request.answer(answer.result) {
            return Err(wrong("it has answered another request"));
        }
        if answer.result != code::SUCCESS {
            return Err(wrong(&format!("error {}", answer.result)));
        }
        Ok(())
    }
}

/// The block that a transaction is at.
#[derive(Clone, Copy)]
struct Place {
    transaction: u64,
    number: u64,
}
