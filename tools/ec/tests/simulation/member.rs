// SPDX-License-Identifier: GPL-2.0

//! A member: a medium, a volatile cache before it, and IOs in flight.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use rnbd_ec::proto::array::Io;

use crate::random::Random;

pub(crate) const SECTOR: usize = 512;

/// The operation of an IO in flight.
#[derive(Clone)]
pub(crate) enum Does {
    Write {
        at: u64,
        bytes: Vec<u8>,
        fua: bool,
    },
    /// The writes that were in the cache when it began.
    Flush(BTreeMap<u64, (u64, Vec<u8>)>),
}

/// An IO in flight.
#[derive(Clone)]
pub(crate) struct InFlight {
    pub(crate) io: Io,
    does: Does,
}

/// A member.
#[derive(Clone)]
pub(crate) struct Member {
    medium: Vec<u8>,
    /// Sectors that are not durable yet, with the number of their write.
    cache: BTreeMap<u64, (u64, Vec<u8>)>,
    writes: u64,
    pub(crate) in_flight: Vec<InFlight>,
    /// Whether it answers with errors.
    pub(crate) is_dead: bool,
    /// Sectors that cannot be read until they are written again.
    bad: BTreeSet<u64>,
}

impl Member {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            medium: vec![0; bytes as usize],
            cache: BTreeMap::new(),
            writes: 0,
            in_flight: Vec::new(),
            is_dead: false,
            bad: BTreeSet::new(),
        }
    }

    /// A sector cannot be read any more, until it is written.
    pub(crate) fn spoil(&mut self, at: u64) {
        self.bad.insert(at / SECTOR as u64);
    }

    /// All sectors can be read again.
    pub(crate) fn mend(&mut self) {
        self.bad.clear();
    }

    /// Whether bytes can be read.
    pub(crate) fn can_read(&self, at: u64, bytes: usize) -> bool {
        let sectors = at / SECTOR as u64..(at + bytes as u64).div_ceil(SECTOR as u64);
        !self.is_dead && self.bad.range(sectors).next().is_none()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.medium.len() as u64
    }

    /// Returns the medium, when all is durable.
    pub(crate) fn durable(&self) -> &[u8] {
        assert!(self.cache.is_empty() && self.in_flight.is_empty());
        &self.medium
    }

    pub(crate) fn begin_write(&mut self, io: Io, at: u64, bytes: Vec<u8>, fua: bool) {
        assert!(bytes.len() % SECTOR == 0 && at % SECTOR as u64 == 0);
        let does = Does::Write { at, bytes, fua };
        self.in_flight.push(InFlight { io, does });
    }

    pub(crate) fn begin_flush(&mut self, io: Io) {
        let does = Does::Flush(self.cache.clone());
        self.in_flight.push(InFlight { io, does });
    }

    /// Ends an IO in flight; returns it, and whether it ended well.
    pub(crate) fn end(&mut self, place: usize) -> (Io, bool) {
        let ended = self.in_flight.swap_remove(place);
        if self.is_dead {
            return (ended.io, false);
        }
        match ended.does {
            Does::Write { at, bytes, fua } => self.write(at, &bytes, fua),
            Does::Flush(cached) => self.make_durable(cached),
        }
        (ended.io, true)
    }

    fn make_durable(&mut self, cached: BTreeMap<u64, (u64, Vec<u8>)>) {
        for (sector, (write, bytes)) in cached {
            let at = sector as usize * SECTOR;
            // A later write of it may be on the medium already, by its FUA.
            if self.cache.get(&sector).is_none_or(|(now, _)| *now >= write) {
                let is_newest = self
                    .cache
                    .get(&sector)
                    .is_some_and(|(now, _)| *now == write);
                if is_newest {
                    self.medium[at..at + SECTOR].copy_from_slice(&bytes);
                    self.cache.remove(&sector);
                }
            }
        }
    }

    /// A write reaches the cache, or with `fua` the medium.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8], fua: bool) {
        for (n, part) in bytes.chunks(SECTOR).enumerate() {
            let sector = at / SECTOR as u64 + n as u64;
            self.writes += 1;
            self.bad.remove(&sector);
            if fua {
                let at = sector as usize * SECTOR;
                self.medium[at..at + SECTOR].copy_from_slice(part);
                self.cache.remove(&sector);
            } else {
                self.cache.insert(sector, (self.writes, part.to_vec()));
            }
        }
    }

    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        for (n, part) in to.chunks_mut(SECTOR).enumerate() {
            let sector = at / SECTOR as u64 + n as u64;
            match self.cache.get(&sector) {
                Some((_, bytes)) => part.copy_from_slice(bytes),
                None => {
                    let at = sector as usize * SECTOR;
                    part.copy_from_slice(&self.medium[at..at + part.len()]);
                }
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        let cached = self.cache.clone();
        self.make_durable(cached);
    }

    /// Its cache is lost, and goes on being used.
    pub(crate) fn lose_cache(&mut self) {
        self.cache.clear();
    }

    /// Exchanges its cache for another one.
    pub(crate) fn exchange_cache(&mut self, other: &mut BTreeMap<u64, (u64, Vec<u8>)>) {
        std::mem::swap(&mut self.cache, other);
    }

    /// Power fails: of each sector that is not durable the medium has the old or a new content.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        for flying in std::mem::take(&mut self.in_flight) {
            let Does::Write { at, bytes, .. } = flying.does else {
                continue;
            };
            if self.is_dead {
                continue;
            }
            for (n, part) in bytes.chunks(SECTOR).enumerate() {
                if random.below(2) == 0 {
                    self.write(at + (n * SECTOR) as u64, part, false);
                }
            }
        }
        for (sector, (_, bytes)) in std::mem::take(&mut self.cache) {
            if random.below(2) == 0 {
                let at = sector as usize * SECTOR;
                self.medium[at..at + SECTOR].copy_from_slice(&bytes);
            }
        }
    }
}
