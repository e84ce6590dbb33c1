// SPDX-License-Identifier: GPL-2.0

//! The state of an inode besides its attributes.

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
        Delta,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    errno::ESTALE,
    new_turns,
    sync::{
        atomic::{
            AtomicU64,
            Ordering::{
                Acquire,
                Release, //
            }, //
        },
        SetOnce,
        Turns, //
    }, //
};
use vfs_ext::{
    Attributes,
    End,
    Freshness,
    Inode,
    Kind,
    Subrequest, //
};

use super::{
    attributes::{
        since_ms,
        Told, //
    },
    file::Readers,
    Gfarm, //
};
use crate::{
    net::{
        Content,
        Place, //
    },
    proto::{
        freshness::{
            is_right_after,
            is_within,
            Grant,
            Own, //
        },
        identity::{
            Change,
            ContentId, //
        },
        name::Name,
        options::Options,
        outdated::{
            Look,
            Pages, //
        },
        setting::Setting, //
    }, //
};

/// The data of an inode.
#[pin_data]
pub(crate) struct InodeData {
    /// Shared with the connections.
    pub(super) content: Arc<Content>,
    /// The time from which on that of a grant of gfmd is counted.
    made_at: Instant<Monotonic>,
    #[pin]
    known: SpinLock<Known>,
    /// A task has its turn while it drops pages and sets attributes: no page is seen with the size
    /// of another content. It may last as long as reads of the pages wait for a gfsd.
    #[pin]
    pages: Turns,
    /// The count of changes of the content at which the pages were dropped last; changed in a turn
    /// of the pages.
    dropped_at: AtomicU64,
    /// The tasks that have it open.
    #[pin]
    pub(super) readers: Mutex<Readers>,
    /// The target of a symbolic link, once it was read: it does not change.
    target: SetOnce<KVec<u8>>,
}

/// The knowledge about an inode that ages.
struct Known {
    /// The place at which it was found last.
    place: Arc<Place>,
    /// Whether gfmd has granted an open.
    granted: Grant<Delta>,
    /// The answer of the task that has asked last.
    own: Own<Instant<Monotonic>>,
    /// The size of the content of the label, in bytes, as long as the attributes that were told
    /// with it are not shown.
    told_size: Option<u64>,
}

impl Known {
    fn new(place: Arc<Place>) -> Self {
        Self {
            place,
            granted: Grant::NONE,
            own: Own::NONE,
            told_size: None,
        }
    }
}

