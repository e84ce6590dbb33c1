// SPDX-License-Identifier: GPL-2.0

//! What the module has one of: parameters, class and work queue.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    module_param_bool, module_param_int,
    sync::Global,
    sysfs::Class,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};
use rtrs_core::proto::{
    geometry::Geometry,
    params::{
        self,
        ALWAYS_INVALIDATE_DEFAULT,
        MAX_CHUNK_SIZE_DEFAULT,
        SESS_QUEUE_DEPTH_DEFAULT, //
    },
    HDR_SIZE_MAX, //
};

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
    "Take a chunk away from the client before reading a write request from it (default: Y)"
);

static SHARED: Global<Option<Arc<Shared>>> = Global::new(None);

/// What the module has one of.
pub(crate) struct Shared {
    /// Number and size of the chunks of each session.
    pub(crate) geometry: Geometry,
    pub(crate) always_invalidate: bool,
    /// `/sys/class/rtrs-server`.
    pub(crate) class: Class,
    /// Set-up, teardown and ticks of the paths.
    pub(crate) queue: WorkQueue,
}

impl Shared {
    /// Checks the parameters and makes the rest. At module load.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a parameter, after a line in the log that names it.
    pub(crate) fn set_up() -> Result {
        let geometry = params::check(MAX_CHUNK_SIZE.get(), SESS_QUEUE_DEPTH.get())
            .inspect_err(|e| pr_err!("not loaded: {}\n", format_args!("{e}")))
            .map_err(|_| EINVAL)?;
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
            queue: WorkQueue::new(c"rtrs_server_wq", Flags::UNBOUND, 0)?,
        };
        *SHARED.lock() = Some(Arc::new(shared, GFP_KERNEL)?);
        Ok(())
    }

    /// The module's; `ENODEV` after its end.
    pub(crate) fn get() -> Result<Arc<Self>> {
        SHARED.lock().clone().ok_or(ENODEV)
    }

    /// At module unload: nobody listens any more, so this is the last reference.
    pub(crate) fn tear_down() {
        let shared = SHARED.lock().take();
        drop(shared);
    }
}
