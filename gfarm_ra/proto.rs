// SPDX-License-Identifier: GPL-2.0

//! The Gfarm protocol of a client that reads, as pure code: it decides, the drivers carry out the
//! decisions.
//!
//! As in `ferro_proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no
//! log and no panic.
//!
//! The protocol is that of Gfarm 2.7: a metadata server (gfmd) has names and attributes, file
//! servers (gfsd) have the bytes. Both speak over TCP, big-endian and without marks between
//! messages, so each decoder works on a part of the stream and tells how much is missing.
//!
//! | Module | What |
//! |---|---|
//! | [`xdr`] | numbers and byte strings into a buffer, and out of an incomplete one |
//! | [`error`] | the errors of the servers, for the kernel |
//! | [`command`] | the numbers of requests |
//! | [`key`], [`auth`] | the shared key, and the authentication with it |
//! | [`name`], [`attr`] | names and paths; attributes, directory entries, hosts |
//! | [`operation`] | a request with its reply |
//! | [`gfm`], [`gfs`] | the requests to gfmd and to gfsd |
//! | [`question`] | what a mount asks of gfmd, each in one round trip |
//! | [`options`], [`setting`], [`hosts`], [`id_map`] | the options of a mount |
//! | [`identity`] | which content is cached, and which reads may fill it |
//! | [`freshness`] | how long an answer counts, for whom |
//! | [`closing`] | descriptors that are closed together |
//! | [`conversation`] | what was sent of the questions, and when one is given back |
//! | [`listing`] | whether a directory that is read has an end |
//! | [`gfmd`], [`gfsd`], [`retry`], [`idle`] | connections, what follows a fault, and their end |
//! | [`request`] | the names of what is asked, for statistics |
//! | [`open_file`], [`replica`] | a file that is read, and by which gfsd |
//! | [`descriptors`] | how many descriptors there are, and when a task stops waiting for one |
//! | [`reclaim`] | which open file gives its descriptor to another one |
//! | [`cache`] | pages that nodes give each other |

#![forbid(unsafe_code)]

pub mod attr;
pub mod auth;
pub mod cache;
pub mod closing;
pub mod command;
pub mod conversation;
pub mod descriptors;
pub mod error;
pub mod freshness;
pub mod gfm;
pub mod gfmd;
pub mod gfs;
pub mod gfsd;
pub mod hosts;
pub mod id_map;
pub mod identity;
pub mod idle;
pub mod key;
pub mod listing;
pub mod name;
pub mod open_file;
pub mod operation;
pub mod options;
pub mod outdated;
pub mod question;
pub mod reclaim;
pub mod replica;
pub mod request;
pub mod retry;
pub mod setting;
pub mod xdr;

/// The default TCP port of a gfmd.
pub const GFMD_PORT: u16 = 601;

/// The maximum length of the names of users, groups and hosts, in bytes.
pub const LABEL_LEN_MAX: usize = 255;

/// The maximum length of a symbolic link's target, in bytes (`PATH_MAX` without its NUL).
pub const LINK_LEN_MAX: usize = 4095;

/// The maximum number of bytes that a gfsd reads in one request.
pub const READ_LEN_MAX: u32 = 1 << 20;

/// The size of a buffer that every part of a reply fits, in bytes: the largest part is the answer
/// to `GFM_PROTO_READLINK`.
pub const PART_LEN_MAX: usize = 8192;

const _: () = assert!(LINK_LEN_MAX + 1024 < PART_LEN_MAX);
