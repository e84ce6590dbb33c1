// SPDX-License-Identifier: GPL-2.0

//! The connections of a mount: carries out what `proto` decides, over TCP.
//!
//! | file | what |
//! |---|---|
//! | `client` | what a mount asks: names, attributes, entries, open files |
//! | `place`, `content` | where an object is in the tree; which content of it is cached |
//! | `setup` | what all connections share: options, clock, workers, interruption |
//! | `login`, `user_key` | TCP and authentication; the key for it, as the keyring has it |
//! | `call`, `link` | a question that is under way; the connection to gfmd |
//! | `descriptors` | how many descriptors open files have at gfmd |
//! | `gfsd`, `hosts` | a connection to a gfsd; the pool for each gfsd |
//! | `stream`, `waiting`, `reader`, `batch` | an open file: its reads; how they are carried out |
//! | `page_source` | the seam between readers and those who have the bytes |
//! | `ring`, `stats` | a queue of fixed size; counters |
//!
//! Workers run on queues of each mount, made for reclaim; none runs for an idle file. What a read
//! waits for allocates nothing, or without IO: calls, queues and buffers are made when a mount
//! or a file is opened, and a new connection is made without IO.

mod batch;
mod call;
mod client;
mod content;
mod descriptors;
mod gfsd;
mod hosts;
mod link;
mod login;
mod naming;
mod page_source;
mod place;
mod reader;
mod ring;
mod setup;
mod stats;
mod stream;
mod user_key;
mod waiting;

pub(crate) use client::Client;
pub(crate) use content::{
    Content,
    Seen, //
};
pub(crate) use page_source::{
    Ending,
    Pages, //
};
pub(crate) use place::Place;
pub(crate) use stream::Stream;
pub(crate) use user_key::now_s;
