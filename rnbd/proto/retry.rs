// SPDX-License-Identifier: GPL-2.0

//! What a client does with a request that was not sent, or sent and not answered.

use ferro_proto::errno::Errno;

/// What is done with a request that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The block layer keeps it until the queue runs again.
    Requeue,
    /// It waits beside the queue until its chunk is not held any more.
    WaitForChunk,
    /// It fails with `EIO`.
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

/// Returns whether a request is tried again that was lost, or found its chunk held, for the first
/// time `waited_ms` ago; `limit_ms` is the longest time, `None` without limit.
pub fn may_wait(may_recover: bool, waited_ms: u64, limit_ms: Option<u64>) -> bool {
    may_recover && limit_ms.is_none_or(|limit_ms| waited_ms <= limit_ms)
}
