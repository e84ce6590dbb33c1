// SPDX-License-Identifier: GPL-2.0

//! The identity of a device's disk: after an outage the server may have another disk under its
//! name.

use kernel::prelude::*;

use super::{
    Device,
    Inner, //
};
use crate::{
    proto::{
        device::Device as Remote,
        known_disk::KnownDisk, //
    },
    shown::Shown,
};

impl Device {
    /// Fails for a disk that is not the one that was mapped, or has become smaller: the file system
    /// that is mounted here would write over the data of another one.
    ///
    /// # Errors
    ///
    /// `ESTALE`, with one log line for each reason, however often it is tried.
    pub(super) fn compare_disk(&self, inner: &mut Inner, remote: &Remote) -> Result {
        let disk = inner.mapped_disk.as_ref();
        let known = KnownDisk {
            // The size that its users see: `resize` may have changed it since it was opened.
            sectors: disk.map_or(inner.known.sectors, |disk| disk.disk().capacity_sectors()),
            ..inner.known
        };
        let Err(difference) = known.compare(&KnownDisk::of(remote)) else {
            return Ok(());
        };
        let error = Error::from(difference.errno());
        inner.refusal = Some(error);
        if inner.difference.replace(difference) != Some(difference) {
            pr_err!(
                "{self}: {}: not opened, requests wait for the right one (unmap it, or write force \
                 to remap_device to go on with the other)\n",
                Shown(difference)
            );
        }
        Err(error)
    }

    /// Stores what is known of the disk that was opened; returns whether it is another one than
    /// before, which the user has allowed.
    pub(super) fn note_disk(&self, inner: &mut Inner, remote: &Remote) -> bool {
        let (before, now) = (inner.known.identity, remote.identity);
        let is_another = before.is_some() && before != now;
        match now {
            Some(now) if is_another => {
                pr_warn!("{self}: is another disk from now on, {}\n", Shown(now));
            }
            None if is_another => {
                pr_warn!("{self}: the server does not tell which disk it is from now on\n");
            }
            _ => {}
        }
        inner.known = KnownDisk::of(remote);
        inner.difference = None;
        // What the disk shows stays, if the user goes on with one that the server does not tell.
        if let (Some(now), Some(mapped_disk)) = (now, &inner.mapped_disk) {
            mapped_disk.disk().set_naa(Some(now.get()));
        }
        is_another
    }
}
