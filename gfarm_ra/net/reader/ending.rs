// SPDX-License-Identifier: GPL-2.0

//! Closes an open file, gives it up, or gives its descriptor back for a time.

use super::Reader;
use crate::proto::{
    open_file::{
        Effect,
        Event,
        OpenFile, //
    },
    replica::HostId, //
};

/// Ends of a descriptor.
impl Reader {
    /// Closes the file. Sleeps.
    pub(in crate::net) fn close(&mut self) {
        self.effect = self.machine.step(Event::Close);
        let interrupts = self.client.setup().interrupts();
        let _ = self.carry_out(interrupts, &mut |_| {});
        self.lease = None;
    }

    /// Gives up what is under way, without waiting for a server; the next read begins anew.
    pub(in crate::net) fn reset(&mut self) {
        self.hold(None);
        self.abandon();
    }

    /// Returns whether gfmd may have a descriptor for it.
    pub(in crate::net) fn has_descriptor(&self) -> bool {
        self.lease.is_some()
    }

    /// Returns the gfsd at which the file is open.
    pub(in crate::net) fn host(&self) -> Option<HostId> {
        let taken = self.taken.as_ref()?;
        taken.fd.is_some().then(|| taken.host.id())
    }

    /// Gives the descriptor back; the next read opens the file anew. Until then the number of the
    /// object may become another one's. Sleeps.
    pub(in crate::net) fn give_back(&mut self) {
        self.hold(None);
        self.close();
        self.effect = Effect::Ignore;
        self.machine = OpenFile::NEW;
    }

    fn abandon(&mut self) {
        if let Some(taken) = self.taken.take() {
            // The file is open there, and cannot be opened by another connection.
            taken.connection.abandon();
            self.client.hosts().give_back(&taken.host, taken.connection);
        }
        let effect = core::mem::replace(&mut self.effect, Effect::Ignore);
        if let Effect::Open(old) = effect {
            self.close_at_gfmd(old, None);
        }
        if let Effect::Release(old) = self.machine.step(Event::Close) {
            let lease = self.lease.take();
            self.close_at_gfmd(old, lease);
        }
        self.lease = None;
        self.machine = OpenFile::NEW;
    }
}

/// Leaves nothing open of a file that could not be opened to the end.
impl Drop for Reader {
    fn drop(&mut self) {
        self.abandon();
    }
}
