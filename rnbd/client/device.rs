// SPDX-License-Identifier: GPL-2.0

//! A mapped device: its state, its number on the server, and its disk.

mod fence;
mod identity;
mod limit_update;
mod power;
mod protected;
mod scan;
mod swap;
mod unmap;

pub(super) use self::fence::Asked;
use self::unmap::UnmapState;

use block_ext::{
    disk::Uevent,
    Op, //
};
use core::ops::DerefMut;
use kernel::{
    fmt,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::{
        new_work,
        Work, //
    },
};
use kernel_ext::{
    errno,
    ratelimit::RateLimit,
    sync::{
        atomic::AtomicBool,
        Completion, //
    }, //
};

use crate::client::{
    admin,
    cache::CacheCell,
    io_state::IoStateCell,
    limits::{
        self,
        LimitUpdate, //
    },
    mapped_disk::MappedDisk,
    protection::Protection,
    session::{
        Session,
        User, //
    }, //
};
use crate::proto::{
    access::AccessMode,
    admin_lock::LockMode, //
    boot::Boot,
    control::{
        DeviceState,
        Remap, //
    },
    device::{
        Device as Remote,
        Server, //
    },
    io_state::IoState,
    known_disk::{
        Difference,
        KnownDisk, //
    },
    occasion::Occasion,
    pi::Choice,
};

/// Limits the log lines about failed requests.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// A mapped device.
///
/// Exists until it is unmapped and its disk is removed; then it drops its use of the session. The
/// number of its disk is in use for longer, see [`disk`](super::disk).
#[pin_data]
pub(super) struct Device {
    /// The state in which requests are sent. Changes under the lock of `inner`, except that an
    /// answer which says that the server does not have the device open sets it to `Failing` without
    /// the lock.
    io_state: IoStateCell,
    /// The writes that the server's cache may lose. Next to `io_state`, as requests read both.
    cache: CacheCell,
    rtrs: Arc<rtrs_client::Session>,
    /// The device's name on the server.
    path: CString,
    /// The access mode in which the server opens it.
    access: AccessMode,
    /// The protection information that the user wants.
    pi: Choice,
    /// The one that it has, from the first opening on.
    protection: SetOnce<Arc<Protection>>,
    #[pin]
    inner: Mutex<Inner>,
    /// A page was swapped out to the disk.
    has_swapped: AtomicBool,
    /// Work item that applies changed queue limits to the disk.
    #[pin]
    limit_update: Work<Device>,
    /// Work item that reads the disk's partition table for the first time.
    #[pin]
    scan: Work<Device, { scan::ITEM }>,
    /// Completed by it.
    #[pin]
    scanned: Completion,
    /// Work item that removes the disk for a user.
    #[pin]
    unmap: Work<Device, { unmap::ITEM }>,
    /// Completed by it, when it has dropped the device.
    unmapped: Arc<Completion>,
    /// The N of `rnbdN`.
    number: u32,
    // Dropped last: the session may close with it.
    user: User,
}

/// The state of a device that its lock guards.
///
/// A thread that holds the lock waits neither for IO nor for the disk's `open_mutex`, whose holder
/// may wait for IO: the lock is taken before queued IO can continue or fail.
struct Inner {
    state: DeviceState,
    /// The number of disconnects of the session: a device that was opened before the last one is
    /// not open now.
    disconnects: u32,
    /// The error of the last try to open it again.
    refusal: Option<Error>,
    /// The limits, from the first opening on.
    limits: Option<LimitUpdate>,
    /// Identity and size of the disk, as servers have told them.
    known: KnownDisk,
    /// The difference of the server's disk to the mapped one that was logged since it was opened
    /// last.
    difference: Option<Difference>,
    /// The boot of the server's machine in which it was opened last, if the server has reported it.
    boot: Option<Boot>,
    /// The number of times that the server's cache was lost with writes of this device in it.
    cache_losses: u32,
    mapped_disk: Option<MappedDisk>,
    /// The state that the work item which removes the disk begins with.
    unmap_state: Option<UnmapState>,
}

