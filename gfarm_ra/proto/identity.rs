// SPDX-License-Identifier: GPL-2.0

//! Tells which content of a file the page cache holds, and which reads may fill it.
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
//!   After a restart gfmd may have lost the last ones, so any other number is news. Within a
//!   generation the questions have an order: gfmd answers them in the one in which they were sent,
//!   and the task that has the older answer may be the later one to take it ([`Asked`]).
//!
//! The number of an object is given to another one after its end. A file that is open keeps it, as
//! long as gfmd has the descriptor; after a loss of gfmd another generation may be another object,
//! and so may be one that is found by another name. Such an object gets an inode of its own
//! ([`Change::Replaced`]), and who has the old one open reads what it could open, or nothing.
//!
//! Generations do not show a writer that has not closed the file yet: it writes in place, and its
//! gfsd gives the bytes to all descriptors. So the size and the time of the last write that a gfsd
//! tells (`GFS_PROTO_FSTAT`) are part of the label: the driver asks after each read, before the
//! bytes are accepted ([`Label::judge`]), and the answer must be the one from before the read. The
//! first read from a gfsd has no answer before it, unless the driver asks for one
//! ([`Label::asks_first`]). gfmd has told size and time too, as the last writer left them: where
//! the gfsd tells the same behind a first read, nothing was written in between either. Bytes that
//! were written meanwhile are read again at once, by the same descriptor: to open it anew takes
//! time, in which a writer that keeps the file open writes once more. Pages
//! that one gfsd has given are therefore of one state of its file. Pages of two gfsds can differ
//! while a writer has the file open on one of them; the first open after its close drops both.
//! Their size never does: what lies between two sizes no one has written, so a gfsd that tells
//! another size than those before it begins anew ([`Label::live_size`]).
//!
//! Pages of other nodes are of one state in the same way: the time of the last write belongs to
//! what they are asked for ([`ContentId`]), as the first gfsd has told it here, else gfmd. If the
//! first gfsd tells another time than pages have that were given, these go ([`Label::give`]). Who
//! has seen a write, or two gfsds that tell different times, neither gives pages nor asks for them,
//! until the next generation.

use super::{
    attr::{
        FileId,
        FileType,
        Object,
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

/// The number of times that a descriptor's bytes are read again at once, while they are written.
const READS_AGAIN_MAX: u8 = 15;

/// The state of a content that gfmd has told with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The size when the last writer closed it, in bytes.
    pub size: u64,
    /// The time of its last write, or the time that the owner has set.
    pub mtime: Time,
}

impl Closed {
    /// Returns whether a gfsd tells the same of its file, so that no writer has changed it since.
    /// A replica that was copied, and a file whose time was set, have another time.
    pub fn agrees(&self, live: &LiveAttr) -> bool {
        self.size == live.size && self.mtime == live.mtime
    }
}

/// A state of a file's bytes, which other nodes are asked for, and give: two nodes with pages of
/// the same one have read the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The file, and its generation.
    pub file: FileId,
    /// The time of its last write: a writer that has it open does not change the generation.
    pub mtime: Time,
}

/// The question by which gfmd has told something: a larger one tells the newer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The process by which it was observed: that of the connection, counted by
    /// [`Gfmd::epoch`](super::gfmd::Gfmd::epoch).
    pub epoch: u32,
    /// The number of the question among those of the mount, in the order in which they are sent.
    pub number: u64,
}

/// A stream of an inode's file: only the one that those have who have the file open tells what
/// gfmd holds for them. The worker of a closed one may still be at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(u64);

/// The statement of a reply of gfmd about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The identity.
    pub id: FileId,
    /// The time of its last write before a writer closed it, or the time that the owner has set.
    pub mtime: Time,
    /// The type.
    pub file_type: FileType,
    /// The question.
    pub asked: Asked,
}

/// The meaning of an observation for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The content is the one that is cached. What else was told may be older than what is shown
    /// ([`Label::shows`]).
    Same,
    /// The observation is of an older content than the label.
    Overtaken,
    /// The file was rewritten: drop its pages. The label has changed already, so that no read that
    /// is under way fills one.
    Rewritten,
    /// The name refers to another object: the inode is of no use any more.
    Replaced,
}

/// The statement of a gfsd about its file.
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
    /// The file that the descriptor was opened for, and the process in which it was seen last.
    opened: (FileId, u32),
    /// The number of reads by this descriptor that may follow this one.
    left: u8,
}

/// Whether bytes that were read may fill pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes are of the content.
    Accepted,
    /// The bytes may be of several states of the file. Read again at once, by this ticket: what the
    /// gfsd has told now stands before that read.
    Again(Ticket),
    /// The content is another one than that of the descriptor, or is written faster than it is
    /// read: the file has to be opened again.
    Outdated,
}

