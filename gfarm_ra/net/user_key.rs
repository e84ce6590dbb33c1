// SPDX-License-Identifier: GPL-2.0

//! The key of the mount's user, as the keyring has it at each login.

use ferro_proto::text::Escaped;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    time::{
        ClockSource,
        RealTime,
        NSEC_PER_SEC, //
    }, //
};
use kernel_ext::{
    errno::EKEYREJECTED,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};
use vfs_ext::keyring;

use crate::proto::key::{
    self,
    SharedKey, //
};

/// The key of a mount.
#[pin_data]
pub(crate) struct UserKey {
    #[pin]
    key: SpinLock<Arc<keyring::Key>>,
    /// The expiry of the key that was read last, in seconds since 1970.
    expire_s: AtomicU32,
    /// The number of other keys that were read, or given, since the first one.
    changes: AtomicU32,
    /// The end of the key of which the log has said that it expires soon, in seconds since 1970.
    warned_s: AtomicU32,
}

impl UserKey {
    pub(super) fn new(key: Arc<keyring::Key>) -> impl PinInit<Self> {
        pin_init!(Self {
            key <- new_spinlock!(key, "UserKey::key"),
            expire_s: AtomicU32::new(u32::MAX),
            changes: AtomicU32::new(0),
            warned_s: AtomicU32::new(0),
        })
    }

    /// Calls `with` with the key. It is in memory once, until this returns. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EKEYREJECTED` if it is malformed, or why the keyring does not give it.
    pub(super) fn with<R>(&self, with: impl FnOnce(&SharedKey) -> R) -> Result<R> {
        let mut shared = SharedKey::empty();
        let key = self.key.lock().clone();
        let is_key = key.read(|line| shared.read(line))?;
        is_key.map_err(|_| EKEYREJECTED)?;
        if self.expire_s.swap(shared.expire, Relaxed) != shared.expire {
            self.changes.fetch_add(1, Relaxed);
        }
        Ok(with(&shared))
    }

    /// Takes another key instead. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Self::with`].
    pub(super) fn replace(&self, key: Arc<keyring::Key>) -> Result {
        let before = core::mem::replace(&mut *self.key.lock(), key);
        // Not under the lock: this may be the last reference.
        drop(before);
        self.changes.fetch_add(1, Relaxed);
        self.with(|_| ())
    }

    /// Returns the number of changes of the key. One that is renewed in its place, with another
    /// end, is seen by the login that reads it.
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Relaxed)
    }

    /// Returns the seconds until the key expires that was read last.
    pub(super) fn left_s(&self) -> u64 {
        u64::from(self.expire_s.load(Relaxed)).saturating_sub(now_s())
    }

    /// Returns whether the keyring has a key that has not expired. Sleeps.
    pub(super) fn is_valid(&self) -> bool {
        self.with(|_| ()).is_ok() && self.left_s() != 0
    }

    /// Says in the log that the key expires soon, once for each key. Does not sleep.
    pub(super) fn warn(&self, user: &[u8]) {
        let expire_s = self.expire_s.load(Relaxed);
        let Some(left_s) = key::is_due(expire_s, now_s()) else {
            return;
        };
        if self.warned_s.swap(expire_s, Relaxed) != expire_s {
            let (user, left_min) = (Escaped(user), left_s / 60);
            pr_warn!(
                "the key of {user} expires in {left_min} min, and then servers refuse it: make one \
                 with gfkey -f -p, give it to them, and run mount -o remount, or keyctl update\n"
            );
        }
    }
}

/// Returns the seconds since 1970.
pub(crate) fn now_s() -> u64 {
    u64::try_from(RealTime::ktime_get() / NSEC_PER_SEC).unwrap_or(0)
}