impl Device {
    /// Allocates a device that is being mapped.
    pub(super) fn new(
        user: User,
        path: CString,
        access: AccessMode,
        pi: Choice,
        number: u32,
    ) -> Result<Arc<Self>> {
        let rtrs = user.session().rtrs()?.clone();
        let unmapped = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                io_state: IoStateCell::new(),
                cache: CacheCell::new(),
                rtrs,
                path,
                access,
                pi,
                protection: SetOnce::new(),
                inner <- new_mutex!(Inner {
                    state: DeviceState::Init,
                    disconnects: 0,
                    refusal: None,
                    limits: None,
                    known: KnownDisk::default(),
                    difference: None,
                    boot: None,
                    cache_losses: 0,
                    mapped_disk: None,
                    unmap_state: None,
                }),
                has_swapped: AtomicBool::new(false),
                limit_update <- new_work!("Device::limit_update"),
                scan <- new_work!("Device::scan"),
                scanned <- Completion::new(),
                unmap <- new_work!("Device::unmap"),
                unmapped,
                number,
                user,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns how its requests are sent at the moment.
    #[inline]
    pub(super) fn io_state(&self) -> IoState {
        self.io_state.get()
    }

    /// Returns whether requests may wait for the server, rather than fail.
    #[inline]
    pub(super) fn may_recover(&self) -> bool {
        self.io_state() != IoState::Failing && self.rtrs.is_open()
    }

    /// Returns what the server's cache may lose.
    #[inline]
    pub(super) fn cache(&self) -> &CacheCell {
        &self.cache
    }

    /// Returns the connection to the server.
    #[inline]
    pub(super) fn rtrs(&self) -> &rtrs_client::Session {
        &self.rtrs
    }

    /// Returns the session to which the device belongs.
    pub(super) fn session(&self) -> &Arc<Session> {
        self.user.session()
    }

    /// Returns the device's name on the server.
    pub(super) fn path(&self) -> &CStr {
        &self.path
    }

    /// Returns how the server opens it.
    pub(super) fn access(&self) -> AccessMode {
        self.access
    }

    /// Returns the N of `rnbdN`.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the state of the device.
    pub(super) fn state(&self) -> DeviceState {
        self.lock().state
    }

    /// Locks the state. If an answer has said that the server does not have the device open, its
    /// state becomes fenced first.
    fn lock(&self) -> impl DerefMut<Target = Inner> + '_ {
        let mut inner = self.inner.lock();
        if inner.state.seen(self.io_state()) != inner.state {
            self.become_fenced(&mut inner);
        }
        inner
    }

    /// Opens the device on the server and stores its state: for the first time, or again after the
    /// session was disconnected. Queued requests are sent then.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the device was unmapped meanwhile, `ECONNABORTED` if the session was
    /// disconnected, `ETIMEDOUT` if the device had no [`LockMode`], `EAGAIN` if a lost CLOSE may
    /// still end it, `ESTALE` if the server has another disk under that name now, or a smaller one,
    /// and `how` does not allow it, `EINVAL` if that one's blocks are too large; else the server's.
    pub(super) fn open(self: &Arc<Self>, how: Remap, occasion: Occasion) -> Result<Remote> {
        // Held until the number is in use.
        let guard = self.session().lock_admin(LockMode::Open)?;
        let disconnects = self.lock().disconnects;
        let server = admin::agree(&*self.rtrs)?;
        guard.opens();
        let (access, wanted) = (self.access, self.wanted());
        let opened = admin::open(&*self.rtrs, &server, &self.path, access, wanted, occasion);
        let remote = match opened {
            Ok(remote) => remote,
            Err(not_opened) => {
                drop(guard);
                if let Some(number) = not_opened.number {
                    self.close(number);
                }
                return Err(not_opened.error);
            }
        };
        self.session().check_number(&self.rtrs, remote.device_id)?;
        guard.uses();
        let opened = self.opened(&remote, &server, disconnects, how);
        drop(guard);
        if let Err(error) = opened {
            if error != errno::ECONNABORTED {
                self.close(remote.device_id);
            }
            return Err(error);
        }
        Ok(remote)
    }

    /// Closes what the server has open under a number, unless a device of the session uses that.
    fn close(&self, id: u32) {
        let session = self.session();
        match session.lock_admin(LockMode::Close) {
            Ok(guard) => session.close_number(&guard, &*self.rtrs, id),
            Err(error) => pr_info!("{self}: number {id} stays open on the server: {error:?}\n"),
        }
    }

    fn opened(
        self: &Arc<Self>,
        remote: &Remote,
        server: &Server,
        disconnects: u32,
        how: Remap,
    ) -> Result {
        let mut inner = self.lock();
        let again = inner.state.check_opened(inner.disconnects == disconnects)?;
        self.compare_protection(&mut inner, remote)?;
        if how == Remap::Same {
            self.compare_disk(&mut inner, remote)?;
        }
        let restarted = again && inner.has_restarted(server);
        let owes = self.cache.get().will_owe(restarted);
        let is_forced = self.compare_limits(&mut inner, remote, owes)?;
        inner.refusal = None;
        let is_another = self.note_disk(&mut inner, remote);
        self.note_boot(&mut inner, server, restarted, remote.writeback);
        let is_protected = self.protection().is_some();
        let io_state = IoState::open(remote.device_id, is_forced, is_protected);
        self.io_state.set(io_state);
        inner.state = DeviceState::Mapped;
        if let (true, Some(mapped_disk)) = (again, &mut inner.mapped_disk) {
            // The size was checked: it is one that a disk can have.
            let _ = self.set_size(mapped_disk, remote.capacity_sectors());
            mapped_disk.unquiesce();
            mapped_disk.uevent(Uevent::Online);
            if is_another {
                mapped_disk.uevent(Uevent::Change);
            }
        }
        if again {
            pr_info!("{self}: opened again\n");
            self.begin_limit_update(&inner);
        }
        Ok(())
    }