/// The label of an inode's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    observed: Observation,
    /// The number of changes of the content: distinguishes a generation from the same number later.
    changes: u64,
    /// The gfsds that have given bytes of the label: all have told the same size.
    witnesses: [Option<Witness>; WITNESSES_MAX],
    /// The time of the last write of what is cached: what the first gfsd has told, else gfmd.
    mtime: Time,
    /// Other nodes have given pages of this time: a gfsd that tells another has other bytes.
    is_given: bool,
    /// Pages may be given to other nodes, and asked for there: no writer is known to have the file
    /// open, and all that has told of it has told the same time.
    is_shared: bool,
    /// The question whose answer `stat(2)` shows.
    shown: Asked,
    /// The number of streams so far.
    openings: u64,
    /// The stream of those who have the file open, or had it last.
    holder: Option<Opening>,
    /// The process of gfmd in which that one holds a descriptor of the file: as long as it does,
    /// the number of the object is not given to another one.
    held: Option<u32>,
}

impl Label {
    /// Creates the label of a new inode without pages.
    pub const fn new(observed: Observation) -> Self {
        Self {
            observed,
            changes: 0,
            witnesses: [None; WITNESSES_MAX],
            mtime: observed.mtime,
            is_given: false,
            is_shared: true,
            shown: observed.asked,
            openings: 0,
            holder: None,
            held: None,
        }
    }

    /// Returns a new stream.
    pub fn opening(&mut self) -> Opening {
        self.openings = self.openings.wrapping_add(1);
        Opening(self.openings)
    }

    /// Takes note that the file is open by a stream, for which this process of gfmd holds a
    /// descriptor; `None` if it is to be opened when it is read.
    pub fn begin(&mut self, opening: Opening, epoch: Option<u32>) {
        (self.holder, self.held) = (Some(opening), epoch);
    }

    /// Takes note of the process in which gfmd holds the descriptor of a stream; `None` if it was
    /// lost. That of another stream than the one by which the file is open says nothing.
    pub fn hold(&mut self, opening: Opening, epoch: Option<u32>) {
        if self.holder == Some(opening) {
            self.held = epoch;
        }
    }

    /// Returns whether the attributes that were told with an answer are to be shown: no question
    /// that was sent later has brought those that are.
    pub fn shows(&self, asked: Asked) -> bool {
        asked >= self.shown
    }

    /// Returns whether the attributes that are shown are not older than an answer.
    pub fn has_shown(&self, asked: Asked) -> bool {
        self.shown >= asked
    }

    /// Takes note that the attributes that were told with an answer are shown. Not before: who
    /// has the older answer would leave it to a task that is killed while it drops the pages.
    pub fn showed(&mut self, asked: Asked) {
        self.shown = asked.max(self.shown);
    }

    /// Returns the content that other nodes may have pages of, and may be given pages of; `None`
    /// while the file is being written, or if it was read from gfsds that tell different times.
    pub fn shared(&self) -> Option<ContentId> {
        self.is_shared.then_some(ContentId {
            file: self.observed.id,
            mtime: self.mtime,
        })
    }

    /// Takes note that other nodes have given pages of a content, for the label of a count of
    /// changes; returns whether it is still that one, so that they may be cached.
    pub fn give(&mut self, id: &ContentId, changes: u64) -> bool {
        let is_it = self.changes == changes && self.shared() == Some(*id);
        self.is_given |= is_it;
        is_it
    }

    /// Returns the identity of the content.
    pub const fn id(&self) -> FileId {
        self.observed.id
    }

    /// Returns the object, which does not change.
    pub const fn object(&self) -> Object {
        Object::new(self.observed.id, self.observed.file_type)
    }

    /// Returns how often the content has changed: pages that were cached at another count are to be
    /// dropped.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the size that the gfsds have told of the content, in bytes; that of gfmd is from the
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

    /// Returns whether the label is of the object that was opened when this was observed, whose
    /// descriptor is held: it is the same content, or another one of the same process.
    pub fn is_of(&self, opened: &Observation) -> bool {
        let known = &self.observed;
        known.id == opened.id
            || known.id.inum == opened.id.inum && known.asked.epoch == opened.asked.epoch
    }

