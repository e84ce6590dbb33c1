// SPDX-License-Identifier: GPL-2.0

//! The division of the work: engines execute, processors take what has completed.

use super::message::Delivery;

/// Returns the engine that executes the sends of a queue pair. The ends of a connection, whose
/// numbers mostly follow each other, are of different ones.
pub const fn engine_of(qp: u32, engines: u32) -> u32 {
    match qp.checked_rem(engines) {
        Some(engine) => engine,
        None => 0,
    }
}

/// Returns the processor that serves a completion vector, of `cpus` that are online.
pub const fn cpu_of(vector: u32, cpus: u32) -> u32 {
    match vector.checked_rem(cpus) {
        Some(cpu) => cpu,
        None => 0,
    }
}

/// Returns whether an engine executes a work request while others execute theirs: a send of a
/// connection, which has its `delivery`, unless it changes keys. One that has to wait for a receive
/// is looked at once more alone: a receive that is posted meanwhile would not find it waiting.
pub fn runs_beside(delivery: Option<Delivery>, changes_keys: bool) -> bool {
    !changes_keys && delivery.is_some_and(|delivery| delivery != Delivery::AwaitReceive)
}
