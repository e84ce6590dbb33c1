// SPDX-License-Identifier: GPL-2.0

//! TCP connections of a module to a server, and its address.
//!
//! The in-tree `kernel::net` has PHY drivers only; until it has sockets, the abstractions here wrap
//! the C interface themselves. It is a crate and a module beside `kernel_ext`, so that modules
//! without a connection do not load it.
//!
//! | Module | What |
//! |---|---|
//! | [`namespace`] | the network namespace in which a connection exists |
//! | [`tcp`] | connections |
//! | [`destination`] | the memory into which a connection receives |
//! | [`dns`] | names of hosts |
//! | [`digest`] | MD5, by which old protocols authenticate |

pub mod destination;
pub mod digest;
pub mod dns;
pub mod namespace;
pub mod tcp;

use kernel::prelude::*;

pub use destination::Destination;
pub use namespace::Namespace;
pub use tcp::TcpStream;

module! {
    type: Library,
    name: "net_ext",
    authors: ["The Ferrofabric developers"],
    description: "TCP connections, beyond the in-tree kernel crate",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}
