// SPDX-License-Identifier: GPL-2.0

//! Media that are damaged when all is durable: what was flushed is read right, or is an error.
//!
//! Each block of each member is damaged in turn, and the array is assembled of all members and of
//! each two. What no assembly reads changes none, and what no record is in changes no read: so
//! assemblies and reads that cannot differ are left out, and the search is exhaustive nevertheless.

mod bits;
pub(crate) mod slots;

use rnbd_ec::proto::array::{
    Array,
    Looked, //
};
use seglog::{
    batch::Head,
    layout::Layout,
    members::Members,
    reading,
    record::Spot,
    source, //
};

use super::{
    assembling::assemble,
    content,
    Crc,
    Life,
    OnHost, //
};
use crate::{
    history::Version,
    media::{
        Damage,
        Media,
        Spoilt,
        BLOCK, //
    },
    random::Random, //
};

/// The end of a life before its media are damaged. All is durable, and was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Array that was stopped: the log has nothing to follow.
    Stopped,
    /// Power has failed, with some batches to follow.
    Crashed,
    /// Power has failed, and what was flushed at last is more than a segment.
    CrashedLater,
    /// Power has failed, and a member was missing before.
    Degraded,
    /// Power has failed, and a member had failed just before the last batch.
    DegradedLately,
    /// Power has failed, after more than a segment of lone writes, each on two members.
    Lone,
    /// Array that was stopped, and of which a member was missing before.
    DegradedAndStopped,
}

/// The blocks that are damaged at once, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One is something else.
    One,
    /// Blocks of two members at the same place are.
    Two,
    /// One cannot be read.
    Unreadable,
    /// Blocks of two members at the same place cannot.
    TwoUnreadable,
    /// One cannot be read, and that of another member at the same place is something else.
    Mixed,
}

/// The numbers of what was found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) assemblies: u64,
    pub(crate) refused: u64,
    /// Reads that were errors.
    pub(crate) errors: u64,
    /// Damages in batches of which no head says that they are durable, that have cut the log.
    pub(crate) cut: u64,
    pub(crate) wrong: Vec<String>,
}

/// Media, and what they have.
struct Ground {
    durable: [Vec<u8>; 3],
    expected: Vec<Version>,
    layout: Layout,
    /// The heads of batches.
    log: Vec<Head>,
    /// The last batch that a head calls durable.
    told: u64,
    /// The members that do not have all.
    stale: Members,
}

/// An assembly of media that are not damaged.
struct Whole {
    present: Members,
    array: Option<Array<OnHost>>,
    looked: Vec<Looked>,
    /// The blocks that it reads, and the one after it.
    seen: std::collections::BTreeSet<(usize, u64)>,
}

/// The answers of reads.
#[derive(Default)]
struct Reads {
    wrong: Vec<u64>,
    errors: u64,
}

impl Ground {
    fn assemble(&self, media: &mut Media<'_>, present: Members) -> Result<Array<OnHost>, String> {
        assemble(media, present, &mut Random::new(7))
    }

    fn look(&self, array: &mut Array<OnHost>) -> Vec<Looked> {
        let each = 0..self.expected.len() as u64;
        each.map(|index| {
            let looked = array.begin_read(index, 1);
            if let Looked::Found(found) = &looked {
                array.end_read(found);
            }
            looked
        })
        .collect()
    }

    /// Assembles what is not damaged.
    fn whole(&self, present: Members) -> Whole {
        let mut media = Media::new(&self.durable, present);
        let mut array = self.assemble(&mut media, present).ok();
        let mut looked = Vec::new();
        if let Some(array) = &mut array {
            looked = self.look(array);
            self.assemble(&mut media, present).unwrap();
        }
        let mut whole = Whole {
            present,
            array,
            looked,
            seen: std::mem::take(&mut media.seen),
        };
        let looked = whole.looked.clone();
        let reads = self.read(whole.array.as_mut(), &mut media, (&looked, &[], false));
        assert!(reads.wrong.is_empty() && reads.errors == 0);
        whole
    }

    /// Whether a block is one of those where a record is read.
    fn is_read(&self, spot: &Spot, blocks: &[Spoilt]) -> bool {
        let (start, _, len) = source::span(spot, &self.layout);
        let span = start / BLOCK as u64..(start + len as u64).div_ceil(BLOCK as u64);
        blocks.iter().any(|(_, block, _)| span.contains(block))
    }

    /// Reads what is not where it was `before`, and what is in damaged blocks.
    fn read(
        &self,
        array: Option<&mut Array<OnHost>>,
        media: &mut Media<'_>,
        (before, spoilt, some): (&[Looked], &[Spoilt], bool),
    ) -> Reads {
        let mut reads = Reads::default();
        let Some(array) = array else {
            return reads;
        };
        for (n, expected) in self.expected.iter().enumerate() {
            let looked = array.begin_read(n as u64, 1);
            if let Looked::Found(found) = &looked {
                array.end_read(found);
            }
            let is_there = match &looked {
                Looked::Found(found) => self.is_read(&found.spot, spoilt),
                _ => false,
            };
            if some && before.get(n) == Some(&looked) && !is_there {
                continue;
            }
            match self.version(looked, media) {
                Some(version) if version == *expected => {}
                Some(_) => reads.wrong.push(n as u64),
                None => reads.errors += 1,
            }
        }
        reads
    }

