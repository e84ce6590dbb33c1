// SPDX-License-Identifier: GPL-2.0

//! State that the queue pairs share.

use super::{
    mr::Regions,
    qp::Qp, //
};
use crate::proto::{
    counts::Counts,
    fabric::{
        Change,
        Fabric, //
    },
    fault::Faults,
    gather::{
        Piece,
        Pieces, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    sync::{
        atomic::{
            AtomicBool,
            Ordering, //
        },
        new_irq_lock,
        IrqLock, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    },
};
use verbs_provider::{
    Datagram,
    DeviceEvent,
    DmaRange,
    Gid, //
};

/// The pieces of memory that a work request may have.
const PIECES_MAX: usize = 1024;

/// The pieces of memory of a work request.
pub(super) type Memory = Pieces<KVec<Option<DmaRange>>>;

/// The first number of a queue pair that is not that of management datagrams.
const FIRST_QP: u32 = 16;

/// The queue pairs, keys and addresses of the device, and the thread that executes.
#[pin_data]
pub(crate) struct Network {
    #[pin]
    pub(super) engine: Mutex<Engine>,
    #[pin]
    pub(super) faults: IrqLock<Faults>,
    /// The subnet of the ports of InfiniBand.
    #[pin]
    pub(super) fabric: IrqLock<Fabric>,
    /// The device has failed: a copy of what the faults say.
    pub(super) is_dead: AtomicBool,
    pub(super) queue: WorkQueue,
}

/// State that executing a work request needs.
pub(crate) struct Engine {
    qps: KVec<Arc<Qp>>,
    pub(super) regions: Regions,
    gids: KVec<(u32, Gid)>,
    next_qp: u32,
    /// The counts of queue pairs that are gone.
    gone: Counts,
    pub(super) from: Memory,
    pub(super) to: Memory,
    /// The bit that the next copy flips.
    pub(super) flip: Option<u32>,
}

impl Piece for DmaRange {
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn part(&self, offset: u64, len: u64) -> Option<Self> {
        self.part(offset, len)
    }
}

impl Network {
    /// Creates the network of a device of RoCE, or of `ports` of InfiniBand.
    pub(crate) fn new(ports: usize) -> Result<Arc<Self>> {
        let engine = Engine {
            qps: KVec::new(),
            regions: Regions::new()?,
            gids: KVec::new(),
            next_qp: FIRST_QP,
            gone: Counts::default(),
            from: Pieces::new(KVec::from_elem(None, PIECES_MAX, GFP_KERNEL)?),
            to: Pieces::new(KVec::from_elem(None, PIECES_MAX, GFP_KERNEL)?),
            flip: None,
        };
        let queue = WorkQueue::new(
            c"rdma_test_device",
            Flags::ORDERED | Flags::MEM_RECLAIM | Flags::HIGHPRI,
            0,
        )?;
        Arc::pin_init(
            pin_init!(Self {
                engine <- new_mutex!(engine),
                faults <- new_irq_lock!(Faults::default()),
                fabric <- new_irq_lock!(Fabric::new(ports)),
                is_dead: AtomicBool::new(false),
                queue,
            }),
            GFP_KERNEL,
        )
    }

    /// Fails with `EIO` if the device has failed.
    pub(super) fn check_alive(&self) -> Result {
        match self.is_dead.load(Ordering::Relaxed) {
            true => Err(EIO),
            false => Ok(()),
        }
    }

    /// Takes over what the faults say of the device, and has all queue pairs look at it.
    pub(super) fn faults_changed(&self) {
        let is_dead = self.faults.lock().is_device_dead();
        let was_dead = self.is_dead.swap(is_dead, Ordering::Relaxed);
        let engine = self.engine.lock();
        for qp in engine.qps() {
            qp.ring_doorbell();
            qp.recv_cq.release();
        }
        let any = engine.qps().next();
        if let Some(qp) = any.filter(|_| is_dead && !was_dead) {
            qp.handle.report_of_device(DeviceEvent::Failed);
        }
    }

    /// Gives a queue pair up, in any state; `EINVAL` if there is none of this number.
    pub(super) fn give_up(&self, number: &str) -> Result {
        let number = number.parse().map_err(|_| EINVAL)?;
        let engine = self.engine.lock();
        engine.qp(number).ok_or(EINVAL)?.give_up();
        Ok(())
    }

    /// Changes a port of the subnet, and tells the consumers of its device; `EINVAL` for a rule
    /// that is none.
    pub(super) fn change_port(&self, rule: &str) -> Result {
        let engine = self.engine.lock();
        let (number, change) = self.fabric.lock().change(rule).ok_or(EINVAL)?;
        let any = engine.qps().find(|qp| qp.port == Some(number));
        if let Some(qp) = any {
            qp.handle.report_of_device(match change {
                Change::Lid => DeviceEvent::LidChanged,
                Change::Pkeys => DeviceEvent::PkeysChanged,
                Change::Manager => DeviceEvent::Reregister,
            });
        }
        Ok(())
    }
}

impl Engine {
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