impl InodeData {
    /// Returns the data of a new inode.
    pub(super) fn new(place: Arc<Place>, told: &Told) -> Result<Arc<Self>> {
        let content = Content::new(told.observed)?;
        Arc::pin_init(
            pin_init!(Self {
                content,
                made_at: Instant::now(),
                known <- new_spinlock!(Known::new(place), "InodeData::known"),
                pages <- new_turns!("InodeData::pages"),
                dropped_at: AtomicU64::new(0),
                readers <- new_mutex!(Readers::NONE, "InodeData::readers"),
                target: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns where the inode was found last.
    pub(super) fn place(&self) -> Arc<Place> {
        self.known.lock().place.clone()
    }

    /// Returns the place of this name, at which something was found that may be the inode's object.
    /// The root stays where it is, also if a server says that it is in one of its directories.
    pub(super) fn place_of(&self, parent: &Arc<Place>, name: Name<'_>) -> Result<Arc<Place>> {
        let known = self.place();
        if known.is_root() || known.is(parent, name) {
            return Ok(known);
        }
        Place::new(parent, name, self.content.object())
    }

    /// The object was found here: requests go by this name from now on, as long as it is not found
    /// by another one.
    fn found_at(&self, place: &Arc<Place>, readers: &Readers) -> Result {
        if Arc::ptr_eq(&self.place(), place) {
            return Ok(());
        }
        readers.rename(place)?;
        let before = core::mem::replace(&mut self.known.lock().place, place.clone());
        // Not under the lock: this may be the last reference.
        drop(before);
        Ok(())
    }

    /// Returns how often the content has changed, if the pages are those of the content `id`,
    /// and may be given to others.
    pub(super) fn holds(&self, id: ContentId) -> Option<u64> {
        let (shared, changes) = self.content.shared()?;
        let is_it = shared == id && self.dropped_at.load(Acquire) == changes;
        is_it.then_some(changes)
    }

    /// Returns whether the content has this count of changes, and the pages are those of it, and
    /// may be given to others.
    pub(super) fn is_at(&self, changes: u64) -> bool {
        let shared = self.content.shared();
        shared.is_some_and(|(_, now)| now == changes) && self.dropped_at.load(Acquire) == changes
    }

    /// Sets attributes, with a size that [`drop_pages`] has returned, if none was told or set
    /// since: see [`take_live_size`].
    fn set(&self, inode: &Inode<Gfarm>, attributes: &Attributes) -> Result {
        let _known = self.known.lock();
        self.with_look(inode, |look| {
            inode.set_attributes(&Attributes {
                size: look.shown(attributes.size),
                ..*attributes
            })
        })
    }

    /// Passes a look at the pages. The content does not become another one during `with`, which
    /// must not sleep: a size that is set there is not set over that of the next content.
    fn with_look<R>(&self, inode: &Inode<Gfarm>, with: impl FnOnce(Look) -> R) -> R {
        self.content.with_live(|changes, live_size| {
            with(Look {
                changes,
                live_size,
                dropped_at: self.dropped_at.load(Acquire),
                shown_size: inode.size(),
            })
        })
    }

    /// Returns whether an open needs no question, as gfmd has granted one not long ago.
    pub(super) fn is_granted(&self, options: &Options) -> bool {
        let max_s = options.get(Setting::Actimeo);
        let asked = self.known.lock().granted.asked();
        options.is_nocto()
            && asked.is_some_and(|asked| is_within(since_ms(self.made_at + asked), max_s))
    }

    /// Takes note that gfmd has granted an open.
    pub(super) fn granted(&self, told: &Told) {
        let asked = told.asked_at - self.made_at;
        self.known.lock().granted.grant(asked);
    }

    /// Takes note that what gfmd has granted before a time is gone, or closed to the user.
    pub(super) fn withdraw(&self, at: Instant<Monotonic>) {
        self.known.lock().granted.withdraw(at - self.made_at);
    }

    /// Returns what gfmd has said to an open: if it refuses, what it has granted before is closed.
    pub(super) fn judged<R>(&self, said: Result<R>) -> Result<R> {
        said.map_err(stale_if_gone)
            .inspect_err(|_| self.withdraw(Instant::now()))
    }

    /// Takes note that this task has asked, and uses what it was told next. Not if what is shown is
    /// older: another task is about to show what it was told of a newer content.
    pub(super) fn asked(&self, told: &Told) {
        if self.content.has_shown(told.observed.asked) {
            self.known.lock().own.told(current!().pid(), Instant::now());
        }
    }

    /// Uses the answer of this task; returns whether it has one.
    fn take_own(&self, max_s: u32) -> bool {
        let came = self.known.lock().own.take(current!().pid());
        came.is_some_and(|came| is_right_after(since_ms(came), max_s))
    }
}

/// Takes what gfmd tells of what was found at `place`, perhaps the object of `inode`. Pages of
/// another content are dropped together with the change of the size: none is read up to the size of
/// the other.
///
/// # Errors
///
/// Returns `ESTALE` if it is another object, or may be one, `EBUSY` if a page could not be dropped,
/// `ERESTARTSYS` or `EINTR` when the task is killed, or `ENOMEM`.
pub(super) fn observe(inode: &Inode<Gfarm>, told: &Told, place: &Arc<Place>) -> Result {
    let _turn = inode.data().pages.take()?;
    observe_in_turn(inode, told, place, Drops::Waited)
}

/// Does [`observe`] without a wait for a gfsd.
///
/// # Errors
///
/// Returns `EAGAIN` if there is one: another task drops pages, or is to drop some. Who reads the
/// file does it, or who looks the name up.
pub(super) fn observe_at_once(inode: &Inode<Gfarm>, told: &Told, place: &Arc<Place>) -> Result {
    let _turn = inode.data().pages.try_take().ok_or(EAGAIN)?;
    observe_in_turn(inode, told, place, Drops::Left)
}

/// Whether pages are dropped, which waits for their reads, or left to another task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drops {
    Waited,
    Left,
}

fn observe_in_turn(inode: &Inode<Gfarm>, told: &Told, place: &Arc<Place>, drops: Drops) -> Result {
    let data = inode.data();
    let change = {
        let readers = data.readers.lock();
        let is_its_name = || data.place().is_same(place);
        let change = data
            .content
            .observe(told.observed, readers.is_open().then(is_its_name));
        if matches!(change, Change::Same | Change::Rewritten) {
            data.found_at(place, &readers)?;
        }
        change
    };
    if change == Change::Rewritten {
        // Perhaps it is another object's content, which gfmd has not let the user open.
        data.withdraw(told.asked_at);
    }
    match change {
        Change::Same | Change::Rewritten => {
            if !data.content.shows(told.observed.asked) {
                // Another task has taken the answer to a later question meanwhile.
                return Ok(());
            }
            let mut attributes = told.attributes;
            // If this task is killed now, or leaves them, another one drops the pages.
            data.known.lock().told_size = Some(attributes.size);
            attributes.size = drop_pages(inode, attributes.size, drops)?;
            data.set(inode, &attributes)?;
            data.content.showed(told.observed.asked);
            data.known.lock().told_size = None;
            inode.set_told(told.age_ms());
            Ok(())
        }
        Change::Overtaken => Ok(()),
        Change::Replaced => Err(ESTALE),
    }
}

/// Ends a read at the end of a file of this size, before the readers see the pages: they compare
/// with the size then. What a reader has that keeps no pages ends without zeroes.
pub(super) fn end_at(subrequest: &Subrequest<Gfarm>, size: u64) -> End {
    let zeroed_from = subrequest.is_cached().then_some(size);
    take_live_size(subrequest.inode(), zeroed_from);
    End::EndOfFile
}

/// Takes a smaller size, see [`Look::ended`]. Takes no turn of the pages: the task that drops them
/// waits for reads to end, and this is the end of one.
fn take_live_size(inode: &Inode<Gfarm>, zeroed_from: Option<u64>) {
    let data = inode.data();
    let _known = data.known.lock();
    data.with_look(inode, |look| {
        let size = look.ended(zeroed_from);
        if size < look.shown_size {
            inode.set_size(size);
        }
    });
}

/// Drops the pages of `inode` if they are of another content than that of its label: a gfsd has
/// told of a writer since the last look at gfmd.
///
/// # Errors
///
/// Returns `EBUSY` if a page could not be dropped, `ERESTARTSYS` or `EINTR` when the task is
/// killed.
pub(super) fn drop_outdated(inode: &Inode<Gfarm>) -> Result {
    let data = inode.data();
    if data.dropped_at.load(Acquire) == data.content.changes() {
        return Ok(());
    }
    let _turn = data.pages.take()?;
    let told_size = data.known.lock().told_size;
    drop_pages(inode, told_size.unwrap_or(inode.size()), Drops::Waited)?;
    Ok(())
}

/// Does [`drop_outdated`] for a task that has the turn of the pages, also if the size grows.
/// Returns the size that a gfsd has told, which knows that of a file that is being written better
/// than gfmd, else `told`.
///
/// # Errors
///
/// Returns `EAGAIN` if there are pages to drop that are left to another task.
fn drop_pages(inode: &Inode<Gfarm>, told: u64, drops: Drops) -> Result<u64> {
    let data = inode.data();
    let look = data.with_look(inode, |look| look);
    // Nothing reads pages of a directory or a link.
    let may_wait = drops == Drops::Waited || inode.kind() != Kind::Regular;
    match look.decide(told, may_wait) {
        Pages::Stay(size) => Ok(size),
        Pages::Leave => Err(EAGAIN),
        Pages::Drop(size) => {
            let after = drop_at(inode, &look, size)?;
            match after.again(&look) {
                Some(size) => drop_at(inode, &after, size).map(|_| size),
                None => Ok(size),
            }
        }
    }
}

/// Drops the pages by a look, and returns the look behind that.
fn drop_at(inode: &Inode<Gfarm>, look: &Look, size: u64) -> Result<Look> {
    let data = inode.data();
    inode.drop_cached_data(size)?;
    data.dropped_at.store(look.changes, Release);
    // A gfsd may have told a smaller one since the look.
    take_live_size(inode, None);
    Ok(data.with_look(inode, |look| look))
}

/// A name that is gone, or leads elsewhere, makes an inode stale; the VFS then looks it up anew.
pub(super) fn stale_if_gone(error: Error) -> Error {
    match error {
        ENOENT | ENOTDIR => ESTALE,
        error => error,
    }
}

/// Asks gfmd for the attributes of an inode, if they are too old. Returns whether it was asked, now
/// or right before by this task. Sleeps, killable.
///
/// # Errors
///
/// `ESTALE` if the name of the inode is gone or leads to another object and no task has it open,
/// the server's error, and that of a wait that was ended.
pub(super) fn refresh(inode: &Inode<Gfarm>, freshness: Freshness) -> Result<bool> {
    let sb = inode.super_block();
    let mount = sb.data();
    let data = inode.data();
    let max_s = match freshness {
        Freshness::Any => return Ok(false),
        Freshness::Forced => 0,
        Freshness::Default => mount.options().get(Setting::Actimeo),
    };
    if is_within(inode.age_ms(), max_s) {
        return Ok(false);
    }
    if data.take_own(max_s) {
        return Ok(true);
    }
    let place = data.place();
    let told = mount.client().attributes(&place, |seen| mount.told(seen));
    match told.map_err(stale_if_gone) {
        // Its name is gone, and it can still be read by those who have it open.
        Err(ESTALE) if data.readers.lock().is_open() => Ok(true),
        // Another object under its name and number is an error for these as well.
        told => observe(inode, &told?, &place).map(|()| true),
    }
}

/// Returns the target of a symbolic link. Sleeps, killable.
///
/// # Errors
///
/// `ESTALE` if its name is gone or leads to another object, the server's error, and that of a wait
/// that was ended.
pub(super) fn read_link(inode: &Inode<Gfarm>) -> Result<KVec<u8>> {
    let data = inode.data();
    let mut copy = KVec::new();
    if let Some(target) = data.target.as_ref() {
        copy.extend_from_slice(target, GFP_KERNEL)?;
        return Ok(copy);
    }
    let sb = inode.super_block();
    let target = sb.data().client().read_link(&data.place());
    let target = target.map_err(stale_if_gone)?;
    copy.extend_from_slice(&target, GFP_KERNEL)?;
    // Another task may have set the same meanwhile.
    data.target.populate(target);
    Ok(copy)
}
