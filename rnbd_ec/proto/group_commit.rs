// SPDX-License-Identifier: GPL-2.0

//! Decides when writes that wait become a batch.
//!
//! A batch costs a head, two or three IOs of members and the parity, however little it holds.
//! Writes that come while batches are in flight therefore wait for others, but never longer than
//! for these: batches are acknowledged in order, so a write cannot end before them in any case.

/// Whether a batch begins of writes whose records have `waiting_bytes`, while batches with records
/// of `in_flight_bytes` are in flight: if they are as much, so that with many writers two batches
/// take turns and a lone writer never waits, or fill a batch, which holds `batch_bytes`.
pub const fn is_due(waiting_bytes: usize, in_flight_bytes: usize, batch_bytes: usize) -> bool {
    waiting_bytes > 0 && (waiting_bytes >= in_flight_bytes || waiting_bytes >= batch_bytes)
}
