// SPDX-License-Identifier: GPL-2.0

//! IO to block devices, one after the other, whose end the caller waits for.

use super::{
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
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicU32,
            Ordering::Relaxed, //
        },
        Completion, //
    },
    workqueue::{
        self,
        WorkQueue, //
    },
};

/// Memory of an IO, in which its submitter waits for the end.
#[pin_data]
struct Waiter {
    #[pin]
    done: Completion,
    /// The errno, or 0.
    errno: AtomicU32,
    /// The IO that the work item is to submit.
    #[pin]
    bio: Mutex<Option<Bio<Awaited>>>,
    #[pin]
    work: Work<Waiter>,
}

impl_has_work! {
    impl HasWork<Self> for Waiter { self.work }
}

impl WorkItem for Waiter {
    type Pointer = Arc<Waiter>;

    fn run(waiter: Arc<Waiter>) {
        let bio = waiter.bio.lock().take();
        if let Some(bio) = bio {
            bio.submit();
        }
    }
}

/// The limit of the time that IOs are waited for.
///
/// A device has the submitter wait while its queue is full or frozen, which is without end if it
/// hangs. So a work item submits, and the caller waits for that and for the end of the IO alike.
/// `REQ_NOWAIT` would not do: it also fails what is longer than the device takes at once.
pub struct Limit {
    /// The time of one IO, in milliseconds.
    pub timeout_ms: u32,
    /// Queue of the work item, with a rescuer if memory may depend on the IO.
    pub queue: Arc<WorkQueue>,
}

/// An IO that its submitter waits for.
struct Awaited {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Awaited>>,
    waiter: Arc<Waiter>,
}

impl BioData for Awaited {
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
            waiter,
        } = self;
        // Before the submitter goes on: it has others, and drops the last ones.
        drop((device, bios));
        let errno = result.map_or_else(|error| error.to_errno().unsigned_abs(), |()| 0);
        waiter.errno.store(errno, Relaxed);
        waiter.done.complete_all();
    }
}

/// Permission to do IO to a device, which comes and goes.
pub trait Permission {
    /// Waits until an IO may begin. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the error of the IO if it may never begin.
    fn wait(&self) -> Result;

    /// Returns whether an IO may begin now.
    fn is_given(&self) -> bool;
}

/// The permission of whose device it is.
impl Permission for () {
    fn wait(&self) -> Result {
        Ok(())
    }

    fn is_given(&self) -> bool {
        true
    }
}

/// The permission that is asked for from some time on.
impl<P: Permission> Permission for Option<Arc<P>> {
    fn wait(&self) -> Result {
        self.as_ref().map_or(Ok(()), |permission| permission.wait())
    }

    fn is_given(&self) -> bool {
        self.as_ref().is_none_or(|permission| permission.is_given())
    }
}

/// An open block device, with memory for one IO at a time. All functions sleep until the device has
/// answered, or a time is over, and allocate nothing that waits for IO.
///
/// While a device owes the answer to an IO whose time is over each other one is an error, as the
/// memory is in use; and the drop waits for it.
pub struct Blocking<P: Permission = ()> {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Awaited>>,
    pages: Arc<PageBlock>,
    waiter: Arc<Waiter>,
    permission: P,
    limit: Option<Limit>,
    /// An IO was begun whose end was not waited for.
    is_owed: bool,
}

impl<P: Permission> Blocking<P> {
    /// Takes a device; one IO has at most `2^order` pages, begins when `permission` is given, and
    /// is waited for as long as `limit` says, or until it has ended. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if an allocation fails.
    pub fn new(
        device: Arc<BlockDevice>,
        order: u32,
        permission: P,
        limit: Option<Limit>,
    ) -> Result<Self> {
        let waiter = pin_init!(Waiter {
            done <- Completion::new(),
            errno: AtomicU32::new(0),
            bio <- new_mutex!(None, "block_ext::blocking::Waiter::bio"),
            work <- new_work!("block_ext::blocking::Waiter::work"),
        });
        Ok(Self {
            device,
            bios: Arc::new(BioPool::new(1)?, GFP_KERNEL)?,
            pages: Arc::new(PageBlock::new(order)?, GFP_KERNEL)?,
            waiter: Arc::pin_init(waiter, GFP_KERNEL)?,
            permission,
            limit,
            is_owed: false,
        })
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<BlockDevice> {
        &self.device
    }

    /// Returns whether the device owes the answer to an IO, for which the drop would wait.
    pub fn is_owed(&self) -> bool {
        self.is_owed && !self.waiter.done.is_done()
    }

    /// Sets the permission of all later IO.
    pub fn set_permission(&mut self, permission: P) {
        self.permission = permission;
    }

    /// Reads from byte `at` on, which begins a sector.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another byte, or more than the memory for an IO; `ETIMEDOUT`, and `EBUSY` while
    /// the answer is owed; that of the permission, and of the device.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result {
        let timeout_ms = self.timeout_ms();
        self.read_within(at, to, timeout_ms)
    }

