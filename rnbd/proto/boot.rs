// SPDX-License-Identifier: GPL-2.0

//! The identity of the boot of a server's machine.
//!
//! A machine that loses power loses the volatile caches of its disks. So a client that finds
//! another boot behind a device knows that acknowledged writes may be lost. A reload of the
//! server's modules, which caches survive, does not change the boot.

use core::num::NonZeroU64;

use ferro_proto::{
    siphash::SipHash,
    text, //
};

/// Clients get a hash of the kernel's boot id and not the id, from which other programs may derive
/// secrets.
const KEY: [u64; 2] = [0x7266_656e_7262_6473, 0x626f_6f74_2069_6431];

/// The boot of a server's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot(NonZeroU64);

impl Boot {
    /// Converts the number of a SESS_INFO answer; returns `None` for 0. Servers that cannot read
    /// their boot id use a random number.
    pub const fn from_number(raw: u64) -> Option<Self> {
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// Returns the boot of this boot id (`/proc/sys/kernel/random/boot_id`); `None` if it is empty.
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

    /// Returns whether a server's machine was rebooted since `before`; `assume` is the result if a
    /// server does not send its boot.
    pub fn has_restarted(before: Option<Self>, now: Option<Self>, assume: bool) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => before != now,
            _ => assume,
        }
    }

    /// Returns whether two servers are known to run in different boots.
    pub fn is_another(before: Option<Self>, now: Option<Self>) -> bool {
        Self::has_restarted(before, now, false)
    }
}
