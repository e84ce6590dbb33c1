// SPDX-License-Identifier: GPL-2.0

//! A mapped device: its state, its number on the server, and the disk that shows it.

use block_ext::{
    disk::{
        Disk,
        Uevent, //
    },
    Op, //
};
use kernel::{
    fmt, impl_has_work,
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
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno,
    ida::IdaId,
    ratelimit::RateLimit, //
};

use rtrs_client::Via;

use crate::client::{
    admin,
    front::Front,
    io_state::{
        Reach,
        ReachCell, //
    },
    limits::{
        self,
        Following, //
    },
    queue::Queue,
    session::{
        Session,
        User, //
    }, //
};
use crate::proto::{
    access::AccessMode,
    control::{
        DeviceState,
        Unmap, //
    },
    device::Device as Remote, //
};

/// Lines about failed requests.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// A mapped device.
///
/// Lives until it is unmapped and nobody has its disk open any more; then it lets its session go.
#[pin_data]
pub(super) struct Device {
    /// How its requests are sent. Changes under the lock of `inner`.
    reach: ReachCell,
    rtrs: Arc<rtrs_client::Session>,
    /// The device's name on the server.
    path: CString,
    /// How the server opens it.
    access: AccessMode,
    #[pin]
    inner: Mutex<Inner>,
    /// Has the disk follow the limits of the server's device.
    #[pin]
    following: Work<Device>,
    /// The N of `rnbdN`.
    number: IdaId,
    // Dropped last: the session may close with it.
    user: User,
}

/// What changes in the life of a device.
struct Inner {
    state: DeviceState,
    /// How often the link was lost: what was opened before is not open any more.
    losses: u32,
    /// Why it was not opened again the last time.
    refusal: Option<Error>,
    /// The limits, from the first opening on.
    limits: Option<Following>,
    front: Option<Front>,
}

impl_has_work! {
    impl HasWork<Self> for Device { self.following }
}

impl WorkItem for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.follow_limits();
    }
}

impl Device {
    /// A device that is being mapped.
    pub(super) fn new(
        user: User,
        path: CString,
        access: AccessMode,
        number: IdaId,
    ) -> Result<Arc<Self>> {
        let rtrs = user.session().rtrs()?.clone();
        Arc::pin_init(
            pin_init!(Self {
                reach: ReachCell::new(),
                rtrs,
                path,
                access,
                inner <- new_mutex!(Inner {
                    state: DeviceState::Init,
                    losses: 0,
                    refusal: None,
                    limits: None,
                    front: None,
                }),
                following <- new_work!("Device::following"),
                number,
                user,
            }),
            GFP_KERNEL,
        )
    }

    /// How its requests are sent at the moment.
    #[inline]
    pub(super) fn reach(&self) -> Reach {
        self.reach.get()
    }

    /// Whether requests may wait for the server, rather than fail.
    #[inline]
    pub(super) fn is_hopeful(&self) -> bool {
        self.reach() != Reach::NotOpen && self.rtrs.is_open()
    }

    /// The connection to the server.
    #[inline]
    pub(super) fn rtrs(&self) -> &rtrs_client::Session {
        &self.rtrs
    }

    /// The session to which the device belongs.
    pub(super) fn session(&self) -> &Arc<Session> {
        self.user.session()
    }

    /// The device's name on the server.
    pub(super) fn path(&self) -> &CStr {
        &self.path
    }

    /// How the server opens it.
    pub(super) fn access(&self) -> AccessMode {
        self.access
    }

    /// The N of `rnbdN`.
    pub(super) fn number(&self) -> u32 {
        self.number.get()
    }

    /// Where the device is in its life.
    pub(super) fn state(&self) -> DeviceState {
        self.inner.lock().state
    }

    /// Has the server open the device, and notes that it is open: at first, or again after the link
    /// was lost. What waits is sent then.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the device was unmapped meanwhile, `ECONNABORTED` if the link was lost, `EINVAL`
    /// if the server has another device of that name now; else the server's.
    pub(super) fn open(self: &Arc<Self>) -> Result<Remote> {
        let losses = self.inner.lock().losses;
        let remote = admin::open(&*self.rtrs, &self.path, self.access)?;
        let opened = self.opened(&remote, losses);
        if let Err(error) = opened {
            if error != errno::ECONNABORTED {
                admin::close(&*self.rtrs, remote.device_id);
            }
            return Err(error);
        }
        Ok(remote)
    }

