// SPDX-License-Identifier: GPL-2.0

//! Work on files: which is next, and what came of it.

use kernel::prelude::*;
use seglog::Checksum;

use super::{
    super::{
        medium::Kept,
        memory::Crc,
        message::message_of, //
    },
    request_of,
    Engine,
    State, //
};
use crate::proto::{
    index::Source,
    span::BLOCK_BYTES,
    store::{
        Block,
        FileWork, //
    },
};

impl<D: Kept> Engine<D> {
    /// Whether something is to be done with files.
    fn wants_files(&self) -> bool {
        !self.acting.has_no_files() || self.store.wants_files()
    }

    /// Whether the work item of files is to be queued.
    pub(in crate::server) fn begin_filing(&mut self) -> bool {
        let is_new = !self.is_filing && self.wants_files();
        self.is_filing |= is_new;
        is_new
    }

    /// Whether the work item of files goes on. If not, it is queued again when that is due, and
    /// those that wait for room learn whether there was some.
    pub(in crate::server) fn goes_on_filing(&mut self) -> bool {
        self.is_filing = self.wants_files();
        if !self.is_filing {
            self.try_again();
        }
        self.is_filing
    }

    /// Returns what is done next, and the request for which it is.
    pub(in crate::server) fn begin_file(&mut self) -> Option<(Option<u32>, FileWork)> {
        if self.file_turns.is_due() || self.acting.has_no_files() {
            self.file_turns.rest();
            if let Some(work) = self.store.own_file() {
                return Some((None, work));
            }
        }
        while let Some(tag) = self.acting.next_file() {
            let request = request_of(&mut self.clients, tag);
            // One that the end of the store has answered is not here any more.
            let waits = request.filter(|request| request.state == State::Files);
            let Some(request) = waits else { continue };
            let message = message_of(&request.operation).ok();
            let work = message.and_then(|message| self.store.file_of(&mut request.op, &message));
            if let Some(work) = work {
                self.file_turns.request();
                return Some((Some(tag), work));
            }
            request.state = State::Runs;
            self.acting.run(tag);
        }
        None
    }

    /// Copies blocks that go to a file, as many as there is room for, from one on.
    ///
    /// # Errors
    ///
    /// `EIO` if one of them is not what it was: it does not go to a file.
    pub(in crate::server) fn copy_blocks(&self, source: &Source, to: &mut [u8]) -> Result {
        let numbers = (0u8..).map(|skipped| source.first.saturating_add(skipped));
        for (number, to) in numbers.zip(to.chunks_exact_mut(BLOCK_BYTES as usize)) {
            let to: &mut Block = to.try_into().map_err(|_| EIO)?;
            let sum = self.store.medium().copy_block(&source.stored, number, to)?;
            if sum != Some(Crc.crc32c(&*to)) {
                return Err(EIO);
            }
        }
        Ok(())
    }

    /// Work on a file has ended: its request takes its next step, and so do those that wait
    /// for room.
    pub(in crate::server) fn end_file(
        &mut self,
        (tag, work): (Option<u32>, FileWork),
        result: Result<&[u8], ferro_proto::errno::Errno>,
    ) {
        let request = tag.and_then(|tag| request_of(&mut self.clients, tag));
        let done = result.map(|_| ());
        match (work, request) {
            (FileWork::Fetch(fetch), Some(request)) => {
                request.state = State::Runs;
                self.store.fetched(&mut request.op, &fetch, result, &Crc);
            }
            (FileWork::Fetch(_), None) => (),
            (FileWork::Leave(leaving), request) => {
                let op = request.map(|request| {
                    request.state = State::Runs;
                    &mut request.op
                });
                self.store.left(op, &leaving, done);
            }
            (FileWork::Remove(object), request) => {
                let op = request.map(|request| {
                    request.state = State::Runs;
                    &mut request.op
                });
                self.store.removed(op, object, done);
            }
        }
        if let Some(tag) = tag {
            self.acting.run(tag);
        }
        self.try_again();
    }
}
