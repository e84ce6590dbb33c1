// SPDX-License-Identifier: GPL-2.0

//! An open file: the reads that wait for it, and the workers that carry them out.
//!
//! Other nodes are asked by a worker for each read: who is kept waiting by one keeps no other read
//! waiting. What they have not given is for one worker, which runs while reads wait for it. It has
//! the file opened at gfmd and at a gfsd as [`OpenFile`](crate::proto::open_file::OpenFile) says,
//! reads, and looks at the file's label before a byte is given to a reader. A file that no task
//! reads has no worker, and keeps its descriptor at the gfsd.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    new_wait_queue,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU64,
            Ordering, //
        },
        WaitQueue, //
    }, //
};

use super::{
    client::Client,
    content::Content,
    descriptors::Holder,
    naming::Naming,
    page_source::{
        Ending,
        Pages, //
    },
    place::Place,
    reader::Reader,
    setup::Workers,
    waiting::{
        Began,
        Waiting,
        ASKED_WITHIN_MS, //
    }, //
};
use crate::proto::{
    identity::Opening,
    reclaim::{
        self,
        Given,
        Held, //
    },
    replica::HostId, //
};

/// The number of reads that are carried out before their label is looked at.
const BATCH_MAX: usize = 8;

/// The number of bytes behind which no further read joins a batch.
const BATCH_BYTES: usize = 4 << 20;

/// The number of the work item that serves reads.
const SERVING: u64 = 0;

/// The number of the one that gives the descriptor back.
const CLOSING: u64 = 1;

/// No gfsd: the numbers of gfsds have 32 bits.
const NO_HOST: u64 = u64::MAX;

/// No time at which a file was asked for its descriptor.
const NOT_ASKED: u64 = u64::MAX;

/// An open file. Its last reference closes it, without waiting.
pub(crate) struct Stream<P: Pages> {
    inner: Arc<Inner<P>>,
    content: Arc<Content>,
    opening: Opening,
}

/// The state of an open file for its worker.
#[pin_data]
struct Inner<P: Pages> {
    client: Arc<Client>,
    #[pin]
    waiting: SpinLock<Waiting<P>>,
    /// The tasks that wait for room for another read.
    #[pin]
    room: WaitQueue,
    is_released: AtomicBool,
    /// The worker runs.
    is_served: AtomicBool,
    /// The descriptor that gfmd has for it, and the time at which it was used last, in
    /// milliseconds.
    #[pin]
    held: SpinLock<Held>,
    used_ms: AtomicU64,
    /// The gfsd at which it is open, or [`NO_HOST`].
    host: AtomicU64,
    /// The time since which another file needs the descriptor, in milliseconds, or [`NOT_ASKED`].
    asked_ms: AtomicU64,
    /// The name that the worker is to open the file by, if it is another one.
    #[pin]
    renamed: SpinLock<Option<Naming>>,
    /// The reads that the worker serves; only the worker takes the lock.
    #[pin]
    serving: Mutex<Serving<P>>,
    #[pin]
    work: Work<Inner<P>, SERVING>,
    /// Gives the descriptor back.
    #[pin]
    closing: Work<Inner<P>, CLOSING>,
}

impl_has_work! {
    impl{P: Pages} HasWork<Self, SERVING> for Inner<P> { self.work }
    impl{P: Pages} HasWork<Self, CLOSING> for Inner<P> { self.closing }
}

/// The reads that a worker has taken.
struct Serving<P> {
    reader: Reader,
    /// The reads that are being carried out; there is room for a batch.
    batch: KVec<P>,
    interrupts: u32,
}

