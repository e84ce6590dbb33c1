// SPDX-License-Identifier: GPL-2.0

//! The requests of others that are being served: no more at a time than the administrator lets.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::now_us;
use crate::proto::cache::{
    address::NodeId,
    admission::{
        Admission,
        Guest, //
    },
    reply::Answer, //
};

struct Serving {
    admission: Admission,
    /// The nodes that have a request here, at most as many as requests are served at a time.
    guests: KVec<(NodeId, Guest)>,
}

/// Who is being served.
#[pin_data]
pub(crate) struct Guests {
    #[pin]
    serving: Mutex<Serving>,
}

impl Guests {
    /// Serves at most `capacity` requests at a time, and sends at most `rate_bytes` in a second; 0
    /// is no limit. Sleeps.
    pub(crate) fn new(capacity: u16, rate_bytes: u64) -> Result<Arc<Self>> {
        let serving = Serving {
            admission: Admission::new(capacity, rate_bytes),
            guests: KVec::with_capacity(capacity.into(), GFP_KERNEL)?,
        };
        Arc::pin_init(
            pin_init!(Self { serving <- new_mutex!(serving, "Guests::serving") }),
            GFP_KERNEL,
        )
    }

    /// Admits a request of a node until what is returned is dropped; or returns what the node is
    /// told. Sleeps.
    pub(crate) fn admit(self: &Arc<Self>, node: NodeId) -> Result<Admitted, Answer> {
        let mut serving = self.serving.lock();
        let Serving { admission, guests } = &mut *serving;
        match guests.iter_mut().find(|(guest, _)| *guest == node) {
            Some((_, guest)) => admission.admit(guest, 0, now_us())?,
            None => {
                let mut guest = Guest::NEW;
                admission.admit(&mut guest, 0, now_us())?;
                // There is room: the admission counts no more than it has been made for.
                let _ = guests.push_within_capacity((node, guest));
            }
        }
        let guests = self.clone();
        Ok(Admitted { guests, node })
    }

    /// Returns how many requests each node may have under way here.
    pub(crate) fn credits(&self) -> u16 {
        self.serving.lock().admission.credits()
    }

    fn pay(&self, len_bytes: u64) -> Result<(), Answer> {
        self.serving.lock().admission.pay(len_bytes, now_us())
    }

    fn release(&self, node: NodeId) {
        let mut serving = self.serving.lock();
        let Serving { admission, guests } = &mut *serving;
        let Some(place) = guests.iter().position(|(guest, _)| *guest == node) else {
            return;
        };
        if let Some((_, guest)) = guests.get_mut(place) {
            admission.release(guest);
            if guest.is_idle() {
                let _ = guests.remove(place);
            }
        }
    }
}

/// A request that is being served, until this is dropped. Dropping it sleeps.
pub(crate) struct Admitted {
    guests: Arc<Guests>,
    node: NodeId,
}

impl Admitted {
    /// Takes `len_bytes` from the node's share of the network; or returns what is answered if there
    /// is none left.
    pub(crate) fn pay(&self, len_bytes: u64) -> Result<(), Answer> {
        self.guests.pay(len_bytes)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.guests.release(self.node);
    }
}
