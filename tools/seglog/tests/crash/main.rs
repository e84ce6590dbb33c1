// SPDX-License-Identifier: GPL-2.0

//! Exhaustive crash model of the log of segments, over the kernel's own code (`lib/seglog/`).
//!
//! Three members with volatile caches. Batches in a window end in every order, a member fails or
//! loses its cache at any time, and in each state the power fails: each part of each write that is
//! not durable is there or is not. Then the array is assembled from all members, and from each two
//! of them; in each state of the assembly the power fails again; what was absent or stale returns
//! in the next one. What is read afterwards must be the state after one batch that was issued, none
//! older than the last flush; and what one assembly has found the next one finds, too.
//!
//! The same model finds each of the mistakes in [`Mistake`].

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod assembly;
mod disk;
mod errors;
mod forced;
mod history;
mod line;
mod random;
mod scenarios;
mod search;
mod setting;
mod world;
mod worlds;

/// A mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A batch is acknowledged when one member has it.
    AcknowledgedByOne,
    /// Batches that a member which has failed lacks are acknowledged before the epoch without it is
    /// durable.
    EpochNotWaitedFor,
    /// A member that has failed is not said to have failed.
    FailureIgnored,
    /// The epoch of the highest incarnation is taken.
    HighestEpoch,
    /// The columns of a stale member are used.
    StaleMemberUsed,
    /// Superblocks are not written with FUA.
    SuperblockWithoutFua,
    /// Superblocks are always written to the same slot.
    OneSlot,
    /// Columns that accepted batches lack are not written.
    CompletionLeftOut,
    /// Batches that were accepted are not flushed.
    CommitFlushLeftOut,
    /// The first batch of an incarnation is not flushed.
    OpenFlushLeftOut,
    /// A flush is acknowledged when it begins.
    FlushNotWaitedFor,
    /// A flush covers batches that are in flight.
    FlushCoversInFlight,
    /// One member is not flushed.
    OneMemberNotFlushed,
    /// A flush that fails since the member has lost its cache does not count as a failure.
    LostCacheIgnored,
    /// The CRC of bodies is not checked.
    BodyCrcLeftOut,
    /// The parity column has no parity.
    ParityLeftOut,
    /// Members are not flushed before the superblocks of a dump.
    DumpFlushLeftOut,
    /// The start of the log is noted at the end of a dump.
    DumpStartTooNew,
    /// Dumps are all written to the same area.
    OneArea,
    /// A segment is written again before the batch that has emptied it is durable.
    ReusedBeforeFlush,
    /// A segment is written again while it is read.
    ReusedWhileRead,
    /// A segment is written again that the log is still followed through.
    ReusedBeforeDump,
    /// Writes take the segments that collecting needs.
    ReserveForgotten,
    /// A record is moved although its block is being written.
    MovedOverWrite,
    /// All records of a segment are moved.
    DeadMoved,
    /// A head that an older incarnation has left is taken for the batch that is collected.
    OlderHeadCollected,
    /// A segment is not kept while it is collected.
    CollectedUnread,
    /// A member that has failed is said to have what was in its cache.
    CacheKept,
    /// A dump goes on with what it says of a member that has failed.
    DumpNotBegunAgain,
    /// A member is in sync before others' columns were moved.
    JoinedBeforeCollected,
    /// A member is in sync without a dump.
    JoinedBeforeDump,
    /// A member that returns is not told first that it has failed.
    ReturnedUntold,
    /// A member that returns is not flushed before its superblock is read.
    ReturnedUnflushed,
    /// A batch is acknowledged that a member which returns does not have.
    ReturningNotWaitedFor,
    /// A member is taken back while a write is on its way to it.
    TakenBackWithIo,
    /// A new device is taken for the one whose place it takes.
    NewDeviceTakenForTheOld,
    /// The device that was replaced is taken for the one that has replaced it.
    OldDeviceTakenForTheNew,
}
