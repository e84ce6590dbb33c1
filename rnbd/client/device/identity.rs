// SPDX-License-Identifier: GPL-2.0

//! The identity of a device's disk: after an outage the server may have another disk under its
//! name.

use kernel::prelude::*;
use kernel_ext::errno;

use super::{
    Device,
    Inner, //
};
use crate::{
    proto::{
        device::Device as Remote,
        identity::Identity, //
    },
    shown::Shown,
};

impl Device {
    /// Fails for a disk that is not the one that was mapped: the file system that is mounted here
    /// would overwrite the data of that one.
    ///
    /// # Errors
    ///
    /// `ESTALE`, with one log line however often it is tried.
    pub(super) fn compare_identity(&self, inner: &mut Inner, remote: &Remote) -> Result {
        if Identity::may_be_same(inner.identity, remote.identity) {
            return Ok(());
        }
        if let (Some(before), Some(now), true) = (
            inner.identity,
            remote.identity,
            inner.refusal != Some(errno::ESTALE),
        ) {
            inner.refusal = Some(errno::ESTALE);
            pr_err!(
                "{self}: the server has another disk under this name, {} instead of {}: not \
                 opened, requests wait for the right one (unmap it, or write force to \
                 remap_device to go on with the other)\n",
                Shown(now),
                Shown(before)
            );
        }
        Err(errno::ESTALE)
    }

    /// Stores the identity of the disk that was opened; returns whether it is another one than
    /// before, which the user has allowed.
    pub(super) fn note_identity(&self, inner: &mut Inner, remote: &Remote) -> bool {
        let is_another = !Identity::may_be_same(inner.identity, remote.identity);
        if let (true, Some(now)) = (is_another, remote.identity) {
            pr_warn!("{self}: is another disk from now on, {}\n", Shown(now));
        }
        inner.identity = remote.identity.or(inner.identity);
        if let Some(mapped_disk) = &inner.mapped_disk {
            mapped_disk
                .disk()
                .set_naa(inner.identity.map(Identity::get));
        }
        is_another
    }
}
