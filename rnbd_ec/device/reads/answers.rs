// SPDX-License-Identifier: GPL-2.0

//! Checks the answers of members, and copies them into the request.

use kernel::prelude::*;
use kernel_ext::{
    lz4,
    xor::xor_into, //
};
use seglog::{
    members::member_of,
    source::{
        span,
        Source, //
    },
};

use super::{
    Piece,
    Reads, //
};
use crate::{
    device::{
        core::Core,
        engine::Engine,
        memory::Crc,
        stats::Stat, //
    },
    proto::{
        array::{
            Found,
            Repair, //
        },
        budget::REPAIRS_MAX,
        codec::{
            plain_bytes,
            Codec, //
        },
    },
};

impl Engine {
    /// A member has not given what another way gave.
    pub(super) fn repair(&mut self, core: &Core, found: &Found) {
        match self.array.repair(found, core.now_ms()) {
            Repair::Nothing | Repair::Begun => {}
            Repair::PutOff(exhausted) => {
                core.stats.add(Stat::PutOffRepairs, 1);
                if exhausted.is_new {
                    pr_warn!(
                        "{}: {REPAIRS_MAX} segments were repaired in a minute, more are later: \
                         replace the member that goes on to give other data, or errors\n",
                        core.name()
                    );
                }
            }
        }
    }

    /// Checks the record that was read, and copies its blocks into the request.
    pub(super) fn deliver(&mut self, number: usize, piece: &Piece) -> Option<()> {
        let layout = *self.array.layout();
        let (_, skipped, _) = span(&piece.found.spot, &layout);
        let Reads {
            pages,
            record,
            other,
            plain,
            ..
        } = &mut self.reads;
        let [first, second] = pages.get(number)?;
        let bytes = record.get_mut(..piece.found.spot.bytes)?;
        first.copy_out(skipped, bytes).ok()?;
        if let Source::Rebuild(_) = piece.way {
            let other = other.get_mut(..piece.found.spot.bytes)?;
            second.copy_out(skipped, other).ok()?;
            xor_into(bytes, other);
        }
        let (head, payload) = piece.found.parse(bytes, &layout, &Crc)?;
        let all = plain_bytes(head.count);
        let blocks = match Codec::from_number(head.codec).ok()? {
            Codec::Raw => payload,
            Codec::Lz4 => {
                let to = plain.get_mut(..all)?;
                let found = lz4::decompress(payload, to)?;
                to.get(..found)?
            }
        };
        if blocks.len() != all {
            return None;
        }
        let start = plain_bytes(piece.found.spot.block);
        let end = start.saturating_add(plain_bytes(piece.found.count));
        let blocks = blocks.get(start..end)?;
        let request = self.requests.get(piece.tag)?;
        let copied = request.sg_mut().copy_in(plain_bytes(piece.at), blocks);
        (copied.ok()? == blocks.len()).then_some(())
    }
}

/// Returns what is counted for a piece that was read.
pub(super) fn kind_of(piece: &Piece) -> Stat {
    match piece.way {
        Source::Rebuild(_) if piece.is_triggered && piece.tried == 1 => Stat::TriggeredReads,
        Source::Member(member) if is_own(piece, member) => Stat::DirectReads,
        _ => Stat::RecoveredReads,
    }
}

/// Whether a member has the column of a record itself.
fn is_own(piece: &Piece, member: usize) -> bool {
    let spot = &piece.found.spot;
    member_of(spot.segment, spot.column) == member
}
