// SPDX-License-Identifier: GPL-2.0

//! The mark that this server has a device open: written before its journal is replayed, anew while
//! it is open, and removed when it is closed.
//!
//! A [`Claim`] decides what is read and written when. The work item that writes the mark anew waits
//! for its IO, and has a queue of its own: no IO of clients waits for it, and a device that stands
//! still holds none of them.

use block_ext::bdev::BlockDevice;
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};
use kernel_ext::{
    errno, file, random,
    workqueue::{
        self,
        DelayedItem,
        Flags,
        WorkQueue, //
    },
};

use super::{
    disk::Disk,
    lease::{
        Lease,
        Use, //
    },
    volume::Volume,
    Crc, //
};
use crate::{
    proto::boot::Boot,
    server::log_limit::LOG_LIMIT,
    shown::Shown,
    sidecar::{
        claim::{
            advance::{
                self,
                Advance,
                Beside,
                End,
                Errand,
                Next, //
            },
            mark::{
                Found,
                Holder,
                Other,
                Sector,
                MARK_BYTES,
                NODE_BYTES, //
            },
            Claim,
            Timing, //
        },
        superblock::Superblock, //
    },
};

/// The sector of a device that no server has open.
const FREE: Sector = [0; MARK_BYTES];

/// Returns who this server is to others.
fn holder(boot: Boot) -> Holder {
    let mut name = [0; NODE_BYTES + 1];
    let name = file::read_start(c"/proc/sys/kernel/hostname", &mut name);
    Holder::new(random::number(), boot.get(), name.unwrap_or(b"?"))
}

/// The claim to a device, and the IO for it.
struct ClaimIo {
    disk: Disk,
    claim: Claim,
    holder: Holder,
    /// The number of the last mark.
    stamp: u64,
    /// The server that has written the mark that was found last.
    found: Other,
    /// The UUID of the sidecar that was there when the device was taken.
    opened: Option<[u8; 16]>,
    /// The time up to which the claim knows that it has passed, on the clock of the lease.
    known_ms: u64,
}

impl ClaimIo {
    /// Says how much time has passed.
    fn pass(&mut self, lease: &Lease) {
        let now_ms = lease.now_ms();
        let passed_ms = now_ms.saturating_sub(self.known_ms);
        self.claim
            .pass(u32::try_from(passed_ms).unwrap_or(u32::MAX));
        self.known_ms = now_ms;
    }

    /// Returns what block 0, which was read last, has beside the mark.
    fn beside(&self) -> Beside {
        let (block, blocks) = self.disk.block_0();
        Beside::of(block, self.opened.as_ref(), blocks, &Crc)
    }

    /// Reads the sector of the mark.
    fn read(&mut self, advance: &mut Advance, lease: &Lease) -> Result {
        let sector = self.disk.read_mark();
        self.pass(lease);
        let (found, holder) = Found::parse(&sector?, &Crc);
        self.found = Other(holder);
        let beside = self.beside();
        match advance.read(&mut self.claim, found, beside) {
            true => Ok(()),
            false => Err(errno::EILSEQ),
        }
    }

    /// Writes a mark, or removes it; `ending`: as for [`Disk::write_mark`].
    fn write(
        &mut self,
        advance: &mut Advance,
        lease: &Lease,
        (is_mark, durable): (bool, bool),
        ending: Option<&Superblock>,
    ) -> Result {
        let mut sector = FREE;
        if is_mark {
            self.stamp = self.stamp.wrapping_add(1);
            self.holder.mark(self.stamp, &mut sector, &Crc);
        }
        let written = self.disk.write_mark(&sector, durable, ending);
        self.pass(lease);
        written?;
        advance.written(&mut self.claim);
        Ok(())
    }

    /// Waits, and says for whom.
    fn wait(&mut self, advance: &mut Advance, lease: &Lease, ms: u32, label: Option<&CStr>) {
        if let Some(label) = label.filter(|_| LOG_LIMIT.allow().is_some()) {
            pr_info!(
                "{label}: it is marked as in use by {}: waiting {ms} ms whether the mark changes\n",
                Shown(self.found)
            );
        }
        fsleep(Delta::from_millis(ms.into()));
        self.pass(lease);
        advance.waited(&mut self.claim);
    }

