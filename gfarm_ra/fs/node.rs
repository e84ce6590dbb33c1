// SPDX-License-Identifier: GPL-2.0

//! What an inode has besides its attributes.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    errno::ESTALE,
    sync::{
        atomic::{
            AtomicU64,
            Ordering::{
                Acquire,
                Release, //
            }, //
        },
        SetOnce, //
    }, //
};
use vfs_ext::{
    Freshness,
    Inode, //
};

use super::{
    attributes::Told,
    file::Readers,
    Gfarm, //
};
use crate::{
    net::{
        Content,
        Place, //
    },
    proto::{
        attr::FileId,
        identity::Change,
        name::Name,
        setting::Setting, //
    }, //
};

/// The data of an inode.
#[pin_data]
pub(crate) struct Node {
    /// Shared with the connections.
    pub(super) content: Arc<Content>,
    #[pin]
    known: SpinLock<Known>,
    /// Locked while pages are being dropped and while attributes are set: those of an earlier
    /// observation do not overwrite a later one, and no page is seen with the size of another
    /// content.
    #[pin]
    pages: Mutex<()>,
    /// The count of changes of the content at which the pages were dropped last; changed under the
    /// lock of the pages.
    dropped_at: AtomicU64,
    /// Who has it open.
    #[pin]
    pub(super) readers: Mutex<Readers>,
    /// The target of a symbolic link, once it was read: it does not change.
    target: SetOnce<KVec<u8>>,
}

/// What is known of an inode, and since when.
struct Known {
    /// Where it was found last.
    place: Arc<Place>,
    /// When its attributes were told.
    since: Option<Instant<Monotonic>>,
}

impl Node {
    /// Returns the data of a new inode.
    pub(super) fn new(place: Arc<Place>, told: &Told) -> Result<Arc<Self>> {
        let content = Content::new(told.observed)?;
        Arc::pin_init(
            pin_init!(Self {
                content,
                known <- new_spinlock!(Known { place, since: None }, "Node::known"),
                pages <- new_mutex!((), "Node::pages"),
                dropped_at: AtomicU64::new(0),
                readers <- new_mutex!(Readers::NONE, "Node::readers"),
                target: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns where the inode was found last.
    pub(super) fn place(&self) -> Arc<Place> {
        self.known.lock().place.clone()
    }

    /// The inode was found here: requests go by this name from now on, as long as it is not found
    /// by another one. Returns the place. The root stays where it is, also if a server says that
    /// it is in one of its directories.
    pub(super) fn found_at(&self, parent: &Arc<Place>, name: Name<'_>) -> Result<Arc<Place>> {
        let known = self.place();
        if known.is_root() || known.is(parent, name) {
            return Ok(known);
        }
        let place = Place::new(parent, name, self.content.inum())?;
        let before = core::mem::replace(&mut self.known.lock().place, place.clone());
        // Not under the lock: this may be the last reference.
        drop(before);
        Ok(place)
    }

    /// Returns how often the content has changed, if the pages are those of the content `id`.
    pub(super) fn holds(&self, id: FileId) -> Option<u64> {
        let changes = self.content.changes_of(id)?;
        (self.dropped_at.load(Acquire) == changes).then_some(changes)
    }

    /// Returns whether the attributes were told less than `max_s` seconds ago.
    fn is_fresh(&self, max_s: u32) -> bool {
        let since = self.known.lock().since;
        since.is_some_and(|since| since.elapsed().as_millis() < i64::from(max_s) * 1000)
    }
}

/// Takes what gfmd tells of the object of `inode`. Pages of another content are dropped together
/// with the change of the size: none is read up to the size of the other.
///
/// # Errors
///
/// Returns `ESTALE` if it is another object, or `EBUSY` if a page could not be dropped.
pub(super) fn observe(inode: &Inode<Gfarm>, told: &Told) -> Result {
    let node = inode.data();
    let _turn = node.pages.lock();
    match node.content.observe(told.observed) {
        Change::Same | Change::Rewritten => {
            let mut attributes = told.attributes;
            attributes.size = drop_pages(inode, attributes.size)?;
            inode.set_attributes(&attributes)?;
            node.known.lock().since = Some(Instant::now());
            Ok(())
        }
        Change::Overtaken => Ok(()),
        Change::Replaced => Err(ESTALE),
    }
}

/// Takes a smaller size that a gfsd has told. A larger one has to wait for who drops the pages: the
/// last one ends with zeroes. Does not take the lock of the pages: the task that drops them waits
/// for reads to end, and this is the end of one.
pub(super) fn take_live_size(inode: &Inode<Gfarm>) {
    if let (_, Some(size)) = inode.data().content.live() {
        if size < inode.size() {
            inode.set_size(size);
        }
    }
}

/// Drops the pages of `inode` if they are of another content than that of its label: a gfsd has
/// told of a writer since the last look at gfmd.
///
/// # Errors
///
/// Returns `EBUSY` if a page could not be dropped.
pub(super) fn drop_outdated(inode: &Inode<Gfarm>) -> Result {
    let node = inode.data();
    if node.dropped_at.load(Acquire) == node.content.changes() {
        return Ok(());
    }
    let _turn = node.pages.lock();
    drop_pages(inode, inode.size())?;
    Ok(())
}

/// The same, for who has locked the pages; also if the size grows. Returns the size: what a gfsd
/// has told, which knows that of a file that is being written better than gfmd, else `told`.
fn drop_pages(inode: &Inode<Gfarm>, told: u64) -> Result<u64> {
    let node = inode.data();
    let (changes, live) = node.content.live();
    let size = live.unwrap_or(told);
    if node.dropped_at.load(Acquire) != changes || size > inode.size() {
        inode.drop_cached_data(size)?;
        node.dropped_at.store(changes, Release);
    }
    Ok(size)
}

/// A name that is gone, or leads elsewhere, makes an inode stale; the VFS then looks it up anew.
pub(super) fn stale_if_gone(error: Error) -> Error {
    match error {
        ENOENT | ENOTDIR => ESTALE,
        error => error,
    }
}

/// Asks gfmd for the attributes of an inode, if they are too old.
pub(super) fn refresh(inode: &Inode<Gfarm>, freshness: Freshness) -> Result {
    let sb = inode.super_block();
    let mount = sb.data();
    let node = inode.data();
    let max_s = match freshness {
        Freshness::Any => return Ok(()),
        Freshness::Forced => 0,
        Freshness::Default => mount.options().get(Setting::Actimeo),
    };
    if node.is_fresh(max_s) {
        return Ok(());
    }
    let asked = mount
        .client()
        .attributes(&node.place(), |seen| mount.told(seen))
        .and_then(|told| observe(inode, &told))
        .map_err(stale_if_gone);
    match asked {
        // Its name is gone, and it can still be read by those who have it open.
        Err(ESTALE) if node.readers.lock().is_open() => Ok(()),
        result => result,
    }
}

/// Returns the target of a symbolic link.
pub(super) fn read_link(inode: &Inode<Gfarm>) -> Result<KVec<u8>> {
    let node = inode.data();
    let mut copy = KVec::new();
    if let Some(target) = node.target.as_ref() {
        copy.extend_from_slice(target, GFP_KERNEL)?;
        return Ok(copy);
    }
    let sb = inode.super_block();
    let target = sb.data().client().read_link(&node.place());
    let target = target.map_err(stale_if_gone)?;
    copy.extend_from_slice(&target, GFP_KERNEL)?;
    // Another task may have set the same meanwhile.
    node.target.populate(target);
    Ok(copy)
}
