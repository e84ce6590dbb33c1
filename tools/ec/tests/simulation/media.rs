// SPDX-License-Identifier: GPL-2.0

//! Media that are damaged, block by block, and assembled again and again.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use seglog::{
    devices::Devices,
    members::Members, //
};

use crate::{
    member::SECTOR,
    random::Random, //
};

/// The bytes that are damaged at once.
pub(crate) const BLOCK: usize = 4096;
/// The bytes of heads of batches, superblocks and pages: a bit of a whole block hits them rarely.
const HEAD: u64 = 96;

/// The damage to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// One bit of it is another one.
    Bit,
    /// One bit of its first bytes is.
    BitOfHead,
    /// The bit at this place is.
    Flip(usize),
    /// Zeroes.
    Zeroes,
    /// Any bytes.
    Garbage,
    /// Gives an error to who reads it, until it is written again.
    Unreadable,
}

/// A block of a member.
pub(crate) type Spoilt = (usize, u64, Damage);

/// The media of the members, of which what is written is kept beside them.
pub(crate) struct Media<'a> {
    durable: &'a [Vec<u8>; 3],
    present: Members,
    over: BTreeMap<(usize, u64), [u8; SECTOR]>,
    bad: BTreeSet<(usize, u64)>,
    /// The blocks that were read.
    pub(crate) seen: BTreeSet<(usize, u64)>,
}

impl<'a> Media<'a> {
    pub(crate) fn new(durable: &'a [Vec<u8>; 3], present: Members) -> Self {
        Self {
            durable,
            present,
            over: BTreeMap::new(),
            bad: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Damages a block, unless nothing would change.
    pub(crate) fn damage(&mut self, (member, block, damage): Spoilt, random: &mut Random) {
        let start = block as usize * BLOCK;
        let mut bytes = self.durable[member][start..start + BLOCK].to_vec();
        let mut flip = |below: u64| {
            let bit = random.below(below * 8);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
        };
        match damage {
            Damage::Bit => flip(BLOCK as u64),
            Damage::BitOfHead => flip(HEAD),
            Damage::Flip(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
            Damage::Zeroes => bytes.fill(0),
            Damage::Garbage => bytes
                .iter_mut()
                .for_each(|byte| *byte = random.next() as u8),
            Damage::Unreadable => {
                let sectors = start / SECTOR..(start + BLOCK) / SECTOR;
                self.bad.extend(sectors.map(|n| (member, n as u64)));
                return;
            }
        }
        self.put(member, start as u64, &bytes);
    }

    fn put(&mut self, member: usize, at: u64, bytes: &[u8]) {
        for (n, part) in (at / SECTOR as u64..).zip(bytes.chunks(SECTOR)) {
            self.over.insert((member, n), part.try_into().unwrap());
            self.bad.remove(&(member, n));
        }
    }
}

impl Devices for Media<'_> {
    type Error = &'static str;

    fn bytes(&self, member: usize) -> u64 {
        self.durable[member].len() as u64
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        if !self.present.contains(member) {
            return Err("it is missing");
        }
        let end = at + to.len() as u64;
        for block in at / BLOCK as u64..end.div_ceil(BLOCK as u64) {
            self.seen.insert((member, block));
        }
        let sectors = (member, at / SECTOR as u64)..(member, end.div_ceil(SECTOR as u64));
        if self.bad.range(sectors.clone()).next().is_some() {
            return Err("it has a bad sector");
        }
        to.copy_from_slice(&self.durable[member][at as usize..end as usize]);
        for ((_, sector), bytes) in self.over.range(sectors) {
            let from = (sector * SECTOR as u64 - at) as usize;
            to[from..from + SECTOR].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], _: bool) -> Result<(), &'static str> {
        assert!(self.present.contains(member));
        self.put(member, at, from);
        Ok(())
    }

    fn flush(&mut self, _: usize) -> Result<(), &'static str> {
        Ok(())
    }
}