impl<P: Pages> Stream<P> {
    /// Makes a file that gfmd has opened, or will open when it is read. May sleep.
    pub(super) fn new(client: &Arc<Client>, reader: Reader) -> Result<Arc<Self>> {
        let waiting = Waiting::new(client.setup().asks_nodes())?;
        let (content, opening) = (reader.content().clone(), reader.opening());
        let held = Held::new(reader.has_descriptor());
        let serving = Serving {
            reader,
            batch: KVec::with_capacity(BATCH_MAX, GFP_KERNEL)?,
            interrupts: client.setup().interrupts(),
        };
        let inner = Arc::pin_init(
            pin_init!(Inner {
                client: client.clone(),
                waiting <- new_spinlock!(waiting, "Stream::waiting"),
                room <- new_wait_queue!("Stream::room"),
                is_released: AtomicBool::new(false),
                is_served: AtomicBool::new(false),
                held <- new_spinlock!(held, "Stream::held"),
                used_ms: AtomicU64::new(client.setup().now_ms()),
                host: AtomicU64::new(NO_HOST),
                asked_ms: AtomicU64::new(NOT_ASKED),
                renamed <- new_spinlock!(None, "Stream::renamed"),
                serving <- new_mutex!(serving, "Stream::serving"),
                work <- new_work!("Stream::work"),
                closing <- new_work!("Stream::closing"),
            }),
            GFP_KERNEL,
        )?;
        client.descriptors().add(inner.clone())?;
        let this = Self {
            inner,
            content,
            opening,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Notes that tasks which have the file open read by this stream, for which gfmd holds a
    /// descriptor in the process `epoch`, if it does.
    pub(crate) fn begin(&self, epoch: Option<u32>) {
        self.content.begin(self.opening, epoch);
        self.inner.held.lock().begin();
    }

    /// Opens the file by another name, if it has to be opened again. May sleep.
    pub(crate) fn rename(&self, place: &Arc<Place>) -> Result {
        let naming = Naming::new(place)?;
        let before = self.inner.renamed.lock().replace(naming);
        // Not under the lock: this frees memory.
        drop(before);
        Ok(())
    }

    /// Reads into `pages`, which end when they are read, or cannot be. Sleeps only while too many
    /// reads wait.
    pub(crate) fn read(&self, pages: P) {
        let inner = &self.inner;
        let setup = inner.client.setup();
        let mut pages = pages;
        let interrupts = setup.interrupts();
        while let Err(rejected) = inner.push(pages, interrupts) {
            pages = rejected;
            inner.start();
            let has_room = || !inner.waiting.lock().is_full();
            if let Err(error) = inner.room.wait_until_killable(has_room) {
                return pages.end(Ending::Failed(error));
            }
        }
        if setup.asks_nodes() {
            inner.start_asking();
        } else {
            inner.start();
        }
    }
}

impl<P: Pages> Drop for Stream<P> {
    fn drop(&mut self) {
        self.inner.client.descriptors().remove(&self.inner);
        self.inner.is_released.store(true, Ordering::Release);
        self.inner.start();
    }
}

impl<P: Pages> Inner<P> {
    fn push(&self, pages: P, interrupts: u32) -> Result<(), P> {
        let setup = self.client.setup();
        let began = Began {
            interrupts,
            // CAST: see `ask_nodes`.
            at_ms: setup.now_ms() as u32,
        };
        let mut waiting = self.waiting.lock();
        match setup.asks_nodes() {
            true => waiting.push_unasked(pages, began),
            false => waiting.push(pages, interrupts),
        }
    }

    /// Has a worker ask nodes for a read. If there is none, the file server is asked for one.
    fn start_asking(self: &Arc<Self>) {
        let this = self.clone();
        let queued = self.client.setup().on_queue(Workers::Asking, |queue| {
            queue.try_spawn(GFP_NOWAIT, move || this.ask_nodes())
        });
        if matches!(queued, Some(Ok(()))) {
            return;
        }
        let passed = self.waiting.lock().pass();
        self.go_on(passed);
    }

    /// Asks nodes for a read, which fails if all are to fail since it began. Sleeps.
    fn ask_nodes(self: Arc<Self>) {
        let Some((pages, began)) = self.waiting.lock().ask() else {
            return;
        };
        let setup = self.client.setup();
        let is_over = || setup.is_closed() || setup.interrupts() != began.interrupts;
        // CAST: the difference is right modulo 2^32.
        let is_late = (setup.now_ms() as u32).wrapping_sub(began.at_ms) > ASKED_WITHIN_MS;
        let mut missing = Some(pages);
        if !is_over() {
            missing = missing.and_then(|pages| pages.ask_nodes(is_late, &is_over));
        }
        if is_over() {
            if let Some(pages) = missing.take() {
                pages.end(Ending::Failed(EIO));
            }
        }
        let asked = self.waiting.lock().asked(missing, began.interrupts);
        self.room.wake_all();
        self.go_on(asked);
    }

    /// Has the worker look for reads; one for which there was no place fails.
    fn go_on(self: &Arc<Self>, pushed: Result<(), P>) {
        if let Err(pages) = pushed {
            // There is a place for each.
            pages.end(Ending::Failed(EIO));
        }
        self.start();
    }

    /// Queues the worker.
    fn start(self: &Arc<Self>) {
        let setup = self.client.setup();
        // It may be queued already.
        let queued = setup.on_queue(Workers::Files, |queue| {
            drop(queue.enqueue::<_, SERVING>(self.clone()))
        });
        if queued.is_none() {
            // The mount has ended: the servers close what is open.
            self.fail_waiting(EIO, |_| true);
        }
    }

    /// Takes the next read for which the gfsd is to be asked, of those that have begun at such a
    /// count of interrupts.
    fn pop(&self, is_it: impl Fn(u32) -> bool) -> Option<P> {
        let pages = self.waiting.lock().pop(is_it);
        if pages.is_some() {
            self.room.wake_all();
        }
        pages
    }

    /// Fails the reads for which the gfsd is to be asked, of those that have begun at such a count.
    /// The workers that ask nodes fail theirs, and those for which nodes are to be asked.
    fn fail_waiting(&self, error: Error, is_it: impl Fn(u32) -> bool) {
        while let Some(pages) = self.pop(&is_it) {
            pages.end(Ending::Failed(error));
        }
    }

    /// Takes reads that wait, until there is a batch of those that have begun at this count of
    /// `interrupts`.
    fn take_batch(&self, batch: &mut KVec<P>, interrupts: u32) {
        let mut bytes = batch.iter().map(P::len).fold(0, usize::saturating_add);
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
            let Some(pages) = self.pop(|began| began == interrupts) else {
                return;
            };
            bytes = bytes.saturating_add(pages.len());
            // There is room for a batch.
            if let Err(error) = batch.push_within_capacity(pages) {
                error.0.end(Ending::Failed(EIO));
                return;
            }
        }
    }

    fn fail_batch(&self, batch: &mut KVec<P>, error: Error) {
        while let Some(pages) = batch.pop() {
            pages.end(Ending::Failed(error));
        }
    }

    /// Notes whether there is a descriptor, for those who look for one.
    fn note(&self, serving: &Serving<P>) {
        let now_ms = self.client.setup().now_ms();
        self.used_ms.store(now_ms, Ordering::Relaxed);
        let host = serving.reader.host().map_or(NO_HOST, |host| host.0.into());
        self.host.store(host, Ordering::Relaxed);
        let has_descriptor = serving.reader.has_descriptor();
        self.held.lock().note(has_descriptor);
    }

    /// Works once; returns whether there may be more to do.
    fn serve(&self, serving: &mut Serving<P>) -> bool {
        let Serving {
            reader,
            batch,
            interrupts,
        } = serving;
        let renamed = self.renamed.lock().take();
        if let Some(naming) = renamed {
            reader.rename(naming);
        }
        let setup = self.client.setup();
        // Read where reads wait: one that comes meanwhile has not begun before it.
        let is_over = |began| began != setup.interrupts() || setup.is_closed();
        if is_over(*interrupts) {
            *interrupts = setup.interrupts();
            reader.reset();
            self.fail_batch(batch, EIO);
        }
        self.fail_waiting(EIO, is_over);
        self.take_batch(batch, *interrupts);
        if setup.interrupts() != *interrupts {
            return true;
        }
        if batch.is_empty() {
            if self.is_released.load(Ordering::Acquire) {
                reader.close();
            }
            return false;
        }
        if let Err(error) = reader.prepare(*interrupts) {
            self.fail_batch(batch, error);
            let interrupts = *interrupts;
            self.fail_waiting(error, |began| began == interrupts);
            return true;
        }
        reader.read(batch);
        true
    }
}

impl<P: Pages> Inner<P> {
    /// Returns whether the descriptor can be given back: no read waits for it.
    fn is_idle(&self, serving: &Serving<P>) -> bool {
        serving.reader.has_descriptor() && self.waiting.lock().is_empty()
    }
}

impl<P: Pages> Holder for Inner<P> {
    fn look(&self, number: u64) -> Option<reclaim::Holder> {
        let may_go = self.held.lock().may_go();
        let asked_ms = self.asked_ms.load(Ordering::Relaxed);
        may_go.then(|| reclaim::Holder {
            number,
            used_ms: self.used_ms.load(Ordering::Relaxed),
            host: u32::try_from(self.host.load(Ordering::Relaxed))
                .ok()
                .map(HostId),
            asked_ms: (asked_ms != NOT_ASKED).then_some(asked_ms),
            is_read: self.is_served.load(Ordering::Relaxed) || !self.waiting.lock().is_empty(),
        })
    }

