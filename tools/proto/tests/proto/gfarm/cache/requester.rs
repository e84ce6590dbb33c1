// SPDX-License-Identifier: GPL-2.0

//! The pages of one read: each way that it can go, every small world of lost and late datagrams,
//! and any events at all.

mod chaos;
mod compare;
mod driver;
mod owner;
mod paths;
mod worlds;
