// SPDX-License-Identifier: GPL-2.0

//! A mapped device: its state, its number on the server, and the disk that shows it.

use kernel::{
    fmt,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    block::{
        disk::{
            Disk,
            Uevent, //
        },
        Op, //
    },
    errno,
    ida::IdaId,
    ratelimit::RateLimit,
    sysfs::{
        Directory,
        Link, //
    },
};

use rtrs_client::Via;

use super::{
    admin,
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

/// `Device::remote_id` of a device that is not open: more than 32 bits hold. Requests fail.
const NOT_OPEN: u64 = u64::MAX;

/// `Device::remote_id` of a device that will be opened again. Requests wait.
const WAITING: u64 = u64::MAX - 1;

/// Lines about failed requests.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// A mapped device.
///
/// Lives until it is unmapped and nobody has its disk open any more; then it lets its session go.
#[pin_data]
pub(super) struct Device {
    /// Its number on the server, `NOT_OPEN` or `WAITING` while it is not open there. Read for each
    /// request.
    remote_id: Atomic<u64>,
    rtrs: Arc<rtrs_client::Session>,
    /// The device's name on the server.
    path: CString,
    /// How the server opens it.
    access: AccessMode,
    #[pin]
    inner: Mutex<Inner>,
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
    /// Bytes of a logical block; a disk cannot change that while somebody has it open.
    block_size: u16,
    front: Option<Front>,
}

/// The disk and its files, dropped in this order.
pub(super) struct Front {
    _link: Link,
    _files: Directory<Device>,
    disk: Disk<Queue>,
}

impl Front {
    /// Keeps the three together.
    pub(super) fn new(link: Link, files: Directory<Device>, disk: Disk<Queue>) -> Self {
        Self {
            _link: link,
            _files: files,
            disk,
        }
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
                remote_id: Atomic::new(NOT_OPEN),
                rtrs,
                path,
                access,
                inner <- new_mutex!(Inner {
                    state: DeviceState::Init,
                    losses: 0,
                    refusal: None,
                    block_size: 0,
                    front: None,
                }),
                number,
                user,
            }),
            GFP_KERNEL,
        )
    }

    /// The device's number on the server; `None` while it is not open there.
    #[inline]
    pub(super) fn remote_id(&self) -> Option<u32> {
        u32::try_from(self.remote_id.load(Relaxed)).ok()
    }

    /// Whether requests may wait for the server, rather than fail.
    #[inline]
    pub(super) fn is_hopeful(&self) -> bool {
        self.remote_id.load(Relaxed) != NOT_OPEN && self.rtrs.is_open()
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
    pub(super) fn open(&self) -> Result<Remote> {
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

    fn opened(&self, remote: &Remote, losses: u32) -> Result {
        let mut inner = self.inner.lock();
        if inner.state == DeviceState::Unmapped {
            return Err(ENOENT);
        }
        if inner.losses != losses {
            return Err(errno::ECONNABORTED);
        }
        let again = inner.state != DeviceState::Init;
        if again && inner.block_size != remote.logical_block_size {
            pr_err!(
                "{self}: has blocks of {} bytes now, not {}: unmap it and map it again\n",
                remote.logical_block_size,
                inner.block_size
            );
            return Err(EINVAL);
        }
        inner.refusal = None;
        inner.block_size = remote.logical_block_size;
        self.remote_id.store(u64::from(remote.device_id), Relaxed);
        inner.state = DeviceState::Mapped;
        if let (true, Some(front)) = (again, &inner.front) {
            // The size was checked: it is one that a disk can have.
            let _ = self.set_size(&front.disk, remote.nsectors);
            front.disk.let_go();
            front.disk.uevent(Uevent::Online);
        }
        if again {
            pr_info!("{self}: opened again\n");
        }
        Ok(())
    }

    /// Has the server open the device by way of `path`, which is not in use yet; says whether it has
    /// the number there that requests are made with.
    ///
    /// # Errors
    ///
    /// The server's.
    pub(super) fn is_same_via(&self, path: &Via<'_>) -> Result<bool> {
        let Some(remote_id) = self.remote_id() else {
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
        self.remote_id.store(WAITING, Relaxed);
        inner.state = DeviceState::Disconnected;
        if let Some(front) = &inner.front {
            front.disk.hold();
            front.disk.uevent(Uevent::Offline);
        }
    }

    /// Notes that nobody is to wait for the server any longer: requests fail.
    pub(super) fn gave_up(&self) {
        let inner = self.inner.lock();
        if inner.state == DeviceState::Disconnected {
            pr_err!("{self}: the session is not back, requests fail\n");
            self.remote_id.store(NOT_OPEN, Relaxed);
            if let Some(front) = &inner.front {
                front.disk.let_go();
            }
        }
    }

    /// Keeps the disk and its files until the device is unmapped.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device was unmapped meanwhile.
    pub(super) fn show(&self, front: Front) -> Result {
        let mut inner = self.inner.lock();
        if inner.state == DeviceState::Unmapped {
            // Not under the lock: removing the disk waits for whoever opens it.
            drop(inner);
            drop(front);
            return Err(ENODEV);
        }
        if self.remote_id.load(Relaxed) == WAITING {
            front.disk.hold();
        }
        inner.front = Some(front);
        Ok(())
    }

    /// Has the server open the device again after the link was lost.
    ///
    /// # Errors
    ///
    /// `EALREADY` if it is open there, `ENODEV` if it is being unmapped, `EBUSY` while it is being
    /// mapped; else the server's.
    pub(super) fn remap(&self) -> Result {
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
            (Some(front), DeviceState::Mapped) => self.set_size(&front.disk, sectors),
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
                .disk
                .forbid_open(how == Unmap::Force)
                .inspect_err(|_| {
                    pr_err!(
                        "{self}: not unmapped, it is open {} times\n",
                        front.disk.open_count()
                    );
                })?;
        }
        let ending = Ending {
            state: inner.state,
            remote_id: self.remote_id.load(Relaxed),
        };
        inner.state = DeviceState::Unmapped;
        self.remote_id.store(NOT_OPEN, Relaxed);
        Ok(ending)
    }

    /// Takes `begin_unmap` back.
    pub(super) fn cancel_unmap(&self, ending: Ending) {
        let mut inner = self.inner.lock();
        inner.state = ending.state;
        self.remote_id.store(ending.remote_id, Relaxed);
        if let Some(front) = &inner.front {
            front.disk.allow_open();
        }
    }

    /// Removes the disk and tells the server. Sleeps until the disk's requests have ended.
    pub(super) fn finish_unmap(self: &Arc<Self>, ending: Ending) {
        self.session().forget(self);
        let front = self.inner.lock().front.take();
        drop(front);
        if let Ok(remote_id) = u32::try_from(ending.remote_id) {
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
    remote_id: u64,
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
