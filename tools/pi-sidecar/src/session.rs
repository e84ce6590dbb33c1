// SPDX-License-Identifier: GPL-2.0

//! A formatted device that is open: reads and writes of its data blocks, one request at a time.

use std::{
    error::Error,
    fmt,
    io, //
};

use proto::sidecar::{
    queue::{
        Kind,
        Request,
        Ticket, //
    },
    replay::Outcome,
    store::{
        Action,
        ArrayStore,
        Memory,
        Rest, //
    },
    tuple::{
        Tuple,
        Verdict, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    device::Device,
    volume::{
        Fault,
        OnDamage,
        Volume, //
    },
};

/// The PI blocks in memory.
const SLOTS: usize = 64;

/// The reason why a request has failed.
#[derive(Debug)]
pub enum Failure {
    /// The device has no such blocks.
    Range,
    /// A block did not pass the check.
    Protection {
        /// The data block.
        block: u64,
        /// The finding of the check.
        verdict: Verdict,
    },
    /// Reading or writing has failed; the first error if the device gave one.
    Io(Option<io::Error>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range => f.write_str("the device has no such blocks"),
            Self::Protection { block, verdict } => {
                write!(f, "data block {block}: {verdict}")
            }
            Self::Io(Some(error)) => error.fmt(f),
            Self::Io(None) => f.write_str("a write of the sidecar has failed"),
        }
    }
}

impl Error for Failure {}

struct Pages {
    pi_blocks: Vec<Block>,
    tuples: Vec<Tuple>,
}

impl Memory for Pages {
    fn pi_block(&self, slot: usize) -> &Block {
        const ZERO: &Block = &[0; BLOCK_BYTES];
        self.pi_blocks.get(slot).unwrap_or(ZERO)
    }

    fn pi_block_mut(&mut self, slot: usize) -> &mut Block {
        if slot >= self.pi_blocks.len() {
            self.pi_blocks.resize(slot + 1, [0; BLOCK_BYTES]);
        }
        #[expect(clippy::indexing_slicing, reason = "it was made as long just now")]
        &mut self.pi_blocks[slot]
    }

    fn tuple(&self, _ticket: Ticket, offset: u16) -> Tuple {
        let tuple = self.tuples.get(usize::from(offset));
        tuple.copied().unwrap_or_default()
    }
}

/// An open device.
pub struct Session<D, C> {
    device: D,
    volume: Volume<C>,
    store: Box<ArrayStore<1, SLOTS>>,
    pages: Pages,
    error: Option<io::Error>,
}

impl<D: Device, C: Checksum + Copy> Session<D, C> {
    /// Opens a device, and replays its journal.
    ///
    /// # Errors
    ///
    /// Returns why the device cannot be used.
    pub fn open(mut device: D, crc: C) -> Result<(Self, Outcome), Fault> {
        let volume = Volume::load(&mut device, crc)?;
        let (outcome, ring) = volume.replay(&mut device, OnDamage::Refuse)?;
        let session = Self {
            device,
            store: Box::new(ArrayStore::in_arrays(*volume.seal(), ring, true)),
            volume,
            pages: Pages {
                pi_blocks: vec![[0; BLOCK_BYTES]; SLOTS],
                tuples: Vec::new(),
            },
            error: None,
        };
        Ok((session, outcome))
    }

    /// Returns the number of data blocks.
    pub fn data_blocks(&self) -> u64 {
        self.volume.layout().data_blocks()
    }

    /// Writes whole blocks from data block `first` on.
    ///
    /// # Errors
    ///
    /// Returns why they could not be written.
    pub fn write(&mut self, first: u64, data: &mut [Block]) -> Result<(), Failure> {
        let seal = *self.volume.seal();
        let tuples = (first..).zip(&*data).map(|(block, data)| {
            let guard = self.volume.checksum().crc64(data);
            seal.data(block, guard, 0).unwrap_or_default()
        });
        self.pages.tuples = tuples.collect();
        self.request(Kind::Write { fua: false }, first, data)
    }

    /// Reads blocks from data block `first` on.
    ///
    /// # Errors
    ///
    /// Returns why they could not be read, and which did not pass the check.
    pub fn read(&mut self, first: u64, data: &mut [Block]) -> Result<(), Failure> {
        self.request(Kind::Read, first, data)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    ///
    /// Returns the error of the flush.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.request(Kind::Flush, 0, &mut [])
    }

    /// Writes all tuples back, empties the journal and closes the device.
    ///
    /// # Errors
    ///
    /// Returns why that could not be done; the journal is replayed at the next opening then.
    pub fn close(mut self) -> Result<D, Failure> {
        self.store.rest(Rest::Drain);
        while let Some(action) = self.store.poll() {
            self.act(action, None, &mut []);
        }
        if self.store.is_clean() {
            Ok(self.device)
        } else {
            Err(Failure::Io(self.error))
        }
    }

