// SPDX-License-Identifier: GPL-2.0

//! RCU: a grace period ends when no reader reads that did when it began.

use loom::sync::{RwLock, RwLockReadGuard};

loom::lazy_static! {
    /// Held by each reader; a grace period takes it for writing. It keeps new readers out as well,
    /// which RCU does not:
    /// what they may read was published before.
    pub static ref READERS: RwLock<()> = RwLock::new(());
}

/// A reader.
pub struct Guard(#[allow(dead_code)] RwLockReadGuard<'static, ()>);

/// Begins to read.
pub fn read_lock() -> Guard {
    Guard(READERS.read().expect("no reader panics"))
}
