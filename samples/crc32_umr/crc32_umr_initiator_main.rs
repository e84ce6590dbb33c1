// SPDX-License-Identifier: GPL-2.0

//! The initiator of the CRC32/UMR example: when it is loaded, it writes blocks to a target, reads
//! them back and compares. It is not loaded if something is wrong, and the log says what.
//!
//! Parameters: `addr=10.0.0.2`, see also below. `Documentation/crc32-umr.md` has the protocol.

mod client;
pub mod proto;

use ferro_proto::forward_display;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    module_param_int,
    module_param_string,
    sysfs::{
        Attribute,
        Class,
        ClassDevice, //
    }, //
};
use rdma::cm::SocketAddress;

use client::run::{
    self,
    Mode,
    Plan,
    Summary, //
};

module! {
    type: Module,
    name: "crc32_umr_initiator",
    authors: ["The Ferrofabric developers"],
    description: "CRC32/UMR example, initiator",
    license: "GPL",
}

module_param_string!(ADDR: 40, "addr", "", "The IPv4 address of the target (required)");
module_param_int!(
    PORT: u16,
    "port",
    proto::connect::PORT,
    "The port of the target (default: 4048)"
);
module_param_string!(
    MODE: 8,
    "mode",
    "rdma",
    "How data is written: rdma, or inline in the messages (default: rdma)"
);
module_param_string!(
    STEPS: 8,
    "steps",
    "both",
    "What is done: write, read, or both (default: both)"
);
module_param_int!(FIRST: u64, "first", 0, "The first block (default: 0)");
module_param_int!(BLOCKS: u32, "blocks", 64, "How many blocks (default: 64)");
module_param_int!(
    BYTES: u64,
    "bytes",
    0,
    "How many bytes instead of whole blocks of 4048; 0: whole blocks (default: 0)"
);
module_param_int!(
    REQUEST_BYTES: u16,
    "request_bytes",
    0,
    "How many bytes a request has, 0: 16 blocks (default: 0)"
);
module_param_int!(SEED: u32, "seed", 1, "Of the data (default: 1)");

forward_display! {
    proto::Violation,
    proto::response::Status,
}

struct Module {
    _files: ClassDevice<Summary>,
    _class: Class,
}

/// `/sys/class/crc32_umr_initiator/last`.
static FILES: [Attribute<Summary>; 4] = [
    Attribute::ro(c"result", |_, page| writeln!(page, "ok")),
    Attribute::ro(c"written_bytes", |summary, page| {
        writeln!(page, "{}", summary.written_bytes)
    }),
    Attribute::ro(c"read_bytes", |summary, page| {
        writeln!(page, "{}", summary.read_bytes)
    }),
    Attribute::ro(c"requests", |summary, page| {
        writeln!(page, "{}", summary.requests)
    }),
];

/// Returns what the parameters ask for.
fn plan() -> Result<Plan, &'static str> {
    let mode = match MODE.get() {
        "rdma" => Mode::Rdma,
        "inline" => Mode::Inline,
        _ => return Err("mode is rdma or inline"),
    };
    let (writes, reads) = match STEPS.get() {
        "both" => (true, true),
        "write" => (true, false),
        "read" => (false, true),
        _ => return Err("steps is write, read or both"),
    };
    Plan::new(
        FIRST.get(),
        BLOCKS.get(),
        BYTES.get(),
        REQUEST_BYTES.get(),
        SEED.get(),
        (mode, writes, reads),
    )
    .ok_or("there is nothing to do, or request_bytes is no multiple of 4048")
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let address = ADDR.get().parse().map_err(|_| {
            pr_err!("not loaded: addr= is no IPv4 address\n");
            EINVAL
        })?;
        let plan = plan().map_err(|why| {
            pr_err!("not loaded: {why}\n");
            EINVAL
        })?;
        let address = SocketAddress::v4(address, PORT.get());
        let summary = run::run(&address, &plan).map_err(|trouble| {
            pr_err!("{}: {trouble}\n", address.address);
            trouble.errno()
        })?;
        pr_info!(
            "{}: ok: {} bytes written, {} read and compared, {} requests ({})\n",
            address.address,
            summary.written_bytes,
            summary.read_bytes,
            summary.requests,
            MODE.get()
        );
        let class = Class::register(c"crc32_umr_initiator")?;
        let summary = Arc::new(summary, GFP_KERNEL)?;
        Ok(Self {
            _files: ClassDevice::new(&class, c"last", &FILES, summary)?,
            _class: class,
        })
    }
}
