// SPDX-License-Identifier: GPL-2.0

//! Objects as clients know them, and the operations that change them.

use std::collections::BTreeMap;

use super::{
    random::Random,
    rig::{
        id,
        sums,
        OnLog, //
    }, //
};
use crate::proto::{
    message::{
        Operation as Asked,
        Sums, //
    },
    span::{
        Span,
        BLOCK_BYTES, //
    },
};

/// The objects of a life, and their blocks at most.
pub(super) const OBJECTS: usize = 5;
const BLOCKS: usize = 120;

/// The content of all objects.
pub(super) type Objects = BTreeMap<u64, Vec<u8>>;

/// An operation that changes something.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(u64, u64, Vec<u8>),
    Truncate(u64, u64),
    Delete(u64),
    Copy(u64, (u64, u64), u64, u64),
    Snapshot(u64, u64),
}

fn resized(all: &mut Objects, object: u64, end: u64) -> &mut Vec<u8> {
    let bytes = all.entry(object).or_default();
    if bytes.len() < end as usize {
        bytes.resize(end as usize, 0);
    }
    bytes
}

impl Change {
    /// Makes one by chance.
    pub(super) fn any(random: &mut Random) -> Self {
        let (object, other) = (random.below(OBJECTS) as u64, random.below(OBJECTS) as u64);
        let block = random.below(BLOCKS) as u64 * BLOCK_BYTES;
        match random.below(20) {
            0 => Self::Truncate(object, block + random.below(3) as u64 * 1000),
            1 => Self::Delete(object),
            2 | 3 if object != other => Self::Snapshot(object, other),
            4..=6 if object != other => {
                let part = [0, 300][random.below(2)];
                let bytes = [BLOCK_BYTES, 9000, 1000][random.below(3)];
                let to = random.below(BLOCKS) as u64 * BLOCK_BYTES + part;
                Self::Copy(object, (block + part, bytes), other, to)
            }
            _ => {
                let len = [100, 4096, 5000, 20_000, 112 << 10][random.below(5)];
                let number = random.next();
                let byte = |at: u64| ((number >> (at % 50)) ^ (at / 8)) as u8;
                // A long write begins at a block: it has room for no edge more.
                let part = if len < 100_000 {
                    [0, 0, 77][random.below(3)]
                } else {
                    0
                };
                Self::Write(object, block + part, (0..len).map(byte).collect())
            }
        }
    }

    /// Returns the objects that it uses.
    pub(super) fn objects(&self) -> [u64; 2] {
        match *self {
            Self::Write(object, ..) | Self::Truncate(object, _) | Self::Delete(object) => {
                [object, object]
            }
            Self::Copy(from, _, to, _) | Self::Snapshot(from, to) => [from, to],
        }
    }

    /// Whether two of them use the same object.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let other = other.objects();
        self.objects().iter().any(|object| other.contains(object))
    }

    /// Returns what the objects are that it uses, when it is carried out.
    pub(super) fn after(&self, all: &Objects) -> Objects {
        let used = all
            .iter()
            .filter(|(object, _)| self.objects().contains(object));
        let used = used.map(|(object, bytes)| (*object, bytes.clone()));
        let mut after = used.collect();
        self.apply(&mut after);
        after
    }

    /// Carries it out; returns the errno of its answer.
    pub(super) fn apply(&self, all: &mut Objects) -> i32 {
        const ENOENT: i32 = 2;
        match self {
            Self::Write(object, at, bytes) => {
                let end = at + bytes.len() as u64;
                let to = resized(all, *object, end);
                to[*at as usize..end as usize].copy_from_slice(bytes);
            }
            Self::Truncate(object, size) => match all.get_mut(object) {
                Some(bytes) => bytes.resize(*size as usize, 0),
                None => return ENOENT,
            },
            Self::Delete(object) => {
                if all.remove(object).is_none() {
                    return ENOENT;
                }
            }
            Self::Copy(from, (at, bytes), to, offset) => {
                let Some(source) = all.get(from) else {
                    return ENOENT;
                };
                let (mut source, end) = (source.clone(), (at + bytes) as usize);
                source.resize(source.len().max(end), 0);
                let copied = source[*at as usize..end].to_vec();
                return Self::Write(*to, *offset, copied).apply(all);
            }
            Self::Snapshot(from, to) => {
                let Some(source) = all.get(from).cloned() else {
                    return ENOENT;
                };
                all.insert(*to, source);
            }
        }
        0
    }

    /// Sends it.
    pub(super) fn send(&self, server: &mut OnLog, of: (u32, u16), sequence: u64) -> u64 {
        let operation = match self {
            Self::Write(object, at, bytes) => {
                return server.write(of, sequence, (*object, *at), bytes);
            }
            Self::Truncate(object, size) => Asked::Truncate {
                object: id(*object),
                size: *size,
            },
            Self::Delete(object) => Asked::Delete {
                object: id(*object),
            },
            Self::Copy(from, (at, bytes), to, offset) => Asked::Copy {
                source: id(*from),
                span: Span::new(*at, *bytes).unwrap(),
                destination: id(*to),
                offset: *offset,
                creates: true,
            },
            Self::Snapshot(from, to) => Asked::Snapshot {
                source: id(*from),
                destination: id(*to),
                is_new: false,
            },
        };
        server.send(of, (sequence, 0), operation, &[])
    }
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) object: u64,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The answer of a read, as a client judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Bytes(Vec<u8>),
    /// The object is not there.
    Absent,
    /// The server, or the client by the CRC, has found that it is damaged.
    Damaged,
}

impl Look {
    /// Makes one by chance.
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            object: random.below(OBJECTS) as u64,
            at: random.below(500_000) as u64,
            bytes: random.below(60_000) as u64 + 1,
        }
    }

    /// Returns what is seen of an object with this content.
    pub(super) fn of(&self, content: Option<&Vec<u8>>) -> Seen {
        let Some(bytes) = content else {
            return Seen::Absent;
        };
        let end = bytes.len().min((self.at + self.bytes) as usize);
        let bytes = bytes.get(self.at as usize..end).unwrap_or_default();
        Seen::Bytes(bytes.to_vec())
    }

    /// Judges an answer.
    pub(super) fn judge(&self, answer: &kernel::Answer) -> Seen {
        use crate::proto::{
            answer::ReadHead,
            wire::READ_ANSWER_BYTES, //
        };
        match answer.errno {
            2 => return Seen::Absent,
            5 => return Seen::Damaged,
            errno => assert_eq!(errno, 0, "{self:?}"),
        }
        let span = Span::new(self.at, self.bytes).unwrap();
        let (head, data) = answer.data.split_at(READ_ANSWER_BYTES as usize);
        let head = ReadHead::parse(head, &span).unwrap();
        let data = &data[..head.bytes as usize];
        let Some(found) = Span::new(self.at, head.bytes.into()) else {
            return Seen::Bytes(Vec::new());
        };
        let is_right = sums(&found, data)
            .iter()
            .zip(head.sums)
            .all(|(a, b)| *a == b);
        match is_right {
            true => Seen::Bytes(data.to_vec()),
            false => Seen::Damaged,
        }
    }
}
