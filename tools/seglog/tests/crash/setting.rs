// SPDX-License-Identifier: GPL-2.0

//! Steps of the application, and the size of its world.

use seglog::{
    batch::Kind,
    layout::{
        Layout,
        Parts, //
    },
    members::Members,
};

/// The blocks of the array.
pub(crate) const BLOCKS: usize = 6;
/// The bytes of a unit: of a head, and of one record with a payload of 8 bytes.
pub(crate) const UNIT_BYTES: u32 = 128;

/// The version of a block; 0 is zeroes.
pub(crate) type Version = u16;
/// Versions of all blocks.
pub(crate) type Versions = [Version; BLOCKS];

/// The content of a version.
pub(crate) fn payload(version: Version) -> [u8; 8] {
    (u64::from(version) * 0x0001_0001_0001_0001).to_le_bytes()
}

/// The version of a content; `Version::MAX` if it is none.
pub(crate) fn version_of(bytes: &[u8]) -> Version {
    let known = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let version = (known & 0xffff) as Version;
    if bytes == payload(version) {
        version
    } else {
        Version::MAX
    }
}

/// A step of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A batch, with these blocks in its data columns.
    Write(Kind, [Option<usize>; 2]),
    /// A mirror with one record of this block and the next one.
    Pair(usize),
    /// A batch that discards a block.
    Zero(usize),
    Flush,
    /// A dump of the table.
    Dump,
}

/// A lone small write.
pub(crate) const fn mirror(block: usize) -> Op {
    Op::Write(Kind::Mirror, [Some(block), None])
}

/// A batch over both columns.
pub(crate) const fn striped(one: usize, other: usize) -> Op {
    Op::Write(Kind::Striped, [Some(one), Some(other)])
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) layout: Layout,
    /// Steps between two assemblies.
    pub(crate) mounts: Vec<Vec<Op>>,
    /// Failures of members in one run of the application, at most.
    pub(crate) failures: u8,
    /// Returns of members that have failed, or were absent, at most.
    pub(crate) returns: u8,
    /// A new device may take its place.
    pub(crate) replaces: bool,
    /// Steps of collecting, beside those that a batch waits for.
    pub(crate) moves: u8,
    /// A member may lose its cache and go on.
    pub(crate) lost_caches: bool,
    /// Blocks are read, too, as long as it takes.
    pub(crate) reads: bool,
    /// A batch that waits for a segment begins a flush, or a dump.
    pub(crate) frees: bool,
    /// The members of the first assembly; each set if it is `None`.
    pub(crate) first: Option<Members>,
    /// IOs end in the order in which they began, and nothing else begins meanwhile.
    pub(crate) in_order: bool,
    /// Runs of the application in which the power fails.
    pub(crate) crashes: usize,
    /// Writes of a place are torn.
    pub(crate) torn: bool,
    /// The application goes on after an assembly that was cut off before, too.
    pub(crate) goes_on_after_cuts: bool,
    /// Assemblies that are cut off before the next one is let through.
    pub(crate) cuts: usize,
}

impl Setting {
    pub(crate) fn new(mounts: &[&[Op]]) -> Self {
        Self {
            layout: layout(12, 3),
            mounts: mounts.iter().map(|ops| ops.to_vec()).collect(),
            failures: 0,
            returns: 0,
            replaces: false,
            moves: 0,
            lost_caches: false,
            reads: false,
            frees: false,
            first: None,
            in_order: false,
            crashes: usize::MAX,
            torn: false,
            goes_on_after_cuts: false,
            cuts: 1,
        }
    }
}

/// A layout of so many segments.
pub(crate) fn layout(segments: u32, segment_units: u32) -> Layout {
    let parts = Parts {
        unit_bytes: UNIT_BYTES,
        segment_units,
        segments,
        page_bytes: UNIT_BYTES,
        entries: BLOCKS as u64,
    };
    Layout::new(parts).unwrap()
}
