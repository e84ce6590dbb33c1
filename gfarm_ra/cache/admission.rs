// SPDX-License-Identifier: GPL-2.0

//! The admission of requests from other nodes: no more at a time than the administrator permits.

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
        PeerLoad, //
    },
    reply::Answer, //
};

struct Serving {
    admission: Admission,
    /// The nodes that have a request here, at most as many as requests are served at a time.
    loads: KVec<(NodeId, PeerLoad)>,
}

/// The requests of other nodes that are being served.
#[pin_data]
pub(crate) struct Admissions {
    #[pin]
    serving: Mutex<Serving>,
}

impl Admissions {
    /// Serves at most `capacity` requests at a time, and sends at most `rate_bytes` in a second; 0
    /// is no limit. Sleeps.
    pub(crate) fn new(capacity: u16, rate_bytes: u64) -> Result<Arc<Self>> {
        let serving = Serving {
            admission: Admission::new(capacity, rate_bytes),
            loads: KVec::with_capacity(capacity.into(), GFP_KERNEL)?,
        };
        Arc::pin_init(
            pin_init!(Self { serving <- new_mutex!(serving, "Admissions::serving") }),
            GFP_KERNEL,
        )
    }

    /// Admits a request of a node until the returned value is dropped. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the answer for the node if its request is not admitted.
    pub(crate) fn admit(self: &Arc<Self>, node: NodeId) -> Result<Admitted, Answer> {
        let mut serving = self.serving.lock();
        let Serving { admission, loads } = &mut *serving;
        match loads.iter_mut().find(|(other, _)| *other == node) {
            Some((_, load)) => admission.admit(load, 0, now_us())?,
            None => {
                let mut load = PeerLoad::NEW;
                admission.admit(&mut load, 0, now_us())?;
                // There is room: the admission counts no more than it has been made for.
                let _ = loads.push_within_capacity((node, load));
            }
        }
        let admissions = self.clone();
        Ok(Admitted { admissions, node })
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
        let Serving { admission, loads } = &mut *serving;
        let Some(place) = loads.iter().position(|(other, _)| *other == node) else {
            return;
        };
        if let Some((_, load)) = loads.get_mut(place) {
            admission.release(load);
            if load.is_idle() {
                let _ = loads.remove(place);
            }
        }
    }
}

/// A request that is being served, until this is dropped. Dropping it sleeps.
pub(crate) struct Admitted {
    admissions: Arc<Admissions>,
    node: NodeId,
}

impl Admitted {
    /// Takes `len_bytes` from the bytes that this node may send now. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the answer for the node if none are left.
    pub(crate) fn pay(&self, len_bytes: u64) -> Result<(), Answer> {
        self.admissions.pay(len_bytes)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admissions.release(self.node);
    }
}
