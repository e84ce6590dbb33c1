// SPDX-License-Identifier: GPL-2.0

//! The descriptors that open files have at gfmd: a process of gfmd has a table of fixed size, and
//! each walk by names needs a place in it.
//!
//! A file that needs one while there are too many has another one give its own back, which was not
//! read for the longest time. That file is opened by its name when it is read again.
//!
//! Its gfsd is asked to close it first, and may not answer: a worker of its own waits for that, and
//! who needs the descriptor asks files of other gfsds meanwhile.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    memory,
    new_wait_queue,
    ratelimit::RateLimit,
    sync::WaitQueue, //
};

use super::setup::Setup;
use crate::proto::{
    descriptors::{
        Count,
        Late, //
    },
    reclaim::{
        self,
        Given,
        ASKED_MAX,
        PATIENCE_MS,
        SLICE_MS, //
    },
    setting::Setting, //
};

/// Says that all are in use once a minute: each file that is opened finds it out.
static IN_USE: RateLimit = RateLimit::new(60_000, 1);

/// An open file, which may have a descriptor.
pub(super) trait Holder: Send + Sync {
    /// Returns what is known of it, by its number among the holders; `None` if it has no
    /// descriptor.
    fn look(&self, number: u64) -> Option<reclaim::Holder>;

    /// Gives the descriptor back, if no read waits for it, or has a worker do so. Waits for no
    /// server.
    fn give_back(self: Arc<Self>) -> Given;
}

/// The descriptors of a mount.
#[pin_data]
pub(super) struct Descriptors {
    setup: Arc<Setup>,
    #[pin]
    count: SpinLock<Count>,
    #[pin]
    holders: Mutex<Holders>,
    /// The tasks that wait for room, which are woken when there may be some.
    #[pin]
    changed: WaitQueue,
}

/// A task that waits, until the drop.
struct Waiting<'a>(&'a Descriptors);

impl<'a> Waiting<'a> {
    fn new(descriptors: &'a Descriptors) -> Self {
        descriptors.count.lock().begin_wait();
        Self(descriptors)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.lock().end_wait();
    }
}

/// The open files, each with its number.
struct Holders {
    list: KVVec<(u64, Arc<dyn Holder>)>,
    next: u64,
}

/// The right to one descriptor.
pub(super) struct Lease {
    descriptors: Arc<Descriptors>,
    /// gfmd is to close the descriptor.
    is_closing: bool,
}

impl Lease {
    fn new(descriptors: &Arc<Descriptors>) -> Self {
        Self {
            descriptors: descriptors.clone(),
            is_closing: false,
        }
    }

