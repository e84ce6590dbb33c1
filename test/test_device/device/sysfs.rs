// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rdma_test_device/control`.

use super::network::Network;
use crate::proto::{
    counts::NAMES,
    fabric::PORTS_MAX,
    fault::BadRule, //
};
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
    ShowBuffer,
    StoreContext, //
};

static ATTRIBUTES: [Attribute<Network>; 5] = [
    Attribute::rw(c"counts", show_counts, reset_counts),
    Attribute::rw(c"faults", show_faults, add_fault),
    Attribute::rw(c"ports", show_ports, change_port),
    Attribute::ro(c"engines", show_engines),
    Attribute::ro(c"vectors", show_vectors),
];

/// The folder of the device.
pub(crate) struct Folder {
    _device: ClassDevice<Network>,
}

impl Folder {
    pub(crate) fn new(network: Arc<Network>) -> Result<Self> {
        let class = Class::register(c"rdma_test_device")?;
        Ok(Self {
            _device: ClassDevice::new(&class, c"control", &ATTRIBUTES, network)?,
        })
    }
}

/// Prints a table: a line of names, one of queue pairs that are gone, one of each queue pair. A
/// table that is longer than a page is refused.
fn show_counts(network: &Network, page: &mut ShowBuffer<'_>) -> Result {
    page.push_str("qp peer")?;
    for name in NAMES {
        page.push_str(" ")?;
        page.push_str(name)?;
    }
    page.push_str("\n")?;
    let tables = network.tables.read();
    tables.counts(|qp, peer, counts| writeln!(page, "{qp} {peer} {counts}"))
}

/// Any text lets the counts begin at 0.
fn reset_counts(network: ArcBorrow<'_, Network>, _: &StoreContext<'_>, _text: &str) -> Result {
    network.reset_counts();
    Ok(())
}

/// Prints a table of the engines: the sends of connections that each has executed, how many of them
/// while another engine was at one, and the answers that have come before the end of a request.
fn show_engines(network: &Network, page: &mut ShowBuffer<'_>) -> Result {
    page.push_str("engine sends beside early_answers\n")?;
    network.engines(|number, [sends, beside, early]| {
        writeln!(page, "{number} {sends} {beside} {early}")
    })
}

/// Prints a table of the completion vectors: the processor of each, how often it has told a
/// consumer there and elsewhere, and how many receives of connections were taken there and
/// elsewhere.
fn show_vectors(network: &Network, page: &mut ShowBuffer<'_>) -> Result {
    page.push_str("vector cpu told told_elsewhere taken taken_elsewhere\n")?;
    network.vectors(|vector, cpu, [told, taken]| {
        let ([told, told_not], [taken, taken_not]) = (told, taken);
        writeln!(page, "{vector} {cpu} {told} {told_not} {taken} {taken_not}")
    })
}

/// Prints how many faults have happened, and how many are to come.
fn show_faults(network: &Network, page: &mut ShowBuffer<'_>) -> Result {
    let (done, to_come) = {
        let faults = network.faults.lock();
        (faults.done(), faults.to_come())
    };
    writeln!(page, "{done} {to_come}")
}

/// Adds a rule; `clear` forgets all, lets the queue pairs flush that did not, and gives out the
/// completions that were kept back. `give_up 17` has the device give queue pair 17 up now.
fn add_fault(network: ArcBorrow<'_, Network>, _: &StoreContext<'_>, text: &str) -> Result {
    if let Some(number) = text.strip_prefix("give_up ") {
        return network.give_up(number);
    }
    match text {
        "clear" => network.faults.lock().clear(),
        rule => network.faults.lock().add(rule).map_err(|BadRule| EINVAL)?,
    }
    network.faults_changed();
    Ok(())
}

/// Prints a line for each port of the subnet of InfiniBand.
fn show_ports(network: &Network, page: &mut ShowBuffer<'_>) -> Result {
    let fabric = *network.fabric.lock();
    for (number, port) in (0..PORTS_MAX).filter_map(|n| Some((n, fabric.port(n)?))) {
        let [first, second, third, fourth] = port.pkeys;
        writeln!(
            page,
            "port={number} lid={:#x} prefix={:#x} pkeys={first:#x},{second:#x},{third:#x},{fourth:#x}",
            port.lid, port.prefix
        )?;
    }
    Ok(())
}

/// Changes a port, as [`Fabric::change`](crate::proto::fabric::Fabric::change) reads it.
fn change_port(network: ArcBorrow<'_, Network>, _: &StoreContext<'_>, text: &str) -> Result {
    network.change_port(text)
}
