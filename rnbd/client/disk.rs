// SPDX-License-Identifier: GPL-2.0

//! The disk of a mapped device: its limits, and how it comes to be.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::block::{
    disk::{
        Disk,
        DiskConfig,
        Minors, //
    },
    limits::{
        DiscardLimits,
        Limits, //
    },
};
use rtrs_client::Session;

use super::{
    device::Device,
    queue::Queue, //
};
use crate::{
    proto::{
        device::Device as Remote,
        MINORS,
        SECTOR_SIZE, //
    },
    THIS_MODULE, //
};

/// Pieces of a request start and end at pages: a memory region can hold no others.
const PAGE_MASK: u32 = 4096 - 1;

/// Limits of what one request carries.
pub(super) fn transfer_limits(rtrs: &Session) -> Limits {
    Limits {
        virt_boundary_mask: PAGE_MASK,
        io_opt_bytes: rtrs.max_io_size(),
        ..Limits::new(rtrs.max_io_size() / SECTOR_SIZE, rtrs.max_segments())
    }
}

/// Limits of a disk for `remote`. Longer transfers than the server's device takes are split there.
fn limits(rtrs: &Session, remote: &Remote) -> Limits {
    Limits {
        logical_block_bytes: u32::from(remote.logical_block_size),
        physical_block_bytes: u32::from(remote.physical_block_size),
        discard: DiscardLimits {
            max_sectors: remote.max_discard_sectors,
            granularity_bytes: remote.discard_granularity,
            alignment_bytes: remote.discard_alignment,
        },
        max_secure_erase_sectors: if remote.secure_discard {
            remote.max_discard_sectors
        } else {
            0
        },
        max_write_zeroes_sectors: remote.max_write_zeroes_sectors,
        write_cache: remote.writeback,
        fua: remote.fua,
        ..transfer_limits(rtrs)
    }
}

/// Makes the disk of `device`, which user space does not see yet.
pub(super) fn make(device: &Arc<Device>, remote: &Remote) -> Result<Disk<Queue>> {
    let session = device.session();
    let number = device.number();
    let limits = limits(session.rtrs()?, remote);
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
