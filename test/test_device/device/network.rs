// SPDX-License-Identifier: GPL-2.0

//! State that the queue pairs share.

use super::{
    cq::Passed,
    tables::Tables, //
};
use crate::proto::{
    engine::{
        cpu_of,
        engine_of, //
    },
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
    cpu::num_online_cpus,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering, //
        },
        new_irq_lock,
        new_rw_sem,
        IrqLock,
        RwSem, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    },
};
use verbs_provider::{
    DeviceEvent,
    DmaRange, //
};

/// The pieces of memory that a work request may have.
const PIECES_MAX: usize = 1024;

/// The pieces of memory of a work request.
pub(super) type Memory = Pieces<KVec<Option<DmaRange>>>;

/// The queue pairs, keys and addresses of the device, and what executes and tells.
#[pin_data]
pub(crate) struct Network {
    /// The tables, which an engine has for reading while it executes, and for writing if it has to
    /// be alone.
    #[pin]
    pub(super) tables: RwSem<Tables>,
    engines: KVec<Arc<Engine>>,
    /// The number of sends of connections that are being executed, or whose end is being told.
    pub(super) under_way: AtomicU32,
    #[pin]
    pub(super) faults: IrqLock<Faults>,
    /// The subnet of the ports of InfiniBand.
    #[pin]
    pub(super) fabric: IrqLock<Fabric>,
    /// The device has failed: a copy of what the faults say.
    pub(super) is_dead: AtomicBool,
    /// Notifications that belong to another CPU than the one on which they arise.
    pub(super) interrupts: WorkQueue,
    /// The counts by completion vector: what was told and taken, each on the vector's CPU and
    /// elsewhere.
    vectors: KVec<[[AtomicU32; 2]; 2]>,
}

/// An engine, which executes the sends of its queue pairs one after the other.
#[pin_data]
pub(super) struct Engine {
    pub(super) queue: WorkQueue,
    #[pin]
    pub(super) executor: Mutex<Executor>,
    /// Sends of connections that it has executed, and those of them beside one of another engine.
    sends: [AtomicU32; 2],
    /// Receives that have ended while the end of a send of the same queue pair was not told.
    pub(super) early_answers: AtomicU32,
}

