// SPDX-License-Identifier: GPL-2.0

//! The queue pairs, keys and addresses that the engines share.

use super::{
    mr::Regions,
    qp::Qp, //
};
use crate::proto::{
    counts::Counts,
    fabric::Fabric,
    message::{
        deliver,
        Delivery,
        Responder, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use verbs_provider::{
    Datagram,
    Gid, //
};

/// The first number of a queue pair that is not that of management datagrams.
const FIRST_QP: u32 = 16;

/// State that executing work requests reads, and that others change.
pub(crate) struct Tables {
    qps: KVec<Arc<Qp>>,
    pub(super) regions: Regions,
    gids: KVec<(u32, Gid)>,
    next_qp: u32,
    /// The counts of queue pairs that are gone.
    gone: Counts,
}

/// The end of a connection to which a send goes, if it is there, and what becomes of the send.
pub(super) type Aim = (Option<Arc<Qp>>, Delivery);

impl Tables {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            qps: KVec::new(),
            regions: Regions::new()?,
            gids: KVec::new(),
            next_qp: FIRST_QP,
            gone: Counts::default(),
        })
    }

    /// Returns the number of the next queue pair.
    pub(super) fn new_number(&mut self) -> u32 {
        loop {
            let number = self.next_qp;
            // The numbers have 24 bits.
            self.next_qp = if number >= 0xff_ffff {
                FIRST_QP
            } else {
                number + 1
            };
            if self.qp(number).is_none() {
                return number;
            }
        }
    }

    pub(super) fn add_qp(&mut self, qp: Arc<Qp>) -> Result {
        Ok(self.qps.push(qp, GFP_KERNEL)?)
    }

    /// Removes a queue pair.
    pub(super) fn remove_qp(&mut self, qp: &Arc<Qp>) {
        self.qps.retain(|known| !Arc::ptr_eq(known, qp));
        self.gone.add_all(&qp.inner.lock().counts);
    }

    /// Lets those continue whose send waits for the queue pair of this number.
    pub(super) fn wake_waiting_for(&self, number: u32) {
        for qp in self.qps() {
            let mut inner = qp.inner.lock();
            let wakes = inner.awaits_receive && inner.dest_qp == number;
            if wakes {
                inner.awaits_receive = false;
            }
            drop(inner);
            if wakes {
                qp.ring_doorbell();
            }
        }
    }

    /// Calls `show` with the counts of the queue pairs that are gone, under the number 0, and of
    /// each one, with its number and that of its peer.
    pub(super) fn counts(&self, mut show: impl FnMut(u32, u32, &Counts) -> Result) -> Result {
        show(0, 0, &self.gone)?;
        for qp in self.qps() {
            let (peer, counts) = {
                let inner = qp.inner.lock();
                (inner.dest_qp, inner.counts)
            };
            show(qp.number, peer, &counts)?;
        }
        Ok(())
    }

    /// Lets all counts begin at 0.
    pub(super) fn reset_counts(&mut self) {
        self.gone = Counts::default();
        for qp in self.qps() {
            qp.inner.lock().counts = Counts::default();
        }
    }

    pub(super) fn qps(&self) -> impl Iterator<Item = &Arc<Qp>> {
        self.qps.iter()
    }

    /// Returns the connected or datagram queue pair of this number.
    pub(super) fn qp(&self, number: u32) -> Option<&Arc<Qp>> {
        self.qps
            .iter()
            .find(|qp| qp.number == number && !qp.is_general())
    }

    /// Returns where a send of `len` bytes of a connection goes. `uses_receive` and `fills_receive`
    /// are those of [`deliver`].
    pub(super) fn aim(
        &self,
        qp: &Arc<Qp>,
        (uses_receive, fills_receive): (bool, bool),
        len: u64,
    ) -> Aim {
        let dest = qp.inner.lock().dest_qp;
        let peer = self.qp(dest).filter(|peer| peer.is_connected()).cloned();
        let responder = peer.as_ref().map(|peer| {
            let inner = peer.inner.lock();
            Responder {
                state: inner.state,
                is_mine: inner.dest_qp == qp.number,
                room: inner
                    .receives
                    .first()
                    .map(|(_, segments)| segments.map(|(range, _)| range.bytes()).sum()),
            }
        });
        let delivery = deliver(responder, uses_receive, fills_receive, len);
        (peer, delivery)
    }

    /// Returns the receiver of a datagram.
    pub(super) fn receiver(&self, to: &Datagram, fabric: &Fabric) -> Option<&Arc<Qp>> {
        let port = match to.lid {
            0 => {
                self.gids.iter().find(|(_, known)| *known == to.to)?;
                None
            }
            lid => Some(fabric.of_lid(lid)?),
        };
        let is_it = |qp: &&Arc<Qp>| qp.number == to.qp_num && qp.port == port;
        self.qps.iter().find(is_it)
    }

    pub(super) fn add_gid(&mut self, index: u32, gid: Gid) -> Result {
        self.remove_gid(index);
        Ok(self.gids.push((index, gid), GFP_KERNEL)?)
    }

    pub(super) fn remove_gid(&mut self, index: u32) {
        self.gids.retain(|(place, _)| *place != index);
    }
}
