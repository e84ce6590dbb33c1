// SPDX-License-Identifier: GPL-2.0

//! The protection information of a device: agreed on when it is mapped, and the same ever after.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno;

use super::{
    Device,
    Inner, //
};
use crate::{
    client::protection::Protection,
    proto::{
        device::Device as Remote,
        pi::Wanted, //
    },
    shown::Shown,
};

impl Device {
    /// Returns the protection information of its requests, if they have one.
    #[inline]
    pub(crate) fn protection(&self) -> Option<&Arc<Protection>> {
        self.protection.as_ref()
    }

    /// Returns what to ask the server for: what the device has, or what the user wants.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        if self.lock().limits.is_some() {
            let geometry = self.protection()?.geometry();
            return Some(Wanted::Format(geometry.format()));
        }
        // Tuples are a piece of their own.
        self.pi.wanted().filter(|_| self.rtrs.max_segments() > 1)
    }

    /// Compares the server's answer with what the device has; the first one is compared with what
    /// the user wants, and kept.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the server has not what is wanted, `ESTALE` if it has another one than
    /// before: users of the disk rely on that; `ENOMEM`.
    pub(super) fn compare_protection(&self, inner: &mut Inner, remote: &Remote) -> Result {
        if inner.limits.is_none() {
            return self.keep_protection(remote);
        }
        let has = self.protection().map(|protection| protection.geometry());
        if has == remote.pi {
            return Ok(());
        }
        if inner.refusal != Some(errno::ESTALE) {
            inner.refusal = Some(errno::ESTALE);
            pr_err!("{self}: the server has other protection information for it now: not opened\n");
        }
        Err(errno::ESTALE)
    }

    fn keep_protection(&self, remote: &Remote) -> Result {
        self.pi.check(remote.pi).map_err(|refused| {
            pr_err!("{self}: pi=: {}\n", Shown(refused));
            Error::from(refused.errno())
        })?;
        let Some(geometry) = remote.pi else {
            if self.pi.wanted().is_some() {
                pr_info!("{self}: the server has no protection information for it\n");
            }
            return Ok(());
        };
        let buffers = self.session().tuple_buffers()?;
        self.protection
            .populate(Arc::new(Protection::new(geometry, buffers), GFP_KERNEL)?);
        pr_info!("{self}: protection information: {}\n", Shown(geometry));
        Ok(())
    }
}
