// SPDX-License-Identifier: GPL-2.0

//! Exhaustive crash model of the sidecar, over the kernel's own code (`rnbd/sidecar`).
//!
//! A small device with a journal of four slots runs a few requests in every order in which its
//! IO can end. In each state the power fails: each part of each write that is not durable is there
//! or is not, or an older one is. The journal is replayed; in each state of the replay the
//! power fails again. Then every block must have one of the contents that it may have: nothing
//! older than what was flushed, no mixture, and no error where one whole content is there.
//!
//! A device that grows does so at any time, among requests: after a crash it has the old size or
//! the new one, and a repair from the copy of its superblock leads to one of them, too.
//!
//! All is done with records of each kind: whole blocks, in version 1; sectors, of which one is
//! enough here; and units of 64 bytes, so that records have two or three, which are torn apart, in
//! slots that have longer and shorter ones from before.
//!
//! The same model finds each of the mistakes in [`Mistake`].

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod disk;
mod explore;
mod faults;
mod growth;
mod recover;
mod scenarios;
mod setting;
mod world;

/// A mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The device does not flush when the store wants it.
    FlushLeftOut,
    /// Records are not written with FUA.
    RecordWithoutFua,
    /// The data do not wait for the record.
    DataBeforeRecord,
    /// Tuples are in memory, and may be written back, before their record is durable.
    PiBlockBeforeRecord,
    /// Records say that all before them are settled.
    TailTooNew,
    /// A replay does not flush before it writes the mark.
    MarkBeforePiBlocks,
    /// The device does not flush before the superblock of a growth.
    GrowthFlushLeftOut,
    /// The superblock of a growth, and its copy, are not written with FUA.
    SuperblockWithoutFua,
    /// Requests use the new space before the superblock is durable.
    SpaceBeforeSuperblock,
    /// The CRC of a record leaves out the first unit, which has the sequence number.
    FirstUnitUncovered,
    /// The CRC of a record leaves out the units between the first and the last one. (A CRC that
    /// leaves out the rest of the last one, in which it stands, is no mistake as long as units are
    /// not torn.)
    UnitsBetweenUncovered,
    /// The first sector with changed tuples is written of a PI block, and the others are not.
    LastSectorLeftOut,
    /// The last unit of a record is not written.
    LastUnitLeftOut,
    /// Records do not say which data are durable.
    FlushesNotTold,
    /// Records say of data that they are durable before they are.
    FlushesToldTooEarly,
    /// Records do not say how large the device is.
    SizeNotTold,
    /// The first one of the entries of a block says what was there before, and the others do not.
    OldTuplesLeftOut,
}