    fn version(&self, looked: Looked, media: &mut Media<'_>) -> Option<Version> {
        let found = match looked {
            Looked::Zeroes(_) => return Some(0),
            Looked::Malformed => return None,
            Looked::Found(found) => found,
        };
        let bytes = reading::record_bytes(&self.layout);
        let (mut to, mut other) = (vec![0; bytes], vec![0; bytes]);
        source::sources(&found.spot, found.usable).find_map(|way| {
            let memory = [&mut to[..], &mut other[..]];
            let read = reading::record(media, (&found.spot, way), memory, &self.layout).ok()?;
            let (record, payload) = found.parse(read, &self.layout, &Crc)?;
            let codec = rnbd_ec::proto::codec::Codec::from_number(record.codec).ok()?;
            let blocks = content::decode(codec, payload, record.count);
            let (block, version) = *blocks.get(found.spot.block as usize)?;
            assert_eq!(block as u64, found.index);
            Some(version)
        })
    }

    /// Whether a block is something else now, and of a batch that no head calls durable.
    fn is_untold(&self, (member, block, how): &Spoilt) -> bool {
        let is_of = |head: &Head| {
            let start = self.layout.at(head.place).unwrap();
            let end = start + head.column_bytes(&self.layout) as u64;
            let blocks = start / BLOCK as u64..end.div_ceil(BLOCK as u64);
            head.sequence > self.told && head.used.contains(*member) && blocks.contains(block)
        };
        *how != Damage::Unreadable && self.log.iter().any(is_of)
    }

    /// Damages blocks, and assembles and reads what is left.
    fn try_damage(&self, whole: &mut Whole, spoilt: &[Spoilt], tally: &mut Tally) {
        let mut media = Media::new(&self.durable, whole.present);
        for (n, one) in spoilt.iter().enumerate() {
            media.damage(*one, &mut Random::new(one.1 * 3 + n as u64));
        }
        let is_seen = |(member, block, _): &Spoilt| whole.seen.contains(&(*member, *block));
        if !spoilt.iter().any(is_seen) {
            let looked = whole.looked.clone();
            let with = (&looked[..], spoilt, true);
            let reads = self.read(whole.array.as_mut(), &mut media, with);
            return self.judge(Ok(reads), (whole.present, spoilt), tally);
        }
        // What an assembly has mended, and what it has not, is there at the next one too.
        let times = if whole.present == Members::ALL { 2 } else { 1 };
        for _ in 0..times {
            tally.assemblies += 1;
            let assembled = self.assemble(&mut media, whole.present);
            let reads = assembled.map(|mut array| {
                let with = (&whole.looked[..], spoilt, true);
                self.read(Some(&mut array), &mut media, with)
            });
            let is_refused = reads.is_err();
            self.judge(reads, (whole.present, spoilt), tally);
            if is_refused {
                break;
            }
        }
    }

    fn judge(
        &self,
        reads: Result<Reads, String>,
        (present, spoilt): (Members, &[Spoilt]),
        tally: &mut Tally,
    ) {
        // With two copies of all that is damaged nothing may be lost.
        let whole = Members::ALL.minus(self.stale);
        let damaged: Members = spoilt.iter().map(|(member, _, _)| *member).collect();
        let is_enough = whole.and(present).minus(damaged).count() >= 2;
        let label = || format!("{present:?} {spoilt:?}");
        match reads {
            Err(why) => {
                tally.refused += 1;
                if is_enough {
                    tally.wrong.push(format!("{} is refused: {why}", label()));
                }
            }
            Ok(reads) => {
                tally.errors += reads.errors;
                let is_cut = !is_enough && spoilt.iter().any(|one| self.is_untold(one));
                if !reads.wrong.is_empty() && is_cut {
                    tally.cut += 1;
                } else if !reads.wrong.is_empty() || is_enough && reads.errors > 0 {
                    let (wrong, errors) = (&reads.wrong, reads.errors);
                    let what = format!("{} wrong: {wrong:?}, {errors} errors", label());
                    tally.wrong.push(what);
                }
            }
        }
    }
}

impl Life {
    /// Lives, ends, and is damaged, at each place in turn.
    pub(crate) fn run_with_damages(mut self, end: End, extent: Extent) -> Tally {
        let ground = self.live(end);
        let mut tally = Tally::default();
        let blocks = (ground.layout.end_bytes() / BLOCK as u64).min(self.members[0].bytes() / 4096);
        let all = [0, 1, 2].map(Members::of);
        for missing in [Members::NONE].iter().chain(&all) {
            let present = Members::ALL.minus(*missing);
            let mut whole = ground.whole(present);
            for block in 0..blocks {
                for spoilt in ground.damages(block, extent) {
                    if spoilt
                        .iter()
                        .all(|(member, _, _)| present.contains(*member))
                    {
                        ground.try_damage(&mut whole, &spoilt, &mut tally);
                    }
                }
            }
        }
        tally
    }

