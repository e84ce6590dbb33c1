// SPDX-License-Identifier: GPL-2.0

//! Rate limits for events that a peer can trigger without limit, such as log lines.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h) (the C one cannot be
//! initialised in a constant when spin locks are debugged)

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use kernel::bindings;

/// A limit of events per interval.
///
/// # Examples
///
/// ```
/// use kernel_ext::ratelimit::RateLimit;
///
/// static LIMIT: RateLimit = RateLimit::new(5000, 10);
///
/// if let Some(suppressed) = LIMIT.allow() {
///     pr_warn!("malformed request ({} more lines were suppressed)\n", suppressed);
/// }
/// ```
pub struct RateLimit {
    interval_ms: u32,
    burst: u32,
    /// The start of the current interval in milliseconds of the monotonic clock, plus one; 0 before
    /// the first.
    start_ms: AtomicU64,
    used: AtomicU32,
    suppressed: AtomicU32,
}

impl RateLimit {
    /// Creates a limit of `burst` events per interval of `interval_ms` milliseconds.
    pub const fn new(interval_ms: u32, burst: u32) -> Self {
        Self {
            interval_ms,
            burst,
            start_ms: AtomicU64::new(0),
            used: AtomicU32::new(0),
            suppressed: AtomicU32::new(0),
        }
    }

    /// Counts an event. Returns the number of events suppressed since the last permitted one, or
    /// `None` if this event exceeds the limit. Any context.
    pub fn allow(&self) -> Option<u32> {
        let now_ms = now_ms().wrapping_add(1);
        let start_ms = self.start_ms.load(Ordering::Relaxed);
        let is_over = start_ms == 0 || now_ms.wrapping_sub(start_ms) >= self.interval_ms.into();
        // Of several callers that see the end of the interval, one starts the next.
        if is_over
            && self
                .start_ms
                .compare_exchange(start_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.used.store(0, Ordering::Relaxed);
        }
        let burst = self.burst;
        let allowed = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < burst).then(|| used.wrapping_add(1))
            });
        if allowed.is_ok() {
            Some(self.suppressed.swap(0, Ordering::Relaxed))
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// Returns milliseconds of the monotonic clock.
fn now_ms() -> u64 {
    // SAFETY: The called function has no safety requirements and works in every context.
    unsafe { bindings::ktime_get_mono_fast_ns() / 1_000_000 }
}