    /// Takes note that gfmd is to close the descriptor: others wait for the end of the right.
    pub(super) fn begin_closing(&mut self) {
        if !core::mem::replace(&mut self.is_closing, true) {
            self.descriptors.count.lock().begin_closing();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.descriptors.count.lock().give_back(self.is_closing);
        self.descriptors.changed.wake_all();
    }
}

impl Descriptors {
    pub(super) fn new(setup: &Arc<Setup>) -> Result<Arc<Self>> {
        let holders = Holders {
            list: KVVec::new(),
            next: 0,
        };
        // CAST: From 32 bits to 64.
        let max = setup.options.get(Setting::OpenFiles) as usize;
        Arc::pin_init(
            pin_init!(Self {
                setup: setup.clone(),
                count <- new_spinlock!(Count::new(max), "Descriptors::count"),
                holders <- new_mutex!(holders, "Descriptors::holders"),
                changed <- new_wait_queue!("Descriptors::changed"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes an open file known. May sleep.
    pub(super) fn add(&self, holder: Arc<dyn Holder>) -> Result {
        // Workers take the lock, whom reclaim may wait for.
        memory::without_io(|| {
            let mut holders = self.holders.lock();
            let number = holders.next;
            holders.next = number.wrapping_add(1);
            Ok(holders.list.push((number, holder), GFP_KERNEL)?)
        })
    }

    /// Forgets an open file. May sleep.
    pub(super) fn remove<H>(&self, holder: &Arc<H>) {
        let mut holders = self.holders.lock();
        let is_it = |(_, known): &(u64, Arc<dyn Holder>)| {
            core::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(holder))
        };
        if let Some(index) = holders.list.iter().position(is_it) {
            let removed = holders.list.remove(index);
            drop(holders);
            // Not under the lock: the last reference closes the file.
            drop(removed);
        }
    }

    /// Takes the right to a descriptor. Waits as long as gfmd is to close others, unless waits are
    /// interrupted since the count of `interrupts`. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ENFILE` if all that there may be are in use for a second, `EIO` if waits are
    /// interrupted, `ERESTARTSYS` when the task is killed.
    pub(super) fn take(self: &Arc<Self>, interrupts: u32) -> Result<Lease> {
        if let Some(lease) = self.try_take() {
            return Ok(lease);
        }
        let mut end_ms = self.setup.end_ms(PATIENCE_MS);
        let _waiting = Waiting::new(self);
        loop {
            let left_ms = match self.setup.left_ms(end_ms) {
                Ok(left_ms) => left_ms,
                Err(_) => {
                    if let Some(lease) = self.take_late()? {
                        return Ok(lease);
                    }
                    end_ms = self.setup.end_ms(PATIENCE_MS);
                    PATIENCE_MS
                }
            };
            self.reclaim();
            let is_interrupted = || self.setup.interrupts() != interrupts;
            let has_room = || !self.is_full() || is_interrupted();
            match self
                .changed
                .wait_until_killable_timeout_ms(has_room, left_ms.min(SLICE_MS))
            {
                Ok(()) | Err(ETIMEDOUT) => {}
                Err(error) => return Err(error),
            }
            if is_interrupted() {
                return Err(EIO);
            }
            if let Some(lease) = self.try_take() {
                return Ok(lease);
            }
        }
    }

    /// Decides about a task whose time is over; `None` if it waits on.
    fn take_late(self: &Arc<Self>) -> Result<Option<Lease>> {
        let late = self.count.lock().late();
        match late {
            Late::Has => Ok(Some(Lease::new(self))),
            Late::Wait => Ok(None),
            Late::Fail => {
                if let Some(_suppressed) = IN_USE.allow() {
                    pr_warn!(
                        "gfmd has no room for another open file, and all are being read, or \
                         their file servers do not answer: an open fails; allow more by \
                         max_open_files in gfmd.conf, and open_files=\n"
                    );
                }
                Err(ENFILE)
            }
        }
    }

    /// gfmd has refused a question, as it has no room for another descriptor: has files give theirs
    /// back until there are few enough. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Those of [`take`](Self::take).
    pub(super) fn make_room(self: &Arc<Self>, interrupts: u32) -> Result {
        self.take(interrupts).map(drop)
    }

    /// Tells waiting tasks that waits are interrupted.
    pub(super) fn interrupt(&self) {
        self.changed.wake_all();
    }

    /// Returns the right to a descriptor that is there already, beside the limit: others wait until
    /// there are fewer.
    pub(super) fn exceed(self: &Arc<Self>) -> Lease {
        self.count.lock().exceed();
        Lease::new(self)
    }

    /// gfmd has no room for another one. Returns whether that is news.
    pub(super) fn lower(&self) -> bool {
        self.count.lock().lower()
    }

    /// The process is given up, as it has no room for another one.
    pub(super) fn give_up(&self) {
        self.count.lock().give_up();
    }

    /// gfmd has another process, which has none yet.
    pub(super) fn renew(&self) {
        self.count.lock().renew();
        self.changed.wake_all();
    }

    /// Returns how long a process that is full is kept at least, see [`Count::kept_ms`].
    pub(super) fn kept_ms(&self) -> Option<u64> {
        self.count.lock().kept_ms()
    }

    /// Returns whether a file that needs one has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.count.lock().is_full()
    }

    fn try_take(self: &Arc<Self>) -> Option<Lease> {
        let has_one = self.count.lock().try_take();
        has_one.then(|| Lease::new(self))
    }

    /// Asks the files that were not read for the longest time, and can, to give their descriptors
    /// back, if not enough files are about to do so: one for which a gfsd is asked first, or as
    /// many as are wanted that only gfmd has open.
    fn reclaim(&self) {
        let mut wanted = self.count.lock().wanted();
        let mut has_given = true;
        while core::mem::replace(&mut has_given, false) {
            for holder in self.first(wanted).into_iter().flatten() {
                match holder.give_back() {
                    Given::Kept => {}
                    Given::Asked => return,
                    Given::Closing => {
                        wanted = wanted.saturating_sub(1);
                        has_given = true;
                    }
                }
                if wanted == 0 {
                    return;
                }
            }
        }
    }

    /// Returns the files to be asked for their descriptors.
    fn first(&self, wanted: usize) -> [Option<Arc<dyn Holder>>; ASKED_MAX] {
        let holders = self.holders.lock();
        let known = || {
            let list = holders.list.iter();
            list.filter_map(|(number, holder)| Some((holder.look(*number)?, holder)))
        };
        let first = reclaim::first(known, self.setup.now_ms(), wanted);
        first.map(Option::<&Arc<dyn Holder>>::cloned)
    }
}
