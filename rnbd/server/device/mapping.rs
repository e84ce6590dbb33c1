// SPDX-License-Identifier: GPL-2.0

//! A mapping: one device that one session has open.

use block_ext::{
    bdev::BlockDevice,
    bio::BioPool, //
};
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::Arc, //
};
use kernel_ext::{
    sync::{
        Completion,
        LentBox, //
    },
    sysfs::Directory,
    workqueue::WorkQueue, //
};

use super::{
    export::Claim,
    identity,
    removal::{
        Removals,
        Watch, //
    }, //
};
use crate::{
    pi_stats::PiStats,
    proto::{
        access::AccessMode,
        boot::Boot,
        device::Device,
        flags::Ops,
        identity::{
            Basis,
            Identity, //
        },
        pi::{
            Geometry,
            Wanted, //
        },
        told::Told, //
    },
    server::{
        io::{
            backlog::Backlog,
            plain::Io,
            protection::Protection,
            target::{
                RequestQueue,
                Target, //
            }, //
        },
        log_limit::CHANGES_LIMIT,
        store::{
            self,
            Attachment, //
        }, //
    },
    shown::Shown, //
};

/// The session that has a device open, as the device knows it.
pub(crate) trait Owner: Send + Sync {
    /// Returns the name that the client chose.
    fn name(&self) -> &CStr;

    /// Returns the protocol version agreed on with the client.
    fn version(&self) -> u8;

    /// Closes the mapping of `description` and retires its number, unless the client has closed the
    /// mapping meanwhile and the number has another state. Sleeps until its requests have ended.
    fn force_close(&self, description: &Description) -> bool;
}

/// The state behind the files of a mapping.
pub(crate) struct Description {
    /// The session that has the device open.
    pub(crate) session: Arc<dyn Owner>,
    /// The number of the device in its session.
    pub(crate) device_id: u32,
    /// The client's name of the device.
    pub(crate) path: CString,
    /// The access mode.
    pub(crate) access: AccessMode,
    /// The protection information that the client has asked for.
    pub(crate) wanted: Option<Wanted>,
    /// The protection information of its requests.
    pub(crate) protection: Option<Arc<Protection>>,
    /// The counts of requests without protection information, if the device has a sidecar.
    pub(crate) seen: Option<Arc<PiStats>>,
}

impl Description {
    /// Logs that the disk was removed.
    pub(super) fn log_gone(&self) {
        if CHANGES_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: the disk of device '{}' is gone: closed; when it is back its client \
                 opens it again (remap_device)\n",
                self.session.name(),
                &*self.path
            );
        }
    }
}

/// A device that is open for a session, and what it has taken for that.
///
/// Fields are dropped in declaration order, also if no mapping is made of them.
pub(crate) struct Opened {
    pub(crate) device: Arc<BlockDevice>,
    // Its folder in sysfs is in that of the claim. The drop waits for the requests that are left.
    pub(crate) attached: Option<Attachment>,
    // Dropped last: another session may write only when the device is closed here.
    pub(crate) claim: Claim,
}

/// A device that a session has open.
///
/// Dropping it closes the device: the drop sleeps until the requests in flight have ended and no
/// task reads or writes the mapping's files any more. The caller has removed the target from the
/// session's table before, so that no new request finds it.
pub(crate) struct Mapping {
    // Dropped first, so that no `force_close` reaches a mapping that is being closed.
    directory: Option<Directory<Description>>,
    description: Arc<Description>,
    /// Whether the client knows of it. Changes with the slots of the session locked.
    pub(crate) told: Told,
    // Lent to the requests; `unused` completes when it is dropped.
    target: Option<Arc<LentBox<Target>>>,
    unused: Arc<Completion>,
    backlog: Arc<Backlog>,
    _watch: Watch,
    /// The identity of the disk, and its source.
    identity: Option<(Identity, Basis)>,
    // Dropped after the wait for `unused`.
    opened: Opened,
    // Dropped last: the device is closed then.
    end: End,
}

/// Logs the end of a mapping when it is dropped, if its begin was logged.
struct End {
    description: Arc<Description>,
    /// The name of the export.
    export: CString,
    is_due: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_due && CHANGES_LIMIT.allow().is_some() {
            let (name, path) = (self.description.session.name(), &*self.description.path);
            pr_info!(
                "session {name}: device '{path}' ({}) closed\n",
                &*self.export
            );
        }
    }
}

impl Mapping {
    /// Creates the mapping of a device for `description.session`, and the target for its table,
    /// whose requests have bios of `bios`, and wait for a work item of `submissions`. Sleeps.
    pub(crate) fn new(
        description: Description,
        opened: Opened,
        (bios, submissions): (Arc<BioPool<Io>>, Arc<WorkQueue>),
        boot: Boot,
        removals: &Arc<Removals>,
    ) -> Result<(Self, Arc<LentBox<Target>>)> {
        let device = &opened.device;
        let unused = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let attached = opened.attached.as_ref();
        let queue = attached.and_then(Attachment::client_queue).cloned();
        let queue = queue.map(|queue| -> Arc<dyn RequestQueue> { queue });
        let plain = match (&description.protection, &queue) {
            (None, None) => description.access.permitted(),
            _ => Ops::NONE,
        };
        let version = description.session.version();
        let backlog = Backlog::new(device, plain, version, submissions)?;
        let target = Target::new(
            device.clone(),
            (bios, backlog.clone()),
            description.access,
            (description.protection.clone(), queue),
            unused.clone(),
        );
        let target = Arc::new(LentBox::new(target)?, GFP_KERNEL)?;
        let sidecar = attached.and_then(Attachment::uuid);
        let identity = identity::of_device(device, sidecar, boot)?;
        let description = Arc::new(description, GFP_KERNEL)?;
        let watch = removals.watch(device.clone(), description.clone())?;
        let end = End {
            description: description.clone(),
            export: opened.claim.export().try_into()?,
            is_due: false,
        };
        let mapping = Self {
            directory: None,
            description,
            told: Told::YES,
            target: Some(target.clone()),
            unused,
            backlog,
            _watch: watch,
            identity,
            opened,
            end,
        };
        Ok((mapping, target))
    }

