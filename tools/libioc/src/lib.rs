// SPDX-License-Identifier: GPL-2.0

//! iocatcher's interface for C programs, over sessions of `rioc_client`: `libioc-client.so`. What
//! an operation does is in [`client`], where the session is found in [`sessions`], and the C
//! functions are in [`functions`].

pub mod client;
pub mod functions;
pub mod sessions;
