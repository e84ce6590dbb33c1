// SPDX-License-Identifier: GPL-2.0

//! What a device with a sidecar shares: its ports, what has ended, and the work item.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        BioData,
        BioPool, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::{
                Acquire,
                Release, //
            }, //
        },
        Completion,
        IrqLock, //
    },
    workqueue::WorkQueue,
};
use rtrs_server::Operation;

use super::{
    engine::{
        Engine,
        Event,
        EVENTS_MAX, //
    },
    port::Port,
    scrub::Scrub,
    Crc, //
};
use crate::{
    server::io::Notice,
    sidecar::{
        layout::Layout,
        ring::Ring,
        superblock::Superblock,
        tuple::Seal, //
    },
};

/// What the IO of a device needs.
pub(super) type Means = (Arc<BlockDevice>, Arc<BioPool<StoreIo>>, Arc<WorkQueue>);

/// A device with a sidecar.
///
/// Locking: `engine` is taken by the work item alone, and before it starts; `ports` and `scrub`
/// inside it.
#[pin_data]
pub(super) struct Core {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<StoreIo>>,
    queue: Arc<WorkQueue>,
    layout: Layout,
    seal: Seal,
    is_draining: AtomicBool,
    /// There may be a piece of a scrub to be read.
    is_scrubbing: AtomicBool,
    #[pin]
    scrub: Mutex<Scrub>,
    #[pin]
    drained: Completion,
    /// What has ended; there is room for all IO that can be in flight.
    #[pin]
    ended: IrqLock<KVec<(Event, Result)>>,
    #[pin]
    ports: Mutex<KVec<Arc<Port>>>,
    #[pin]
    engine: Mutex<Engine>,
    #[pin]
    work: Work<Core>,
    // Dropped last: completes when no reference is left.
    _gone: Notice,
}

impl_has_work! {
    impl HasWork<Self> for Core { self.work }
}

impl WorkItem for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        let mut engine = core.engine.lock();
        let is_draining = core.is_draining.load(Acquire);
        let is_idle = engine.run(&core, is_draining);
        drop(engine);
        if is_draining && is_idle {
            core.drained.complete_all();
        }
    }
}

impl Core {
    /// Creates the state of a device whose journal was replayed; `gone` completes when the last
    /// reference is dropped.
    pub(super) fn new(
        (device, bios, queue): Means,
        superblock: &Superblock,
        ring: Ring,
        gone: Arc<Completion>,
    ) -> Result<Arc<Self>> {
        let seal = superblock.seal(&Crc);
        let engine = Engine::new(seal, ring, device.has_write_cache())?;
        let ended = KVec::with_capacity(EVENTS_MAX, GFP_KERNEL)?;
        let layout = superblock.layout;
        Arc::pin_init(
            pin_init!(Self {
                device,
                bios,
                queue,
                layout,
                seal,
                is_draining: AtomicBool::new(false),
                is_scrubbing: AtomicBool::new(false),
                scrub <- new_mutex!(Scrub::new(), "rnbd_server::Core::scrub"),
                drained <- Completion::new(),
                ended <- new_irq_lock!(ended, "rnbd_server::Core::ended"),
                ports <- new_mutex!(KVec::new()),
                engine <- new_mutex!(engine),
                work <- new_work!("rnbd_server::Core::work"),
                _gone: Notice::new(gone),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets the work item run. Any context.
    pub(super) fn kick(core: &Arc<Self>) {
        // If the item is queued already, it will see what is new.
        let _ = core.queue.enqueue::<Arc<Self>, 0>(core.clone());
    }

    /// Writes all tuples home and empties the journal. No requests are left, and none come. Sleeps.
    pub(super) fn drain(self: &Arc<Self>) {
        self.is_draining.store(true, Release);
        Self::kick(self);
        self.drained.wait();
        if !self.engine.lock().is_clean() {
            let name = self.device.name().unwrap_or_default();
            pr_warn!("{name}: closed with a journal that the next opening replays\n");
        }
    }

    /// Returns the scrub.
    pub(super) fn scrub(&self) -> &Mutex<Scrub> {
        &self.scrub
    }

    /// Returns whether there may be a piece of a scrub to be read.
    pub(super) fn is_scrubbing(&self) -> bool {
        self.is_scrubbing.load(Acquire)
    }

    /// Says whether there may be a piece of a scrub to be read. Called under `scrub`.
    pub(super) fn set_scrubbing(&self, is_scrubbing: bool) {
        self.is_scrubbing.store(is_scrubbing, Release);
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// Returns the layout.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the seal of its tuples.
    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Returns the number of data blocks.
    pub(super) fn data_blocks(&self) -> u64 {
        self.layout.data_blocks()
    }

    /// Adds a mapping.
    pub(super) fn add_port(&self, port: Arc<Port>) -> Result {
        Ok(self.ports.lock().push(port, GFP_KERNEL)?)
    }

    /// Removes a mapping.
    pub(super) fn remove_port(&self, port: &Arc<Port>) {
        let mut ports = self.ports.lock();
        let mut removed = None;
        if let Some(index) = ports.iter().position(|other| Arc::ptr_eq(other, port)) {
            removed = ports.remove(index).ok();
        }
        drop(ports);
        drop(removed);
    }

    /// Returns whether a mapping uses the device.
    pub(super) fn has_ports(&self) -> bool {
        !self.ports.lock().is_empty()
    }

    /// Takes a request that waits, of the ports in turn.
    pub(super) fn next_request(&self, turn: &mut usize) -> Option<(Operation, Arc<Port>)> {
        let ports = self.ports.lock();
        for _ in 0..ports.len() {
            *turn = turn.wrapping_add(1).checked_rem(ports.len()).unwrap_or(0);
            let port = ports.get(*turn)?;
            if let Some(operation) = port.pop() {
                return Some((operation, port.clone()));
            }
        }
        None
    }

    /// Takes something that has ended.
    pub(super) fn next_ended(&self) -> Option<(Event, Result)> {
        self.ended.lock().pop()
    }
}

/// An IO of a device with a sidecar.
pub(super) struct StoreIo {
    core: Arc<Core>,
    event: Event,
}

impl StoreIo {
    /// Creates one, whose end is `event`.
    pub(super) fn new(core: Arc<Core>, event: Event) -> Self {
        Self { core, event }
    }
}

impl BioData for StoreIo {
    fn device(&self) -> &BlockDevice {
        &self.core.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.core.bios
    }

    fn end(self, result: Result) {
        // There is room: see `EVENTS_MAX`.
        let _ = self
            .core
            .ended
            .lock()
            .push_within_capacity((self.event, result));
        Core::kick(&self.core);
    }
}