    /// Returns the state behind its files.
    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.description
    }

    /// Returns the folder in which its files are.
    ///
    /// # Errors
    ///
    /// `ENOENT` while it is dropped.
    pub(crate) fn folder(&self) -> Result<&Directory<()>> {
        self.opened.claim.sessions()
    }

    /// Keeps its files in sysfs until it is dropped.
    pub(crate) fn keep_files(&mut self, files: Directory<Description>) {
        self.directory = Some(files);
    }

    /// Returns whether `description` is of this mapping.
    pub(crate) fn is(&self, description: &Description) -> bool {
        core::ptr::eq(&*self.description, description)
    }

    /// Returns whether the disk is in the machine.
    pub(crate) fn is_present(&self) -> bool {
        self.opened.device.is_present()
    }

    /// Returns the client's name of the device.
    pub(crate) fn path(&self) -> &[u8] {
        let path = self.description.path.to_bytes_with_nul();
        path.split_last().map_or(path, |(_nul, name)| name)
    }

    /// Logs that the session has opened the device; when that is closed, this is logged as well.
    pub(crate) fn log_opened(&mut self) {
        self.end.is_due = true;
        if CHANGES_LIMIT.allow().is_none() {
            return;
        }
        let (name, path) = (self.description.session.name(), &*self.description.path);
        let (export, access) = (self.opened.claim.export(), Shown(self.description.access));
        match self.identity {
            Some((identity, basis)) => pr_info!(
                "session {name}: device '{path}' ({export}) opened as {access}: {}, {}{}\n",
                Shown(identity),
                Shown(basis),
                match &self.opened.attached {
                    Some(_) => " and that of its sidecar",
                    None => "",
                }
            ),
            None => pr_info!("session {name}: device '{path}' ({export}) opened as {access}\n"),
        }
    }

    /// Returns whether an OPEN that asks for this is answered by the device as it is open.
    pub(crate) fn is_asked_for(&self, access: AccessMode, wanted: Option<Wanted>) -> bool {
        let opened_for = self.description.wanted;
        self.description.access == access
            && Wanted::is_answered(wanted, opened_for, self.geometry())
    }

    /// Returns what the tuples of its requests are like, if they have some.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        let protection = self.description.protection.as_ref();
        protection.map(|protection| protection.geometry())
    }

    /// Returns the number of the device.
    fn device_id(&self) -> u32 {
        self.description.device_id
    }

    /// Returns the properties of the device for the client, which supports the extension in
    /// reserved bytes or not.
    pub(crate) fn answer(&self, is_extended: bool) -> Device {
        let device = &self.opened.device;
        let identity = self.identity.map(|(identity, _)| identity);
        Device {
            identity: identity.filter(|_| is_extended),
            pi: self.geometry(),
            ..match &self.opened.attached {
                Some(attached) => describe_store(device, attached, self.device_id()),
                None => describe(device, self.device_id()),
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.directory = None;
        // The last reference waits for the requests in flight. The session's table has none any
        // more; if it had, this would wait for that.
        self.target = None;
        self.unused.wait();
        self.backlog.flush();
    }
}

/// The largest block size that the wire format can express.
const BLOCK_SIZE_MAX: u16 = 1 << 15;

/// Returns whether the wire format can express the logical block size. With a smaller value a
/// client would send parts of blocks.
pub(crate) fn is_expressible(device: &BlockDevice) -> bool {
    device.logical_block_bytes() <= BLOCK_SIZE_MAX.into()
}

/// Returns the size and limits of `device` with a sidecar, of which clients see the data blocks.
fn describe_store(device: &BlockDevice, attached: &Attachment, device_id: u32) -> Device {
    // CAST: 4096.
    let block_bytes = store::BLOCK_SIZE as u16;
    let plain = describe(device, device_id);
    Device {
        nsectors: attached.sectors(),
        max_write_zeroes_sectors: store::DISCARD_SECTORS_MAX,
        max_discard_sectors: store::DISCARD_SECTORS_MAX,
        discard_granularity: store::BLOCK_SIZE,
        discard_alignment: 0,
        physical_block_size: plain.physical_block_size.max(block_bytes),
        logical_block_size: block_bytes,
        secure_discard: false,
        ..plain
    }
}

/// Returns the size and limits of `device` for the wire. Values that do not fit are clamped.
fn describe(device: &BlockDevice, device_id: u32) -> Device {
    let block_size = |bytes: u32| u16::try_from(bytes).unwrap_or(BLOCK_SIZE_MAX);
    Device {
        device_id,
        nsectors: device.capacity_sectors(),
        max_hw_sectors: device.max_hw_sectors(),
        max_write_zeroes_sectors: device.max_write_zeroes_sectors(),
        max_discard_sectors: device.max_discard_sectors(),
        discard_granularity: device.discard_granularity_bytes(),
        discard_alignment: device.discard_alignment_bytes(),
        physical_block_size: block_size(device.physical_block_bytes()),
        logical_block_size: block_size(device.logical_block_bytes()),
        max_segments: device.max_segments(),
        secure_discard: device.max_secure_erase_sectors() != 0,
        fua: device.has_fua(),
        writeback: device.has_write_cache(),
        identity: None,
        pi: None,
    }
}
