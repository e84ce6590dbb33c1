// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of the event system `gfarm`: `/sys/kernel/tracing/events/gfarm`.
//!
//! A tracepoint that is off costs the call of a C function. All functions here can be called in any
//! context.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use kernel::prelude::*;
use vfs_ext_sys as raw;

/// `gfarm_request`: a request was answered, `us` microseconds after it was sent.
pub fn request(name: &str, us: u64, result: Result) {
    let errno = result.err().map_or(0, Error::to_errno);
    // SAFETY: The name is readable for its length, during the call.
    unsafe { raw::vfs_ext_helper_trace_request(name.as_ptr(), name.len(), us, errno) };
}

/// `gfarm_connected`: a connection to a server of this kind is authenticated.
pub fn connected(server: &str) {
    // SAFETY: As in `request`.
    unsafe { raw::vfs_ext_helper_trace_connected(server.as_ptr(), server.len()) };
}

/// `gfarm_again`: requests to a server of this kind have to be made again, because of `error`.
pub fn again(server: &str, requests: u64, error: Error) {
    let errno = error.to_errno();
    // SAFETY: As in `request`.
    unsafe { raw::vfs_ext_helper_trace_again(server.as_ptr(), server.len(), requests, errno) };
}

/// `gfarm_received`: bytes of a file have come.
pub fn received(position: u64, bytes: u64) {
    // SAFETY: The function has no requirements.
    unsafe { raw::vfs_ext_helper_trace_received(position, bytes) };
}
