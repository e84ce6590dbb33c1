// SPDX-License-Identifier: GPL-2.0

//! The disk of a mapped device, and how it comes to be.

use block_ext::disk::{
    Disk,
    DiskConfig,
    Minors, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    device::Device,
    limits,
    queue::Queue, //
};
use crate::{
    proto::{
        device::Device as Remote,
        MINORS, //
    },
    THIS_MODULE, //
};

/// Makes the disk of `device`, which user space does not see yet.
pub(super) fn make(device: &Arc<Device>, remote: &Remote) -> Result<Disk<Queue>> {
    let session = device.session();
    let number = device.number();
    let limits = limits::of_disk(session.rtrs()?, remote);
    let minors = Minors {
        major: session.client().major(),
        first: number.saturating_mul(MINORS),
        count: MINORS,
    };
    Disk::new(
        session.tags()?,
        &THIS_MODULE,
        DiskConfig {
            name: fmt!("rnbd{number}"),
            minors: Some(minors),
            capacity_sectors: remote.nsectors,
            read_only: !device.access().may_write(),
            limits,
        },
        device.clone(),
    )
    .inspect_err(|error| {
        pr_err!(
            "{device}: no disk can be made of {remote:?}: {error:?}\n",
            device = &**device
        );
    })
}
