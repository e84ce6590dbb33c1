// SPDX-License-Identifier: GPL-2.0

//! Tests of the crate `rdma` in the kernel: the load runs each part, which prints one line.
//!
//! Built with the other modules, used by the tests in virtual machines, not installed. Parameters:
//! the address of an RDMA device; whether to run the part that leaks a queue pair, after which the
//! module cannot be unloaded; or whether to leave receives posted instead of all that, or to wait
//! until the device fails.

mod rdma;

use ::rdma::cm::SocketAddress;
use kernel::prelude::*;
use kernel_ext::{
    module_param_bool,
    module_param_string, //
};

module! {
    type: Tests,
    name: "rdma_test",
    authors: ["The Ferrofabric developers"],
    description: "Tests of rdma",
    license: "GPL",
}

module_param_string!(
    ADDRESS: 40,
    "address",
    "10.0.0.1",
    "IPv4 address of an RDMA device"
);

module_param_bool!(
    LEAK,
    "leak",
    false,
    "Run the part that leaks a queue pair (default: N)"
);

module_param_bool!(
    HOLD,
    "hold",
    false,
    "Run nothing, and leave receives posted until the device is removed (default: N)"
);

module_param_bool!(
    FAILURE,
    "failure",
    false,
    "Run nothing but the close of queue pairs after a failure of the device (default: N)"
);

module_param_bool!(
    FAULTS,
    "faults",
    false,
    "Run nothing but transfers under faults that the device is given meanwhile (default: N)"
);

/// A part and its test.
type Part = (&'static str, fn(&SocketAddress) -> Result);

const PARTS: [Part; 15] = [
    ("closed", rdma::queue_pair::closed),
    ("datagrams", rdma::datagram::datagrams),
    ("address handles", rdma::handles::address_handles),
    ("full send queue", rdma::queue_pair::full_send_queue),
    ("drop under load", rdma::queue_pair::drop_under_load),
    ("close again", rdma::queue_pair::close_again),
    ("read only mapping", rdma::region::read_only_mapping),
    ("drained domain", rdma::identifier::drained_domain),
    ("one queue pair", rdma::identifier::one_queue_pair),
    ("fragments of 256", rdma::transfer::fragments_256),
    ("fragments of 1024", rdma::transfer::fragments_1024),
    ("fragments of 4096", rdma::transfer::fragments_4096),
    ("transfers refused", rdma::transfer::refused),
    ("transfers dropped", rdma::transfer::dropped),
    ("transfers reused", rdma::transfer::reused),
];

const LEAKS: [Part; 1] = [("drop in handler", rdma::queue_pair::drop_in_handler)];

/// Parts that need faults.
const UNDER_FAULTS: [Part; 2] = [
    ("given up while idle", rdma::transfer::faults::given_up),
    ("drain refused", rdma::transfer::faults::drain_refused),
];

struct Tests;

impl kernel::Module for Tests {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let address = SocketAddress::v4(ADDRESS.get().parse().map_err(|_| EINVAL)?, 7472);
        if HOLD.get() {
            rdma::transfer::hold(&address)?;
            return Ok(Tests);
        }
        if FAILURE.get() {
            rdma::by_driver::close_when_it_fails(&address)?;
            return Ok(Tests);
        }
        if FAULTS.get() {
            run(&UNDER_FAULTS, &address)?;
            return Ok(Tests);
        }
        run(&PARTS, &address)?;
        if LEAK.get() {
            run(&LEAKS, &address)?;
        }
        Ok(Tests)
    }
}

impl Drop for Tests {
    fn drop(&mut self) {
        rdma::transfer::let_go();
    }
}

fn run(parts: &[Part], address: &SocketAddress) -> Result {
    for (name, part) in parts {
        part(address).inspect_err(|e| pr_err!("{}: failed: {:?}\n", name, e))?;
        pr_info!("{}: ok\n", name);
    }
    Ok(())
}

/// Returns an error and logs `what` unless `holds`.
fn check(holds: bool, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("not so: {}\n", what);
    Err(EINVAL)
}