    /// Does an errand; returns what has come of it, or the error of the device. `ending`: as for
    /// [`Disk::write_mark`]. Sleeps.
    fn advance(
        &mut self,
        errand: Errand,
        lease: &Lease,
        label: &CStr,
        ending: Option<&Superblock>,
    ) -> Result<End> {
        self.pass(lease);
        let mut advance = Advance::new(errand, &mut self.claim);
        loop {
            self.pass(lease);
            let is_permitted = lease.state() == Use::Permitted;
            let done = match advance.next(&mut self.claim, is_permitted) {
                Next::Read => self.read(&mut advance, lease),
                Next::Write { durable } => self.write(&mut advance, lease, (true, durable), ending),
                Next::Remove => self.write(&mut advance, lease, (false, true), ending),
                Next::Wait { ms, is_watching } => {
                    self.wait(&mut advance, lease, ms, is_watching.then_some(label));
                    Ok(())
                }
                Next::End(end) => {
                    lease.lasts(self.known_ms.saturating_add(self.claim.lease_ms().into()));
                    return Ok(end);
                }
            };
            if let Err(error) = done {
                advance.failed(&mut self.claim);
                return Err(error);
            }
        }
    }

    /// Removes the mark, unless another one is in its place. Nothing of the device is in use any
    /// more. Sleeps.
    fn release(&mut self, lease: &Lease, label: &CStr) {
        let removed = match self.advance(Errand::Release, lease, label, None) {
            Ok(End::Removed) => return,
            Ok(_) => EBUSY,
            Err(error) => error,
        };
        pr_warn!(
            "{label}: its mark of use cannot be removed: {removed:?}: the next opening waits some \
             seconds\n"
        );
    }
}

/// Keeps the mark of a device.
#[pin_data]
pub(super) struct Keeper {
    lease: Arc<Lease>,
    // Dropped by `stop`, whose caller is none of its workers.
    queue: WorkQueue,
    label: CString,
    #[pin]
    claim_io: Mutex<ClaimIo>,
    /// The device whose requests wait for the lease, while there are any.
    #[pin]
    volume: Mutex<Option<Arc<Volume>>>,
    #[pin]
    work: DelayedWork<Keeper>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Keeper { self.work }
}

impl WorkItem for Keeper {
    type Pointer = Arc<Keeper>;

    fn run(keeper: Arc<Keeper>) {
        if let Some(rest_ms) = keeper.renew() {
            // Fails if the device is being closed.
            let _ = workqueue::queue_delayed::<_, 0>(keeper, rest_ms);
        }
    }
}

impl DelayedItem for Keeper {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

impl Keeper {
    /// Takes the device for this server, and keeps it. Sleeps, for seconds if it is marked as in
    /// use.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another server uses it, `EUCLEAN` if it is not that of a sidecar any more,
    /// `ETIMEDOUT` if its mark takes longer than half a second each time, with a log line; those of
    /// the device.
    pub(super) fn take(device: Arc<BlockDevice>, label: CString, boot: Boot) -> Result<Arc<Self>> {
        let disk = Disk::of_blocks(device)?.ok_or(EINVAL)?;
        // A queue of its own: other devices may stand still.
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"rnbd_server_claim", flags, 1)?;
        let lease = Arc::new(Lease::new(), GFP_KERNEL)?;
        let holder = holder(boot);
        let claim_io = ClaimIo {
            disk,
            claim: Claim::new(holder.opening, Timing::SERVERS),
            holder,
            stamp: 0,
            found: Other(None),
            opened: None,
            known_ms: 0,
        };
        // Before the mark is written: nothing fails afterwards that would leave it.
        let keeper = Arc::pin_init(
            pin_init!(Self {
                lease,
                queue,
                label,
                claim_io <- new_mutex!(claim_io, "rnbd_server::Keeper::claim_io"),
                volume <- new_mutex!(None, "rnbd_server::Keeper::volume"),
                work <- new_delayed_work!("rnbd_server::Keeper::work"),
            }),
            GFP_KERNEL,
        )?;
        keeper.mark()?;
        let _ = workqueue::queue_delayed::<_, 0>(keeper.clone(), Timing::SERVERS.interval_ms);
        Ok(keeper)
    }

