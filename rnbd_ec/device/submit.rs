// SPDX-License-Identifier: GPL-2.0

//! IO of members: submitted at once, or by a work item if the member takes no more just now.
//!
//! A block device makes those who submit wait while its queue is full or frozen. The engine, which
//! also serves the other members, must not: it asks the device to refuse (`REQ_NOWAIT`), and a work
//! item of the member waits in its place. Writeback throttling does not look at that flag: it has
//! all writes wait but those that a task waits for, as which they are sent.

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
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno,
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::Relaxed, //
        },
        new_irq_lock,
        IrqLock, //
    },
    workqueue::WorkQueue,
};

use super::core::{
    Core,
    Ended,
    Event,
    ENDED_MAX, //
};

/// Holds the IO that waits until a member takes it.
#[pin_data]
pub(super) struct Submitter {
    queue: Arc<WorkQueue>,
    // Dropped after `queue`, which it keeps: the last reference to a queue is not that of an item
    // which runs on it.
    core: Arc<Core>,
    #[pin]
    refused: IrqLock<KVec<MemberIo>>,
    /// The member's device cannot refuse IO.
    waits_always: AtomicBool,
    #[pin]
    work: Work<Submitter>,
}

impl_has_work! {
    impl HasWork<Self> for Submitter { self.work }
}

impl WorkItem for Submitter {
    type Pointer = Arc<Submitter>;

    fn run(submitter: Arc<Submitter>) {
        while let Some(io) = submitter.next() {
            io.submit(false);
        }
    }
}

impl Submitter {
    /// Allocates one. Sleeps.
    pub(super) fn new(core: &Arc<Core>, queue: &Arc<WorkQueue>) -> Result<Arc<Self>> {
        let refused = KVec::with_capacity(ENDED_MAX, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                core: core.clone(),
                queue: queue.clone(),
                refused <- new_irq_lock!(refused, "rnbd_ec::Submitter::refused"),
                waits_always: AtomicBool::new(false),
                work <- new_work!("rnbd_ec::Submitter::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends an IO that cannot be submitted, as it is counted. Any context.
    pub(super) fn end(&self, event: Event) {
        Core::has_ended(&self.core, Ended::new(event, Err(ENODEV), None));
    }

    fn next(&self) -> Option<MemberIo> {
        self.refused.lock().remove(0).ok()
    }

    /// Lets the work item submit an IO. Any context.
    fn take(self: &Arc<Self>, io: MemberIo) {
        // There is room: see `ENDED_MAX`.
        let _ = self.refused.lock().push_within_capacity(io);
        let _ = self.queue.enqueue::<Arc<Self>, 0>(self.clone());
    }
}

/// An operation that a member is asked for.
pub(super) struct Operation {
    pub(super) op: Op,
    pub(super) flags: Flags,
    /// The first byte.
    pub(super) at: u64,
    /// The pages, and how many bytes of them.
    pub(super) data: Option<(Arc<PageBlock>, usize)>,
}

/// An IO of a member.
pub(super) struct MemberIo {
    submitter: Arc<Submitter>,
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<MemberIo>>,
    event: Event,
    what: Operation,
    may_refuse: bool,
}

impl MemberIo {
    /// Begins one, whose end is `event`.
    pub(super) fn begin(
        submitter: &Arc<Submitter>,
        (device, bios): (&Arc<BlockDevice>, &Arc<BioPool<MemberIo>>),
        event: Event,
        what: Operation,
    ) {
        let io = Self {
            submitter: submitter.clone(),
            device: device.clone(),
            bios: bios.clone(),
            event,
            what,
            may_refuse: false,
        };
        if submitter.waits_always.load(Relaxed) {
            submitter.take(io);
        } else {
            io.submit(true);
        }
    }

    /// Submits it. Sleeps while the member takes no more, unless it `may_refuse`.
    fn submit(mut self, may_refuse: bool) {
        let Operation {
            op,
            flags,
            at,
            ref data,
        } = self.what;
        let data = data.clone();
        let mut flags = flags.awaited(op);
        if may_refuse {
            flags = flags | Flags::NOWAIT;
        }
        self.may_refuse = may_refuse;
        let mut bio = Bio::new(self, op, flags, at / u64::from(SECTOR_BYTES));
        let filled = match data {
            Some((pages, len)) => u32::try_from(len)
                .map_err(|_| EINVAL)
                .and_then(|len| bio.add_pages(pages, 0, len)),
            None => bio.set_len_bytes(0),
        };
        // Dropping the bio ends it with an error.
        match filled {
            Ok(()) => bio.submit(),
            Err(_) => drop(bio),
        }
    }

    /// Whether the member did not take it; whether it never refuses in this way.
    fn is_refused(&self, result: Result) -> bool {
        let cannot = result == Err(errno::EOPNOTSUPP);
        let is_refused = self.may_refuse && (cannot || result == Err(EAGAIN));
        if is_refused && cannot {
            self.submitter.waits_always.store(true, Relaxed);
        }
        is_refused
    }
}

impl BioData for MemberIo {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.bios
    }

    fn end(self, result: Result) {
        if self.is_refused(result) {
            self.submitter.clone().take(self);
        } else {
            let means = Some((self.device, self.bios));
            Core::has_ended(&self.submitter.core, Ended::new(self.event, result, means));
        }
    }
}
