// SPDX-License-Identifier: GPL-2.0

//! The list of a session's paths: adds, connects and removes them.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use kernel_ext::sync::atomic::Ordering;
use rtrs_core::proto::{
    addr::PathAddrs,
    connect_retry,
    policy::Policy,
    recovery::Event,
    PATHS_MAX, //
};

use crate::client::{
    path::Path,
    session::{
        routes::Routes,
        Session, //
    }, //
};

/// The paths of a session, as published to senders.
pub(crate) struct Paths {
    pub(crate) all: KVec<Arc<Path>>,
    pub(crate) routes: Routes,
}

impl Paths {
    /// Returns a list whose routes are yet to be found.
    fn new(all: KVec<Arc<Path>>) -> Self {
        Self {
            all,
            routes: Routes::new(),
        }
    }
}

/// Memory for a list of paths. It is allocated before a path that may have to be removed is added,
/// so that the removal cannot fail.
pub(crate) struct PathsReserve(UniqueArc<Paths>);

impl PathsReserve {
    /// Allocates a list; `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        let list = KVec::with_capacity(PATHS_MAX, GFP_KERNEL)?;
        Ok(Self(UniqueArc::new(Paths::new(list), GFP_KERNEL)?))
    }

    /// Returns a list of those of `paths` for which `stays` is true.
    fn fill(
        mut self,
        policy: Policy,
        paths: &Paths,
        stays: impl Fn(&Arc<Path>) -> bool,
    ) -> Arc<Paths> {
        for path in paths.all.iter().filter(|path| stays(path)) {
            // The capacity is enough: a session has at most PATHS_MAX.
            let _ = self.0.all.push_within_capacity(path.clone());
        }
        self.0.routes.refresh(policy, &self.0.all);
        self.0.into()
    }
}

impl Session {
    /// Adds a path to the list; `ENODEV` if the session is being closed.
    pub(super) fn add(&self, path: &Arc<Path>) -> Result {
        let _lock = self.paths_lock.lock();
        if self.is_closing() {
            return Err(ENODEV);
        }
        let mut paths = self.copy_paths()?;
        path.check_new(&paths)?;
        if paths.len() >= PATHS_MAX {
            return Err(ENOSPC);
        }
        paths.push(path.clone(), GFP_KERNEL)?;
        let paths = Arc::new(Paths::new(paths), GFP_KERNEL)?;
        paths.routes.refresh(self.policy(), &paths.all);
        drop(self.paths.replace(Some(paths)));
        self.refresh_routes();
        Ok(())
    }

    /// Returns a copy of the current list.
    pub(crate) fn copy_paths(&self) -> Result<KVec<Arc<Path>>> {
        let mut copy = KVec::new();
        if let Some(paths) = self.paths.get() {
            for path in &paths.all {
                copy.push(path.clone(), GFP_KERNEL)?;
            }
        }
        Ok(copy)
    }

    /// Adds a path and connects it; sleeps, and can be killed.
    pub(crate) fn add_path(self: &Arc<Self>, addrs: PathAddrs) -> Result<Arc<Path>> {
        // A session without a path is new to its server.
        let first_conn = self.copy_paths()?.is_empty();
        self.connect_new(addrs, first_conn)
    }

    /// Adds and connects a path. If the server has no memory for it, tries again as
    /// [`connect_retry`] decides.
    pub(super) fn connect_new(
        self: &Arc<Self>,
        addrs: PathAddrs,
        first_conn: bool,
    ) -> Result<Arc<Path>> {
        let mut pauses_ms = (0..).map_while(connect_retry::memory_pause_ms);
        loop {
            let reserve = PathsReserve::new()?;
            let path = Path::new(self, addrs)?;
            self.add(&path)?;
            let Err(fault) = path.connect(first_conn) else {
                return Ok(path);
            };
            self.remove(&path, reserve);
            let pause_ms = pauses_ms.next().filter(|_| fault.is_server_memory());
            let Some(pause_ms) = pause_ms else {
                pr_err!(
                    "session {}: cannot connect to {}: {fault}\n",
                    self.name(),
                    path.dst()
                );
                return Err(fault.error());
            };
            fsleep(Delta::from_millis(pause_ms.into()));
        }
    }

    /// Begins to close all paths for good: who waits for one to connect gets an error. None is
    /// added from now on.
    pub(super) fn begin_close(&self) {
        let lock = self.paths_lock.lock();
        self.is_closing.store(true, Ordering::Release);
        let paths = self.paths.get();
        drop(lock);
        self.admin_ids.notify();
        // All at once: requests in flight are not to move from one to the next.
        for path in paths.iter().flat_map(|paths| paths.all.iter()) {
            path.begin_close(Event::CloseForGood);
        }
    }

    /// Closes a path for good and removes it from the list; sleeps.
    pub(crate) fn remove(&self, path: &Arc<Path>, reserve: PathsReserve) {
        if !path.remove() {
            return;
        }
        let _lock = self.paths_lock.lock();
        if let Some(paths) = self.paths.get() {
            let left = reserve.fill(self.policy(), &paths, |p| !Arc::ptr_eq(p, path));
            drop(self.paths.replace(Some(left)));
            self.refresh_routes();
        }
    }
}
