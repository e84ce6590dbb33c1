// SPDX-License-Identifier: GPL-2.0

//! RDMA Transport (RTRS), client: sessions with a server, over one or several paths.
//!
//! An upper layer opens a [`Session`] and sends requests: a message for its own peer, and data that
//! the server writes to or reads from its [`Transfer`]'s memory.
//!
//! ```text
//!   Session  session     name, list of paths, policy              submit, permit, message
//!     |                  paths up, outages, settings              link, failover, settings
//!    Path    path        state, heartbeat, statistics             pulse, stats, progress, connect
//!     |                  connected, lost, connected again         life
//!     |
//!  Transport transport   connections of a connected path
//!     |   \
//!     |  Exchange        requests in flight, chunks of the server   exchange, slot
//!     |   /
//!  Channel   channel     completions of one queue pair            request (out), completion (in)
//! ```
//!
//! The protocol's decisions are `rtrs_core::proto`'s. What goes wrong is a `fault`, and ends in one
//! place: the teardown of the path.

use kernel::{
    prelude::*,
    sync::Arc, //
};

#[path = "client/channel.rs"]
mod channel;
#[path = "client/completion.rs"]
mod completion;
#[path = "client/connect.rs"]
mod connect;
#[path = "client/exchange.rs"]
mod exchange;
#[path = "client/failover.rs"]
mod failover;
#[path = "client/fault.rs"]
mod fault;
#[path = "client/library.rs"]
mod library;
#[path = "client/life.rs"]
mod life;
#[path = "client/link.rs"]
mod link;
#[path = "client/message.rs"]
mod message;
#[path = "client/path.rs"]
mod path;
#[path = "client/permit.rs"]
mod permit;
#[path = "client/progress.rs"]
mod progress;
#[path = "client/pulse.rs"]
mod pulse;
#[path = "client/request.rs"]
mod request;
#[path = "client/session.rs"]
mod session;
#[path = "client/settings.rs"]
mod settings;
#[path = "client/slot.rs"]
mod slot;
#[path = "client/stats.rs"]
mod stats;
#[path = "client/submit.rs"]
mod submit;
#[path = "client/sysfs.rs"]
mod sysfs;
#[path = "client/sysfs_path.rs"]
mod sysfs_path;
#[path = "client/transfer.rs"]
mod transfer;
#[path = "client/transport.rs"]
mod transport;

pub use link::LinkEvents;
pub use message::{
    Messenger,
    Via, //
};
pub use session::{
    OpenParam,
    Session, //
};
pub use transfer::{
    Direction,
    Lane,
    Rejected,
    Transfer, //
};

use library::Library;

/// Waits until no call of a [`LinkEvents`] is under way for a session that was closed before. For
/// modules that are about to be unloaded; sleeps.
pub fn flush() {
    if let Ok(library) = Library::get() {
        library.queue.flush();
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
    library: Arc<Library>,
}

impl kernel::Module for Client {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Client {
            library: Library::start()?,
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.library.stop();
    }
}
