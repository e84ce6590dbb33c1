// SPDX-License-Identifier: GPL-2.0

//! The state of the module: parameters, class and work queue.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    memory, module_param_bool, module_param_int, module_param_ranged,
    sync::Global,
    sysfs::Class,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};
use rtrs_core::proto::{
    budget::{
        self,
        LIMIT_MIB_MAX, //
    },
    chunk_policy::{
        ChunkPolicy,
        WRITE_COPY_MAX_DEFAULT,
        WRITE_COPY_MAX_MAX, //
    },
    geometry::Geometry,
    heartbeat::Heartbeat,
    params::{
        self,
        ALWAYS_INVALIDATE_DEFAULT,
        HEARTBEAT_INTERVAL_MS_MAX,
        HEARTBEAT_INTERVAL_MS_MIN,
        HEARTBEAT_MISSED_MAX_MAX,
        HEARTBEAT_MISSED_MAX_MIN,
        MAX_CHUNK_SIZE_DEFAULT,
        SERVER_HEARTBEAT_INTERVAL_MS_DEFAULT,
        SERVER_HEARTBEAT_MISSED_MAX_DEFAULT,
        SESS_QUEUE_DEPTH_DEFAULT, //
    },
    HDR_SIZE_MAX, //
};

use crate::server::quota::Used;

module_param_int!(
    MAX_CHUNK_SIZE: i32,
    "max_chunk_size",
    MAX_CHUNK_SIZE_DEFAULT,
    "Bytes of each chunk, data and 4096 for heads: a power of two of at least 8192 (default: 131072)"
);
module_param_int!(
    SESS_QUEUE_DEPTH: i32,
    "sess_queue_depth",
    SESS_QUEUE_DEPTH_DEFAULT,
    "Chunks of each session, 1 to 65535 (default: 512)"
);
module_param_bool!(
    ALWAYS_INVALIDATE,
    "always_invalidate",
    ALWAYS_INVALIDATE_DEFAULT,
    "Copy a write, or take its chunk away from the client, before serving it (default: Y)"
);

module_param_ranged!(
    WRITE_COPY_MAX: 0, WRITE_COPY_MAX_MAX,
    "write_copy_max",
    WRITE_COPY_MAX_DEFAULT,
    "Bytes of the longest write that always_invalidate=Y copies, 0 to 65536 (default: 4096)"
);
module_param_ranged!(
    HEARTBEAT_INTERVAL_MS: HEARTBEAT_INTERVAL_MS_MIN, HEARTBEAT_INTERVAL_MS_MAX,
    "heartbeat_interval_ms",
    SERVER_HEARTBEAT_INTERVAL_MS_DEFAULT,
    "Milliseconds between two heartbeats of a path, 100 to 60000 (default: 1000)"
);
module_param_ranged!(
    HEARTBEAT_MISSED_MAX: HEARTBEAT_MISSED_MAX_MIN, HEARTBEAT_MISSED_MAX_MAX,
    "heartbeat_missed_max",
    SERVER_HEARTBEAT_MISSED_MAX_DEFAULT,
    "Heartbeat intervals that may pass without a word from the client, 1 to 100 (default: 4)"
);
module_param_ranged!(
    pub(crate) MAX_MEMORY_MIB: 0, LIMIT_MIB_MAX,
    "max_memory_mib",
    MAX_MEMORY_MIB_UNSET,
    "MiB that all sessions may take together, 0 for no limit (default: a quarter of the memory)"
);

/// The default, which means not set. Out of the parameter's range, so it cannot be set.
const MAX_MEMORY_MIB_UNSET: u32 = u32::MAX;

/// The set-ups and teardowns at a time (`WQ_MAX_ACTIVE`), which the kernel shares out among NUMA
/// nodes by their processors.
const ITEMS_MAX: u16 = 2048;

static SHARED: Global<Option<Arc<ModuleState>>> = Global::new(None);

/// The module's state.
pub(crate) struct ModuleState {
    /// Number and size of the chunks of each session, of a listener that sets no other number.
    pub(crate) geometry: Geometry,
    always_invalidate: bool,
    /// `/sys/class/rtrs-server`.
    pub(crate) class: Class,
    /// Set-up and teardown of the paths, and their deferred requests. A teardown waits for the
    /// disks of its requests, and a deferred request for a disk that takes no more.
    pub(crate) queue: WorkQueue,
    /// Ticks of the paths, and answers to fence messages: none waits for a disk. With a queue for
    /// all, those of a disk that does not answer would use up the workers.
    pub(crate) ticks: WorkQueue,
    /// Memory of all sessions.
    pub(crate) used: Used,
}

/// Returns the settings of the heartbeat as of now: the parameters may change.
pub(crate) fn heartbeat() -> Heartbeat {
    Heartbeat {
        interval_ms: HEARTBEAT_INTERVAL_MS.get(),
        missed_max: HEARTBEAT_MISSED_MAX.get(),
    }
}

impl ModuleState {
    /// Checks the parameters and sets up the state. Called at module load.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a parameter, after a log line that names it.
    pub(crate) fn set_up() -> Result {
        let geometry = params::check(MAX_CHUNK_SIZE.get(), SESS_QUEUE_DEPTH.get())
            .inspect_err(|e| pr_err!("not loaded: {}\n", format_args!("{e}")))
            .map_err(|_| EINVAL)?;
        if MAX_MEMORY_MIB.get() == MAX_MEMORY_MIB_UNSET {
            MAX_MEMORY_MIB.set(budget::default_limit_mib(memory::total_bytes()));
        }
        let always_invalidate = ALWAYS_INVALIDATE.get();
        pr_info!(
            "protocol 2.0, max_chunk_size {} (data {}, heads {}), sess_queue_depth {}, always_invalidate {}\n",
            geometry.chunk_size(),
            geometry.chunk_size().saturating_sub(HDR_SIZE_MAX),
            HDR_SIZE_MAX,
            geometry.queue_depth(),
            always_invalidate
        );
        let shared = Self {
            geometry,
            always_invalidate,
            class: Class::register(c"rtrs-server")?,
            queue: WorkQueue::new(c"rtrs_server_wq", Flags::UNBOUND, ITEMS_MAX)?,
            ticks: WorkQueue::new(c"rtrs_server_ticks", Flags::UNBOUND, 0)?,
            used: Used::new(),
        };
        *SHARED.lock() = Some(Arc::new(shared, GFP_KERNEL)?);
        Ok(())
    }

    /// Returns the policy of the next session.
    pub(crate) fn chunk_policy(&self) -> ChunkPolicy {
        ChunkPolicy::new(
            self.always_invalidate,
            WRITE_COPY_MAX.get(),
            self.geometry.chunk_size(),
        )
    }

    /// Returns the module's state; `ENODEV` after its end.
    pub(crate) fn get() -> Result<Arc<Self>> {
        SHARED.lock().clone().ok_or(ENODEV)
    }

    /// Drops the state at module unload. No listener is left, so this is the last reference.
    pub(crate) fn tear_down() {
        let shared = SHARED.lock().take();
        drop(shared);
    }
}
