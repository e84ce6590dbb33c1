// SPDX-License-Identifier: GPL-2.0

//! The steps that a connect of a path repeats by itself, while a task waits for the path.
//!
//! Two failures may be transient. The kernel sends three requests for a neighbour's address, a
//! second apart, and none until the timeout of the resolution (`addr_resolve()`): an address that
//! is resolved before its link is up is not found for the rest of that time. So a long resolution
//! is several short ones. A server at its memory limit (`ENOMEM`) may be ending other sessions, for
//! instance one that this client has just closed.

/// The maximum timeout of one resolution of the peer's address, in milliseconds: the kernel's three
/// requests and a margin.
const RESOLUTION_MS: u32 = 4000;

/// The delay before the first retry after `ENOMEM`, in milliseconds; it doubles with each retry.
const MEMORY_PAUSE_MS: u32 = 200;

/// The number of retries after `ENOMEM`: 3 s in total, longer than a server takes to end a session.
const MEMORY_RETRIES: u32 = 4;

/// Returns the timeout of resolution `n`, counted from 0, of a connect that has `total_ms`
/// milliseconds to find the peer's address; not 0. `None` if the time is over.
pub const fn resolution_ms(total_ms: u32, n: u32) -> Option<u32> {
    let left_ms = total_ms.saturating_sub(RESOLUTION_MS.saturating_mul(n));
    match left_ms {
        0 => None,
        RESOLUTION_MS.. => Some(RESOLUTION_MS),
        _ => Some(left_ms),
    }
}

/// Returns the delay before retry `n`, counted from 0, of a connect that the server has rejected
/// with `ENOMEM`, in milliseconds. `None` if the rejection is final.
pub const fn memory_pause_ms(n: u32) -> Option<u32> {
    if n < MEMORY_RETRIES {
        Some(MEMORY_PAUSE_MS << n)
    } else {
        None
    }
}
