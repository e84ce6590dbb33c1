// SPDX-License-Identifier: GPL-2.0

//! A device with a volatile cache. Power leaves any part of what is not durable, torn at 8 bytes.

use rioc::proto::medium::Io;
use seglog::{
    devices::Devices,
    layout::Layout,
    superblock::{
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    Checksum, //
};

use crate::random::Random;

const WORD: usize = 8;

#[derive(Clone)]
struct Write {
    io: Io,
    at: usize,
    bytes: Vec<u8>,
    /// Whether it is durable when it has ended.
    fua: bool,
    /// The place in the order of ends.
    number: u64,
}

#[derive(Clone)]
pub(crate) struct Disk {
    durable: Vec<u8>,
    /// Writes that have ended and are not flushed, in their order.
    cache: Vec<Write>,
    flying: Vec<Write>,
    /// Flushes, each with the number of the last write that it makes durable.
    flushes: Vec<(Io, u64)>,
    ended: u64,
}

pub(crate) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

impl Disk {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            durable: vec![0; bytes],
            cache: Vec::new(),
            flying: Vec::new(),
            flushes: Vec::new(),
            ended: 0,
        }
    }

    /// A write is on its way.
    pub(crate) fn begin(&mut self, io: Io, at: u64, bytes: &[u8], fua: bool) {
        self.flying.push(Write {
            io,
            at: at as usize,
            bytes: bytes.to_vec(),
            fua,
            number: 0,
        });
    }

    /// A flush is on its way, of what has ended before.
    pub(crate) fn begin_flush(&mut self, io: Io) {
        self.flushes.push((io, self.ended));
    }

    /// Ends a write or a flush, in any order. `is_slow`: flushes are the last; `flushes`: a flush
    /// does what it says.
    pub(crate) fn end_one(
        &mut self,
        random: &mut Random,
        is_slow: bool,
        flushes: impl Fn(Io) -> bool,
    ) -> Option<Io> {
        let flushing = if is_slow && !self.flying.is_empty() {
            0
        } else {
            self.flushes.len()
        };
        let all = self.flying.len() + flushing;
        if all == 0 {
            return None;
        }
        let chosen = random.below(all);
        if chosen >= self.flying.len() {
            let (io, end) = self.flushes.remove(chosen - self.flying.len());
            if flushes(io) {
                self.flush_up_to(end);
            }
            return Some(io);
        }
        let mut ended = self.flying.swap_remove(chosen);
        let io = ended.io;
        self.ended += 1;
        ended.number = self.ended;
        if ended.fua {
            self.durable[ended.at..ended.at + ended.bytes.len()].copy_from_slice(&ended.bytes);
        } else {
            self.cache.push(ended);
        }
        Some(io)
    }

    /// Returns how many writes are on their way.
    pub(crate) fn writes(&self) -> usize {
        self.flying.len()
    }

    fn flush_up_to(&mut self, end: u64) {
        let (flushed, rest) = self.cache.drain(..).partition(|write| write.number <= end);
        self.cache = rest;
        let flushed: Vec<Write> = flushed;
        for write in flushed {
            self.durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    pub(crate) fn flush_cache(&mut self) {
        for write in self.cache.drain(..) {
            self.durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    /// Reads what was written, also what is on its way.
    pub(crate) fn look(&self, at: u64, to: &mut [u8]) {
        let at = at as usize;
        to.copy_from_slice(&self.durable[at..at + to.len()]);
        for write in self.cache.iter().chain(&self.flying) {
            let start = at.max(write.at);
            let end = (at + to.len()).min(write.at + write.bytes.len());
            if start < end {
                to[start - at..end - at]
                    .copy_from_slice(&write.bytes[start - write.at..end - write.at]);
            }
        }
    }

    /// Damages the slot of the superblock that was written last.
    pub(crate) fn damage_newer_slot(&mut self) {
        let mut found: [_; SUPERBLOCK_BYTES] = [0; SUPERBLOCK_BYTES];
        let writes = [0, 1].map(|slot| {
            let at = Layout::slot(slot) as usize;
            found.copy_from_slice(&self.durable[at..at + SUPERBLOCK_BYTES]);
            Superblock::parse(&found, slot, &Crc).map_or(0, |found| found.writes)
        });
        let at = Layout::slot(u8::from(writes[1] > writes[0])) as usize;
        self.durable[at..at + 512].fill(0x77);
    }

    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        self.flushes.clear();
        let writes: Vec<_> = self.cache.drain(..).chain(self.flying.drain(..)).collect();
        for write in writes {
            let kind = random.below(4);
            for (number, word) in write.bytes.chunks(WORD).enumerate() {
                let is_there = match kind {
                    0 => false,
                    1 => true,
                    2 => random.below(2) == 0,
                    // The first part of it.
                    _ => number * 3 < write.bytes.len() / WORD,
                };
                if is_there {
                    let at = write.at + number * WORD;
                    self.durable[at..at + word.len()].copy_from_slice(word);
                }
            }
        }
    }
}

impl Devices for Disk {
    type Error = &'static str;

    fn bytes(&self, _member: usize) -> u64 {
        self.durable.len() as u64
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        assert_eq!(member, 0);
        self.look(at, to);
        Ok(())
    }

    fn write(
        &mut self,
        member: usize,
        at: u64,
        from: &[u8],
        fua: bool,
    ) -> Result<(), &'static str> {
        assert_eq!(member, 0);
        let (at, bytes) = (at as usize, from.to_vec());
        if fua {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        } else {
            self.cache.push(Write {
                io: Io::Dump,
                at,
                bytes,
                fua,
                number: self.ended,
            });
        }
        Ok(())
    }

    fn flush(&mut self, _member: usize) -> Result<(), &'static str> {
        self.flush_cache();
        Ok(())
    }
}