    /// Reads as [`Self::read`] does, and waits no longer than `timeout_ms`, if that is limited.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn read_within(&mut self, at: u64, to: &mut [u8], timeout_ms: u32) -> Result {
        // The blocks that have it.
        let block_bytes = u64::from(self.device.logical_block_bytes()).max(1);
        let skipped = at.checked_rem(block_bytes).unwrap_or_default();
        let start = at.saturating_sub(skipped);
        // CAST: Less than a logical block.
        let skipped = skipped as usize;
        let len = skipped.saturating_add(to.len());
        // CAST: The size of a block has 32 bits.
        let len = len
            .checked_next_multiple_of(block_bytes as usize)
            .ok_or(EINVAL)?;
        self.io((Op::Read, Flags::SYNC), start, len, timeout_ms)?;
        self.pages.copy_out(skipped, to)
    }

    /// Writes from byte `at` on: whole logical blocks, with [`Flags::SYNC`] and `flags`.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`]. What was not answered in time may be written later.
    pub fn write(&mut self, at: u64, from: &[u8], flags: Flags) -> Result {
        self.check_owed()?;
        self.pages.copy_in(0, from)?;
        let timeout_ms = self.timeout_ms();
        self.io((Op::Write, Flags::SYNC | flags), at, from.len(), timeout_ms)
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EBUSY`; that of the permission, and of the device.
    pub fn flush(&mut self) -> Result {
        let timeout_ms = self.timeout_ms();
        self.io((Op::Flush, Flags::NONE), 0, 0, timeout_ms)
    }

    /// Waits for an answer that is owed, as long as for an IO; then the device can be asked again.
    pub fn await_owed(&mut self) {
        if self.is_owed {
            let _ = self.waiter.done.wait_timeout_ms(self.timeout_ms());
        }
    }

    fn timeout_ms(&self) -> u32 {
        self.limit.as_ref().map_or(0, |limit| limit.timeout_ms)
    }

    /// Checks that no IO is in flight.
    fn check_owed(&mut self) -> Result {
        self.is_owed &= !self.waiter.done.is_done();
        if self.is_owed {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Returns a bio that may be submitted now.
    fn permitted(&self, op: Op, flags: Flags, sector: u64) -> Result<Bio<Awaited>> {
        loop {
            self.permission.wait()?;
            self.waiter.done.reinit();
            let awaited = Awaited {
                device: self.device.clone(),
                bios: self.bios.clone(),
                waiter: self.waiter.clone(),
            };
            let bio = Bio::new(awaited, op, flags, sector);
            // Its memory may have taken longer than the permission has lasted.
            if self.permission.is_given() {
                return Ok(bio);
            }
            drop(bio);
        }
    }

    /// Submits an IO, or has it submitted if its time is limited.
    fn submit(&self, bio: Bio<Awaited>) {
        let Some(limit) = &self.limit else {
            return bio.submit();
        };
        *self.waiter.bio.lock() = Some(bio);
        // It is not queued yet: the IO before has ended, so it was submitted.
        let _ = limit.queue.enqueue::<Arc<Waiter>, 0>(self.waiter.clone());
    }

    /// Does an IO of the first bytes of the memory.
    fn io(
        &mut self,
        (op, flags): (Op, Flags),
        at: u64,
        len_bytes: usize,
        timeout_ms: u32,
    ) -> Result {
        self.check_owed()?;
        let len_bytes = u32::try_from(len_bytes).map_err(|_| EINVAL)?;
        let flags = flags.awaited(op);
        let mut bio = self.permitted(op, flags, at / u64::from(SECTOR_BYTES))?;
        let filled = match op {
            Op::Flush => bio.set_len_bytes(0),
            _ => bio.add_pages(self.pages.clone(), 0, len_bytes),
        };
        // Dropping the bio ends it with an error.
        match filled {
            Ok(()) => self.submit(bio),
            Err(_) => drop(bio),
        }
        match &self.limit {
            Some(_) => {
                let ended = self.waiter.done.wait_timeout_ms(timeout_ms);
                ended.inspect_err(|_| self.is_owed = true)?;
            }
            None => self.waiter.done.wait(),
        }
        match i32::try_from(self.waiter.errno.load(Relaxed)) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(Error::from_errno(errno.wrapping_neg())),
            Err(_) => Err(EIO),
        }
    }
}

impl<P: Permission> Drop for Blocking<P> {
    /// Waits for an answer that is owed: device and pool are dropped here, and not where it comes.
    fn drop(&mut self) {
        if self.is_owed {
            self.waiter.done.wait();
        }
        if self.limit.is_some() {
            // It may not have returned from the submission of an IO that has ended.
            let _ = workqueue::flush::<Waiter, 0>(&self.waiter);
        }
    }
}