    fn request(&mut self, kind: Kind, first: u64, data: &mut [Block]) -> Result<(), Failure> {
        let blocks = u16::try_from(data.len()).map_err(|_| Failure::Range)?;
        let request = Request::new(kind, first, blocks, self.data_blocks());
        let request = request.ok_or(Failure::Range)?;
        let ticket = self.store.submit(request).ok_or(Failure::Io(None))?;
        let mut bad = None;
        while let Some(action) = self.store.poll() {
            match action {
                Action::Answer { is_ok: true, .. } => return bad.map_or(Ok(()), Err),
                Action::Answer { .. } => return Err(Failure::Io(self.error.take())),
                action => bad = self.act(action, Some((ticket, request)), data).or(bad),
            }
        }
        Err(Failure::Io(None))
    }

    /// Does what the store wants; returns the failure of a check.
    fn act(
        &mut self,
        action: Action,
        current: Option<(Ticket, Request)>,
        data: &mut [Block],
    ) -> Option<Failure> {
        match action {
            Action::ReadPiBlock { slot, group } => {
                let at = self.volume.layout().pi_block(group).unwrap_or(u64::MAX);
                let result = self.device.read(at, self.pages.pi_block_mut(slot));
                let is_ok = self.note(result);
                self.store.pi_block_read(slot, is_ok);
            }
            Action::WriteRecord { head, fua } => {
                let mut block = [0; BLOCK_BYTES];
                let crc = self.volume.checksum();
                let record = self.store.fill(head, &self.pages, &mut block, crc);
                let at = self.volume.layout().record(head.sequence);
                let result = self.device.write(at, record, fua);
                let is_ok = self.note(result);
                self.store.record_written(is_ok);
            }
            // The unit is a block, so the part is all of it.
            Action::WriteBack {
                slot, group, fua, ..
            } => {
                let at = self.volume.layout().pi_block(group).unwrap_or(u64::MAX);
                let result = self.device.write(at, self.pages.pi_block(slot), fua);
                let is_ok = self.note(result);
                self.store.written_back(slot, is_ok);
            }
            Action::Flush => {
                let result = self.device.flush();
                let is_ok = self.note(result);
                self.store.flushed(is_ok);
            }
            Action::Data { ticket, fua } => {
                let (_, request) = current?;
                let result = self.transfer(&request, data, fua);
                let is_ok = self.store.needs_no_data(ticket, &self.pages) || self.note(result);
                self.store.data_done(ticket, is_ok, &mut self.pages);
                let is_read = is_ok && request.kind() == Kind::Read;
                return is_read
                    .then(|| self.check(ticket, &request, data))
                    .flatten();
            }
            Action::ReadBack(ticket) => {
                let (_, request) = current?;
                let crcs: Vec<_> = (request.first()..request.end())
                    .map(|block| self.volume.crc_of(&mut self.device, block))
                    .collect();
                let crc_of = |offset| crcs.get(usize::from(offset)).copied().flatten();
                self.store.settle(ticket, crc_of, &mut self.pages);
            }
            Action::Answer { .. } => {}
        }
        None
    }

    fn note(&mut self, result: io::Result<()>) -> bool {
        let is_ok = result.is_ok();
        self.error = self.error.take().or(result.err());
        is_ok
    }

    fn transfer(&mut self, request: &Request, data: &mut [Block], fua: bool) -> io::Result<()> {
        for (block, data) in (request.first()..request.end()).zip(data) {
            let (at, _) = self.volume.layout().data(block).unwrap_or((u64::MAX, 0));
            match request.kind() {
                Kind::Read => self.device.read(at, data)?,
                Kind::Write { .. } => self.device.write(at, data, fua)?,
                Kind::Discard | Kind::Flush => {}
            }
        }
        Ok(())
    }

    fn check(&self, ticket: Ticket, request: &Request, data: &mut [Block]) -> Option<Failure> {
        let mut first_bad = None;
        for (offset, data) in (0..request.blocks()).zip(data) {
            let crc = self.volume.checksum().crc64(data);
            match self.store.check(ticket, offset, crc, &self.pages) {
                (Verdict::Good, _) => {}
                (Verdict::Unwritten, _) => data.fill(0),
                (verdict, _) => {
                    let block = request.first().wrapping_add(offset.into());
                    first_bad = first_bad.or(Some(Failure::Protection { block, verdict }));
                }
            }
        }
        first_bad
    }
}
