// SPDX-License-Identifier: GPL-2.0

//! The counters of a node, and the line in the log about what strangers send.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};

use super::now_us;
use crate::proto::cache::counter::Counter;

/// The time between two lines in the log, in microseconds.
const LINE_US: u64 = 60_000_000;

/// The counters of a node.
pub(crate) struct Counters {
    values: [AtomicU64; Counter::COUNT],
    /// The time at which the next line may be written, in microseconds since the boot.
    line_us: AtomicU64,
}

impl Counters {
    /// Allocates counters, all 0. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let this = Self {
            values: [const { AtomicU64::new(0) }; Counter::COUNT],
            line_us: AtomicU64::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Counts `number` more. Any context.
    pub(crate) fn add(&self, counter: Counter, number: u64) {
        if let Some(value) = self.values.get(counter as usize) {
            value.fetch_add(number, Relaxed);
        }
    }

    /// Counts a datagram that is dropped, with a line in the log now and then. Any context.
    pub(crate) fn dropped(&self, why: Counter) {
        self.add(why, 1);
        let (now_us, due_us) = (now_us(), self.line_us.load(Relaxed));
        let next_us = now_us.saturating_add(LINE_US);
        let is_due = why.is_of_strangers() && now_us >= due_us;
        if is_due
            && self
                .line_us
                .compare_exchange(due_us, next_us, Relaxed, Relaxed)
                .is_ok()
        {
            let (name, number) = (why.name(), self.get(why));
            pr_warn!("a node of the cache has dropped datagrams: {name} {number}, see ibstat\n");
        }
    }

    /// Returns what was counted.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        let value = self.values.get(counter as usize);
        value.map_or(0, |value| value.load(Relaxed))
    }

    /// Begins anew.
    pub(crate) fn clear(&self) {
        for value in &self.values {
            value.store(0, Relaxed);
        }
    }
}
