// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache.

mod fragment;
mod message;
mod pages;
mod reassembly;
mod reply;
mod request;
mod requester;
mod window;
