// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache: nodes with the same file system mounted give each other pages of
//! files that they have read, by datagrams over RDMA.
//!
//! The page `Documentation/gfarm-cache-protocol.md` describes the messages and what they protect
//! from.
//!
//! | Module | What |
//! |---|---|
//! | [`pages`] | sets of pages of a chunk |
//! | [`wire`] | the head of each datagram and its authentication code |
//! | [`window`] | which datagrams of a peer are repetitions |
//! | [`fragment`] | the parts in which pages are sent |
//! | [`request`], [`excluded`], [`reply`] | the messages of one request |
//! | [`reassembly`] | which fragments have arrived, and how they come to their places |
//! | [`invalid`] | what is wrong with a message |
//! | [`address`] | the number and the address of a node |

pub mod address;
pub mod excluded;
pub mod fragment;
pub mod invalid;
pub mod pages;
pub mod reassembly;
pub mod reply;
pub mod request;
pub mod window;
pub mod wire;

/// The length of a page, in bytes.
pub const PAGE_LEN: u64 = 4096;
