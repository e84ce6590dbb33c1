// SPDX-License-Identifier: GPL-2.0

//! A store does work on files by itself: dirty blocks are written, and files of deleted objects are
//! removed, in turn.

use ferro_proto::errno::Errno;

use super::{
    super::{
        super::{
            medium::Medium,
            span::ObjectId, //
        },
        Op,
        Store,
        StoreMemory, //
    },
    FileWork,
    Want,
    LOOK_SLOTS, //
};

/// The jobs of a running store that fail one after the other before those that wait for room are
/// told so.
const FAILURES_MAX: u32 = 64;

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Whether dirty blocks are to be written.
    fn wants_writing(&self) -> bool {
        let Some(files) = &self.files else {
            return false;
        };
        let (_, most) = self.medium.room();
        let is_much = self.index.usage().dirty.saturating_mul(2) > most;
        !files.rests && (files.is_wanted || files.is_ending || is_much)
    }

    /// Returns the object whose file is to be removed.
    fn unwanted(&self) -> Option<ObjectId> {
        let files = self.files.as_ref()?;
        self.index.file_to_remove().filter(|_| !files.keeps)
    }

    /// Whether [`Self::own_file`] has something to do.
    pub fn wants_files(&self) -> bool {
        self.wants_writing() || self.unwanted().is_some()
    }

    /// Returns what the store does with files by itself, next. It looks at some slots: `None` says
    /// that it may be asked again, if [`Self::wants_files`].
    pub fn own_file(&mut self) -> Option<FileWork> {
        let (is_writing, unwanted) = (self.wants_writing(), self.unwanted());
        let files = self.files.as_mut()?;
        let was_removal = core::mem::take(&mut files.has_removed);
        if let Some(object) = unwanted.filter(|_| !is_writing || !was_removal) {
            files.has_removed = true;
            return Some(FileWork::Remove(object));
        }
        if !is_writing {
            return None;
        }
        let count = self.index.slots().count();
        // In the first round an object that has failed before is looked at only.
        let is_vain = files.looked >= count.saturating_mul(2);
        if files.is_ending && is_vain {
            // What is being removed has a file yet.
            files.is_ending = self.index.is_reaping() || unwanted.is_some();
            files.begin_round();
            return None;
        }
        if is_vain || (!files.is_ending && files.failures >= FAILURES_MAX) {
            files.set_back();
            return None;
        }
        let (found, next) = self.index.dirty(files.next, (LOOK_SLOTS, files.is_ending));
        // Behind the last slot is the first one.
        let end = if next > files.next { next } else { count };
        files.looked = files.looked.saturating_add(end.saturating_sub(files.next));
        files.next = next;
        let leaving = self.index.leave(found?, &mut self.medium);
        leaving.ok().map(FileWork::Leave)
    }

    /// A file was removed, for a request, which takes its next step, or by the store itself.
    pub fn removed(&mut self, op: Option<&mut Op>, object: ObjectId, result: Result<(), Errno>) {
        let is_gone = result.is_ok();
        self.index.file_removed(object, is_gone, &mut self.medium);
        let next = self.index.file_to_remove();
        if let Some(files) = &mut self.files {
            files.note(object, result);
            files.kept = files.kept.filter(|_| !is_gone);
            let first = (!is_gone).then(|| *files.kept.get_or_insert(object));
            // A store that ends tries all of them.
            files.keeps = !is_gone && (!files.is_ending || next == first);
        }
        Self::worked(op, Want::Flushed, result);
    }
}