    /// Takes an observation by a name. `open` is `None` if the file is not open; else it tells
    /// whether the name is the one that the open file goes by.
    ///
    /// An open file never becomes another object: another content is one of the same object only if
    /// it was seen by the open file's own name, and in the process in which gfmd holds its
    /// descriptor, so that the number was not given to another object.
    pub fn observe(&mut self, seen: Observation, open: Option<bool>) -> Change {
        let is_same_object = match open {
            None => true,
            Some(is_its_name) => is_its_name && self.held == Some(seen.asked.epoch),
        };
        let known = self.observed;
        let is_same_process = seen.asked.epoch == known.asked.epoch;
        if seen.asked.epoch < known.asked.epoch {
            return Change::Overtaken;
        }
        if seen.id.inum != known.id.inum || seen.file_type != known.file_type {
            return Change::Replaced;
        }
        if seen.id == known.id {
            if seen.asked < known.asked {
                return Change::Same;
            }
            if seen.mtime == known.mtime {
                self.observed = seen;
                return Change::Same;
            }
            if !is_same_process && seen.file_type == FileType::Regular {
                // A gfmd that has lost the last generations gives their numbers to other bytes.
                // A gfsd may have told of those already, and of a later write of them than gfmd.
                let mut told = self.witnesses.iter().flatten();
                let is_shared = told.all(|witness| witness.live.mtime == seen.mtime);
                return self.renewed(seen, is_same_object, is_shared);
            }
            self.observed = seen;
            // The owner has set another time.
            if !self.is_given && self.witnesses.iter().all(Option::is_none) {
                self.mtime = seen.mtime;
            }
            return Change::Same;
        }
        // Only the content of files has generations; of others it is the object that is new.
        if known.file_type != FileType::Regular {
            return Change::Replaced;
        }
        if is_same_process && seen.id.gen < known.id.gen {
            return Change::Overtaken;
        }
        self.renewed(seen, is_same_object, true)
    }

    /// Takes an observation of another content.
    fn renewed(&mut self, seen: Observation, is_same_object: bool, is_shared: bool) -> Change {
        if !is_same_object {
            return Change::Replaced;
        }
        self.observed = seen;
        self.rewritten(seen.mtime, is_shared)
    }

    /// Begins anew, without pages.
    fn rewritten(&mut self, mtime: Time, is_shared: bool) -> Change {
        self.witnesses = [None; WITNESSES_MAX];
        self.changes = self.changes.wrapping_add(1);
        (self.mtime, self.is_given, self.is_shared) = (mtime, false, is_shared);
        Change::Rewritten
    }

    /// Takes what a gfsd tells of its file: [`Change::Rewritten`] if it has told something else
    /// before, or another one another size.
    pub fn witness(&mut self, host: HostId, live: &LiveAttr) -> Change {
        let witness = Witness { host, live: *live };
        // Whether something else was told before, so that a writer has the file open.
        let mut is_written = false;
        let mut is_first = true;
        for place in &mut self.witnesses {
            match place {
                Some(known) if known.live.size != live.size => {
                    is_written = true;
                    break;
                }
                Some(known) if known.host != host => is_first = false,
                Some(known) if known.live.is_same_content(live) => return Change::Same,
                Some(_) => {
                    is_written = true;
                    break;
                }
                None if is_first && self.is_given && self.mtime != live.mtime => break,
                None => {
                    *place = Some(witness);
                    if is_first && !self.is_given {
                        self.mtime = live.mtime;
                    }
                    self.is_shared &= self.mtime == live.mtime;
                    return Change::Same;
                }
            }
        }
        // Or there are too many of them: it is not known what this one has told before. Or other
        // nodes have given pages of an older state, or of a newer one.
        let change = self.rewritten(live.mtime, self.is_shared && !is_written);
        let [first, ..] = &mut self.witnesses;
        *first = Some(witness);
        change
    }

    /// Permits a read from this gfsd by a descriptor that was opened for `id`; `None` if its bytes
    /// are not those of the label: it has to be opened again.
    pub fn ticket(&self, id: FileId, host: HostId) -> Option<Ticket> {
        (id == self.id()).then_some(self.permit(host, READS_AGAIN_MAX))
    }

    fn permit(&self, host: HostId, left: u8) -> Ticket {
        Ticket {
            changes: self.changes,
            host,
            is_witnessed: self.knows(host),
            opened: self.opened(),
            left,
        }
    }

    fn opened(&self) -> (FileId, u32) {
        (self.observed.id, self.observed.asked.epoch)
    }

    /// Takes what the gfsd tells behind a read that is complete, and returns whether its bytes may
    /// fill pages. `closed` is what gfmd has told with the descriptor.
    pub fn judge(&mut self, ticket: Ticket, live: &LiveAttr, closed: &Closed) -> Verdict {
        self.witness(ticket.host, live);
        let is_same = ticket.changes == self.changes;
        if is_same && (ticket.is_witnessed || closed.agrees(live)) {
            return Verdict::Accepted;
        }
        // A write in place is no reason to open the file again. Not before the next read there was
        // time for another write: it would be compared with what was told before that.
        match ticket.left.checked_sub(1) {
            Some(left) if ticket.opened == self.opened() => {
                Verdict::Again(self.permit(ticket.host, left))
            }
            _ => Verdict::Outdated,
        }
    }
}
