// SPDX-License-Identifier: GPL-2.0

//! An open file: the reads that wait for it, and the worker that carries them out.
//!
//! The worker runs while reads wait. It has the file opened at gfmd and at a gfsd as
//! [`OpenFile`](crate::proto::open_file::OpenFile) decides, reads, and looks at the file's label
//! before a byte is given to a reader. A file that no task reads has no worker, and keeps its
//! descriptor at the gfsd.

use kernel::{
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
            Ordering, //
        },
        WaitQueue, //
    }, //
};

use super::{
    client::Client,
    page_source::{
        Ending,
        Pages, //
    },
    reader::Reader,
    ring::Ring, //
};

/// The number of reads of a file that may wait; a task with another one waits itself. Their places
/// are 8 KiB of each open file.
const READS_MAX: usize = 24;

/// The number of reads that are carried out before their label is looked at.
const BATCH_MAX: usize = 8;

/// The number of bytes behind which no further read joins a batch.
const BATCH_BYTES: usize = 4 << 20;

/// An open file. Its last reference closes it, without waiting.
pub(crate) struct Stream<P: Pages>(Arc<Inner<P>>);

/// What the worker of an open file works on.
#[pin_data]
struct Inner<P: Pages> {
    client: Arc<Client>,
    #[pin]
    waiting: SpinLock<Ring<P>>,
    /// There is room for another read.
    #[pin]
    room: WaitQueue,
    is_released: AtomicBool,
    /// For the worker only.
    #[pin]
    serving: Mutex<Serving<P>>,
    #[pin]
    work: Work<Inner<P>>,
}

impl_has_work! {
    impl{P: Pages} HasWork<Self> for Inner<P> { self.work }
}

/// What a worker has taken.
struct Serving<P> {
    reader: Reader,
    /// The reads that are being carried out; there is room for a batch.
    batch: KVec<P>,
    interrupts: u32,
}

impl<P: Pages> Stream<P> {
    /// Makes a file that gfmd has opened. May sleep.
    pub(super) fn new(client: &Arc<Client>, reader: Reader) -> Result<Arc<Self>> {
        let waiting = Ring::new(READS_MAX)?;
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
                serving <- new_mutex!(serving, "Stream::serving"),
                work <- new_work!("Stream::work"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Arc::new(Self(inner), GFP_KERNEL)?)
    }

    /// Reads into `pages`, which end when they are read, or cannot be. Sleeps only while too many
    /// reads wait.
    pub(crate) fn read(&self, pages: P) {
        let inner = &self.0;
        let mut pages = pages;
        while let Err(rejected) = inner.push(pages) {
            pages = rejected;
            inner.start();
            let has_room = || !inner.waiting.lock().is_full();
            if let Err(error) = inner.room.wait_until_killable(has_room) {
                return pages.end(Ending::Failed(error));
            }
        }
        inner.start();
    }
}

impl<P: Pages> Drop for Stream<P> {
    fn drop(&mut self) {
        self.0.is_released.store(true, Ordering::Release);
        self.0.start();
    }
}

impl<P: Pages> Inner<P> {
    fn push(&self, pages: P) -> Result<(), P> {
        self.waiting.lock().push(pages)
    }

    /// Has the worker run.
    fn start(self: &Arc<Self>) {
        match self.client.setup().queue() {
            Some(queue) => {
                // It may be queued already.
                let _ = queue.enqueue(self.clone());
            }
            // The mount has ended: the servers close what is open.
            None => self.fail_waiting(EIO),
        }
    }

    fn pop(&self) -> Option<P> {
        let pages = self.waiting.lock().pop();
        if pages.is_some() {
            self.room.wake_all();
        }
        pages
    }

    fn fail_waiting(&self, error: Error) {
        while let Some(pages) = self.pop() {
            pages.end(Ending::Failed(error));
        }
    }

    /// Takes reads that wait, until there is a batch of them, or all are to fail since the count of
    /// `interrupts`.
    fn take_batch(&self, batch: &mut KVec<P>, interrupts: u32) {
        let mut bytes = batch.iter().map(P::len).fold(0, usize::saturating_add);
        while batch.len() < BATCH_MAX
            && bytes < BATCH_BYTES
            && self.client.setup().interrupts() == interrupts
        {
            let Some(pages) = self.pop() else {
                return;
            };
            let Some(pages) = pages.ask_nodes(bytes != 0) else {
                continue;
            };
            bytes = bytes.saturating_add(pages.len());
            // There is room for a batch.
            if let Err(error) = batch.push_within_capacity(pages) {
                error.0.end(Ending::Failed(EIO));
                return;
            }
        }
    }

    fn fail_all(&self, batch: &mut KVec<P>, error: Error) {
        while let Some(pages) = batch.pop() {
            pages.end(Ending::Failed(error));
        }
        self.fail_waiting(error);
    }

    /// Works once; returns whether there may be more to do.
    fn serve(&self, serving: &mut Serving<P>) -> bool {
        let Serving {
            reader,
            batch,
            interrupts,
        } = serving;
        let now = self.client.setup().interrupts();
        if *interrupts != now || self.client.setup().is_closed() {
            *interrupts = now;
            reader.reset();
            self.fail_all(batch, EIO);
        }
        self.take_batch(batch, *interrupts);
        if self.client.setup().interrupts() != *interrupts {
            return true;
        }
        if batch.is_empty() {
            if self.is_released.load(Ordering::Acquire) {
                reader.close();
            }
            return false;
        }
        if let Err(error) = reader.prepare(*interrupts) {
            self.fail_all(batch, error);
            return true;
        }
        reader.read(batch);
        true
    }
}

impl<P: Pages> WorkItem for Inner<P> {
    type Pointer = Arc<Inner<P>>;

    fn run(this: Arc<Inner<P>>) {
        let mut serving = this.serving.lock();
        while this.serve(&mut serving) {}
    }
}
