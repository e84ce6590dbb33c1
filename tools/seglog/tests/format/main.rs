// SPDX-License-Identifier: GPL-2.0

//! Bytes on a member, what is refused, and the rules that need no crash.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod asked;
mod doubts;
mod epochs;
mod forced;
mod hostile;
mod liars;
mod members;
mod older;
mod order;
mod reading;
mod single;
mod tables;
mod unreadable;
mod vectors;

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    cursor::Cursor,
    identity::Device,
    layout::{
        Layout,
        Parts,
        Place, //
    },
    members::Members,
    superblock::{
        Start,
        Superblock, //
    },
    ArrayTag,
    Checksum, //
};

/// The checksum of the format.
pub(crate) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

/// Any bytes have this checksum.
pub(crate) struct Any;

impl Checksum for Any {
    fn crc32c(&self, _: &[u8]) -> u32 {
        0
    }
}

pub(crate) const TAG: ArrayTag = ArrayTag(0x0123_4567_89ab_cdef);

/// A device of 64 MiB with segments of 2 MiB.
pub(crate) fn layout() -> Layout {
    Layout::new(Parts {
        unit_bytes: 512,
        segment_units: 4096,
        segments: 30,
        page_bytes: 4096,
        entries: 20_000,
    })
    .unwrap()
}

pub(crate) fn head() -> Head {
    Head {
        kind: Kind::Striped,
        live: Members::ALL,
        used: Members::ALL,
        place: Place {
            segment: 4,
            unit: 9,
        },
        units: 3,
        sequence: 0x1_0000_0007,
        incarnation: 5,
        segment_sequence: 11,
        durable: 0x1_0000_0004,
        next: 6,
        previous: 0x0a0b_0c0d,
        bodies: [1, 2, 3],
    }
}

pub(crate) fn superblock() -> Superblock {
    let mut superblock = Superblock::new(([0x5a; 16], TAG), 2, layout(), 77);
    superblock.start = Start {
        generation: 3,
        area: 1,
        cursor: Cursor {
            segment: 4,
            unit: 12,
            next: 6,
            sequence: 9,
            segment_sequence: 11,
            incarnation: 0,
            previous: 13,
        },
    };
    superblock.devices[1] = Device { id: 0x77, since: 5 };
    superblock.with_epoch(superblock.epoch.without(78, Members::of(1)))
}
