// SPDX-License-Identifier: GPL-2.0

//! Which boot of its machine a server runs in.
//!
//! A machine that loses power loses the volatile caches of its disks. So a client that finds
//! another boot behind a device knows that writes may be gone that were acknowledged to it. Loading
//! the server's modules anew, which caches survive, does not change the boot.

use core::num::NonZeroU64;

use ferro_proto::{
    siphash::SipHash,
    text, //
};

/// Clients learn a hash of the kernel's boot id, not the id itself: other programs may make secrets
/// of that.
const KEY: [u64; 2] = [0x7266_656e_7262_6473, 0x626f_6f74_2069_6431];

/// The boot of a server's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot(NonZeroU64);

impl Boot {
    /// Reads the number of a SESS_INFO answer; `None` for 0, which is none. Servers that cannot
    /// know their boot use a number of chance.
    pub const fn from_number(raw: u64) -> Option<Self> {
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The boot that the kernel knows by this text (`/proc/sys/kernel/random/boot_id`); `None` if
    /// that is empty.
    pub fn from_kernel(boot_id: &[u8]) -> Option<Self> {
        let boot_id = text::trim(boot_id);
        let mut hash = SipHash::new(KEY);
        hash.write(boot_id);
        Self::from_number(hash.finish()).filter(|_| !boot_id.is_empty())
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Says whether a server's machine was started anew since it was in `before`; `assume` is the
    /// answer if a server does not tell.
    pub fn has_restarted(before: Option<Self>, now: Option<Self>, assume: bool) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => before != now,
            _ => assume,
        }
    }

    /// Says whether two servers are known to run in different boots.
    pub fn is_another(before: Option<Self>, now: Option<Self>) -> bool {
        Self::has_restarted(before, now, false)
    }
}
