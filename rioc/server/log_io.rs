// SPDX-License-Identifier: GPL-2.0

//! IO that a log begins, and that ends in any context.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    Flags,
    Op,
    SECTOR_BYTES, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    pages::PageBlock,
    sync::{
        new_irq_lock,
        IrqLock, //
    },
    workqueue::{
        Flags as QueueFlags,
        WorkQueue, //
    },
};
use seglog::{
    layout::{
        COLUMN_BYTES_MAX,
        SLOT_BYTES, //
    },
    log::WINDOW,
    superblock::SUPERBLOCK_BYTES, //
};

use crate::proto::medium::Io;

/// The IOs that are in flight at most: batches, a flush of them, and a step of a dump.
pub(super) const IOS_MAX: usize = WINDOW + 2;

/// Takes the ends of IO.
pub(super) trait Ends: Send + Sync {
    /// An IO has ended. Any context.
    fn ended(self: Arc<Self>, io: Io, result: Result);
}

/// An IO in flight.
struct LogBio {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<LogBio>>,
    ends: Arc<dyn Ends>,
    io: Io,
}

impl BioData for LogBio {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.bios
    }

    fn end(self, result: Result) {
        let Self {
            device,
            bios,
            ends,
            io,
        } = self;
        // Before the store goes on: it has others, and drops the last ones.
        drop((device, bios));
        ends.ended(io, result);
    }
}

/// Submits IO in an item of its own, in its order: a device that takes no more, as its queue is
/// full, has that wait, and not who has the lock of the engine.
#[pin_data]
struct Submitter {
    /// IO that was not submitted yet; there is room for all that are in flight.
    #[pin]
    bios: IrqLock<KVec<Bio<LogBio>>>,
    #[pin]
    work: Work<Submitter>,
}

impl_has_work! {
    impl HasWork<Self> for Submitter { self.work }
}

impl WorkItem for Submitter {
    type Pointer = Arc<Submitter>;

    fn run(submitter: Arc<Submitter>) {
        loop {
            let next = submitter.bios.lock().remove(0);
            match next {
                Ok(bio) => bio.submit(),
                Err(_) => return,
            }
        }
    }
}

/// The device of a log, and the memory of what is written.
pub(super) struct LogIo {
    device: Arc<BlockDevice>,
    submitter: Arc<Submitter>,
    /// The queue of its item, which may be returning from the last IO.
    queue: WorkQueue,
    /// Whether batches are flushed: else each is written through. An administrator may say of the
    /// device later that it has another cache; the log has asked once.
    has_cache: bool,
    bios: Arc<BioPool<LogBio>>,
    /// The store; `None` until it runs.
    pub(super) ends: Option<Arc<dyn Ends>>,
    pub(super) in_flight: usize,
    images: [Arc<PageBlock>; WINDOW],
    superblock: Arc<PageBlock>,
    /// The page of the table that is written, as it is made and as it is written.
    page: KVec<u8>,
    page_image: Arc<PageBlock>,
}

impl LogIo {
    /// Allocates the memory. Sleeps.
    pub(super) fn new(
        device: Arc<BlockDevice>,
        has_cache: bool,
        page_bytes: usize,
    ) -> Result<Self> {
        let block = |order| -> Result<_> { Ok(Arc::new(PageBlock::new(order)?, GFP_KERNEL)?) };
        let order = PageBlock::order_for(COLUMN_BYTES_MAX);
        // CAST: Some.
        let bios = Arc::new(BioPool::new(IOS_MAX as u16)?, GFP_KERNEL)?;
        let flags = QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM;
        let room = KVec::with_capacity(IOS_MAX, GFP_KERNEL)?;
        let submitter = pin_init!(Submitter {
            bios <- new_irq_lock!(room, "rioc_server::Submitter::bios"),
            work <- new_work!("rioc_server::Submitter::work"),
        });
        Ok(Self {
            device,
            submitter: Arc::pin_init(submitter, GFP_KERNEL)?,
            queue: WorkQueue::new(c"rioc_log", flags, 0)?,
            has_cache,
            bios,
            ends: None,
            in_flight: 0,
            images: [block(order)?, block(order)?, block(order)?, block(order)?],
            superblock: block(0)?,
            page: KVec::from_elem(0, page_bytes, GFP_KERNEL)?,
            page_image: block(0)?,
        })
    }

    fn begin(
        &mut self,
        io: Io,
        (op, flags, at): (Op, Flags, u64),
        data: Option<(Arc<PageBlock>, usize)>,
    ) {
        let Some(ends) = self.ends.clone() else {
            // Before it runs nothing is begun.
            return;
        };
        self.in_flight = self.in_flight.saturating_add(1);
        let own = LogBio {
            device: self.device.clone(),
            bios: self.bios.clone(),
            ends,
            io,
        };
        // Throttling of writeback would have readers of the device wait for it.
        let flags = (flags | Flags::SYNC).awaited(op);
        let mut bio = Bio::new(own, op, flags, at / u64::from(SECTOR_BYTES));
        let filled = match data {
            // CAST: At most those of a column.
            Some((pages, len)) => bio.add_pages(pages, 0, len as u32),
            None => bio.set_len_bytes(0),
        };
        // Dropping the bio ends it with an error.
        match filled {
            Ok(()) => {
                let pushed = self.submitter.bios.lock().push_within_capacity(bio);
                drop(pushed);
                let _ = self
                    .queue
                    .enqueue::<Arc<Submitter>, 0>(self.submitter.clone());
            }
            Err(_) => drop(bio),
        }
    }

    /// Begins to write a batch: durable at its end, unless the device has a volatile cache.
    pub(super) fn write_batch(&mut self, sequence: u64, at: u64, column: &[u8]) {
        // CAST: Below the window. Those before it have ended.
        let image = self.images.get((sequence % WINDOW as u64) as usize);
        let Some(image) = image.filter(|image| image.copy_in(0, column).is_ok()) else {
            return;
        };
        let flags = match self.has_cache {
            true => Flags::NONE,
            false => Flags::FUA,
        };
        let data = Some((image.clone(), column.len()));
        self.begin(Io::Batch(sequence), (Op::Write, flags, at), data);
    }

    /// Begins a flush.
    pub(super) fn flush(&mut self, io: Io) {
        self.begin(io, (Op::Flush, Flags::NONE, 0), None);
    }

    /// Returns the memory of the page that is written next.
    pub(super) fn page(&mut self) -> &mut [u8] {
        &mut self.page
    }

    /// Begins to write that page.
    pub(super) fn write_page(&mut self, at: u64) {
        if self.page_image.copy_in(0, &self.page).is_ok() {
            let data = Some((self.page_image.clone(), self.page.len()));
            self.begin(Io::Dump, (Op::Write, Flags::META, at), data);
        }
    }

    /// Begins to write a superblock: the rest of its slot stays zero.
    pub(super) fn write_superblock(&mut self, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        if self.superblock.copy_in(0, bytes).is_ok() {
            let data = Some((self.superblock.clone(), SLOT_BYTES as usize));
            let flags = Flags::FUA | Flags::META;
            self.begin(Io::Dump, (Op::Write, flags, at), data);
        }
    }
}
