// SPDX-License-Identifier: GPL-2.0

//! Any bytes as a superblock, as the ring of the journal, as a PI block: with checksums that are
//! right, since a checksum keeps nobody out who can compute it.

use proto::sidecar::{
    group,
    layout::Layout,
    record::ENTRIES_MAX,
    replay::{
        self,
        Live,
        Mention,
        Outcome, //
    },
    scrub::Scrub,
    superblock::Superblock,
    tuple::Seal,
    Block,
    Checksum,
    BLOCK_BYTES, //
};

/// Any bytes have this checksum.
struct Any;

impl Checksum for Any {
    fn crc64(&self, _: &[u8]) -> u64 {
        0
    }
}

const SLOTS: u32 = 4;

/// Fills a block from the front of `bytes`.
fn block(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().zip(bytes) {
        *to = *from;
    }
    block
}

/// Superblock, journal and PI blocks of any bytes: what is accepted keeps its invariants.
pub(crate) fn sidecar(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::parse(&block(bytes), 0, u64::MAX, &Any) {
        let layout = superblock.layout;
        let last = layout.data_blocks() - 1;
        let (at, run) = layout.data(last).unwrap();
        assert!(at < layout.device_blocks() && run == 1);
        let pi_block = layout.pi_block(group::place(last).0);
        assert!(pi_block.unwrap() < layout.copy());
        let mut written = [0; BLOCK_BYTES];
        superblock.write(&mut written, 0, &Any);
        let again = Superblock::parse(&written, 0, u64::MAX, &Any);
        assert_eq!(again, Ok(superblock));
    }
    replay_any(bytes);
}

fn replay_any(bytes: &[u8]) {
    let layout = Layout::new(1024, SLOTS).unwrap();
    let seal = Seal::new(&[0; 16], &Any);
    // Records are short here, so that their parts are in reach: each has a fourth of the bytes.
    let pieces = bytes.chunks((bytes.len() / 4).max(1));
    let mut ring: Vec<Block> = pieces.take(4).map(block).collect();
    ring.resize(4, [0; BLOCK_BYTES]);
    let Some(live) = Live::find(&ring, &layout, &seal, &Any) else {
        return;
    };
    let mut all = vec![Mention::default(); ENTRIES_MAX * ring.len()];
    let (list, missing) = live.list(&ring, &layout, &seal, &Any, &mut all);
    assert!(missing < SLOTS);
    let mut outcome = Outcome::default();
    let mut scrub = Scrub::default();
    for mentions in replay::by_group(list) {
        let group = mentions.first().map_or(u64::MAX, Mention::group);
        assert!(layout.pi_block(group).is_some());
        let mut pi_block = block(bytes);
        outcome.settle_group(mentions, &mut pi_block, &seal, |block| {
            assert!(layout.data(block).is_some());
            Some(block)
        });
        scrub.check(&pi_block, &seal, 0, Some, |_, _| {});
    }
    let settled = outcome.newest + outcome.older + outcome.torn + outcome.unreadable;
    assert!(list.is_empty() || settled != 0);
}
