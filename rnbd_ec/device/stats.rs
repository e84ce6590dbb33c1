// SPDX-License-Identifier: GPL-2.0

//! Counts of what an array has done, for its users.

use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

/// A number that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stat {
    /// Requests to read.
    Reads,
    /// Requests to write, and of zeroes.
    Writes,
    /// Flushes.
    Flushes,
    /// Bytes that were written by users.
    WrittenBytes,
    /// Bytes of their records.
    StoredBytes,
    /// Batches, those of the collector too.
    Batches,
    /// Batches that are mirrors.
    Mirrors,
    /// Bytes written to members by batches.
    MemberBytes,
    /// Records that were read from their member.
    DirectReads,
    /// Records that were read from a copy or rebuilt, as their member is not there or gave
    /// something else.
    RecoveredReads,
    /// Records that were rebuilt as `recover_every_n` asks for it.
    TriggeredReads,
    /// Records whose member was slow, so that the others were read.
    HedgedReads,
    /// Reads of records that gave something else than was written.
    WrongReads,
    /// Segments that were collected, all of them, as a member did not give what was written.
    Repairs,
    /// Reads after which none was collected for that, as too many were lately.
    PutOffRepairs,
    /// Reads that no member could answer.
    LostReads,
    /// Segments that were collected.
    Collected,
    /// Bytes of records that were moved.
    MovedBytes,
    /// Failures of members.
    Failures,
    /// Members that came back.
    Returns,
}

/// All of them, with their names in `stats`.
pub(super) const STATS: [(Stat, &str); 20] = [
    (Stat::Reads, "reads"),
    (Stat::Writes, "writes"),
    (Stat::Flushes, "flushes"),
    (Stat::WrittenBytes, "written_bytes"),
    (Stat::StoredBytes, "stored_bytes"),
    (Stat::Batches, "batches"),
    (Stat::Mirrors, "mirrored_batches"),
    (Stat::MemberBytes, "member_bytes"),
    (Stat::DirectReads, "direct_reads"),
    (Stat::RecoveredReads, "recovered_reads"),
    (Stat::TriggeredReads, "triggered_reads"),
    (Stat::HedgedReads, "hedged_reads"),
    (Stat::WrongReads, "wrong_reads"),
    (Stat::Repairs, "repaired_segments"),
    (Stat::PutOffRepairs, "put_off_repairs"),
    (Stat::LostReads, "lost_reads"),
    (Stat::Collected, "collected_segments"),
    (Stat::MovedBytes, "moved_bytes"),
    (Stat::Failures, "member_failures"),
    (Stat::Returns, "member_returns"),
];

/// The numbers. Only one thread at a time counts.
#[derive(Default)]
pub(super) struct Stats([AtomicU64; STATS.len()]);

impl Stats {
    /// Counts.
    pub(super) fn add(&self, stat: Stat, n: u64) {
        if let Some(count) = self.0.get(stat as usize) {
            count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// Returns a number.
    pub(super) fn get(&self, stat: Stat) -> u64 {
        let count = self.0.get(stat as usize);
        count.map_or(0, |count| count.load(Relaxed))
    }
}
