// SPDX-License-Identifier: GPL-2.0

//! The label of an inode's page cache, which its file and the connections share.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use crate::proto::{
    attr::{
        Attr,
        DirEntry,
        FileId, //
    },
    gfs::LiveAttr,
    identity::{
        Change,
        Closed,
        Label,
        Observation,
        Ticket,
        Verdict, //
    },
    replica::HostId, //
};

/// What gfmd has told of an object.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Its attributes.
    pub(crate) attr: Attr<'a>,
    /// The process by which it was observed.
    pub(crate) epoch: u32,
}

impl<'a> Seen<'a> {
    /// Returns what an entry of a directory tells.
    pub(crate) fn of_entry(entry: &DirEntry<'a>, epoch: u32) -> Self {
        Self {
            attr: entry.attr,
            epoch,
        }
    }

    /// Returns what this means for the label of an inode.
    pub(crate) fn observation(&self) -> Observation {
        Observation {
            id: self.attr.id,
            file_type: self.attr.mode.file_type,
            epoch: self.epoch,
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

    /// Returns the number of the object, which does not change.
    pub(crate) fn inum(&self) -> u64 {
        self.label.lock().id().inum
    }

    /// Takes what gfmd tells.
    pub(crate) fn observe(&self, seen: Observation) -> Change {
        self.label.lock().observe(seen)
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

    /// Returns the content, and how often it has changed.
    pub(crate) fn current(&self) -> (FileId, u64) {
        let label = self.label.lock();
        (label.id(), label.changes())
    }

    /// Returns how often the content has changed, if it is `id` now.
    pub(crate) fn changes_of(&self, id: FileId) -> Option<u64> {
        let label = self.label.lock();
        (label.id() == id).then(|| label.changes())
    }

    /// Returns how often the content has changed, and the size in bytes that a gfsd has told of it
    /// since.
    pub(crate) fn live(&self) -> (u64, Option<u64>) {
        let label = self.label.lock();
        (label.changes(), label.live_size())
    }
}
