// SPDX-License-Identifier: GPL-2.0

//! Objects that have files: their blocks go there, are dropped here, and come back.
//!
//! One work item of the user has the files, and does one thing after the other: what the requests
//! in its queue need ([`Store::file_of`]), and what a store does by itself ([`Store::own_file`]).
//! None of it holds the lock.

mod own;

use ferro_proto::errno::Errno;
use seglog::{
    collect::Purpose,
    Checksum, //
};

use super::{
    super::{
        body::WRITE_CHANGES_MAX,
        index::{
            Fetch,
            Leaving,
            Left,
            Refused, //
        },
        medium::{
            Actions,
            Medium,
            Need, //
        },
        message::{
            Message,
            Operation, //
        },
        slot::USES_MAX,
        span::{
            ObjectId,
            Span,
            BLOCK_BYTES,
            IO_BLOCKS_MAX, //
        },
    },
    room::For,
    Op,
    Stop,
    Store,
    StoreMemory, //
};

/// The slots that a step looks at, for what can be dropped, or what is to be written.
const LOOK_SLOTS: u32 = 4096;

/// The blocks that are kept for what is read, of a memory of four times as many.
const READ_BLOCKS: u64 = 64;

/// The work that is done with a file.
#[derive(Debug)]
#[must_use = "its extents are pinned"]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum FileWork {
    /// Blocks are read: [`Store::fetched`] follows.
    Fetch(Fetch),
    /// The file is cut, the blocks are written, it gets its size, and is synced:
    /// [`Store::left`] follows.
    Leave(Leaving),
    /// The file is removed, if there is one, and its folder is synced: [`Store::removed`] follows.
    Remove(ObjectId),
}

/// A need of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing.
    #[default]
    Nothing,
    /// Blocks that are in a file only.
    Fetch(Fetch, For),
    /// All of an object is in its file, from a block on.
    Flush(u32),
    /// All of it is there.
    Flushed,
}

/// The files of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The times that a store could not make room by itself, and the last reason.
    setbacks: u64,
    reason: Option<Errno>,
    /// The object whose file was the last one to fail, and was not written since.
    failed: Option<(ObjectId, Errno)>,
    /// Requests wait for room.
    is_wanted: bool,
    /// All is written: the store ends.
    is_ending: bool,
    /// Writing was of no use: it is not tried before something else is asked for.
    rests: bool,
    /// Removing files was of no use: it is not tried before something else is asked for.
    keeps: bool,
    /// The first object whose file could not be removed since one could.
    kept: Option<ObjectId>,
    /// A file was removed, and it is the turn of what is dirty.
    has_removed: bool,
    /// The slot at which the next look for what is dirty begins.
    next: u32,
    /// Since a job of the store has written something: the slots that were looked at, the jobs that
    /// have failed, and the error of the last one.
    looked: u32,
    failures: u32,
    error: Option<Errno>,
    /// The slot at which the next look for what can be dropped begins.
    clean: u32,
}

/// Returns the error that clients get of one that writing to a file has given: others have another
/// meaning for them, as ENOENT of a flush, or that of a connection that is lost.
fn told(errno: Errno) -> Errno {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => Errno::ENOSPC,
        Errno::EROFS | Errno::EFBIG => errno,
        _ => Errno::EIO,
    }
}

impl Files {
    /// Notes what came of work on the file of an object.
    fn note(&mut self, object: ObjectId, result: Result<(), Errno>) {
        match result {
            Err(errno) => self.failed = Some((object, errno)),
            Ok(()) => self.failed = self.failed.filter(|(failed, _)| *failed != object),
        }
    }

    /// Begins a round through all slots.
    fn begin_round(&mut self) {
        (self.looked, self.failures, self.error) = (0, 0, None);
    }

    /// No file takes anything: who waits for room is told why.
    fn set_back(&mut self) {
        self.setbacks = self.setbacks.wrapping_add(1);
        self.reason = Some(self.error.map_or(Errno::ENOSPC, told));
        (self.is_wanted, self.rests) = (false, true);
        self.begin_round();
    }

