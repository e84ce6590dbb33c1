// SPDX-License-Identifier: GPL-2.0

//! An array of three members, as pure code: what is written where, and what follows what.
//!
//! The log is that of the crate `seglog`; here is what makes a block device of it. As in
//! `ferro_proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no log and
//! no panic.
//!
//! | Module | What |
//! |---|---|
//! | [`command`] | the line that assembles an array |
//! | [`geometry`] | sizes: of members, segments, the disk, the memory |
//! | [`codec`] | how the payload of a record is kept |
//! | [`group_commit`] | when writes that wait become a batch |
//! | [`packing`] | which record goes to which column |
//! | [`array`] | an array that is open: batches, flushes, members, dumps, reads |
//! | [`asking`] | which members a read asks |
//! | [`budget`] | how often segments are repaired |
//! | [`progress`] | how long members have owed the end of an IO |
//! | [`collector`] | what is live in a segment is read, to be written again |

#![forbid(unsafe_code)]

pub mod array;
pub mod asking;
pub mod budget;
pub mod codec;
pub mod collector;
pub mod command;
pub mod geometry;
pub mod group_commit;
pub mod packing;
pub mod progress;
