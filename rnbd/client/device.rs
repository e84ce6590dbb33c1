// SPDX-License-Identifier: GPL-2.0

//! A mapped device: its state, its number on the server, and its disk.

mod doubt;
mod fence;
mod identity;
mod limit_update;
mod open;
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
    ratelimit::RateLimit,
    sync::{
        atomic::AtomicBool,
        Completion, //
    }, //
};
use rtrs_client::Unheard;

use crate::client::{
    cache::CacheCell,
    io_state::IoStateCell,
    limits::LimitUpdate,
    mapped_disk::MappedDisk,
    protection::Protection,
    session::{
        Session,
        User, //
    }, //
};
use crate::proto::{
    access::AccessMode,
    boot::Boot,
    control::DeviceState,
    doubt::Doubt,
    io_state::IoState,
    known_disk::{
        Difference,
        KnownDisk, //
    },
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
    /// Work item that settles a doubt.
    #[pin]
    settle: Work<Device, { doubt::ITEM }>,
    /// Work item that removes the disk for a user.
    #[pin]
    unmap: Work<Device, { unmap::ITEM }>,
    /// Completed by it, when it has dropped the device.
    unmapped: Arc<Completion>,
    /// The N of `rnbdN`.
    number: u32,
    session: Arc<Session>,
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
    /// Whether a server of this project may have it open although it is not used.
    doubt: Doubt,
    /// The last OPEN whose answer has not come, and the [`Doubt::generation`] that it has begun.
    unheard: Option<(Unheard, u32)>,
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
    /// The use of the session, until the device is unmapped: what is settled afterwards keeps
    /// neither the session nor its name.
    user: Option<User>,
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
        let session = user.session().clone();
        let rtrs = session.rtrs()?.clone();
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
                    doubt: Doubt::NONE,
                    unheard: None,
                    limits: None,
                    known: KnownDisk::default(),
                    difference: None,
                    boot: None,
                    cache_losses: 0,
                    mapped_disk: None,
                    unmap_state: None,
                    user: Some(user),
                }),
                has_swapped: AtomicBool::new(false),
                limit_update <- new_work!("Device::limit_update"),
                scan <- new_work!("Device::scan"),
                scanned <- Completion::new(),
                settle <- new_work!("Device::settle"),
                unmap <- new_work!("Device::unmap"),
                unmapped,
                number,
                session,
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
        &self.session
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
