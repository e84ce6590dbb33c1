// SPDX-License-Identifier: GPL-2.0

//! A store: the requests that come to it, and the work item that carries them out.

use kernel::{
    prelude::*,
    str::CString,
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
    random,
    sync::{
        new_irq_lock,
        Completion,
        IrqLock, //
    },
    sysfs::ShowBuffer,
    workqueue::{
        self,
        WorkQueue, //
    },
};
use rtrs_server::Operation;

use super::{
    engine::Engine,
    medium::Kept,
    memory::REQUESTS_MAX,
    reading::Scratch, //
};
use crate::proto::{
    answer::Attached,
    span::IO_BYTES_MAX, //
};

/// A store, on any medium.
pub(super) trait StoreService: Send + Sync {
    /// Returns its name.
    fn name(&self) -> &CStr;

    /// A request of a client that has attached has come. Any context.
    fn request(self: Arc<Self>, client: u32, operation: Operation);

    /// A client comes. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the store is being deleted; `ENOSPC` if it has no room for the client.
    fn attach(&self, name: [u64; 2], session: &CStr) -> Result<Attached>;

    /// A client has gone, and all of its requests are answered. Sleeps.
    fn detach(&self, client: u32);

    /// Whether it was deleted, or is being so.
    fn is_stopped(&self) -> bool;

    /// Ends what goes on, and frees its memory. Sleeps.
    fn stop(self: Arc<Self>);