    fn give_back(self: Arc<Self>) -> Given {
        // Who reads has the lock.
        let Some(mut serving) = self.serving.try_lock() else {
            return Given::Kept;
        };
        if !self.is_idle(&serving) {
            self.note(&serving);
            return Given::Kept;
        }
        if serving.reader.host().is_none() {
            // Only gfmd has it, for whose answer no task waits.
            serving.reader.give_back();
            self.note(&serving);
            return Given::Closing;
        }
        let setup = self.client.setup();
        self.asked_ms.store(setup.now_ms(), Ordering::Relaxed);
        drop(serving);
        // It may be queued already.
        let queued = setup.on_queue(Workers::Closing, |queue| {
            drop(queue.enqueue::<_, CLOSING>(self.clone()))
        });
        queued.map_or(Given::Kept, |()| Given::Asked)
    }
}

impl<P: Pages> WorkItem<CLOSING> for Inner<P> {
    type Pointer = Arc<Inner<P>>;

    fn run(this: Arc<Inner<P>>) {
        // Who reads has the lock, and keeps the descriptor.
        if let Some(mut serving) = this.serving.try_lock() {
            if this.is_idle(&serving) {
                serving.reader.give_back();
            }
            this.note(&serving);
        }
        this.asked_ms.store(NOT_ASKED, Ordering::Relaxed);
    }
}

impl<P: Pages> WorkItem<SERVING> for Inner<P> {
    type Pointer = Arc<Inner<P>>;

    fn run(this: Arc<Inner<P>>) {
        let mut serving = this.serving.lock();
        this.is_served.store(true, Ordering::Relaxed);
        while this.serve(&mut serving) {}
        this.note(&serving);
        this.is_served.store(false, Ordering::Relaxed);
    }
}