    /// Stores the limits of the server's device; returns whether writes must be forced. A disk that
    /// owes an error to the next flush has to get flushes.
    fn compare_limits(&self, inner: &mut Inner, remote: &Remote, owes: bool) -> Result<bool> {
        let mut limits = limits::of_disk(&self.rtrs, remote);
        let Some(limit_update) = &mut inner.limits else {
            inner.limits = Some(LimitUpdate::new(limits));
            return Ok(false);
        };
        limits.write_cache |= owes;
        if let Err(error) = limit_update.follow(limits) {
            // Logged once, however often it is tried.
            if inner.refusal != Some(error) {
                pr_err!(
                    "{self}: has larger blocks now, {} bytes instead of {}: unmap it and map it again\n",
                    remote.logical_block_size,
                    limit_update.block_bytes()
                );
            }
            return Err(error);
        }
        if limit_update.begins_to_force() {
            pr_warn!(
                "{self}: the server's device has a cache now: each write is forced through it \
                 until the disk is unmapped and mapped again\n"
            );
        }
        Ok(limit_update.must_force())
    }

    /// Handles the loss of the last path: requests are queued from now on, and none that was made
    /// before is being sent when this returns.
    pub(super) fn disconnected(&self) {
        let mut inner = self.lock();
        inner.disconnects = inner.disconnects.wrapping_add(1);
        if !inner.state.queues_in_outage() {
            return;
        }
        let io_state = self.io_state();
        if io_state == IoState::Failing || !self.io_state.change(io_state, IoState::Queueing) {
            // An answer has fenced it just now.
            return self.become_fenced(&mut inner);
        }
        pr_err!("{self}: disconnected, requests wait until the session is back\n");
        inner.state = DeviceState::Disconnected;
        if let Some(mapped_disk) = &mut inner.mapped_disk {
            mapped_disk.quiesce();
            mapped_disk.uevent(Uevent::Offline);
        }
    }

    /// Fails requests, which have waited for the server for long enough.
    pub(super) fn io_failed(&self) {
        let mut inner = self.lock();
        if inner.state.fails_with_outage() {
            pr_err!("{self}: the session is not back, requests fail\n");
            self.io_state.set(IoState::Failing);
            if let Some(mapped_disk) = &mut inner.mapped_disk {
                mapped_disk.unquiesce();
            }
        }
    }

    /// Opens the device again after the session was disconnected, or the server has closed it.
    ///
    /// # Errors
    ///
    /// `EALREADY` if it is open there, which the server is asked, `ENODEV` if it is being unmapped,
    /// `EBUSY` while it is being mapped; else the server's.
    pub(super) fn remap(self: &Arc<Self>, how: Remap) -> Result {
        self.open_again(how, Occasion::Asked)
    }

    /// Opens the device again as [`Self::remap`] does, after an outage.
    pub(super) fn open_after_outage(self: &Arc<Self>) -> Result {
        self.open_again(Remap::Same, Occasion::AfterOutage)
    }

    /// Returns whether the server has not answered when the device was to be opened again.
    pub(super) fn was_not_answered(&self) -> bool {
        self.lock().refusal == Some(ETIMEDOUT)
    }

    fn open_again(self: &Arc<Self>, how: Remap, occasion: Occasion) -> Result {
        if self.state().asks_before_remap() {
            self.ask_whether_open();
        }
        self.state().check_remap()?;
        self.open(how, occasion).inspect_err(|error| {
            // It may be tried for long, once a second: one line for each reason.
            let mut inner = self.lock();
            if inner.refusal != Some(*error) {
                inner.refusal = Some(*error);
                pr_err!("{self}: not opened again: {error:?}\n");
            }
        })?;
        Ok(())
    }

    /// Changes the capacity of the disk, in sectors of 512 bytes.
    ///
    /// # Errors
    ///
    /// `ENOENT` while the device is not open on the server, `EINVAL` for sizes that no file can
    /// have.
    pub(super) fn resize(&self, sectors: u64) -> Result {
        let inner = self.lock();
        match (&inner.mapped_disk, inner.state) {
            (Some(mapped_disk), DeviceState::Mapped) => self.set_size(mapped_disk, sectors),
            _ => {
                pr_err!("{self}: resize: not open on the server\n");
                Err(ENOENT)
            }
        }
    }

    fn set_size(&self, mapped_disk: &MappedDisk, sectors: u64) -> Result {
        let before = mapped_disk.disk().capacity_sectors();
        if mapped_disk.set_capacity(sectors)? {
            pr_info!("{self}: size changed from {before} to {sectors} sectors\n");
        }
        Ok(())
    }

    /// Logs that a request failed, if there are not too many of these lines.
    #[cold]
    pub(super) fn log_failed(&self, op: Op, error: Error) {
        if LOG_LIMIT.allow().is_some() {
            pr_info!("{self}: {op:?} failed: {error:?}\n");
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(fmt!(
            "rnbd{} ('{}' of session {})",
            self.number(),
            &*self.path,
            self.session().name()
        ))
    }
}