    /// Tries again, as something is asked for.
    fn wake(&mut self) {
        (self.rests, self.keeps, self.kept) = (false, false, None);
    }
}

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Objects have files from now on. Those that are there follow, with [`Self::adopt`].
    pub fn back(&mut self) {
        self.index.back();
        self.files = Some(Files::default());
    }

    /// Adds an object of which there is a file, when the store begins.
    ///
    /// # Errors
    ///
    /// Returns why it is not added.
    pub fn adopt(&mut self, of: (ObjectId, u64)) -> Result<(), Refused> {
        self.index.adopt(of, &mut self.medium)
    }

    /// Whether objects have files.
    pub const fn is_backed(&self) -> bool {
        self.files.is_some()
    }

    /// Returns the error that a file has given, if it was not written since.
    pub fn failing(&self) -> Option<Errno> {
        self.files.as_ref()?.failed.map(|(_, errno)| errno)
    }

    /// The store ends: all that is dirty is written whose files work.
    pub fn end_files(&mut self) {
        if let Some(files) = &mut self.files {
            files.is_ending = true;
            files.begin_round();
            files.wake();
        }
    }

    /// A request needs blocks that are in files only: there is room for them before they are read.
    fn fetch(
        &mut self,
        op: &mut Op,
        (object, span, of): (ObjectId, &Span, For),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let missing = self.index.missing(object, span);
        let Some(fetch) = missing.filter(|_| self.is_backed()) else {
            return Ok(());
        };
        if let Some(errno) = op.lost.take() {
            return Err(Stop::Refused(errno));
        }
        let need = (Purpose::Write, fetch.blocks as usize, WRITE_CHANGES_MAX);
        self.room_for(op, (need, of), with)?;
        // What was dropped to make room may be of this object.
        let mut now = self.index.missing(object, span).unwrap_or(fetch);
        now.blocks = now.blocks.min(fetch.blocks);
        self.end_old(op);
        op.want = Want::Fetch(now, of);
        Err(Stop::File)
    }

    /// Has bytes be here that are in a file only, to be read.
    pub(super) fn have(
        &mut self,
        op: &mut Op,
        (object, span): (ObjectId, &Span),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        self.fetch(op, (object, span, For::Reads), with)
    }

    /// Has the blocks be here of which a write keeps a part.
    pub(super) fn have_edges(
        &mut self,
        op: &mut Op,
        (object, span): (ObjectId, &Span),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let blocks = span.blocks();
        for block in [blocks.start, blocks.end.saturating_sub(1)] {
            if span.piece(block).is_whole() {
                continue;
            }
            let at = u64::from(block).saturating_mul(BLOCK_BYTES);
            if let Some(whole) = Span::new(at, BLOCK_BYTES) {
                self.have(op, (object, &whole), (&mut *with.0, with.1))?;
            }
        }
        Ok(())
    }

    /// Has be here what a copy reads. One that is longer than an operation is refused if something
    /// of it is not: its client halves it.
    pub(super) fn have_source(
        &mut self,
        op: &mut Op,
        (source, span): (ObjectId, &Span),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let is_long = span.block_count() as usize > IO_BLOCKS_MAX;
        if is_long && self.is_backed() && self.index.missing(source, span).is_some() {
            return Err(Stop::Refused(Refused::TooManyRanges.errno()));
        }
        self.fetch(op, (source, span, For::Writes), with)
    }

    /// Returns how far a copy of a whole object may go from a block on: to the first one that is in
    /// the file only.
    pub(super) fn have_next(
        &mut self,
        op: &mut Op,
        (source, from): (ObjectId, u32),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<u32, Stop> {
        let at = u64::from(from).saturating_mul(BLOCK_BYTES);
        let Some(span) = Span::new(at, Span::ALL.end().saturating_sub(at)) else {
            return Ok(u32::MAX);
        };
        match self
            .index
            .missing(source, &span)
            .filter(|_| self.is_backed())
        {
            Some(fetch) if fetch.block > from => Ok(fetch.block),
            _ => self
                .fetch(op, (source, &span, For::Writes), with)
                .map(|()| u32::MAX),
        }
    }

    /// Takes a step of a flush of an object.
    pub(super) fn flush_object(&mut self, op: &mut Op) -> Result<(), Stop> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        if let Some(errno) = op.lost.take() {
            return Err(Stop::Refused(errno));
        }
        if op.want == Want::Flushed {
            return Ok(());
        }
        files.wake();
        if op.want == Want::Nothing {
            op.want = Want::Flush(0);
        }
        Err(Stop::File)
    }

    /// Returns whether there are blocks and slots for an operation.
    pub(super) fn has_room(&self, (need, of): (Need, For)) -> bool {
        let (purpose, blocks, _) = need;
        if purpose != Purpose::Write {
            return true;
        }
        let has_blocks = blocks == 0 || self.has_blocks((need, of));
        // Ranges can go: what is left has a slot for each object.
        let has_slots = !self.is_backed() || self.index.usage().ranges == 0;
        has_blocks && (has_slots || self.has_slots(need))
    }

    fn has_blocks(&self, ((_, blocks, _), of): (Need, For)) -> bool {
        let (used, most) = self.medium.room();
        let kept = match of {
            For::Writes if self.is_backed() => READ_BLOCKS.min(most / 4),
            _ => 0,
        };
        let most = most.saturating_sub(kept);
        used.saturating_add(blocks as u64) <= most
    }

    fn has_slots(&self, (_, _, changes): Need) -> bool {
        self.index.slots().free_count() as usize >= changes
    }

    /// Drops what is in files until there is room, as far as a step may look. Returns whether there
    /// is nothing to be dropped.
    fn drop_clean(&mut self, (need, of): (Need, For), looked: &mut u64) -> bool {
        let count = self.index.slots().count();
        for _ in 0..LOOK_SLOTS {
            let most = u64::from(count).saturating_mul(USES_MAX.into());
            // Who reads it all the time does not keep a block for ever.
            let takes_any = looked.saturating_add(count.into()) >= most;
            if self.index.usage().clean == 0 || *looked >= most {
                return true;
            }
            let Some(files) = &mut self.files else {
                return true;
            };
            let slot = files.clean;
            files.clean = if slot.saturating_add(1) < count {
                slot.saturating_add(1)
            } else {
                0
            };
            *looked = looked.saturating_add(1);
            if self.index.drop_clean((slot, takes_any), &mut self.medium) {
                *looked = 0;
                if self.index.slots().extent(slot).is_some() {
                    // Other ranges have it.
                    files.clean = slot;
                }
                if self.has_blocks((need, of)) && self.has_slots(need) {
                    return false;
                }
            }
        }
        false
    }

    /// Makes room for an operation, of objects that have files. Returns how it goes on.
    pub(super) fn make_room(&mut self, op: &mut Op, need: (Need, For)) -> Result<(), Stop> {
        let mut looked = op.looked;
        let is_in_vain = self.drop_clean(need, &mut looked);
        op.looked = if is_in_vain { 0 } else { looked };
        if self.has_room(need) {
            (op.looked, op.setbacks) = (0, None);
            return Ok(());
        }
        let Some(files) = &mut self.files else {
            return Err(Stop::Refused(Errno::ENOSPC));
        };
        if !is_in_vain {
            self.end_old(op);
            return Err(Stop::Again);
        }
        let before = *op.setbacks.get_or_insert(files.setbacks);
        if before != files.setbacks {
            op.setbacks = None;
            return Err(Stop::Refused(files.reason.unwrap_or(Errno::ENOSPC)));
        }
        // What is written makes room.
        if !files.is_wanted {
            files.is_wanted = true;
            files.begin_round();
            files.wake();
        }
        self.end_old(op);
        Err(Stop::Room)
    }

    /// Returns what is done for a request that is next in the queue of files; `None` if it takes
    /// its next step at once.
    pub fn file_of(&mut self, op: &mut Op, message: &Message<'_>) -> Option<FileWork> {
        match op.want {
            Want::Fetch(fetch, _) => Some(FileWork::Fetch(fetch)),
            Want::Flush(from) => {
                let Operation::Flush { object, .. } = message.operation else {
                    return None;
                };
                let leaving = self.index.leave((object, from), &mut self.medium);
                // Of one that was deleted the file is gone.
                Some(leaving.map_or(FileWork::Remove(object), FileWork::Leave))
            }
            _ => None,
        }
    }

    /// A request is done with files for now: it takes its next step.
    fn worked(op: Option<&mut Op>, want: Want, result: Result<(), Errno>) {
        if let Some(op) = op {
            (op.want, op.lost) = (want, result.err().map(told));
        }
    }

    /// Blocks were read for a request, which takes its next step: they are used, unless others are
    /// there meanwhile.
    pub fn fetched(
        &mut self,
        op: &mut Op,
        fetch: &Fetch,
        bytes: Result<&[u8], Errno>,
        crc: &impl Checksum,
    ) {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(_) => {
                // What was cut off meanwhile is not needed any more.
                let is_lost = self.index.is_current(fetch);
                let result = if is_lost { Err(Errno::EIO) } else { Ok(()) };
                return Self::worked(Some(op), Want::Nothing, result);
            }
        };
        let of = match op.want {
            Want::Fetch(_, of) => of,
            _ => For::Writes,
        };
        Self::worked(Some(op), Want::Nothing, Ok(()));
        let need = (
            (Purpose::Write, fetch.blocks as usize, WRITE_CHANGES_MAX),
            of,
        );
        if !self.index.is_current(fetch) {
            return;
        }
        if !self.has_room(need) {
            // Others have it: if there is none, the request waits for room again.
            self.drop_clean(need, &mut 0);
            if !self.has_room(need) {
                return;
            }
        }
        let fetch = &self.index.renewed(fetch);
        let blocks = bytes.chunks(BLOCK_BYTES as usize);
        let blocks = blocks.map(|block| (crc.crc32c(block), block));
        self.medium.begin();
        if let Some(stored) = self.medium.put(blocks, crc) {
            let used = self.index.fetched(fetch, stored, &mut self.medium);
            if used != Ok(true) {
                self.medium.undo();
            }
        }
    }

    /// Blocks were written, for a request, which takes its next step, or by the store itself.
    pub fn left(&mut self, op: Option<&mut Op>, leaving: &Leaving, result: Result<(), Errno>) {
        let left = self.index.left(leaving, result.is_ok(), &mut self.medium);
        if let Some(files) = &mut self.files {
            files.note(leaving.object, result);
            match result {
                Err(errno) if op.is_none() => {
                    files.failures = files.failures.saturating_add(1);
                    files.error = Some(errno);
                }
                Err(_) => (),
                Ok(()) => {
                    if op.is_none() {
                        files.begin_round();
                    }
                    // Who still waits for room says so again.
                    files.is_wanted &= op.is_some();
                    files.rests = false;
                }
            }
        }
        let from = match op.as_deref().map(|op| op.want) {
            Some(Want::Flush(from)) => from,
            _ => 0,
        };
        let want = match left {
            Left::Nothing => Want::Flushed,
            Left::From(block) => Want::Flush(block),
            Left::Again => Want::Flush(from),
        };
        Self::worked(op, want, result);
    }
}
