// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport (RTRS), client: sessions with a server, over one or several paths.
//!
//! An upper layer opens a [`Session`] and sends requests: a message for its own peer, and data that
//! the server writes to or reads from its [`Transfer`]'s memory.

use kernel::{
    prelude::*,
    sync::Arc, //
};

mod client;

pub use client::{
    io::transfer::{
        Direction,
        IoQueue,
        Rejected,
        Transfer, //
    },
    session::{
        admin::{
            AdminChannel,
            OnePath,
            UserMessage, //
        },
        answer::{
            Fate,
            NotAnswered,
            Unheard, //
        },
        outage::SessionEvents,
        together::Submission,
        OpenParam,
        Session, //
    },
};

pub use rtrs_core::proto::{
    quarantine::Ticket,
    wire::TAIL_LEN_MAX, //
};

use client::module::ModuleState;

/// Waits until no call of a [`SessionEvents`] is under way for a session that was closed before.
/// For modules that are about to be unloaded; sleeps.
pub fn flush() {
    if let Ok(module) = ModuleState::get() {
        module.queue.flush();
    }
}

module! {
    type: Client,
    name: "rtrs_client",
    authors: ["The Ferrofabric developers"],
    description: "RDMA Transport, client",
    license: "GPL",
}

struct Client {
    module: Arc<ModuleState>,
}

impl kernel::Module for Client {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Client {
            module: ModuleState::start()?,
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.module.stop();
    }
}