    fn opened(self: &Arc<Self>, remote: &Remote, losses: u32) -> Result {
        let mut inner = self.inner.lock();
        if inner.state == DeviceState::Unmapped {
            return Err(ENOENT);
        }
        if inner.losses != losses {
            return Err(errno::ECONNABORTED);
        }
        let again = inner.state != DeviceState::Init;
        let is_forced = self.compare_limits(&mut inner, remote)?;
        inner.refusal = None;
        self.reach.set(if is_forced {
            Reach::Forced(remote.device_id)
        } else {
            Reach::Open(remote.device_id)
        });
        inner.state = DeviceState::Mapped;
        if let (true, Some(front)) = (again, &inner.front) {
            // The size was checked: it is one that a disk can have.
            let _ = self.set_size(front.disk(), remote.nsectors);
            front.disk().let_go();
            front.disk().uevent(Uevent::Online);
        }
        if again {
            pr_info!("{self}: opened again\n");
            self.begin_following(&inner);
        }
        Ok(())
    }

    /// Notes what the server's device is like; says whether writes are to be forced for the time
    /// being.
    fn compare_limits(&self, inner: &mut Inner, remote: &Remote) -> Result<bool> {
        let limits = limits::of_disk(&self.rtrs, remote);
        let Some(following) = &mut inner.limits else {
            inner.limits = Some(Following::new(limits));
            return Ok(false);
        };
        if let Err(error) = following.follow(limits) {
            // Once, however often it is tried.
            if inner.refusal != Some(error) {
                pr_err!(
                    "{self}: has larger blocks now, {} bytes instead of {}: unmap it and map it again\n",
                    remote.logical_block_size,
                    following.block_bytes()
                );
            }
            return Err(error);
        }
        Ok(following.lacks_flushes())
    }

    /// Has the disk's limits changed, if there is a disk and they are to change.
    fn begin_following(self: &Arc<Self>, inner: &Inner) {
        if inner.front.is_some() && inner.limits.as_ref().is_some_and(|l| l.due().is_some()) {
            // If it is queued already, it will see what is due.
            let _ = self.session().client().chores().enqueue(self.clone());
        }
    }

    /// Changes the disk's limits to what they should be. Sleeps, for as long as requests are under
    /// way or wait for a path.
    fn follow_limits(&self) {
        loop {
            let inner = self.inner.lock();
            let due = inner.limits.as_ref().and_then(Following::due);
            let (Some(limits), Some(front)) = (due, &inner.front) else {
                return;
            };
            let disk = front.disk().clone();
            drop(inner);
            if let Err(error) = disk.set_limits(limits) {
                pr_err!("{self}: the disk keeps its old limits: {error:?}\n");
                return;
            }
            let mut inner = self.inner.lock();
            if let Some(following) = &mut inner.limits {
                following.changed(limits);
                if let (false, Reach::Forced(id)) = (following.lacks_flushes(), self.reach()) {
                    self.reach.set(Reach::Open(id));
                }
            }
            pr_info!("{self}: the disk has the limits of the server's device now\n");
            disk.uevent(Uevent::Change);
        }
    }

    /// Has the server open the device by way of `path`, which is not in use yet; says whether it has
    /// the number there that requests are made with.
    ///
    /// # Errors
    ///
    /// The server's.
    pub(super) fn is_same_via(&self, path: &Via<'_>) -> Result<bool> {
        let Some(remote_id) = self.reach().remote_id() else {
            // Nothing is sent for it.
            return Ok(true);
        };
        let remote = admin::open(path, &self.path, self.access)?;
        Ok(remote.device_id == remote_id)
    }

    /// Notes that the connection to the server is lost: requests wait from now on, and none that was
    /// made before is on its way when this returns.
    pub(super) fn disconnected(&self) {
        let mut inner = self.inner.lock();
        inner.losses = inner.losses.wrapping_add(1);
        if inner.state != DeviceState::Mapped {
            return;
        }
        pr_err!("{self}: disconnected, requests wait until the session is back\n");
        self.reach.set(Reach::Waiting);
        inner.state = DeviceState::Disconnected;
        if let Some(front) = &inner.front {
            front.disk().hold();
            front.disk().uevent(Uevent::Offline);
        }
    }

