// SPDX-License-Identifier: GPL-2.0

//! Exports: the local block devices that at least one session has open, and their writers.
//!
//! An export appears as `/sys/class/rnbd-server/ctl/devices/D` when the first session opens the
//! device and disappears when the last one closes it.

use block_ext::bdev::{
    BlockDevice,
    DiskId, //
};
use kernel::{
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
};
use kernel_ext::sysfs::{
    Directory,
    HasFolder,
    Link, //
};

use crate::{
    proto::access::AccessMode,
    server::log_limit::LOG_LIMIT,
    shown::Shown, //
};

/// Creates a folder without attributes.
pub(crate) fn folder(parent: &impl HasFolder, name: &CStr) -> Result<Directory<()>> {
    Directory::new(parent, name, &[], Arc::new((), GFP_KERNEL)?)
}

/// The use of an export by one session.
struct User {
    session: CString,
    writes: bool,
}

/// A local block device that at least one session has open.
struct Export {
    name: CString,
    disk: DiskId,
    /// The device is used through its sidecar.
    has_sidecar: bool,
    users: KVec<User>,
    // Dropped first: the link is in the export's folder.
    _link: Link<Directory<()>>,
    folders: Folders,
}

/// The folders of an export. The last ones are dropped under the lock of the list: who opens the
/// device next makes folders of the same names.
#[derive(Clone)]
struct Folders {
    // Fields are dropped in declaration order: `sessions` is in `export`.
    sessions: Arc<Directory<()>>,
    export: Arc<Directory<()>>,
}

/// All exports of this server.
///
/// Locking: `list` is the innermost lock of the server. Folders are created and removed under it,
/// which cannot deadlock because they have no attributes.
#[pin_data]
pub(crate) struct Exports {
    #[pin]
    list: Mutex<KVec<Export>>,
    devices: Directory<()>,
}

impl Exports {
    /// Creates an empty list; `devices` is the folder in which the exports appear.
    pub(crate) fn new(devices: Directory<()>) -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(KVec::new()),
            devices,
        })
    }

    /// Claims `device` for the session named `session` in `access` mode.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` if the device has too many writers for that mode, `EEXIST` if the session
    /// uses the device already (under another name), `EBUSY` if others use it without the sidecar
    /// that it has now or the other way round, or have a disk open still that was removed and had
    /// its name, and the errors of sysfs and of the allocator.
    pub(crate) fn claim(
        self: &Arc<Self>,
        device: &BlockDevice,
        session: &CStr,
        access: AccessMode,
        has_sidecar: bool,
    ) -> Result<Claim> {
        let name = CString::try_from(device.name().ok_or(ENXIO)?)?;
        let user = User {
            session: session.try_into()?,
            writes: access.may_write(),
        };
        let claim_names = (CString::try_from(&*name)?, CString::try_from(session)?);
        let mut list = self.list.lock();
        let known = list.iter().position(|export| *export.name == *name);
        if known.is_none() {
            let export = Export::new(&self.devices, device, name, has_sidecar)?;
            list.push(export, GFP_KERNEL)?;
        }
        let index = known.unwrap_or(list.len().saturating_sub(1));
        let Some(export) = list.get_mut(index) else {
            return Err(ENOENT);
        };
        let admitted = match export.disk == device.disk_id() {
            true => export.admit(user, access, has_sidecar),
            false => Err(export.refuse_successor(&user)),
        };
        let folders = export.folders.clone();
        if let Err(error) = admitted {
            drop(folders);
            remove_unused(&mut list);
            return Err(error);
        }
        Ok(Claim {
            exports: self.clone(),
            export: claim_names.0,
            session: claim_names.1,
            folders: Some(folders),
        })
    }
}

/// Removes the exports without users, with their folders.
fn remove_unused(list: &mut KVec<Export>) {
    list.retain(|export| !export.users.is_empty());
}

impl Export {
    fn new(
        devices: &Directory<()>,
        device: &BlockDevice,
        name: CString,
        has_sidecar: bool,
    ) -> Result<Self> {
        let directory = Arc::new(folder(devices, &name)?, GFP_KERNEL)?;
        let sessions = Arc::new(folder(&*directory, c"sessions")?, GFP_KERNEL)?;
        let link = Link::new(directory.clone(), c"block_dev", device)?;
        Ok(Self {
            name,
            disk: device.disk_id(),
            has_sidecar,
            users: KVec::new(),
            _link: link,
            folders: Folders {
                sessions,
                export: directory,
            },
        })
    }

    /// Says that `user` has to wait until the disk that had the name before is closed: folder,
    /// writers and sidecar are that one's.
    #[cold]
    fn refuse_successor(&self, user: &User) -> Error {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device '{}' is refused: the disk that had this name was removed, and \
                 is being closed\n",
                &*user.session,
                &*self.name
            );
        }
        EBUSY
    }

    /// Adds `user` if the access rules permit it.
    fn admit(&mut self, user: User, access: AccessMode, has_sidecar: bool) -> Result {
        let twice = self
            .users
            .iter()
            .any(|other| *other.session == *user.session);
        let writers = self.users.iter().filter(|other| other.writes).count();
        let writers = u32::try_from(writers).unwrap_or(u32::MAX);
        let refusal = if twice {
            Err(EEXIST)
        } else if has_sidecar != self.has_sidecar {
            Err(EBUSY)
        } else {
            access.check(writers).map_err(Error::from)
        };
        refusal.inspect_err(|error| {
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "session {}: device '{}' ({writers} writers, open in this session: {twice}) is \
                     refused as {}: {error:?}\n",
                    &*user.session,
                    &*self.name,
                    Shown(access)
                );
            }
        })?;
        self.users.push(user, GFP_KERNEL)?;
        Ok(())
    }
}

/// The claim of one session to one export. Dropping it releases the export.
pub(crate) struct Claim {
    exports: Arc<Exports>,
    export: CString,
    session: CString,
    /// `None` only while it is dropped.
    folders: Option<Folders>,
}

impl Claim {
    /// Returns the name of the export, as in `/sys/block`.
    pub(crate) fn export(&self) -> &CStr {
        &self.export
    }

    /// Returns the folder of the export.
    ///
    /// # Errors
    ///
    /// `ENOENT` while the claim is dropped.
    pub(crate) fn folder(&self) -> Result<&Directory<()>> {
        let folders = self.folders.as_ref().ok_or(ENOENT)?;
        Ok(&folders.export)
    }

    /// Returns the folder `sessions` of the export.
    ///
    /// # Errors
    ///
    /// `ENOENT` while the claim is dropped.
    pub(crate) fn sessions(&self) -> Result<&Directory<()>> {
        let folders = self.folders.as_ref().ok_or(ENOENT)?;
        Ok(&folders.sessions)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut list = self.exports.list.lock();
        drop(self.folders.take());
        for export in list.iter_mut() {
            if *export.name == *self.export {
                export.users.retain(|user| *user.session != *self.session);
            }
        }
        remove_unused(&mut list);
    }
}
