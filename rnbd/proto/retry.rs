// SPDX-License-Identifier: GPL-2.0

//! The treatment of a client's request that was not sent, or sent and not answered.

use ferro_proto::errno::Errno;

/// The action for a request that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The block layer keeps it until the queue runs again.
    Requeue,
    /// The request waits beside the queue until its chunk is not held any more.
    WaitForChunk,
    /// The request fails with `EIO`.
    Fail,
}

/// `EAGAIN`.
const EAGAIN: u16 = 11;

impl NotSent {
    /// Decides about a request that RTRS did not take because of `errno`. It may wait for a path if
    /// its device `may_recover`.
    pub const fn new(errno: Errno, may_recover: bool) -> Self {
        const EALREADY: u16 = Errno::EALREADY.get();
        const EBUSY: u16 = Errno::EBUSY.get();
        const ENOMEM: u16 = Errno::ENOMEM.get();
        const ECONNABORTED: u16 = Errno::ECONNABORTED.get();

        match errno.get() {
            EALREADY => Self::WaitForChunk,
            EBUSY | EAGAIN | ENOMEM => Self::Requeue,
            ECONNABORTED if may_recover => Self::Requeue,
            _ => Self::Fail,
        }
    }
}

/// Pause before a request is started again, in milliseconds. While the disk is quiesced it waits
/// for longer.
pub const AGAIN_MS: u32 = 10;

/// Returns the pause before a request is sent again that has come back unanswered for the `lost`th
/// time, in milliseconds.
///
/// A request may be the reason why its path is lost: an adapter that fails whenever it carries it
/// out, a server that closes the path for it. Nothing tells it from those that are lost along with
/// it, so none fails for that. It waits, so that the others are carried out meanwhile.
pub const fn pause_ms(lost: u8) -> u32 {
    match lost {
        0..=2 => AGAIN_MS,
        3 => 1000,
        4 => 2000,
        5 => 4000,
        _ => 8000,
    }
}

/// Returns whether a request is tried again that was lost, or found its chunk held, for the first
/// time `waited_ms` ago; `limit_ms` is the longest time, `None` without limit.
pub fn may_wait(may_recover: bool, waited_ms: u64, limit_ms: Option<u64>) -> bool {
    may_recover && limit_ms.is_none_or(|limit_ms| waited_ms <= limit_ms)
}
