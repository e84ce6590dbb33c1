// SPDX-License-Identifier: GPL-2.0

//! RDMA Network Block Device, server: exports block devices of this machine to clients.
//!
//! | folder | what |
//! |---|---|
//! | `proto/` | messages, flags, path names: pure code, the same on the host |
//! | `sidecar/` | protection information on a plain device: pure code, too |
//! | `server/` | sessions, exports, requests, sysfs |
//!
//! The transport is `rtrs_server`; the block layer's side is `block_ext`. The interface for user
//! space is that of the in-tree C driver of the same name.

pub mod proto;
pub mod sidecar;

mod pi_stats;
mod server;
mod shown;
mod tuples;

use block_ext::bdev::{
    BlockDevice,
    Mode, //
};
use kernel::{
    prelude::*,
    str::{
        BStr,
        CString, //
    },
    sync::Arc, //
};
use kernel_ext::{
    module_param_int,
    module_param_string, //
};
use rtrs_server::Listener;

use proto::path_name;
use server::{
    Control,
    RtrsService,
    Running,
    Server, //
};

module! {
    type: RnbdServer,
    name: "rnbd_server",
    authors: ["The Ferrofabric developers"],
    description: "RDMA Network Block Device, server",
    license: "GPL",
}

module_param_int!(
    PORT_NR: u16,
    "port_nr",
    1234,
    "The port number the server is listening on (default: 1234)"
);
module_param_string!(
    DEV_SEARCH_PATH: 4095,
    "dev_search_path",
    "/",
    "Sets the dev_search_path. When a device is mapped this path is prepended to the device path \
     from the map device operation. If %SESSNAME% is specified in a path, then device will be \
     searched in a session namespace. (default: /)"
);

/// Logs a warning if the folder of `dev_search_path` does not exist, which may be created later.
fn check_search_path() {
    let folder = path_name::common_folder(DEV_SEARCH_PATH.get().as_bytes());
    let found = CString::try_from_fmt(fmt!("{}", BStr::from_bytes(folder)))
        // A folder is not a block device, so this only checks whether it exists.
        .and_then(|folder| BlockDevice::open(&folder, Mode::ReadOnly));
    match found {
        Err(error) if error != ENOTBLK => pr_warn!(
            "dev_search_path: '{}' is not there ({error:?}), so clients will find no device\n",
            BStr::from_bytes(folder)
        ),
        _ => {}
    }
}

/// The module. Fields are dropped in declaration order: the listener ends all sessions, which close
/// their devices.
struct RnbdServer {
    _listener: Listener,
    _running: Running,
    _control: Control,
}

impl kernel::Module for RnbdServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if PORT_NR.get() == 0 {
            pr_err!("not loaded: port_nr is 0, which clients cannot connect to\n");
            return Err(EINVAL);
        }
        let control = Control::new()?;
        let server = Server::new(&control)?;
        let running = Running(server.clone());
        let sessions = Arc::new(RtrsService(server), GFP_KERNEL)?;
        let listener = Listener::new(PORT_NR.get(), sessions).inspect_err(|error| {
            pr_err!("port {} cannot be listened on: {error:?}\n", PORT_NR.get());
        })?;
        pr_info!(
            "port {}, dev_search_path '{}'\n",
            PORT_NR.get(),
            DEV_SEARCH_PATH.get()
        );
        check_search_path();
        Ok(Self {
            _listener: listener,
            _running: running,
            _control: control,
        })
    }
}
