// SPDX-License-Identifier: GPL-2.0

//! The label of an inode's page cache, which its file and the connections share.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

use crate::proto::{
    attr::{
        Attr,
        DirEntry,
        FileId,
        Object, //
    },
    gfs::LiveAttr,
    identity::{
        Asked,
        Change,
        Closed,
        ContentId,
        Label,
        Observation,
        Opening,
        Ticket,
        Verdict, //
    },
    replica::HostId, //
};

/// A question that gfmd has answered.
#[derive(Clone, Copy)]
pub(crate) struct Query {
    /// Its place among the others.
    pub(crate) asked: Asked,
    /// The time at which it was queued: what was told may be as old, however long the answer was
    /// under way.
    pub(crate) at: Instant<Monotonic>,
}

/// An observation of an object by gfmd.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Its attributes.
    pub(crate) attr: Attr<'a>,
    /// The question.
    pub(crate) query: Query,
}

impl<'a> Seen<'a> {
    /// Returns what an entry of a directory tells.
    pub(crate) fn of_entry(entry: &DirEntry<'a>, query: Query) -> Self {
        Self {
            attr: entry.attr,
            query,
        }
    }

    /// Returns what this means for the label of an inode.
    pub(crate) fn observation(&self) -> Observation {
        Observation {
            id: self.attr.id,
            mtime: self.attr.mtime,
            file_type: self.attr.mode.file_type,
            asked: self.query.asked,
        }
    }
}

/// The label of an inode, under a lock. Pages are dropped by the file system, never by a
/// connection: a connection changes the label, and the file system looks at [`Content::changes`]
/// before a task reads.
#[pin_data]
pub(crate) struct Content {
    #[pin]
    label: SpinLock<Label>,
}

impl Content {
    /// Returns the label of a new inode.
    pub(crate) fn new(seen: Observation) -> Result<Arc<Self>> {
        let label = new_spinlock!(Label::new(seen), "Content::label");
        Arc::pin_init(pin_init!(Self { label <- label }), GFP_KERNEL)
    }

    /// Returns the object, which does not change.
    pub(crate) fn object(&self) -> Object {
        self.label.lock().object()
    }

    /// Takes what gfmd tells by a name, see [`Label::observe`].
    pub(crate) fn observe(&self, seen: Observation, open: Option<bool>) -> Change {
        self.label.lock().observe(seen, open)
    }

    /// Returns a new stream.
    pub(super) fn opening(&self) -> Opening {
        self.label.lock().opening()
    }

    /// Takes note that the file is open by a stream, see [`Label::begin`].
    pub(super) fn begin(&self, opening: Opening, epoch: Option<u32>) {
        self.label.lock().begin(opening, epoch);
    }

    /// Takes note of the process in which gfmd holds the descriptor of a stream, if it does.
    pub(super) fn hold(&self, opening: Opening, epoch: Option<u32>) {
        self.label.lock().hold(opening, epoch);
    }

    /// Returns whether attributes are to be shown, see [`Label::shows`].
    pub(crate) fn shows(&self, asked: Asked) -> bool {
        self.label.lock().shows(asked)
    }

    /// Takes note that attributes are shown, see [`Label::showed`].
    pub(crate) fn showed(&self, asked: Asked) {
        self.label.lock().showed(asked);
    }

    /// Returns whether attributes are shown that are not older, see [`Label::has_shown`].
    pub(crate) fn has_shown(&self, asked: Asked) -> bool {
        self.label.lock().has_shown(asked)
    }

    /// Returns whether it is of the object that was opened, see [`Label::is_of`].
    pub(crate) fn is_of(&self, opened: &Observation) -> bool {
        self.label.lock().is_of(opened)
    }

    /// Takes what a gfsd tells.
    pub(crate) fn witness(&self, host: HostId, live: &LiveAttr) -> Change {
        self.label.lock().witness(host, live)
    }

    /// Returns whether a gfsd is to be asked what it has, before a read of so many bytes.
    pub(crate) fn asks_first(&self, host: HostId, bytes: usize, did_agree: bool) -> bool {
        self.label.lock().asks_first(host, bytes, did_agree)
    }

    /// Permits a read from a gfsd by a descriptor of `id`.
    pub(crate) fn ticket(&self, id: FileId, host: HostId) -> Option<Ticket> {
        self.label.lock().ticket(id, host)
    }

    /// Takes what a gfsd tells behind a read, and returns whether its bytes may fill pages.
    pub(crate) fn judge(&self, ticket: Ticket, live: &LiveAttr, closed: &Closed) -> Verdict {
        self.label.lock().judge(ticket, live, closed)
    }

    /// Returns how often the content has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.label.lock().changes()
    }

    /// Returns the content that other nodes may have, see [`Label::shared`], and how often it has
    /// changed.
    pub(crate) fn shared(&self) -> Option<(ContentId, u64)> {
        let label = self.label.lock();
        label.shared().map(|id| (id, label.changes()))
    }

    /// Takes note that other nodes have given pages, see [`Label::give`].
    pub(crate) fn give(&self, id: &ContentId, changes: u64) -> bool {
        self.label.lock().give(id, changes)
    }

    /// Passes how often the content has changed, and the size in bytes that a gfsd has told of it
    /// since; both stay during `with`, which must not sleep.
    pub(crate) fn with_live<R>(&self, with: impl FnOnce(u64, Option<u64>) -> R) -> R {
        let label = self.label.lock();
        with(label.changes(), label.live_size())
    }
}