    /// Marks the device as in use by this server. Sleeps.
    fn mark(&self) -> Result {
        let mut claim_io = self.claim_io.lock();
        let shown: &CStr = &self.label;
        let end = match claim_io.advance(Errand::Take, &self.lease, shown, None) {
            Ok(End::NoSidecar) => Err(errno::EUCLEAN),
            Ok(End::TooSlow) => Err(ETIMEDOUT),
            end => end,
        };
        let end = end.inspect_err(|error| {
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "{shown}: not opened: its mark of use cannot be read or written: {error:?}\n"
                );
            }
        })?;
        if end != End::Held {
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "{shown}: not opened: {} uses the device: unmap it there; if that server is \
                     down for certain, `pi-sidecar fsck --clear-in-use /dev/{}` removes its mark\n",
                    Shown(claim_io.found),
                    claim_io.disk.device().name().unwrap_or_default()
                );
            }
            return Err(EBUSY);
        }
        claim_io.opened = claim_io.disk.uuid();
        Ok(())
    }

    /// Returns the permission to use the device.
    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Returns whose marks it writes.
    pub(super) fn holder(&self) -> Holder {
        self.claim_io.lock().holder
    }

    /// Tells `volume` from now on when the device may be used again, or not any more, and when a
    /// mark is on its way. Waits for one that is; sleeps.
    pub(super) fn tell(&self, volume: Arc<Volume>) {
        let _claim_io = self.claim_io.lock();
        *self.volume.lock() = Some(volume);
    }

    /// Returns when to do it again, in milliseconds, if the device is still that of this server.
    fn renew(&self) -> Option<u32> {
        let mut claim_io = self.claim_io.lock();
        let volume = self.volume.lock().clone();
        // A whole block has the superblock too, which a growth writes: it begins no such write
        // while this one is on its way.
        let beside = volume
            .as_ref()
            .filter(|_| claim_io.disk.writes_whole_blocks());
        let ending = beside.and_then(|volume| volume.growing().lock().mark_begun());
        let end = claim_io.advance(Errand::Renew, &self.lease, &self.label, ending.as_ref());
        let is_lost = end.is_ok_and(End::is_lost);
        if is_lost {
            // The last step of a growth, which waits for this, is not taken any more.
            self.lease.lose();
        }
        if let Some(volume) = beside {
            volume.growing().lock().mark_ended();
        }
        let rest_ms = advance::rest_ms(&claim_io.claim);
        // Its own was found last, and written late: another one's may have been there.
        let found = match claim_io.found.0 == Some(claim_io.holder) {
            true => Other(None),
            false => claim_io.found,
        };
        drop(claim_io);
        let label: &CStr = &self.label;
        match end {
            _ if is_lost => {
                pr_err!(
                    "{label}: fenced: {} has taken the device: no more reads and writes until it \
                     is closed here and opened again\n",
                    Shown(found)
                );
            }
            Ok(End::Held) => self.lease.answered(true),
            end => {
                let error = end.err().unwrap_or(ETIMEDOUT);
                self.lease.answered(false);
                if LOG_LIMIT.allow().is_some() {
                    pr_err!("{label}: its mark of use cannot be written anew: {error:?}\n");
                }
            }
        }
        if let Some(volume) = volume {
            // Its requests may have waited for the lease, which may have ended meanwhile.
            Volume::kick(&volume);
        }
        (!self.lease.is_lost()).then_some(rest_ms)
    }

    /// Removes the mark of a device that is being closed, of which nothing is in use any more.
    /// Sleeps.
    pub(super) fn stop(self: Arc<Self>) {
        drop(workqueue::cancel_delayed_sync::<_, 0>(&self));
        let volume = self.volume.lock().take();
        drop(volume);
        if !self.lease.is_lost() {
            self.claim_io.lock().release(&self.lease, &self.label);
        }
    }
}