    /// Notes that nobody is to wait for the server any longer: requests fail.
    pub(super) fn gave_up(&self) {
        let inner = self.inner.lock();
        if inner.state == DeviceState::Disconnected {
            pr_err!("{self}: the session is not back, requests fail\n");
            self.reach.set(Reach::NotOpen);
            if let Some(front) = &inner.front {
                front.disk().let_go();
            }
        }
    }

    /// Keeps the disk and its files until the device is unmapped.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device was unmapped meanwhile.
    pub(super) fn show(self: &Arc<Self>, front: Front) -> Result {
        let mut inner = self.inner.lock();
        if inner.state == DeviceState::Unmapped {
            // Not under the lock: removing the disk waits for whoever opens it.
            drop(inner);
            drop(front);
            return Err(ENODEV);
        }
        if self.reach() == Reach::Waiting {
            front.disk().hold();
        }
        inner.front = Some(front);
        self.begin_following(&inner);
        Ok(())
    }

    /// Has the server open the device again after the link was lost.
    ///
    /// # Errors
    ///
    /// `EALREADY` if it is open there, `ENODEV` if it is being unmapped, `EBUSY` while it is being
    /// mapped; else the server's.
    pub(super) fn remap(self: &Arc<Self>) -> Result {
        self.state().check_remap()?;
        self.open().inspect_err(|error| {
            // It may go on for long, once a second: a line for each reason.
            let mut inner = self.inner.lock();
            if inner.refusal != Some(*error) {
                inner.refusal = Some(*error);
                pr_err!("{self}: not opened again: {error:?}\n");
            }
        })?;
        Ok(())
    }

    /// Changes the size that the disk shows, in sectors of 512 bytes.
    ///
    /// # Errors
    ///
    /// `ENOENT` while the device is not open on the server, `EINVAL` for sizes that no file can
    /// have.
    pub(super) fn resize(&self, sectors: u64) -> Result {
        let inner = self.inner.lock();
        match (&inner.front, inner.state) {
            (Some(front), DeviceState::Mapped) => self.set_size(front.disk(), sectors),
            _ => {
                pr_err!("{self}: resize: not open on the server\n");
                Err(ENOENT)
            }
        }
    }

    /// Takes the device out of use: with `Ok` nobody else unmaps it. Requests fail from now on.
    ///
    /// # Errors
    ///
    /// `EALREADY` if somebody else unmaps it, `EBUSY` if the disk is open and `how` is normal.
    pub(super) fn begin_unmap(&self, how: Unmap) -> Result<Ending> {
        let mut inner = self.inner.lock();
        if inner.state == DeviceState::Unmapped {
            pr_info!("{self}: is being unmapped already\n");
            return Err(errno::EALREADY);
        }
        if let Some(front) = &inner.front {
            front
                .disk()
                .forbid_open(how == Unmap::Force)
                .inspect_err(|_| {
                    pr_err!(
                        "{self}: not unmapped, it is open {} times\n",
                        front.disk().open_count()
                    );
                })?;
        }
        let ending = Ending {
            state: inner.state,
            reach: self.reach(),
        };
        inner.state = DeviceState::Unmapped;
        self.reach.set(Reach::NotOpen);
        Ok(ending)
    }

    /// Takes `begin_unmap` back.
    pub(super) fn cancel_unmap(&self, ending: Ending) {
        let mut inner = self.inner.lock();
        inner.state = ending.state;
        self.reach.set(ending.reach);
        if let Some(front) = &inner.front {
            front.disk().allow_open();
        }
    }

    /// Removes the disk and tells the server. Sleeps until the disk's requests have ended.
    pub(super) fn finish_unmap(self: &Arc<Self>, ending: Ending) {
        self.session().forget(self);
        let front = self.inner.lock().front.take();
        // Not under the lock: requests that end want it, and so do those who change the limits.
        if let Some(front) = front {
            front.remove();
        }
        if let Some(remote_id) = ending.reach.remote_id() {
            admin::close(&*self.rtrs, remote_id);
        }
    }

    fn set_size(&self, disk: &Disk<Queue>, sectors: u64) -> Result {
        let before = disk.capacity_sectors();
        if disk.set_capacity(sectors, true)? {
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

/// What a device was before it was unmapped.
pub(super) struct Ending {
    state: DeviceState,
    reach: Reach,
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
