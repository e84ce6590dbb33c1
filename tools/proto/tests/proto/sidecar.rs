// SPDX-License-Identifier: GPL-2.0

//! The sidecar: what is on the device, and the decisions. The order of its writes is tested by the
//! model of crashes in `tools/pi-sidecar`.

mod claim;
mod damage;
mod format;
mod growth;
mod online_scrub;
mod order;
mod record;
mod refused;
mod replay;
mod rest;
mod sets;

use proto::sidecar::{
    layout::Layout,
    record::{
        Builder,
        Entry,
        Head,
        Unit, //
    },
    superblock::{
        Superblock,
        Version,
        SUPERBLOCK_BYTES, //
    },
    tuple::Seal,
    Checksum,
    BLOCK_BYTES, //
};

/// A checksum that is enough for tests.
#[derive(Clone, Copy)]
pub(crate) struct Sum;

impl Checksum for Sum {
    fn crc64(&self, bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte))
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(3)
        })
    }
}

/// Any bytes have this checksum, as in the target `sidecar`.
struct Any;

impl Checksum for Any {
    fn crc64(&self, _: &[u8]) -> u64 {
        0
    }
}

/// Honest inputs of the target `sidecar`: a superblock; rings of two records, a quarter each, of
/// whole blocks and of sectors.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let layout = Layout::new(1024, 4).unwrap();
    let mut block = [0; BLOCK_BYTES];
    let uuid = [0; 16];
    let superblock = Superblock {
        uuid,
        version: Version::Two,
        layout,
    };
    superblock.write(&mut block, 0, &Any);
    let superblock = block[..SUPERBLOCK_BYTES].to_vec();
    let seal = Seal::new(&uuid, &Any);
    let record = |unit, sequence, first| {
        let mut block = [0; BLOCK_BYTES];
        let mut builder = Builder::new(&mut block, unit);
        let old = seal.unwritten(first);
        let new = seal.data(first, first, 0).unwrap();
        let blocks = 1;
        assert!(builder.push(&Entry {
            first,
            blocks,
            old,
            new
        }));
        let new = seal.unwritten(first + 1);
        let (first, blocks) = (first + 1, 3);
        assert!(builder.push(&Entry {
            first,
            blocks,
            old,
            new
        }));
        builder.finish(
            Head {
                sequence,
                tail: 5,
                flushed: 0,
                device_blocks: 0,
            },
            &seal,
            &Any,
        );
        block[..160].to_vec()
    };
    let none = vec![0; 160];
    let ring = |unit| {
        let (one, two) = (record(unit, 5, 7), record(unit, 6, 300));
        [none.clone(), one, two, none.clone()].concat()
    };
    let rings = [Unit::BLOCK, Unit::SECTOR].map(ring);
    [superblock].into_iter().chain(rings).collect()
}