    /// Prints the state in words.
    fn show_state(&self, page: &mut ShowBuffer<'_>) -> Result;

    /// Prints the statistics.
    fn show_stats(&self, page: &mut ShowBuffer<'_>) -> Result;

    /// Prints a line for each client.
    fn show_clients(&self, page: &mut ShowBuffer<'_>) -> Result;
}

/// The requests that have come, and were not looked at.
struct Inbox {
    list: KVVec<(u32, Operation)>,
    is_closed: bool,
}

/// A store.
#[pin_data]
pub(super) struct StoreOn<D: Kept> {
    name: CString,
    boot: u64,
    queue: Arc<WorkQueue>,
    memory_bytes: u64,
    #[pin]
    inbox: IrqLock<Inbox>,
    #[pin]
    engine: Mutex<Option<KBox<Engine<D>>>>,
    /// Innermost: only the work item takes it, around the lock of the engine.
    #[pin]
    scratch: Mutex<Scratch>,
    #[pin]
    drained: Completion,
    #[pin]
    work: Work<StoreOn<D>>,
}

impl_has_work! {
    impl{D: Kept} HasWork<Self> for StoreOn<D> { self.work }
}

impl<D: Kept> WorkItem for StoreOn<D> {
    type Pointer = Arc<StoreOn<D>>;

    fn run(store: Arc<Self>) {
        let mut scratch = store.scratch.lock();
        while store.go_on(&mut scratch) {}
    }
}

impl<D: Kept> StoreOn<D> {
    /// Begins. Sleeps.
    pub(super) fn new(
        (name, memory_bytes): (&str, u64),
        queue: Arc<WorkQueue>,
        engine: KBox<Engine<D>>,
    ) -> Result<Arc<Self>> {
        let list = KVVec::with_capacity(REQUESTS_MAX, GFP_KERNEL)?;
        let scratch = Scratch::new()?;
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                boot: random::number(),
                queue,
                memory_bytes,
                inbox <- new_irq_lock!(Inbox { list, is_closed: false }, "rioc_server::inbox"),
                engine <- new_mutex!(Some(engine), "rioc_server::engine"),
                scratch <- new_mutex!(scratch, "rioc_server::scratch"),
                drained <- Completion::new(),
                work <- new_work!("rioc_server::StoreOn::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn kick(self: Arc<Self>) {
        let queue = self.queue.clone();
        let _ = queue.enqueue::<Arc<Self>, 0>(self);
    }

    /// Does something of what can be done; returns whether there may be more.
    fn go_on(&self, scratch: &mut Scratch) -> bool {
        let mut engine = self.engine.lock();
        let Some(engine) = engine.as_deref_mut() else {
            return false;
        };
        loop {
            let next = self.inbox.lock().list.remove(0).ok();
            let Some((client, operation)) = next else {
                break;
            };
            engine.arrive(client, operation);
        }
        engine.settle();
        if let Some(tag) = engine.next(scratch) {
            engine.finish(tag, scratch);
            return true;
        }
        if engine.reap() {
            return true;
        }
        let inbox = self.inbox.lock();
        if inbox.is_closed && inbox.list.is_empty() && engine.is_idle() {
            drop(inbox);
            self.drained.complete_all();
        }
        false
    }

    fn with_engine<R>(&self, call: impl FnOnce(&mut Engine<D>) -> Result<R>) -> Result<R> {
        let mut engine = self.engine.lock();
        engine.as_deref_mut().map_or(Err(ENOENT), call)
    }
}

impl<D: Kept> StoreService for StoreOn<D> {
    fn name(&self) -> &CStr {
        &self.name
    }

    fn request(self: Arc<Self>, client: u32, operation: Operation) {
        let mut inbox = self.inbox.lock();
        if inbox.is_closed {
            drop(inbox);
            return operation.reply(Err(ENODEV));
        }
        // There is room: a client has one request for each chunk.
        let pushed = inbox.list.push_within_capacity((client, operation));
        drop(inbox);
        drop(pushed);
        self.kick();
    }

    fn attach(&self, name: [u64; 2], session: &CStr) -> Result<Attached> {
        if self.is_stopped() {
            return Err(ENOENT);
        }
        let attached = self.with_engine(|engine| engine.attach(name, session))?;
        let (client, incarnation) = attached;
        Ok(Attached {
            is_durable: D::IS_DURABLE,
            has_backing: false,
            // CAST: 112 KiB.
            io_bytes_max: IO_BYTES_MAX as u32,
            boot: self.boot,
            client,
            incarnation,
        })
    }

    fn detach(&self, client: u32) {
        // Of one that was deleted nothing is left.
        let _ = self.with_engine(|engine| {
            engine.detach(client);
            Ok(())
        });
    }

    fn is_stopped(&self) -> bool {
        self.inbox.lock().is_closed
    }

    fn stop(self: Arc<Self>) {
        self.inbox.lock().is_closed = true;
        self.clone().kick();
        self.drained.wait();
        let engine = self.engine.lock().take();
        drop(engine);
        drop(workqueue::cancel_sync::<Self, 0>(&self));
    }

    fn show_state(&self, page: &mut ShowBuffer<'_>) -> Result {
        match D::IS_DURABLE {
            true => writeln!(page, "durable"),
            false => writeln!(
                page,
                "memory: what is acknowledged lasts until the store ends"
            ),
        }
    }

    fn show_stats(&self, page: &mut ShowBuffer<'_>) -> Result {
        self.with_engine(|engine| {
            let index = engine.store.index();
            let (blocks, blocks_max) = engine.store.medium().room();
            let (usage, counts) = (index.usage(), &engine.counts);
            writeln!(page, "objects {}", usage.objects)?;
            writeln!(page, "ranges {}", usage.ranges)?;
            writeln!(page, "extents {}", usage.extents)?;
            writeln!(page, "blocks {blocks}")?;
            writeln!(page, "blocks_max {blocks_max}")?;
            writeln!(page, "slots_free {}", index.slots().free_count())?;
            writeln!(page, "slots_max {}", index.slots().count())?;
            writeln!(page, "memory_bytes {}", self.memory_bytes)?;
            writeln!(page, "reads {}", counts.reads)?;
            writeln!(page, "writes {}", counts.writes)?;
            writeln!(page, "others {}", counts.others)?;
            writeln!(page, "failed {}", counts.failed)?;
            writeln!(page, "malformed {}", counts.malformed)
        })
    }

    fn show_clients(&self, page: &mut ShowBuffer<'_>) -> Result {
        self.with_engine(|engine| {
            engine.each_client(|number, session, (operations, bytes, leases)| {
                page.write_fmt(fmt!("{number} {session} {operations} {bytes} {leases}\n"))
            })
        })
    }
}
