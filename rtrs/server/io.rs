// SPDX-License-Identifier: GPL-2.0

//! The requests of clients, from receive to answer.

pub(crate) mod carriers;
pub(crate) mod operation;
pub(crate) mod operation_queue;
pub(crate) mod receiver;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod send_queue;
pub(crate) mod tag;
