// SPDX-License-Identifier: GPL-2.0

//! Writes that are lost because the server's machine has lost its volatile caches.

use kernel::prelude::*;

use super::{
    Device,
    Inner, //
};
use crate::{
    proto::{
        boot::Boot,
        device::Server, //
    },
    ASSUME_CACHE_LOSS, //
};

impl Inner {
    /// Returns whether the machine of the device was restarted since it was opened last.
    pub(super) fn has_restarted(&self, server: &Server) -> bool {
        Boot::has_restarted(self.boot, server.boot, ASSUME_CACHE_LOSS.get())
    }
}

impl Device {
    /// Stores the boot of its machine in which the server has opened the device. No request was
    /// sent since then, and all of the last boot have ended or were requeued.
    pub(super) fn note_boot(
        &self,
        inner: &mut Inner,
        server: &Server,
        restarted: bool,
        is_volatile: bool,
    ) {
        inner.boot = server.boot;
        if self.cache.opened(restarted, is_volatile) {
            inner.cache_losses = inner.cache_losses.saturating_add(1);
            pr_err!(
                "{self}: the server's machine was started anew; writes that it had acknowledged \
                 and not flushed may be gone, so the next flush fails\n"
            );
        }
    }

    /// Returns how often the server's cache was lost with writes of this device in it.
    pub(crate) fn cache_losses(&self) -> u32 {
        self.lock().cache_losses
    }

    /// Returns whether the device is open in another boot of the server's machine than that of
    /// `server`. A device that is not open, a fenced one for instance, may date from any boot.
    pub(crate) fn is_open_in_another_boot(&self, server: &Server) -> bool {
        let inner = self.lock();
        self.io_state().remote_id().is_some() && Boot::is_another(inner.boot, server.boot)
    }
}
