// SPDX-License-Identifier: GPL-2.0

//! `insmod kernel_ext.ko selftest=1`: tries each part and prints one line about it.
//!
//! What needs user space (sysfs, parameters) is left in place while the module is loaded, under
//! `/sys/class/kernel_ext/selftest`; see [`sysfs`].

mod block;
mod memory;
mod sync;
mod sysfs;
mod work;

use kernel::prelude::*;

pub(crate) use sysfs::Stage;

/// A part and its test.
type Part = (&'static str, fn() -> Result);

const PARTS: [Part; 20] = [
    ("errno", memory::errno),
    ("erased", memory::erased),
    ("pages", memory::pages),
    ("percpu", memory::percpu),
    ("random", memory::random),
    ("ida", memory::ida),
    ("ratelimit", memory::ratelimit),
    ("scatterlist", block::scatterlist),
    ("limits", block::limits),
    ("handoff", sync::handoff),
    ("handoff_note", sync::handoff_note),
    ("set_once", sync::set_once),
    ("box_cell", sync::box_cell),
    ("irq_lock", sync::irq_lock),
    ("global", sync::global),
    ("rcu_arc", sync::rcu_arc),
    ("completion", sync::completion),
    ("wait_queue", sync::wait_queue),
    ("workqueue", work::queue),
    ("delayed work", work::delayed),
];

/// Runs all parts, and sets up what user space tries.
pub(crate) fn run() -> Result<Stage> {
    for (name, part) in PARTS {
        part().inspect_err(|_| pr_err!("selftest: {}: failed\n", name))?;
        pr_info!("selftest: {}: ok\n", name);
    }
    // The files that it opens are closed when this task returns to user space; until then they
    // need the module, which therefore must not fail to load.
    match block::disk() {
        Ok(()) => pr_info!("selftest: disk: ok\n"),
        Err(error) => pr_err!("selftest: disk: failed: {:?}\n", error),
    }
    let stage = Stage::new()?;
    pr_info!("selftest: sysfs: ok\n");
    Ok(stage)
}

/// Fails with a line that says what should hold.
fn check(holds: bool, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("selftest: not so: {}\n", what);
    Err(EINVAL)
}
