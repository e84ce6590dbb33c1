// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rtrs-client/SESSION`.

use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    memory,
    sysfs::{
        Attribute,
        ClassDevice,
        Directory,
        ShowBuffer,
        StoreContext, //
    },
};
use rtrs_core::proto::{
    addr::PathAddrs,
    policy::Policy,
    settings::{
        Setting,
        SettingText, //
    }, //
};

use crate::client::{
    path::Path,
    session::{
        paths::PathsReserve,
        Session, //
    },
    sysfs::path::{
        PATH,
        STATS, //
    }, //
};

static SESSION: [Attribute<Session>; 8] = [
    setting::<{ Setting::MaxReconnectAttempts as usize }>(c"max_reconnect_attempts"),
    setting::<{ Setting::ReconnectDelayMs as usize }>(c"reconnect_delay_ms"),
    setting::<{ Setting::FastIoFailTmo as usize }>(c"fast_io_fail_tmo"),
    setting::<{ Setting::HeartbeatIntervalMs as usize }>(c"heartbeat_interval_ms"),
    setting::<{ Setting::HeartbeatMissedMax as usize }>(c"heartbeat_missed_max"),
    Attribute::rw(c"mpath_policy", show_policy, store_policy),
    // The name in the documents of the in-tree driver.
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
    let addrs = PathAddrs::parse(text.as_bytes(), session.port()).map_err(|e| {
        pr_err!(
            "session {}: add_path '{}': {e}\n",
            session.name(),
            Escaped(text.as_bytes())
        );
        EINVAL
    })?;
    // A path that reconnects may wait for the locks taken here, and IO waits for the path.
    memory::without_io(|| add_path(&session.into(), addrs))
}

/// Adds a path and its files.
fn add_path(session: &Arc<Session>, addrs: PathAddrs) -> Result {
    let reserve = PathsReserve::new()?;
    let path = session.add_path(addrs)?;
    let shown = match &mut *session.files.lock() {
        Some(files) => files.add(&path),
        None => Ok(()),
    };
    // A path without files could not be removed any more.
    shown.inspect_err(|e| {
        pr_err!(
            "session {}: no files for the path to {}, it is removed ({e:?})\n",
            session.name(),
            path.dst()
        );
        session.remove(&path, reserve);
    })
}

/// Returns the file of the setting with this number.
const fn setting<const NUMBER: usize>(name: &'static CStr) -> Attribute<Session> {
    Attribute::rw(name, show_setting::<NUMBER>, store_setting::<NUMBER>)
}

fn show_setting<const NUMBER: usize>(session: &Session, page: &mut ShowBuffer<'_>) -> Result {
    let setting = *Setting::ALL.get(NUMBER).ok_or(EINVAL)?;
    writeln!(
        page,
        "{}",
        SettingText(setting, session.settings.get(setting))
    )
}

fn store_setting<const NUMBER: usize>(
    session: ArcBorrow<'_, Session>,
    _context: &StoreContext<'_>,
    text: &str,
) -> Result {
    let setting = *Setting::ALL.get(NUMBER).ok_or(EINVAL)?;
    let value = setting.parse(text.as_bytes()).map_err(|e| {
        pr_err!(
            "session {}: '{}': {e}\n",
            session.name(),
            Escaped(text.as_bytes())
        );
        Error::from(e.errno())
    })?;
    session.settings.set(setting, value);
    if setting == Setting::FastIoFailTmo {
        Arc::from(session).fast_io_fail_changed();
    }
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
    /// The directory inside the other one, so it is dropped first.
    _stats: Directory<Path>,
    _directory: Directory<Path>,
}

/// A session's directories. Dropping them waits for the tasks that use their files.
pub(crate) struct SessionFiles {
    paths: KVec<PathFiles>,
    directory: Directory<()>,
    _device: ClassDevice<Session>,
}

impl SessionFiles {
    /// Creates the directories of a session and of its paths; sleeps.
    pub(crate) fn new(session: &Arc<Session>) -> Result<Self> {
        let device = ClassDevice::new(
            &session.module.class,
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
