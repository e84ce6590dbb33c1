// SPDX-License-Identifier: GPL-2.0

//! Clients that attach, and go.

use core::mem::MaybeUninit;

use kernel::{
    prelude::*,
    str::CString, //
};
use kernel_ext::random;

use super::{
    super::{
        medium::Kept,
        memory::{
            Crc,
            Elements,
            CLIENTS_MAX,
            DEPTH,
            LIMITS, //
        }, //
    },
    Engine,
    Known,
    Request, //
};
use crate::proto::{
    store::Client,
    ticket::Lane, //
};

/// Memory for a client, and for the name of its session: it is taken before the lock of the store.
pub(in crate::server) struct Place {
    memory: KBox<MaybeUninit<Known>>,
    requests: KVVec<Option<Request>>,
    lanes: Elements<Lane>,
    session: CString,
}

impl Place {
    /// Allocates it. Sleeps.
    pub(in crate::server) fn new(session: &CStr) -> Result<Self> {
        let mut requests = KVVec::with_capacity(DEPTH.into(), GFP_KERNEL)?;
        for _ in 0..DEPTH {
            requests.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            memory: KBox::new_uninit(GFP_KERNEL)?,
            requests,
            lanes: Elements::new(Lane::UNUSED, DEPTH.into())?,
            session: CString::try_from(session)?,
        })
    }

    /// Makes a client.
    fn fill(self, of: (u32, [u64; 2])) -> KBox<Known> {
        let (number, name) = of;
        let known = Known {
            client: Client::new((number, name, random::number()), self.lanes, LIMITS),
            name,
            session: Some(self.session),
            requests: self.requests,
            has_repeated: false,
            left: 0,
        };
        KBox::write(self.memory, known)
    }
}

impl<D: Kept> Engine<D> {
    /// Takes in the clients of which a log has kept operations, as ones that have gone: they are
    /// known when they come back, and forgotten when others need their places. Sleeps.
    pub(super) fn remember(&mut self) -> Result {
        let mut before = 0;
        while let Some((name, incarnation)) = self.store.client_after(before) {
            before = incarnation;
            if self.clients.len() >= CLIENTS_MAX {
                break;
            }
            // CAST: Below CLIENTS_MAX.
            let number = self.clients.len() as u32;
            let mut known = Place::new(c"")?.fill((number, name));
            self.gone = self.gone.saturating_add(1);
            (known.session, known.left) = (None, self.gone);
            // Slots that are missing are taken when it comes back.
            let with = (&mut self.acting, &Crc);
            let _ = self.store.attach(&mut known.client, None, with);
            drop(self.clients.push_within_capacity(known));
        }
        Ok(())
    }

    /// A client comes, or comes back; returns its number, and that of its incarnation.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many, or the index has no slots for its operations; `EAGAIN` if
    /// the one that is forgotten for it has to wait.
    pub(in crate::server) fn attach(
        &mut self,
        name: [u64; 2],
        memory: Place,
    ) -> Result<(u32, u64)> {
        let known = self.clients.iter().position(|known| known.name == name);
        let index = match known {
            Some(index) => index,
            None if self.clients.len() < CLIENTS_MAX => self.clients.len(),
            None => self.oldest().ok_or(ENOSPC)?,
        };
        // CAST: Below CLIENTS_MAX.
        let number = index as u32;
        let with = (&mut self.acting, &Crc);
        match (known, self.clients.get_mut(index)) {
            (Some(_), Some(known)) => {
                if D::IS_DURABLE {
                    let attached = self.store.attach(&mut known.client, None, with);
                    attached.map_err(Error::from)?;
                }
                known.session = Some(memory.session);
            }
            (_, gone) => {
                let mut new = memory.fill((number, name));
                if D::IS_DURABLE {
                    let gone = gone.as_ref().map(|gone| gone.name);
                    let attached = self.store.attach(&mut new.client, gone, with);
                    attached.map_err(Error::from)?;
                }
                match gone {
                    Some(place) => *place = new,
                    // There is room for all.
                    None => drop(self.clients.push_within_capacity(new)),
                }
            }
        }
        let known = self.clients.get(index).ok_or(EINVAL)?;
        Ok((number, known.client.incarnation()))
    }

    /// Returns the place of the client that has gone first.
    fn oldest(&self) -> Option<usize> {
        let gone = self.clients.iter().enumerate();
        let gone = gone.filter(|(_, known)| known.session.is_none());
        let oldest = gone.min_by_key(|(_, known)| known.left);
        oldest.map(|(index, _)| index)
    }

    /// A client has gone: its requests were answered, and its leases end.
    pub(in crate::server) fn detach(&mut self, client: u32) {
        let mut from = Some(0);
        while let Some(slot) = from {
            from = self.store.end_leases(client, slot, &mut self.acting);
        }
        self.gone = self.gone.saturating_add(1);
        let left = self.gone;
        if let Some(known) = self.clients.get_mut(client as usize) {
            (known.session, known.left) = (None, left);
            while known.client.account().state().2 > 0 {
                known.client.lease_ended();
            }
        }
    }

    /// Calls for each client: number, session, and what it has.
    pub(in crate::server) fn each_client(
        &self,
        mut call: impl FnMut(usize, &CStr, (u32, u64, u32)) -> Result,
    ) -> Result {
        for (number, known) in self.clients.iter().enumerate() {
            if let Some(session) = &known.session {
                call(number, session, known.client.account().state())?;
            }
        }
        Ok(())
    }
}
