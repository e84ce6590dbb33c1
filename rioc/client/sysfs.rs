// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rioc-client`.
//!
//! ```text
//! /sys/class/rioc-client/ctl/connect             what to connect; see `proto::connect`
//! /sys/class/rioc-client/ctl/disconnect          the session to disconnect
//! /sys/class/rioc-client/ctl/sessions/S/state    whether operations are sent
//!                                       store    the store that is used, and what it promises
//! ```

use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::sysfs::{
    Attribute,
    Class,
    ClassDevice,
    Directory,
    ShowBuffer,
    StoreContext, //
};

use super::{
    session::Session,
    Client,
    CLIENT, //
};

/// Files of the client.
static CONTROL: [Attribute<Client>; 2] = [
    Attribute::rw(c"connect", show_connect, store_connect),
    Attribute::rw(c"disconnect", show_disconnect, store_disconnect),
];

/// Files of a session.
static SESSION: [Attribute<Session>; 2] = [
    Attribute::ro(c"state", show_state),
    Attribute::ro(c"store", show_store),
];

/// The files of the client. The drop removes them and disconnects all sessions.
pub(crate) struct Control {
    device: Option<ClassDevice<Client>>,
    client: Arc<Client>,
    _class: Class,
}

impl Control {
    /// Makes the client, with its files.
    pub(crate) fn new() -> Result<Self> {
        let client = Client::new()?;
        let class = Class::register(c"rioc-client")?;
        let device = ClassDevice::new(&class, c"ctl", &CONTROL, client.clone())?;
        let folder = Directory::new(&device, c"sessions", &[], Arc::new((), GFP_KERNEL)?)?;
        *client.folder.lock() = Some(Arc::new(folder, GFP_KERNEL)?);
        *CLIENT.lock() = Some(client.clone());
        Ok(Self {
            device: Some(device),
            client,
            _class: class,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let client = CLIENT.lock().take();
        drop(client);
        // First: the removal of the file waits for its writers, and these for a server.
        self.client.disconnect_all();
        let folder = self.client.folder.lock().take();
        drop(folder);
        self.device = None;
        self.client.wq.flush();
        rtrs_client::flush();
    }
}

/// Creates the files of a session.
pub(super) fn files(folder: &Directory<()>, session: &Arc<Session>) -> Result<Directory<Session>> {
    Directory::new(folder, session.name(), &SESSION, session.clone())
}

fn show_connect(_client: &Client, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(
        page,
        "Usage: echo \"sessname=<name of the session> path=<[srcaddr@]dstaddr> \
         [path=<[srcaddr@]dstaddr>] [store=<name of the store, if it is not that of the \
         session>]\" > connect"
    )
}

fn store_connect(client: ArcBorrow<'_, Client>, _context: &StoreContext<'_>, line: &str) -> Result {
    Arc::<Client>::from(client).connect(line.as_bytes())
}

fn show_disconnect(_client: &Client, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(
        page,
        "Usage: echo sessname=<name of the session> > disconnect"
    )
}

fn store_disconnect(
    client: ArcBorrow<'_, Client>,
    _context: &StoreContext<'_>,
    line: &str,
) -> Result {
    client.disconnect(line.as_bytes())
}

fn show_state(session: &Session, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", session.state().word())
}

fn show_store(session: &Session, page: &mut ShowBuffer<'_>) -> Result {
    let attached = session.attached()?;
    let durable = if attached.is_durable {
        "durable"
    } else {
        "in memory"
    };
    let flush = if attached.has_backing {
        ", a flush writes back"
    } else {
        ""
    };
    writeln!(
        page,
        "{} ({durable}{flush})",
        Escaped(session.store().to_bytes())
    )
}
