// SPDX-License-Identifier: GPL-2.0

//! Which content of a file the page cache holds, and which reads may fill it.
//!
//! gfmd numbers the contents of a file: each close after a write makes a new generation, with a
//! larger number. A descriptor reads the generation that it was opened for. The cache of an inode
//! holds pages of one generation, its *label*:
//!
//! - An open, or a look at the attributes, that finds a newer generation drops the pages; the label
//!   is the new one (close-to-open consistency).
//! - A read fills pages only with bytes of a descriptor of the label's generation, and only if the
//!   label did not change between the request and the last byte. Otherwise the bytes are dropped
//!   and read again by a descriptor of the new generation.
//! - A reply that was overtaken by a newer one changes nothing: generations of one gfmd only grow.
//!   After a restart gfmd may have lost the last ones, so any other number is news.
//!
//! Generations do not show a writer that has not closed the file yet: it writes in place, and its
//! gfsd gives the bytes to all descriptors. So the size and the time of the last write that a gfsd
//! tells (`GFS_PROTO_FSTAT`) are part of the label: the driver asks after each read, before the
//! bytes are accepted ([`Label::judge`]), and the answer must be the one from before the read. The
//! first read from a gfsd has no answer before it, unless the driver asks for one
//! ([`Label::asks_first`]). gfmd has told size and time too, as the last writer left them: where
//! the gfsd tells the same behind a first read, nothing was written in between either. Pages
//! that one gfsd has given are therefore of one state of its file. Pages of two gfsds can differ
//! while a writer has the file open on one of them; the first open after its close drops both.

use super::{
    attr::{
        FileId,
        FileType,
        Time, //
    },
    gfs::LiveAttr,
    replica::HostId, //
};

/// The number of gfsds from which a file is read before its pages are dropped for another one.
const WITNESSES_MAX: usize = 8;

/// The number of bytes up to which a first read may have to be read again, in place of a question
/// before it.
const UNASKED_BYTES_MAX: usize = 64 << 10;

/// What gfmd has told of a content with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The size when the last writer closed it, in bytes.
    pub size: u64,
    /// When it was written for the last time, or what the owner has set.
    pub mtime: Time,
}

impl Closed {
    /// Returns whether a gfsd tells the same of its file, so that no writer has changed it since.
    /// A replica that was copied, and a file whose time was set, have another time.
    pub fn agrees(&self, live: &LiveAttr) -> bool {
        self.size == live.size && self.mtime == live.mtime
    }
}

/// What a reply of gfmd says about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The identity.
    pub id: FileId,
    /// The type.
    pub file_type: FileType,
    /// The process by which it was observed: that of the connection, counted by
    /// [`Gfmd::epoch`](super::gfmd::Gfmd::epoch).
    pub epoch: u32,
}

/// What an observation means for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The content is the one that is cached.
    Same,
    /// The observation is older than the label.
    Overtaken,
    /// The file was rewritten: drop its pages. The label has changed already, so that no read that
    /// is under way fills one.
    Rewritten,
    /// The name refers to another object: the inode is of no use any more.
    Replaced,
}

/// What a gfsd has told of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Witness {
    host: HostId,
    live: LiveAttr,
}

/// The permission of a read to fill pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    changes: u64,
    host: HostId,
    /// The gfsd has told of the content before the read.
    is_witnessed: bool,
}

/// Whether bytes that were read may fill pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are of the content.
    Accepted,
    /// It is not known whether they are of one state of the file. Read again: what the gfsd has
    /// told now stands before that read.
    Again,
    /// The content has changed: the file has to be opened again.
    Outdated,
}

/// The label of an inode's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    observed: Observation,
    /// How often it has changed: distinguishes a generation from the same number later.
    changes: u64,
    /// The gfsds that have given bytes of the label.
    witnesses: [Option<Witness>; WITNESSES_MAX],
}

impl Label {
    /// Creates the label of a new inode without pages.
    pub const fn new(observed: Observation) -> Self {
        Self {
            observed,
            changes: 0,
            witnesses: [None; WITNESSES_MAX],
        }
    }

    /// Returns the identity of the content.
    pub const fn id(&self) -> FileId {
        self.observed.id
    }

    /// Returns how often the content has changed: pages that were cached at another count are to be
    /// dropped.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the size that a gfsd has told of the content, in bytes; that of gfmd is from the
    /// last close of a writer, and may be another one.
    pub fn live_size(&self) -> Option<u64> {
        let [first, ..] = &self.witnesses;
        first.map(|witness| witness.live.size)
    }

    /// Returns whether a gfsd is to be asked what it has before a read of so many bytes: not if it
    /// has told before, and not if little has to be read again in case that it does not agree with
    /// gfmd. `did_agree` tells whether it has agreed about the last file.
    pub fn asks_first(&self, host: HostId, bytes: usize, did_agree: bool) -> bool {
        !self.knows(host) && (bytes > UNASKED_BYTES_MAX || !did_agree)
    }

    /// Returns whether a gfsd has told of the content before.
    fn knows(&self, host: HostId) -> bool {
        let mut known = self.witnesses.iter().flatten();
        known.any(|witness| witness.host == host)
    }

    /// Takes an observation by the inode's name or descriptor.
    pub fn observe(&mut self, seen: Observation) -> Change {
        let known = self.observed;
        if seen.epoch < known.epoch {
            return Change::Overtaken;
        }
        if seen.id.inum != known.id.inum || seen.file_type != known.file_type {
            return Change::Replaced;
        }
        if seen.id == known.id {
            self.observed = seen;
            return Change::Same;
        }
        // Only the content of files has generations; of others it is the object that is new.
        if known.file_type != FileType::Regular {
            return Change::Replaced;
        }
        if seen.epoch == known.epoch && seen.id.gen < known.id.gen {
            return Change::Overtaken;
        }
        self.observed = seen;
        self.change()
    }

    fn change(&mut self) -> Change {
        self.witnesses = [None; WITNESSES_MAX];
        self.changes = self.changes.wrapping_add(1);
        Change::Rewritten
    }

    /// Takes what a gfsd tells of its file: [`Change::Rewritten`] if it has told something else
    /// before.
    pub fn witness(&mut self, host: HostId, live: &LiveAttr) -> Change {
        let witness = Witness { host, live: *live };
        for place in &mut self.witnesses {
            match place {
                Some(known) if known.host != host => {}
                Some(known) if known.live.is_same_content(live) => return Change::Same,
                Some(_) => break,
                None => {
                    *place = Some(witness);
                    return Change::Same;
                }
            }
        }
        // Or there are too many of them: it is not known what this one has told before.
        let change = self.change();
        let [first, ..] = &mut self.witnesses;
        *first = Some(witness);
        change
    }

    /// Permits a read from this gfsd by a descriptor that was opened for `id`; `None` if its bytes
    /// are not those of the label: it has to be opened again.
    pub fn ticket(&self, id: FileId, host: HostId) -> Option<Ticket> {
        (id == self.id()).then_some(Ticket {
            changes: self.changes,
            host,
            is_witnessed: self.knows(host),
        })
    }

    /// Takes what the gfsd tells behind a read that is complete, and returns whether its bytes may
    /// fill pages. `closed` is what gfmd has told with the descriptor.
    pub fn judge(&mut self, ticket: Ticket, live: &LiveAttr, closed: &Closed) -> Verdict {
        self.witness(ticket.host, live);
        if ticket.changes != self.changes {
            return Verdict::Outdated;
        }
        match ticket.is_witnessed || closed.agrees(live) {
            true => Verdict::Accepted,
            false => Verdict::Again,
        }
    }
}
