// SPDX-License-Identifier: GPL-2.0

//! Creates the disk of a mapped device.
//!
//! Its number, and with it its name and its device numbers, is in use as long as the disk is open,
//! unmapped or not: file systems and device-mapper know disks by their device numbers.

use block_ext::disk::{
    Disk,
    DiskConfig,
    Minors,
    New, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::ida::IdaId;

use super::{
    device::Device,
    limits,
    queue::Queue, //
};
use crate::{
    proto::{
        device::Device as Remote,
        identity::Identity,
        MINORS, //
    },
    THIS_MODULE, //
};

/// Allocates the disk of `device`, which user space does not see yet. It owns its number.
pub(super) fn make(device: &Arc<Device>, remote: &Remote, id: IdaId) -> Result<Disk<Queue, New>> {
    let session = device.session();
    let number = id.get();
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
            capacity_sectors: remote.capacity_sectors(),
            read_only: !device.access().may_write(),
            limits,
            naa: remote.identity.map(Identity::get),
        },
        device.clone(),
        id,
    )
    .inspect_err(|error| {
        pr_err!(
            "{device}: no disk can be made of {remote:?}: {error:?}\n",
            device = &**device
        );
    })
}
