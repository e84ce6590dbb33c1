// SPDX-License-Identifier: GPL-2.0

//! Superblocks and heads of which one bit is another one, bit by bit: their CRC has to tell, as
//! most of what they say is possible in any case.

use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    layout::{
        Layout,
        SLOTS, //
    },
    members::Members,
    superblock::SUPERBLOCK_BYTES, //
};

use super::{
    End,
    Life,
    Tally, //
};
use crate::media::{
    Damage,
    BLOCK, //
};

/// The bytes of a superblock that say something, and its CRC.
const SAYING: [std::ops::Range<usize>; 2] = [0..192, 508..SUPERBLOCK_BYTES];
/// The last batches of segments, which say where the log goes on.
const HEADS: usize = 2;
/// One bit of so many is changed, which are never the same ones of bytes that follow each other.
const STRIDE: usize = 15;

impl Life {
    /// Lives, ends, and has one bit after the other changed, on each member.
    pub(crate) fn run_with_bits(mut self, end: End) -> Tally {
        let mut ground = self.live(end);
        ground.log.sort_by_key(|head| head.sequence);
        let slots = (0..SLOTS).flat_map(|slot| SAYING.map(|bytes| (Layout::slot(slot), bytes)));
        let is_last = |pair: &&[Head]| pair[0].place.segment != pair[1].place.segment;
        let heads = ground.log.windows(2).rev().filter(is_last).take(HEADS);
        let heads = heads.map(|pair| pair[0]);
        let heads = heads.map(|head| (ground.layout.at(head.place).unwrap(), 0..HEAD_BYTES));
        let mut places = Vec::new();
        for (at, bytes) in slots.chain(heads) {
            let first = (at as usize % BLOCK + bytes.start) * 8;
            let bits = first..first + bytes.len() * 8;
            places.extend(bits.step_by(STRIDE).map(|bit| (at / BLOCK as u64, bit)));
        }
        let mut tally = Tally::default();
        let missing = [0, 1, 2].map(Members::of);
        for missing in std::iter::once(Members::NONE).chain(missing) {
            let present = Members::ALL.minus(missing);
            let mut whole = ground.whole(present);
            for (block, bit) in &places {
                for member in present.iter() {
                    let spoilt = [(member, *block, Damage::Flip(*bit))];
                    ground.try_damage(&mut whole, &spoilt, &mut tally);
                }
            }
        }
        tally
    }
}
