// SPDX-License-Identifier: GPL-2.0

//! The target of the CRC32/UMR example: keeps data in chunks of 4 KiB with their checksums on a
//! block device, for initiators that read and write them over RDMA.
//!
//! Parameters: `device=/dev/ram0`, see also below. `Documentation/crc32-umr.md` has the protocol.

pub mod proto;
mod server;

use ferro_proto::forward_display;
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    module_param_int,
    module_param_string,
    sysfs::{
        Class,
        ClassDevice, //
    }, //
};
use rdma::cm::{
    Listener,
    SocketAddress, //
};

use server::{
    store::Store,
    Door,
    Target,
    FILES, //
};

module! {
    type: Module,
    name: "crc32_umr_target",
    authors: ["The Ferrofabric developers"],
    description: "CRC32/UMR example, target",
    license: "GPL",
}

module_param_string!(
    DEVICE: 255,
    "device",
    "",
    "The block device that keeps the chunks; it is overwritten (required)"
);
module_param_int!(
    PORT: u16,
    "port",
    proto::connect::PORT,
    "The port to listen on (default: 4048)"
);
module_param_int!(
    CONNECTIONS_MAX: u16,
    "connections_max",
    4,
    "How many connections there may be; each takes about 800 KiB (default: 4)"
);
module_param_int!(
    ELEMENTS_MAX: u16,
    "elements_max",
    32,
    "How many elements a gather list may have, if the adapter permits it, 1 to 32 (default: 32)"
);

forward_display! {
    proto::Violation,
    proto::response::Status,
}

/// Fields are dropped in declaration order.
struct Module {
    _listener: Listener,
    _files: ClassDevice<Target>,
    _class: Class,
    target: Arc<Target>,
}

/// Opens the device of the parameter.
fn store() -> Result<impl PinInit<Store>> {
    let path = DEVICE.get();
    if path.is_empty() {
        pr_err!("not loaded: device= is missing\n");
        return Err(EINVAL);
    }
    let path = CString::try_from_fmt(fmt!("{path}"))?;
    Store::open(&path).inspect_err(|error| pr_err!("device {}: {error:?}\n", &*path))
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if !(1..=32).contains(&ELEMENTS_MAX.get()) || PORT.get() == 0 {
            pr_err!("not loaded: elements_max is 1 to 32, port is not 0\n");
            return Err(EINVAL);
        }
        let target = Target::new(store()?)?;
        let class = Class::register(c"crc32_umr_target")?;
        let files = ClassDevice::new(&class, c"store", &FILES, target.clone())?;
        let address = SocketAddress::any_ip(PORT.get());
        let listener = Listener::new(&address, 8, Door(target.clone())).inspect_err(|error| {
            pr_err!("port {} cannot be listened on: {error:?}\n", PORT.get());
        })?;
        pr_info!(
            "{}: {} chunks, port {}\n",
            DEVICE.get(),
            target.store().chunks(),
            PORT.get()
        );
        Ok(Self {
            _listener: listener,
            _files: files,
            _class: class,
            target,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // New connections are refused from here on, and then the fields are dropped.
        self.target.close();
    }
}
