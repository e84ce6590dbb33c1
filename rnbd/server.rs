// SPDX-License-Identifier: GPL-2.0

//! The server: sessions open exports, requests become bios.
//!
//! ```text
//! Server ── Exports ── Export (one per open local device, /sys/.../ctl/devices/D)
//!    │                    └── Claim (one per session that has it open)
//!    └── Session (one per RTRS session) ── Mapping (one per device that it has open)
//!                                            └── Target (the state of the device for requests)
//!                                                  └── ClientQueue (with a sidecar: `store`)
//! ```

mod device;
mod io;
mod log_limit;
mod session;
mod store;
mod sysfs;

use block_ext::bio::BioPool;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    sync::atomic::AtomicU32,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};
use rtrs_server::{
    Service,
    SessionService,
    SharedService, //
};

use self::{
    device::{
        export::Exports,
        identity,
        removal::Removals, //
    },
    io::{
        plain::Io,
        protection::ProtectedIo,
        BIOS_RESERVED, //
    },
    log_limit::CHANGES_LIMIT,
    session::{
        message_queue::LeftQueues,
        Session,
        SessionHandler, //
    },
    store::VolumeTable, //
};

use crate::proto::boot::Boot;

pub(crate) use self::sysfs::Control;

/// The items at a time that answer messages about devices, each of which may be silent, and of
/// those that submit requests, whose devices may take none. The kernel shares them out among the
/// NUMA nodes by their processors: with eight of them there is an item for each queue that
/// [`proto::message_queue`](crate::proto::message_queue) permits.
const DEVICE_ITEMS_MAX: u16 = 2048;

/// The state that all sessions share.
pub(crate) struct Server {
    exports: Arc<Exports>,
    bios: Arc<BioPool<Io>>,
    protected_bios: Arc<BioPool<ProtectedIo>>,
    volumes: Arc<VolumeTable>,
    removals: Arc<Removals>,
    messages: WorkQueue,
    devices: WorkQueue,
    submissions: Arc<WorkQueue>,
    /// The queues of all sessions that have messages.
    queues_in_use: AtomicU32,
    left_queues: Pin<KBox<LeftQueues>>,
    /// The boot of the machine.
    boot: Boot,
}

impl Server {
    /// Creates a server that shows its exports in `control`.
    pub(crate) fn new(control: &Control) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let submissions = WorkQueue::new(c"rnbd_server_submit", flags, DEVICE_ITEMS_MAX)?;
        let server = Self {
            exports: Arc::pin_init(Exports::new(control.devices()?), GFP_KERNEL)?,
            bios: Arc::new(BioPool::new(BIOS_RESERVED)?, GFP_KERNEL)?,
            protected_bios: Arc::new(BioPool::new(BIOS_RESERVED)?, GFP_KERNEL)?,
            volumes: VolumeTable::new()?,
            removals: Removals::new()?,
            messages: WorkQueue::new(c"rnbd_server_wq", Flags::UNBOUND, 0)?,
            devices: WorkQueue::new(c"rnbd_server_devices", Flags::UNBOUND, DEVICE_ITEMS_MAX)?,
            submissions: Arc::new(submissions, GFP_KERNEL)?,
            queues_in_use: AtomicU32::new(0),
            left_queues: KBox::pin_init(LeftQueues::new(), GFP_KERNEL)?,
            boot: identity::boot(),
        };
        Ok(Arc::new(server, GFP_KERNEL)?)
    }

    /// Returns the devices that sessions have open.
    fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// Returns the pool of the bios of all requests.
    fn bios(&self) -> &Arc<BioPool<Io>> {
        &self.bios
    }

    /// Returns the pool of the bios of requests with protection information.
    fn protected_bios(&self) -> &Arc<BioPool<ProtectedIo>> {
        &self.protected_bios
    }

    /// Returns the devices with a sidecar that sessions have open.
    fn volumes(&self) -> &Arc<VolumeTable> {
        &self.volumes
    }

    /// Returns the watch over the disks that are removed.
    fn removals(&self) -> &Arc<Removals> {
        &self.removals
    }

    /// Returns the boot of the machine.
    fn boot(&self) -> Boot {
        self.boot
    }

    /// Returns the number of queues of all sessions that have messages.
    fn queues_in_use(&self) -> &AtomicU32 {
        &self.queues_in_use
    }

    /// Returns the queues of sessions that have ended.
    fn left_queues(&self) -> &LeftQueues {
        &self.left_queues
    }

    /// Returns the queue whose items take the messages of sessions, and answer those about no
    /// device. No item of it drops the server: [`Running`] waits for them.
    fn messages(&self) -> &WorkQueue {
        &self.messages
    }

    /// Returns the queue whose items submit the requests that wait until a disk takes them: one of
    /// each mapping, which is closed when its item has ended.
    fn submissions(&self) -> &Arc<WorkQueue> {
        &self.submissions
    }

    /// Returns the queue whose items answer the messages about devices, and wait for these. As of
    /// [`Self::messages`], no item drops the server.
    fn devices(&self) -> &WorkQueue {
        &self.devices
    }
}

/// The server as the module has it. Dropping it, when all sessions have ended, waits for what they
/// have left: a device that does not answer its OPEN.
pub(crate) struct Running(pub(crate) Arc<Server>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.messages().flush();
        self.0.devices().flush();
        self.0.removals().end();
    }
}

/// The server's implementation of the RTRS service.
pub(crate) struct RtrsService(pub(crate) Arc<Server>);

impl Service for RtrsService {
    fn link_up(&self, rtrs: &Arc<rtrs_server::Session>) -> Result<SharedService> {
        let session = Session::new(self.0.clone(), rtrs.name())?;
        if CHANGES_LIMIT.allow().is_some() {
            pr_info!("session {} connected\n", session.name());
        }
        let service: KBox<dyn SessionService> = KBox::new(SessionHandler(session), GFP_KERNEL)?;
        Ok(Arc::new(service, GFP_KERNEL)?)
    }
}