/// State that executing a work request needs.
pub(super) struct Executor {
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

impl Engine {
    fn new() -> Result<Arc<Self>> {
        let executor = Executor {
            from: Pieces::new(KVec::from_elem(None, PIECES_MAX, GFP_KERNEL)?),
            to: Pieces::new(KVec::from_elem(None, PIECES_MAX, GFP_KERNEL)?),
            flip: None,
        };
        let flags = Flags::ORDERED | Flags::MEM_RECLAIM | Flags::HIGHPRI;
        let queue = WorkQueue::new(c"rdma_test_device", flags, 0)?;
        Arc::pin_init(
            pin_init!(Self {
                queue,
                executor <- new_mutex!(executor),
                sends: [const { AtomicU32::new(0) }; 2],
                early_answers: AtomicU32::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Executes a send of a connection by `execute`, and counts it.
    pub(super) fn count_send<T>(&self, network: &Network, execute: impl FnOnce() -> T) -> T {
        let is_beside = network.under_way.fetch_add(1, Ordering::Relaxed) > 0;
        let [sends, beside] = &self.sends;
        sends.fetch_add(1, Ordering::Relaxed);
        beside.fetch_add(is_beside.into(), Ordering::Relaxed);
        let result = execute();
        network.under_way.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Network {
    /// Creates the network of a device of RoCE, or of `ports` of InfiniBand, with so many engines
    /// and completion vectors.
    pub(crate) fn new(ports: usize, engines: u32, vectors: u32) -> Result<Arc<Self>> {
        let (mut all, mut counts) = (KVec::new(), KVec::new());
        for _ in 0..engines {
            all.push(Engine::new()?, GFP_KERNEL)?;
        }
        for _ in 0..vectors {
            counts.push(Default::default(), GFP_KERNEL)?;
        }
        let flags = Flags::PERCPU | Flags::MEM_RECLAIM | Flags::HIGHPRI;
        let interrupts = WorkQueue::new(c"rdma_test_device_interrupts", flags, 0)?;
        let tables = Tables::new()?;
        Arc::pin_init(
            pin_init!(Self {
                tables <- new_rw_sem!(tables),
                engines: all,
                under_way: AtomicU32::new(0),
                faults <- new_irq_lock!(Faults::default()),
                fabric <- new_irq_lock!(Fabric::new(ports)),
                is_dead: AtomicBool::new(false),
                interrupts,
                vectors: counts,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the engine of a queue pair.
    pub(super) fn engine_of(&self, number: u32) -> Option<&Arc<Engine>> {
        let count = u32::try_from(self.engines.len()).ok()?;
        let engine = usize::try_from(engine_of(number, count)).ok()?;
        self.engines.get(engine)
    }

    /// Counts what has been done for a completion vector, on its CPU or elsewhere.
    pub(super) fn count_of_vector(&self, vector: u32, what: Passed, is_own: bool) {
        let vector = usize::try_from(vector).ok();
        let Some([told, taken]) = vector.and_then(|vector| self.vectors.get(vector)) else {
            return;
        };
        let [own, elsewhere] = match what {
            Passed::Told => told,
            Passed::Taken => taken,
        };
        let count = if is_own { own } else { elsewhere };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `show` with the counts of each engine: sends, those beside another one, early answers.
    pub(super) fn engines(&self, mut show: impl FnMut(usize, [u32; 3]) -> Result) -> Result {
        self.engines.iter().enumerate().try_for_each(|(n, engine)| {
            let [sends, beside] = &engine.sends;
            let counts = [sends, beside, &engine.early_answers];
            show(n, counts.map(|count| count.load(Ordering::Relaxed)))
        })
    }

    /// Calls `show` with the number of each completion vector, its CPU, and what was told and
    /// taken, each there and elsewhere.
    pub(super) fn vectors(
        &self,
        mut show: impl FnMut(u32, u32, [[u32; 2]; 2]) -> Result,
    ) -> Result {
        (0..).zip(&self.vectors).try_for_each(|(vector, counts)| {
            let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
            let counts = counts.each_ref().map(|pair| pair.each_ref().map(load));
            show(vector, cpu_of(vector, num_online_cpus()), counts)
        })
    }

    /// Lets all counts begin at 0.
    pub(super) fn reset_counts(&self) {
        self.tables.write().reset_counts();
        let of_engines = self.engines.iter().flat_map(|engine| {
            let [sends, beside] = &engine.sends;
            [sends, beside, &engine.early_answers]
        });
        let of_vectors = self.vectors.iter().flatten().flatten();
        for count in Iterator::chain(of_engines, of_vectors) {
            count.store(0, Ordering::Relaxed);
        }
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
        let tables = self.tables.read();
        for qp in tables.qps() {
            qp.ring_doorbell();
            qp.recv_cq.release();
        }
        let any = tables.qps().next();
        if let Some(qp) = any.filter(|_| is_dead && !was_dead) {
            qp.handle.report_of_device(DeviceEvent::Failed);
        }
    }

    /// Gives a queue pair up, in any state; `EINVAL` if there is none of this number.
    pub(super) fn give_up(&self, number: &str) -> Result {
        let number = number.parse().map_err(|_| EINVAL)?;
        let tables = self.tables.read();
        tables.qp(number).ok_or(EINVAL)?.give_up();
        Ok(())
    }

    /// Changes a port of the subnet, and tells the consumers of its device; `EINVAL` for a rule
    /// that is none.
    pub(super) fn change_port(&self, rule: &str) -> Result {
        let tables = self.tables.read();
        let (number, change) = self.fabric.lock().change(rule).ok_or(EINVAL)?;
        let any = tables.qps().find(|qp| qp.port == Some(number));
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
