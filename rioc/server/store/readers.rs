// SPDX-License-Identifier: GPL-2.0

//! Reads of the device of a log, each in an item of its own: one that takes long holds up no other
//! request.

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

use super::{
    super::{
        medium::Kept,
        one_device::{
            LogDevice,
            OneDevice, //
        },
        reading::Scratch,
    },
    StoreOn, //
};

/// The reads at a time beside that of the store's item, to which memory belongs.
const READERS: usize = 3;

/// The request whose blocks are read, and the memory for that.
type Job<D> = (Arc<StoreOn<D>>, u32, KBox<Scratch>);

/// An item that reads.
#[pin_data]
pub(super) struct Reader<D: Kept> {
    #[pin]
    job: Mutex<Option<Job<D>>>,
    #[pin]
    work: Work<Reader<D>>,
}

impl_has_work! {
    impl{D: Kept} HasWork<Self> for Reader<D> { self.work }
}

/// Readers that are idle, each with memory.
pub(super) type Idle<D> = KVec<(Arc<Reader<D>>, KBox<Scratch>)>;

impl<D: Kept> WorkItem for Reader<D> {
    type Pointer = Arc<Reader<D>>;

    fn run(reader: Arc<Self>) {
        let Some((store, tag, mut scratch)) = reader.job.lock().take() else {
            return;
        };
        scratch.fetch();
        let mut engine = store.engine.lock();
        if let Some(engine) = engine.as_deref_mut() {
            engine.finish(tag, &mut scratch);
        }
        // Under the lock: who ends the store finds all of them when the last request has ended.
        // There is room for all.
        let _ = (store.readers.lock()).push_within_capacity((reader.clone(), scratch));
        drop(engine);
        store.kick();
    }
}

/// Allocates them. Sleeps.
#[inline(never)]
pub(super) fn new<D: Kept>(device: Option<&LogDevice>) -> Result<Idle<D>> {
    let mut idle = KVec::with_capacity(READERS, GFP_KERNEL)?;
    let Some(device) = device else {
        return Ok(idle);
    };
    for _ in 0..READERS {
        let reader = pin_init!(Reader {
            job <- new_mutex!(None, "rioc_server::Reader::job"),
            work <- new_work!("rioc_server::Reader::work"),
        });
        let scratch = Scratch::new(Some(OneDevice::new(device)?))?;
        idle.push((Arc::pin_init(reader, GFP_KERNEL)?, scratch), GFP_KERNEL)?;
    }
    Ok(idle)
}

impl<D: Kept> StoreOn<D> {
    /// Takes an idle one whose device owes no answer.
    fn reader(&self) -> Option<(Arc<Reader<D>>, KBox<Scratch>)> {
        let mut idle = self.readers.lock();
        let place = idle.iter().position(|(_, scratch)| !scratch.is_owed())?;
        idle.remove(place).ok()
    }

    /// Exchanges memory whose device owes an answer, with which nothing can be read.
    pub(super) fn exchange(&self, scratch: &mut KBox<Scratch>) {
        if !scratch.is_owed() {
            return;
        }
        if let Some((reader, idle)) = self.reader() {
            let owed = core::mem::replace(scratch, idle);
            let _ = self.readers.lock().push_within_capacity((reader, owed));
        }
    }

    /// Has blocks of a request read by an item of their own, if one is idle; returns whether it
    /// has.
    pub(super) fn read_beside(self: &Arc<Self>, tag: u32, scratch: &mut KBox<Scratch>) -> bool {
        if !scratch.needs_device() {
            return false;
        }
        let Some((reader, idle)) = self.reader() else {
            return false;
        };
        let busy = core::mem::replace(scratch, idle);
        *reader.job.lock() = Some((self.clone(), tag, busy));
        let _ = self.queue.enqueue::<Arc<Reader<D>>, 0>(reader);
        true
    }
}
