// SPDX-License-Identifier: GPL-2.0

//! Tests of `kernel_ext` and `block_ext` in the kernel, like the kernel's own `lib/test_*.ko`: the
//! load runs each part, which prints one line.
//!
//! Built with the other modules, used by the tests in virtual machines, not installed. The objects
//! for tests from user space (sysfs, parameters) exist while the module is loaded, under
//! `/sys/class/kernel_ext_test/stage`; see [`sysfs`].

mod block;
mod memory;
mod sync;
mod sysfs;
mod work;

use kernel::prelude::*;
use kernel_ext::module_param_bool;
use sysfs::Stage;

module! {
    type: Tests,
    name: "kernel_ext_test",
    authors: ["The Ferrofabric developers"],
    description: "Tests of kernel_ext and block_ext",
    license: "GPL",
}

module_param_bool!(
    STAGE,
    "stage",
    true,
    "Leave files in sysfs for user space to try (default: Y)"
);

/// A part and its test.
type Part = (&'static str, fn() -> Result);

const PARTS: [Part; 34] = [
    ("errno", memory::errno),
    ("erased", memory::erased),
    ("pages", memory::pages),
    ("cursor", memory::cursor),
    ("crc", memory::crc),
    ("intervals", memory::intervals),
    ("lz4", memory::lz4),
    ("xor", memory::xor),
    ("percpu", memory::percpu),
    ("memory_scopes", memory::memory_scopes),
    ("random", memory::random),
    ("ida", memory::ida),
    ("ratelimit", memory::ratelimit),
    ("scatterlist", memory::scatterlist),
    ("limits", block::limits),
    ("token", block::token),
    ("handoff", sync::handoff),
    ("handoff_note", sync::handoff_note),
    ("set_once", sync::set_once),
    ("box_cell", sync::box_cell),
    ("irq_lock", sync::irq_lock),
    ("rw_sem", sync::rw_sem),
    ("global", sync::global),
    ("rcu_arc", sync::rcu_arc),
    ("grace_arc", sync::grace_arc),
    ("lent_box", sync::lent_box),
    ("users", sync::users),
    ("completion", sync::completion),
    ("wait_queue", sync::wait_queue),
    ("workqueue", work::queue),
    ("work of a CPU", work::on_cpu),
    ("delayed work", work::delayed),
    ("delayed work that two queue", work::delayed_beside_another),
    ("delayed work keeps its queue", work::delayed_keeps_queue),
];

struct Tests {
    _stage: Option<Stage>,
}

impl kernel::Module for Tests {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        for (name, part) in PARTS {
            part().inspect_err(|_| pr_err!("{}: failed\n", name))?;
            pr_info!("{}: ok\n", name);
        }
        // The files that it opens are closed when this task returns to user space. They need the
        // module until then, so an error must not fail the load.
        match block::disk() {
            Ok(()) => pr_info!("disk: ok\n"),
            Err(error) => pr_err!("disk: failed: {:?}\n", error),
        }
        if !STAGE.get() {
            return Ok(Tests { _stage: None });
        }
        let stage = Stage::new()?;
        pr_info!("sysfs: ok\n");
        Ok(Tests {
            _stage: Some(stage),
        })
    }
}

/// Returns an error and logs `what` unless `holds`.
fn check(holds: bool, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("not so: {}\n", what);
    Err(EINVAL)
}
