// SPDX-License-Identifier: GPL-2.0

//! Invalidations that have to wait until the registration before them is posted.
//!
//! A request is armed before its work requests are posted, so a server that lies, or one that
//! answers very soon, may have its answer handled before the sender has returned from the post. An
//! invalidation that is posted then could be ahead of the registration: an adapter that does not
//! check it (that of mlx5, by its driver) would execute it, the memory would be given back, and the
//! registration would make it writable for the server after that.
//!
//! A sender notes which sending it has posted. It sends under RCU, so after a grace period each
//! sender that was about to post has done so, whether its note is seen or not.

use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering, //
};

/// Which sending of a request's entry was posted last.
///
/// A sender that is late may note an older one over a newer one: then the newer one is taken for
/// one that is not posted yet.
pub(crate) struct Posted(AtomicU32);

impl Posted {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Notes that the sending of this number is posted. Any context.
    #[inline(always)]
    pub(crate) fn note(&self, number: u32) {
        self.0.store(number, Ordering::Release);
    }

    /// Returns whether the sending of this number is known to be posted: what the caller posts now
    /// is behind it. Any context.
    pub(crate) fn is(&self, number: u32) -> bool {
        self.0.load(Ordering::Acquire) == number
    }
}

/// Of a slot: it has an invalidation.
const USED: u64 = 1 << 63;
/// Of a slot: a grace period has begun since the invalidation was postponed.
const OLD: u64 = 1 << 62;
/// The bits of a key; those of the id are above them.
const KEY_BITS: u32 = 32;

/// The invalidations of one connection that wait.
pub(crate) struct Postponed([AtomicU64; Self::MAX]);

impl Postponed {
    /// How many may wait: senders that are interrupted in the middle of a post.
    pub(crate) const MAX: usize = 16;

    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Self::MAX])
    }

    /// Adds the invalidation of `key`, for request `id`; `false` if there is no room. Any context.
    pub(crate) fn add(&self, id: u16, key: u32) -> bool {
        let word = USED | u64::from(id) << KEY_BITS | u64::from(key);
        self.0.iter().any(|slot| {
            let added = slot.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
            added.is_ok()
        })
    }

    /// Notes that a grace period begins after this.
    pub(crate) fn grow_old(&self) {
        for slot in &self.0 {
            if slot.load(Ordering::Acquire) & USED != 0 {
                slot.fetch_or(OLD, Ordering::AcqRel);
            }
        }
    }

    /// Takes those for which a grace period has ended: all that were there when [`Self::grow_old`]
    /// was called last, before it. Returns ids and keys. One task at a time calls both.
    pub(crate) fn take(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.0.iter().filter_map(|slot| {
            let word = slot.load(Ordering::Acquire);
            if word & OLD == 0 {
                return None;
            }
            slot.store(0, Ordering::Release);
            // CAST: The bits of the id, and those of the key.
            Some(((word >> KEY_BITS) as u16, word as u32))
        })
    }
}
