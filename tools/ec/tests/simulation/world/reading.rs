// SPDX-License-Identifier: GPL-2.0

//! Reads, with other events between their begin and their end.

use rnbd_ec::proto::{
    array::{
        Found,
        Looked, //
    },
    codec::Codec, //
};
use seglog::{
    members::Members,
    source::{
        self,
        Source, //
    },
};

use super::{
    content,
    Crc,
    Life, //
};
use crate::history::Version;

/// A read in flight.
pub(crate) struct Reading {
    found: Found,
    /// The version that was current when it began.
    then: Vec<Version>,
}

impl Life {
    pub(crate) fn begin_read(&mut self) {
        let index = self.random.below(self.blocks());
        let most = (1 + self.random.below(8)).min(self.history.blocks.len() as u64 - index);
        match self.array.begin_read(index, most as u32) {
            Looked::Zeroes(count) => {
                for block in index..index + u64::from(count) {
                    assert_eq!(
                        self.history.blocks[block as usize].current,
                        0,
                        "{}: block {block} is zeroes",
                        self.label()
                    );
                }
            }
            Looked::Found(found) => {
                let blocks = index as usize..(index as usize + found.count as usize);
                let then = self.history.blocks[blocks].iter().map(|b| b.current);
                let then = then.collect();
                self.reads.push(Reading { found, then });
            }
            Looked::Malformed => panic!("{}: block {index}", self.label()),
        }
    }

    pub(crate) fn end_read(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let place = self.random.below(self.reads.len() as u64) as usize;
        let Reading { found, then } = self.reads.swap_remove(place);
        let versions = self.by_any_way(&found);
        let is_current = self.array.is_current(&found);
        if versions.is_ok() && self.gives_less() {
            self.array.repair(&found, u64::from(self.step) * 1000);
        }
        self.array.end_read(&found);
        let versions = match versions {
            Ok(versions) => versions,
            // It has changed: its user looks it up again.
            Err(_) if !is_current => return,
            Err(_) if self.may_be_lost(found.index) => return,
            Err(why) => panic!("{}: {found:?}: {why}", self.label()),
        };
        for (n, (version, then)) in versions.into_iter().zip(then).enumerate() {
            let block = found.index as usize + n;
            assert!(
                self.history.may_read(block, then, version),
                "{}: block {block} gave {version}, not {then}",
                self.label()
            );
        }
    }

    /// Whether a member did not give what it should have, so that its segment is repaired: never,
    /// rarely, often or always, as lives differ.
    fn gives_less(&mut self) -> bool {
        match self.seed % 4 {
            0 => false,
            1 => self.random.below(10) == 0,
            2 => self.random.below(2) == 0,
            _ => true,
        }
    }

    /// Reads a block at once.
    pub(crate) fn read_now(&mut self, block: u64) -> Result<Version, String> {
        match self.array.begin_read(block, 1) {
            Looked::Zeroes(_) => Ok(0),
            Looked::Found(found) => {
                let versions = self.by_any_way(&found);
                self.array.end_read(&found);
                Ok(versions?[0])
            }
            Looked::Malformed => Err("its entry is malformed".into()),
        }
    }

    /// All members are in sync, and nothing is in flight: each block is read without any one of
    /// them.
    pub(crate) fn check_redundancy(&mut self) {
        for block in 0..self.history.blocks.len() as u64 {
            let Looked::Found(found) = self.array.begin_read(block, 1) else {
                continue;
            };
            self.array.end_read(&found);
            for missing in 0..3 {
                let usable = found.usable.minus(Members::of(missing));
                let found = Found { usable, ..found };
                let version = self.by_any_way(&found);
                let current = self.history.blocks[block as usize].current;
                assert_eq!(
                    version,
                    Ok(vec![current]),
                    "{}: block {block} without member {missing}: {found:?}",
                    self.label()
                );
            }
        }
    }

    fn by_any_way(&self, found: &Found) -> Result<Vec<Version>, String> {
        let usable = found.usable.and(self.array.usable(found.spot.segment));
        let mut ways = source::sources(&found.spot, usable);
        let versions = ways.find_map(|way| self.by_way(found, way));
        versions.ok_or_else(|| format!("no way of {usable:?}"))
    }

    fn by_way(&self, found: &Found, way: Source) -> Option<Vec<Version>> {
        let layout = self.array.layout();
        let at = source::at(&found.spot, layout);
        let unit = layout.unit_bytes() as u64;
        let skipped = (at % unit) as usize;
        let read = |member: usize| {
            let member = &self.members[member];
            let bytes = (skipped + found.spot.bytes).next_multiple_of(unit as usize);
            let mut bytes = vec![0; bytes];
            member.read(at - skipped as u64, &mut bytes);
            let is_read = member.can_read(at - skipped as u64, bytes.len());
            is_read.then(|| bytes[skipped..skipped + found.spot.bytes].to_vec())
        };
        let bytes = match way {
            Source::Member(member) => read(member)?,
            Source::Rebuild([one, other]) => {
                let (one, other) = (read(one)?, read(other)?);
                one.iter()
                    .zip(other)
                    .map(|(one, other)| one ^ other)
                    .collect()
            }
        };
        let (record, payload) = found.parse(&bytes, layout, &Crc)?;
        let codec = Codec::from_number(record.codec).unwrap();
        let blocks = content::decode(codec, payload, record.count);
        let wanted = blocks.into_iter().skip(found.spot.block as usize);
        let wanted = wanted.zip(found.index..).take(found.count as usize);
        let versions = wanted.map(|((block, version), index)| {
            assert_eq!(block as u64, index);
            version
        });
        Some(versions.collect())
    }
}
