// SPDX-License-Identifier: GPL-2.0

//! The tree that the server has: names and data are computed from numbers.

use vfs_ext::{
    Key,
    Kind, //
};

/// The number of the root.
pub(super) const ROOT: u64 = 1;
/// The number of the file that appears with the second generation.
pub(super) const LATE: u64 = 12;
/// The number of the file that may not be read.
pub(super) const DENIED: u64 = 13;
/// The number of the directory with many entries, and that of its first one.
const MANY: u64 = 6;
const MANY_FIRST: u64 = 10_000;
const MANY_COUNT: u64 = 5_000;

/// The bytes of the longest name.
pub(super) const ENTRY_NAME_BYTES: usize = 255;

/// The object that a number stands for.
#[derive(Clone, Copy)]
pub(super) enum Node {
    /// A file of so many bytes.
    File {
        /// See there.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// The path that it names.
        target: &'static str,
    },
}

impl Node {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::File { .. } => Kind::Regular,
            Self::Directory => Kind::Directory,
            Self::Link { .. } => Kind::Symlink,
        }
    }

    pub(super) fn permissions(self) -> u16 {
        match self {
            Self::File { .. } => 0o644,
            Self::Directory => 0o755,
            Self::Link { .. } => 0o777,
        }
    }

    pub(super) fn size(self) -> u64 {
        match self {
            Self::File { size } => size,
            Self::Directory => 4096,
            Self::Link { target } => target.len() as u64,
        }
    }
}

/// The entries of the root and of the directory in it.
const ENTRIES: [(u64, &str, u64, Node); 13] = [
    (ROOT, "big", 2, Node::File { size: 8 << 20 }),
    (ROOT, "odd", 3, Node::File { size: 1_000_003 }),
    (ROOT, "empty", 4, Node::File { size: 0 }),
    (ROOT, "small", 5, Node::File { size: 11 }),
    (ROOT, "many", MANY, Node::Directory),
    (
        ROOT,
        "link",
        7,
        Node::Link {
            target: "dir/inner",
        },
    ),
    (
        ROOT,
        "dangling",
        8,
        Node::Link {
            target: "nowhere/at all",
        },
    ),
    (ROOT, "dir", 9, Node::Directory),
    (9, "inner", 10, Node::File { size: 4097 }),
    (ROOT, "huge", 11, Node::File { size: 1 << 30 }),
    (ROOT, "late", LATE, Node::File { size: 5 }),
    (ROOT, "denied", DENIED, Node::File { size: 5 }),
    (
        ROOT,
        "a name with spaces, ü and \n",
        14,
        Node::File { size: 1 },
    ),
];

/// Returns what a number stands for.
pub(super) fn node(number: u64) -> Option<Node> {
    if number == ROOT {
        return Some(Node::Directory);
    }
    if (MANY_FIRST..MANY_FIRST + MANY_COUNT).contains(&number) {
        return Some(Node::File {
            size: number - MANY_FIRST,
        });
    }
    let (.., node) = ENTRIES.iter().find(|entry| entry.2 == number)?;
    Some(*node)
}

/// Writes the name of one of the many entries; every third one is of the greatest length.
fn many_name(index: u64, to: &mut [u8; ENTRY_NAME_BYTES]) -> &[u8] {
    let mut at = 0;
    let mut push = |byte: u8| {
        if let Some(slot) = to.get_mut(at) {
            *slot = byte;
            at += 1;
        }
    };
    b"entry ".iter().for_each(|byte| push(*byte));
    for divisor in [1000, 100, 10, 1] {
        // CAST: A digit.
        push(b'0' + (index / divisor % 10) as u8);
    }
    let fill = if index % 3 == 2 { ENTRY_NAME_BYTES } else { 0 };
    for _ in 0..fill {
        push(b'x');
    }
    to.get(..at).unwrap_or_default()
}

/// Returns the number that a name stands for.
pub(super) fn child(dir: u64, name: &[u8]) -> Option<u64> {
    if dir == MANY {
        let digits = name.get(6..10)?;
        let index = core::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
        let mut expected = [0; ENTRY_NAME_BYTES];
        let is_there = index < MANY_COUNT && many_name(index, &mut expected) == name;
        return is_there.then_some(MANY_FIRST + index);
    }
    ENTRIES
        .iter()
        .find(|entry| entry.0 == dir && entry.1.as_bytes() == name)
        .map(|entry| entry.2)
}

/// Returns the entry of a directory at a position, whose name may be in `buffer`.
pub(super) fn entry(
    dir: u64,
    at: u64,
    buffer: &mut [u8; ENTRY_NAME_BYTES],
) -> Option<(&[u8], u64)> {
    if dir == MANY {
        return (at < MANY_COUNT).then(|| (many_name(at, buffer), MANY_FIRST + at));
    }
    let (_, name, number, _) = ENTRIES
        .iter()
        .filter(|entry| entry.0 == dir)
        .nth(usize::try_from(at).ok()?)?;
    Some((name.as_bytes(), *number))
}

/// Writes the bytes of a file from `position` on: little-endian words, each computed from its
/// index, the number of the file and its generation.
pub(super) fn data(key: Key, position: u64, to: &mut [u8]) {
    for (at, byte) in (position..).zip(to) {
        let word = (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ key.number.rotate_left(48)
            ^ key.generation.rotate_left(56);
        // CAST: The lowest eight bits of the shifted word.
        *byte = (word >> (8 * (at % 8))) as u8;
    }
}
