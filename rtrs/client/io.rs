// SPDX-License-Identifier: GPL-2.0

//! Requests in flight on a connected path.

pub(crate) mod completion;
pub(crate) mod connection;
pub(crate) mod invalidations;
pub(crate) mod postponed;
pub(crate) mod prepare;
pub(crate) mod read_buffers;
pub(crate) mod request;
pub(crate) mod send;
pub(crate) mod submit;
pub(crate) mod table;
pub(crate) mod transfer;
