// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rtrs-client/SESSION`.

use core::sync::atomic::Ordering;

use kernel::{
    prelude::*,
    str::CString,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::sysfs::{
    Attribute,
    ClassDevice,
    Directory,
    ShowBuffer,
    StoreContext, //
};
use rtrs_core::proto::{
    addr::PathAddrs,
    policy::Policy,
    text, //
};

use crate::{
    path::Path,
    session::Session,
    sysfs_path::{
        PATH,
        STATS, //
    },
};

static SESSION: [Attribute<Session>; 4] = [
    Attribute::rw(
        c"max_reconnect_attempts",
        show_max_reconnect_attempts,
        store_max_reconnect_attempts,
    ),
    Attribute::rw(c"mpath_policy", show_policy, store_policy),
    // What the documents of the in-tree driver call it.
    Attribute::rw(c"mp_policy", show_policy, store_policy),
    Attribute::rw(
        c"add_path",
        |_, page| page.push_str(ADD_PATH_USAGE),
        store_add_path,
    ),
];

const ADD_PATH_USAGE: &str = "Usage: echo [<source addr>@]<destination addr> > add_path\n\n\
    *addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]\n";

fn store_add_path(
    session: ArcBorrow<'_, Session>,
    _context: &StoreContext<'_>,
    text: &str,
) -> Result {
    let addrs = PathAddrs::parse(text.as_bytes()).map_err(|e| {
        pr_err!("session {}: add_path '{text}': {e}\n", session.name());
        EINVAL
    })?;
    let path = Arc::from(session).add_path(addrs)?;
    if let Some(files) = &mut *session.files.lock() {
        files.add(&path)?;
    }
    Ok(())
}

fn show_max_reconnect_attempts(session: &Session, page: &mut ShowBuffer<'_>) -> Result {
    let attempts = session.max_reconnect_attempts.load(Ordering::Relaxed);
    writeln!(page, "{attempts}")
}

fn store_max_reconnect_attempts(
    session: ArcBorrow<'_, Session>,
    _context: &StoreContext<'_>,
    text: &str,
) -> Result {
    let attempts = text::parse_max_reconnect_attempts(text.as_bytes()).map_err(|e| {
        pr_err!(
            "session {}: max_reconnect_attempts '{text}': {e}\n",
            session.name()
        );
        Error::from(e.errno())
    })?;
    session
        .max_reconnect_attempts
        .store(attempts, Ordering::Relaxed);
    Ok(())
}

fn show_policy(session: &Session, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", session.policy())
}

fn store_policy(
    session: ArcBorrow<'_, Session>,
    _context: &StoreContext<'_>,
    text: &str,
) -> Result {
    let policy = Policy::parse(text.as_bytes()).map_err(|e| {
        pr_err!("session {}: mpath_policy: {e}\n", session.name());
        EINVAL
    })?;
    session.set_policy(policy);
    Ok(())
}

/// A path's directories.
pub(crate) struct PathFiles {
    path: Arc<Path>,
    /// Below the other one, so it goes first.
    _stats: Directory<Path>,
    _directory: Directory<Path>,
}

/// A session's directories. Dropping them waits for those who are in them.
pub(crate) struct SessionFiles {
    paths: KVec<PathFiles>,
    directory: Directory<()>,
    _device: ClassDevice<Session>,
}

impl SessionFiles {
    /// Makes the directories of a session and of the paths that it has; sleeps.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        let device = ClassDevice::new(
            &session.library.class,
            session.name(),
            &SESSION,
            session.clone(),
        )?;
        let nothing = Arc::new((), GFP_KERNEL)?;
        let mut files = Self {
            paths: KVec::new(),
            directory: Directory::new(&device, c"paths", &[], nothing)?,
            _device: device,
        };
        for path in session.copy_paths()? {
            files.add(&path)?;
        }
        Ok(files)
    }

    fn add(&mut self, path: &Arc<Path>) -> Result {
        let name = CString::try_from_fmt(fmt!("{}", path.name()))?;
        let directory = Directory::new(&self.directory, &name, &PATH, path.clone())?;
        let stats = Directory::new(&directory, c"stats", &STATS, path.clone())?;
        let files = PathFiles {
            path: path.clone(),
            _stats: stats,
            _directory: directory,
        };
        self.paths.push(files, GFP_KERNEL)?;
        Ok(())
    }

    /// Takes the directories of a path out, for the caller to drop.
    pub(crate) fn take(&mut self, path: &Arc<Path>) -> Option<PathFiles> {
        let index = self
            .paths
            .iter()
            .position(|files| Arc::ptr_eq(&files.path, path))?;
        Some(self.paths.remove(index)).and_then(Result::ok)
    }
}
