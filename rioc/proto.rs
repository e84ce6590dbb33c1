// SPDX-License-Identifier: GPL-2.0

//! An object cache over RDMA, as pure code: what a message means, where the bytes of an object are,
//! who may use them, and what a log has to keep of it.
//!
//! As in `ferro_proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no
//! log and no panic. Memory for tables is given at set-up.
//!
//! | Module | What |
//! |---|---|
//! | [`span`] | names of objects, bytes and blocks of them |
//! | [`wire`] | layouts of messages |
//! | [`message`] | requests of clients |
//! | [`command`] | the control line of an administrator |
//! | [`answer`] | answers of the server |
//! | [`connect`], [`ioctl`] | what an administrator and programs ask of a client |
//! | [`split`], [`retry`] | operations of a client: in parts, and sent again |
//! | [`entry`] | what a log keeps of a slot |
//! | [`file_name`] | names of the files of objects |
//! | [`slot`] | the slots of the index: objects, ranges, extents, tickets |
//! | [`tree`] | the ranges of an object, in their order |
//! | [`index`] | objects: create, write, read, copy, truncate, delete, list, restore; their files |
//! | [`body`] | what a batch of a log has of operations |
//! | [`claim`] | operations in flight, and leases |
//! | [`limits`] | what a client may have at a time |
//! | [`ticket`] | operations that are sent again |
//! | [`turns`] | requests, and what goes on beside them |
//! | [`pages`] | the pages of memory that extents have |
//! | [`medium`] | where blocks are: pages of memory, or a log |
//! | [`log`] | the log: batches, dumps, room, collecting, assembly |
//! | [`format`] | the layout of a new log |
//! | [`store`] | a store: what clients ask, carried out on the index and the medium |
//!
//! `Documentation/decisions/0035-an-object-is-slots.md` has the reasons, and `0040` beside it those
//! of the last three.

#![forbid(unsafe_code)]

pub mod answer;
pub mod body;
pub mod claim;
pub mod command;
pub mod connect;
pub mod entry;
pub mod file_name;
pub mod format;
pub mod index;
pub mod ioctl;
pub mod limits;
pub mod log;
pub mod medium;
pub mod message;
pub mod pages;
pub mod retry;
pub mod slot;
pub mod span;
pub mod split;
pub mod store;
pub mod ticket;
pub mod tree;
pub mod turns;
pub mod wire;
