// SPDX-License-Identifier: GPL-2.0

//! The state of the module that all sessions share: class, work queues, list of sessions.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    module_param_ranged,
    sync::Global,
    sysfs::Class,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

use rdma::{
    DeviceId,
    PortEvents,
    PortWatch, //
};
use rtrs_core::proto::{
    read_buffers::{
        ReadBuffers,
        READ_COPY_MAX_DEFAULT,
        READ_COPY_MAX_MAX, //
    },
    RETRY_COUNT,
    RETRY_COUNT_MAX, //
};

use crate::client::{
    path::{
        error::PathError,
        Path, //
    },
    session::Session, //
};

module_param_ranged!(
    RETRIES: 0, RETRY_COUNT_MAX as u32,
    "retry_count",
    RETRY_COUNT as u32,
    "Retransmissions of 268 ms each before a path fails, 0 to 7 (default: 2)"
);

module_param_ranged!(
    READ_COPY_MAX: 0, READ_COPY_MAX_MAX,
    "read_copy_max",
    READ_COPY_MAX_DEFAULT,
    "Bytes of the longest read that is copied out of registered memory, 0 to 65536 (default: 4096)"
);

/// Returns the layout of the read buffers of the next path; `None` if no read is copied.
pub(crate) fn read_buffers() -> Option<ReadBuffers> {
    ReadBuffers::new(READ_COPY_MAX.get())
}

/// Returns the number of retransmissions of the next connection.
pub(crate) fn retry_count() -> u8 {
    // CAST: the parameter's range is within a u8.
    RETRIES.get() as u8
}

static MODULE_STATE: Global<Option<Arc<ModuleState>>> = Global::new(None);

/// Handles port events. A port that comes up starts the next attempt of the lost paths at once; a
/// port that goes down, or a device that fails, fails its paths without waiting for the heartbeat.
struct Ports;

impl PortEvents for Ports {
    fn port_up(&self, _device: DeviceId, _port: u32) {
        // The port that a path will use is not known before its address is resolved.
        if let Ok(module) = ModuleState::get() {
            module.for_each_path(Path::retry_now);
        }
    }

    fn port_down(&self, device: DeviceId, port: u32) {
        if let Ok(module) = ModuleState::get() {
            module.for_each_path(|path| {
                if path.is_over(device, Some(port)) {
                    path.fail(PathError::PortDown);
                }
            });
        }
    }

    fn device_failed(&self, device: DeviceId) {
        if let Ok(module) = ModuleState::get() {
            module.for_each_path(|path| {
                if path.is_over(device, None) {
                    path.fail(PathError::DeviceFailed);
                }
            });
        }
    }

    fn device_added(&self, device: DeviceId) {
        self.port_up(device, 0);
    }

    /// A lost path has no connection that would get the event, but keeps objects of its device.
    fn device_removed(&self, _device: DeviceId) {
        if let Ok(module) = ModuleState::get() {
            module.for_each_path(|path| path.device_removed(None));
        }
    }
}

/// The module's state. The work queues outlive all paths: [`ModuleState::stop`] flushes them.
#[pin_data]
pub(crate) struct ModuleState {
    pub(crate) class: Class,
    /// Heartbeats and teardowns. A teardown waits for the heartbeat and for an attempt of the same
    /// path, which it has told to end.
    pub(crate) queue: WorkQueue,
    /// Attempts to connect again. They have their own queue since it may have a single worker when
    /// memory is short, and an attempt takes seconds: no teardown, and so no fail-over, may wait
    /// for it.
    pub(crate) connect_queue: WorkQueue,
    #[pin]
    sessions: Mutex<KVec<Arc<Session>>>,
    #[pin]
    ports: Mutex<Option<PortWatch>>,
}

impl ModuleState {
    /// Allocates and publishes the module's state.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let class = Class::register(c"rtrs-client")?;
        let queue = WorkQueue::new(c"rtrs_client_wq", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?;
        let connect_queue = WorkQueue::new(
            c"rtrs_client_connect_wq",
            Flags::UNBOUND | Flags::MEM_RECLAIM,
            0,
        )?;
        let module = Arc::pin_init(
            pin_init!(Self {
                class,
                queue,
                connect_queue,
                sessions <- new_mutex!(KVec::new()),
                ports <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )?;
        let ports = PortWatch::new(Arc::new(Ports, GFP_KERNEL)?)?;
        *module.ports.lock() = Some(ports);
        *MODULE_STATE.lock() = Some(module.clone());
        Ok(module)
    }

    /// Withdraws the module's state, at the module's exit. No session is left: the modules that
    /// open them use this module.
    pub(crate) fn stop(&self) {
        let ports = self.ports.lock().take();
        drop(ports);
        drop(MODULE_STATE.lock().take());
        // The last reference must not be dropped by a work item on the queue.
        self.connect_queue.flush();
        self.queue.flush();
    }

    pub(crate) fn get() -> Result<Arc<Self>> {
        MODULE_STATE.lock().clone().ok_or(ENODEV)
    }

    /// Calls `visit`, which must not sleep, for the paths of all sessions.
    fn for_each_path(&self, visit: impl Fn(&Arc<Path>)) {
        for session in self.sessions.lock().iter() {
            if let Some(paths) = session.paths.get() {
                paths.all.iter().for_each(&visit);
            }
        }
    }

    /// Adds a session to the list; `EEXIST` if its name is in use.
    pub(crate) fn enter(&self, session: &Arc<Session>) -> Result {
        let mut sessions = self.sessions.lock();
        if sessions.iter().any(|s| s.name() == session.name()) {
            return Err(EEXIST);
        }
        sessions.push(session.clone(), GFP_KERNEL)?;
        Ok(())
    }

    /// Removes a session from the list.
    pub(crate) fn leave(&self, session: &Session) {
        let mut sessions = self.sessions.lock();
        let index = sessions.iter().position(|s| core::ptr::eq(&**s, session));
        let left = index.map(|i| sessions.remove(i));
        drop(sessions);
        drop(left);
    }

    /// Finds a session by its name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions
            .iter()
            .find(|s| s.name().to_bytes() == name.as_bytes())
            .cloned()
    }
}