    fn live(&mut self, end: End) -> Ground {
        self.fill();
        for step in 0..self.setting.steps {
            self.step = step;
            self.happen();
            self.settle();
        }
        let stale = self.end_life(end);
        self.ground(stale)
    }

    fn end_life(&mut self, end: End) -> Members {
        self.drain();
        self.stop();
        let stale = match end {
            End::Degraded | End::DegradedLately | End::DegradedAndStopped => {
                self.array.fail(1);
                Members::of(1)
            }
            _ => Members::NONE,
        };
        self.settle();
        self.drain();
        // More than two segments, of which nothing says that they are durable.
        let unflushed = if end == End::CrashedLater { 24 } else { 0 };
        for first in 0..unflushed {
            self.write_at(first * 16, 16, false);
            self.settle();
            self.drain();
        }
        let flushed = match end {
            End::Stopped | End::Lone => 0..0,
            // One that both members have to have.
            End::DegradedLately => 3..4,
            _ => 0..4,
        };
        let lone = if end == End::Lone { 90 } else { 0 };
        for block in 0..lone {
            self.write_at(block, 1, false);
            self.settle();
            self.drain();
            self.flush_all();
        }
        for first in flushed {
            self.write_at(first * 5, 1 + first * 3, false);
            self.settle();
            self.drain();
            self.flush_all();
        }
        if end == End::DegradedAndStopped {
            self.stop();
        }
        stale
    }

    pub(super) fn flush_all(&mut self) {
        self.flush();
        self.settle();
        self.drain();
        assert_eq!(self.flushes, 0);
    }

    /// Stops the array, as the driver does.
    fn stop(&mut self) {
        for round in 0..100 {
            if self.array.is_clean() {
                return;
            }
            self.flush_all();
            self.array.begin_dump();
            self.settle();
            self.drain();
            assert!(round < 99, "{}: it does not stop", self.label());
        }
    }

    fn ground(&mut self, stale: Members) -> Ground {
        for member in &mut self.members {
            member.flush();
        }
        let layout = *self.array.layout();
        let durable = [0, 1, 2].map(|member: usize| self.members[member].durable().to_vec());
        let blocks = self.history.blocks.iter();
        let mut ground = Ground {
            expected: blocks.map(|block| block.current).collect(),
            durable,
            layout,
            log: Vec::new(),
            told: 0,
            stale,
        };
        ground.log = ground.heads(self.array.tag());
        let told = ground.log.iter().map(|head| head.durable).max();
        ground.told = told.unwrap_or_default();
        ground
    }
}

impl Ground {
    /// Returns the heads of all batches that are on the members.
    fn heads(&self, tag: seglog::ArrayTag) -> Vec<Head> {
        let parts = self.layout.parts();
        let mut found = Vec::new();
        for segment in 0..parts.segments {
            for unit in 0..parts.segment_units {
                let place = seglog::layout::Place { segment, unit };
                let at = self.layout.at(place).unwrap() as usize;
                let heads = self.durable.iter().filter_map(|medium| {
                    Head::parse(&medium[at..], place, (&self.layout, tag), &Crc)
                });
                found.extend(heads.map(|(head, _)| head).max_by_key(|head| head.sequence));
            }
        }
        found
    }

    /// Returns the ways in which a block, of any one or of any two members, is damaged: all of them
    /// where heads, superblocks and pages are, else one.
    fn damages(&self, block: u64, extent: Extent) -> Vec<Vec<Spoilt>> {
        let whole = [Damage::Zeroes, Damage::Garbage][block as usize % 2];
        let all = [Damage::Bit, Damage::BitOfHead, whole];
        let is_telling = block < self.layout.segment(0) / BLOCK as u64 || self.has_head(block);
        let turn = (block % 3) as usize;
        let hows = match extent {
            Extent::Unreadable | Extent::TwoUnreadable => &[Damage::Unreadable][..],
            _ if is_telling => &all[..],
            _ => &all[turn..=turn],
        };
        let of = |member: usize, how| (member % 3, block, how);
        let each = hows.iter().flat_map(|how| {
            (0..6).filter_map(move |n| {
                let (one, other) = (n % 3, n % 3 + 1 + n / 3);
                match extent {
                    Extent::Mixed => Some(vec![of(one, Damage::Unreadable), of(other, *how)]),
                    _ if n >= 3 => None,
                    Extent::One | Extent::Unreadable => Some(vec![of(one, *how)]),
                    Extent::Two | Extent::TwoUnreadable => {
                        Some(vec![of(one, *how), of(other, *how)])
                    }
                }
            })
        });
        each.collect()
    }

    fn has_head(&self, block: u64) -> bool {
        let mut each = self.log.iter();
        each.any(|head| self.layout.at(head.place).unwrap() / BLOCK as u64 == block)
    }
}
