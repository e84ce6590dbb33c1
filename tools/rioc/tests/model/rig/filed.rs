// SPDX-License-Identifier: GPL-2.0

//! A store in memory whose objects have files: one thing after the other is done with them, step by
//! step, while requests go on; a file may fail, and power, at any step.

use rioc::proto::{
    index::Index,
    span::IO_BLOCKS_MAX,
    store::FileWork, //
};

use ferro_proto::errno::Errno;

use super::*;

const BLOCK: usize = BLOCK_BYTES as usize;
/// The errno of a read behind the end of a file.
const SHORT: Errno = Errno::ENXIO;

/// Files, as they are, and as they were when they were synced.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) now: BTreeMap<ObjectId, Vec<u8>>,
    pub(crate) synced: BTreeMap<ObjectId, Vec<u8>>,
    /// The size to which a file was cut since.
    cuts: BTreeMap<ObjectId, usize>,
}

impl Files {
    /// Cuts a file, or fills it with zeroes up to a size.
    pub(crate) fn resize(&mut self, object: ObjectId, size: usize) {
        self.now.entry(object).or_default().resize(size, 0);
        let least = self.cuts.entry(object).or_insert(size);
        *least = size.min(*least);
    }

    /// Syncs a file.
    pub(crate) fn sync(&mut self, object: ObjectId) {
        let synced = self.now.entry(object).or_default().clone();
        self.synced.insert(object, synced);
        self.cuts.remove(&object);
    }

    /// Reads blocks; of the last one there may be a part. `None` if the file is shorter.
    pub(crate) fn blocks(&self, object: ObjectId, block: u32, blocks: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * BLOCK];
        let file = self.now.get(&object)?;
        let from = file.get(block as usize * BLOCK..)?;
        let len = from.len().min(bytes.len());
        bytes[..len].copy_from_slice(&from[..len]);
        (len + BLOCK > bytes.len()).then_some(bytes)
    }

    /// A crash leaves some of what was not synced.
    pub(crate) fn crashed(&self, random: &mut Random) -> Self {
        let mut now = self.synced.clone();
        for (object, size) in &self.cuts {
            if let Some(file) = now.get_mut(object).filter(|_| random.below(2) == 0) {
                file.truncate(*size);
            }
        }
        for (object, bytes) in &self.now {
            let file = now.entry(*object).or_default();
            for (at, block) in (0..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
                if random.below(2) == 0 {
                    file.resize(file.len().max(at + block.len()), 0);
                    file[at..at + block.len()].copy_from_slice(block);
                    // Whole blocks are written, with zeroes behind an end.
                    let end = file.len().min(at + BLOCK);
                    file[at + block.len()..end].fill(0);
                }
            }
        }
        Self {
            synced: now.clone(),
            now,
            cuts: BTreeMap::new(),
        }
    }
}

/// Work on a file, and the steps of it that are done.
pub(super) struct Work {
    tag: Option<u32>,
    work: FileWork,
    at: usize,
    bytes: Vec<u8>,
}

/// A version of an object.
type Version = Option<Vec<u8>>;

/// The files of a store, and what must be in them after a crash.
#[derive(Default)]
pub(crate) struct Filed {
    pub(super) queue: VecDeque<u32>,
    work: Option<Work>,
    pub(crate) files: Files,
    /// The errno of all that is done with files from now on.
    pub(crate) failing: Option<Errno>,
    /// Files take nothing more, and are read.
    pub(crate) is_full: bool,
    /// The objects whose files take nothing.
    pub(crate) bad: BTreeSet<ObjectId>,
    /// The versions of each object that may be there after a crash; those before are counted.
    versions: BTreeMap<ObjectId, (usize, Vec<Version>)>,
    /// The versions that flushes in flight are to make durable.
    marks: BTreeMap<u32, (ObjectId, usize)>,
    is_on: bool,
    pub(crate) fetched: u64,
    pub(crate) written: u64,
    pub(crate) removed: u64,
    pub(crate) failed: u64,
    pub(crate) flushed: u64,
}

impl Filed {
    /// Notes what objects are now.
    pub(super) fn note(&mut self, objects: &Objects, ask: Ask) {
        if !self.is_on {
            return;
        }
        if let Ask::Snapshot(_, replaced, _) = ask {
            // The file of another object is written anew, in more than one step.
            if let Some((_, versions)) = self.versions.get_mut(&id(replaced)) {
                versions.push(None);
            }
        }
        for id in objects.keys() {
            let new = || (0, vec![None]);
            self.versions.entry(*id).or_insert_with(new);
        }
        for (id, (_, versions)) in &mut self.versions {
            let now = objects.get(id);
            if versions.last().unwrap().as_ref() != now {
                versions.push(now.cloned());
            }
        }
    }

    /// A flush was carried out: what was there when it was sent is durable.
    pub(super) fn flushed(&mut self, tag: u32) {
        let Some((object, mark)) = self.marks.remove(&tag) else {
            return;
        };
        self.flushed += 1;
        if let Some((before, versions)) = self.versions.get_mut(&object) {
            let old = mark.saturating_sub(*before);
            versions.drain(..old);
            *before += old;
        }
    }

    /// Checks what a crash has left.
    fn check_crashed(&self, files: &Files) {
        for (object, (_, versions)) in &self.versions {
            let Some(file) = files.now.get(object) else {
                assert!(versions.contains(&None), "{object:?} is gone");
                continue;
            };
            let there: Vec<_> = versions.iter().flatten().collect();
            let sizes = || there.iter().map(|version| version.len());
            let rounded = sizes().map(|size| size.next_multiple_of(BLOCK));
            if versions.contains(&None) {
                // It was not flushed since it was made.
                continue;
            }
            assert!(file.len() >= sizes().min().unwrap(), "{object:?} is short");
            assert!(file.len() <= rounded.max().unwrap(), "{object:?} is long");
            for (at, block) in (0..).step_by(BLOCK).zip(file.chunks(BLOCK)) {
                let is_of = |version: &&&Vec<u8>| {
                    let mut bytes = version.get(at..).unwrap_or_default().to_vec();
                    bytes.resize(BLOCK, 0);
                    let mut block = block.to_vec();
                    block.resize(BLOCK, 0);
                    bytes == block
                };
                assert!(
                    there.iter().any(|version| is_of(&version)),
                    "{object:?} at {at} is of no version"
                );
            }
        }
    }
}

impl<D: Readable> Rig<D> {
    pub(super) fn sent_flush(&mut self, tag: u32, ask: Ask) {
        let Ask::Flush(object) = ask else { return };
        let of = self.filed.versions.get(&id(object));
        let mark = of.map_or(0, |(before, versions)| before + versions.len() - 1);
        self.filed.marks.insert(tag, (id(object), mark));
    }

    /// Takes a step of what is done with files, or begins something; returns whether it has.
    pub(crate) fn file_step(&mut self) -> bool {
        let Some(mut work) = self.filed.work.take() else {
            return self.begin_file();
        };
        let fails = self.filed.failing;
        let ended = match &work.work {
            FileWork::Fetch(fetch) if work.at == 0 => {
                let files = &self.filed.files;
                let bytes = files.blocks(fetch.object, fetch.block, fetch.blocks);
                let is_short = bytes.is_none();
                work.bytes = bytes.unwrap_or_default();
                fails.or(is_short.then_some(SHORT)).map(Err)
            }
            FileWork::Fetch(_) => Some(Ok(())),
            FileWork::Leave(leaving) => {
                let failing = fails.filter(|_| self.random.below(3) == 0);
                let failing = failing.or(self.filed.is_full.then_some(Errno::ENOSPC));
                let is_bad = self.filed.bad.contains(&leaving.object);
                let failing = failing.or(is_bad.then_some(Errno::EFBIG));
                match failing {
                    Some(errno) => Some(Err(errno)),
                    None => self.write_file(&work),
                }
            }
            FileWork::Remove(object) if work.at == 0 => {
                self.filed.files.now.remove(object);
                fails.map(Err)
            }
            FileWork::Remove(object) => {
                self.filed.files.synced.remove(object);
                Some(Ok(()))
            }
        };
        work.at += 1;
        match ended {
            None => self.filed.work = Some(work),
            Some(result) => self.end_file(work, result),
        }
        true
    }

    /// Takes a step of writing to a file; returns whether it was the last one.
    fn write_file(&mut self, work: &Work) -> Option<Result<(), Errno>> {
        let FileWork::Leave(leaving) = &work.work else {
            return None;
        };
        let files = &mut self.filed.files;
        if work.at == 0 {
            let size = files.now.get(&leaving.object).map(Vec::len);
            assert!(leaving.may_write(size.map(|size| size as u64)));
            let cut_at = leaving
                .cut_at
                .map_or(usize::MAX, |block| block as usize * BLOCK);
            if cut_at < size.unwrap_or_default() {
                files.resize(leaving.object, cut_at);
            }
            files.resize(leaving.object, leaving.size as usize);
        }
        let Some(part) = leaving.parts().get(work.at) else {
            files.sync(leaving.object);
            return Some(Ok(()));
        };
        let file = files.now.entry(leaving.object).or_default();
        for skipped in 0..part.blocks {
            let bytes = part.source.map(|source| {
                // CAST: Below the blocks of an extent.
                let number = source.first + skipped as u8;
                let medium = self.store.medium();
                medium.block(&self.begun.disk, &source.stored, number)
            });
            let at = (part.block + skipped) as usize * BLOCK;
            let len = BLOCK.min(file.len() - at);
            file[at..at + len].copy_from_slice(&bytes.unwrap_or([0; BLOCK])[..len]);
        }
        None
    }

    fn begin_file(&mut self) -> bool {
        let is_own = self.random.below(2) == 0 || self.filed.queue.is_empty();
        let (tag, work) = match is_own {
            true => {
                let wants = self.store.wants_files();
                match self.store.own_file() {
                    Some(work) => (None, work),
                    None => {
                        if !self.store.wants_files() && self.filed.queue.is_empty() {
                            // The work item returns.
                            self.try_again();
                        }
                        return wants;
                    }
                }
            }
            false => {
                let tag = self.filed.queue.pop_front().unwrap();
                let one = self.running.get_mut(&tag).unwrap();
                let message = one.request.message();
                match self.store.file_of(&mut one.op, &message) {
                    Some(work) => (Some(tag), work),
                    None => {
                        one.state = State::Runs;
                        return true;
                    }
                }
            }
        };
        self.filed.work = Some(Work {
            tag,
            work,
            at: 0,
            bytes: Vec::new(),
        });
        true
    }

    fn end_file(&mut self, work: Work, result: Result<(), Errno>) {
        let mut one = work.tag.map(|tag| self.running.get_mut(&tag).unwrap());
        let op = one.as_mut().map(|one| &mut one.op);
        self.filed.failed += u64::from(result.is_err());
        match work.work {
            FileWork::Fetch(fetch) => {
                assert!(fetch.blocks as usize <= IO_BLOCKS_MAX);
                self.filed.fetched += 1;
                let is_lost = result == Err(SHORT) && self.store.index().is_current(&fetch);
                assert!(!is_lost, "{fetch:?} is behind the end of its file");
                let bytes = result.map(|()| &*work.bytes);
                self.store.fetched(op.unwrap(), &fetch, bytes, &Crc);
            }
            FileWork::Leave(leaving) => {
                self.filed.written += 1;
                self.store.left(op, &leaving, result);
            }
            FileWork::Remove(object) => {
                self.filed.removed += 1;
                self.store.removed(op, object, result);
            }
        }
        if let Some(one) = one {
            one.state = State::Runs;
        }
        self.try_again();
    }

    /// The server fails, with the machine or alone, or ends as it should; it begins again.
    pub(crate) fn begin_again(&mut self, medium: D, has_ended: bool) {
        let files = self.filed.files.crashed(&mut self.random);
        self.filed.check_crashed(&files);
        if has_ended {
            let files = &self.filed.files;
            for (of, what) in [(&files.now, "there"), (&files.synced, "durable")] {
                assert!(of.keys().eq(self.objects.keys()), "not {what}");
                for (object, bytes) in of {
                    let right = &self.objects[object];
                    let at = bytes.iter().zip(right).position(|(a, b)| a != b);
                    let sizes = (bytes.len(), right.len());
                    let is_right = at.is_none() && sizes.0 == sizes.1;
                    assert!(is_right, "{object:?} at {at:?} of {sizes:?} is not {what}");
                }
            }
        }
        let slots = self.store.index().slots().count() as usize;
        let index = Index::new(vec![Slot::Free(NONE); slots], vec![NONE; 4], [7, 11]);
        self.store = Store::new(index, claims(&mut self.random), medium);
        self.store.back();
        for (object, bytes) in &files.now {
            self.store.adopt((*object, bytes.len() as u64)).unwrap();
        }
        self.objects = files.now.clone();
        self.history = BTreeMap::from([(0, self.objects.clone())]);
        self.carried_out.clear();
        self.running.clear();
        self.held.clear();
        self.begun.begins.clear();
        self.clients = clients();
        let (before, is_on) = (std::mem::take(&mut self.filed), true);
        self.filed = Filed {
            files,
            is_on,
            fetched: before.fetched,
            written: before.written,
            removed: before.removed,
            failed: before.failed,
            flushed: before.flushed,
            ..Filed::default()
        };
        for (object, bytes) in &self.objects {
            let there = (0, vec![Some(bytes.clone())]);
            self.filed.versions.insert(*object, there);
        }
        self.attach();
        self.tally.crashes += 1;
    }

    /// Objects have files from now on.
    pub(crate) fn back(&mut self) {
        self.store.back();
        self.filed.is_on = true;
    }

    /// Takes a step of what is left to be done.
    pub(crate) fn reap_one(&mut self) {
        let is_reaping = self.store.index().is_reaping();
        let _ = self.store.reap((&mut self.begun, &Crc));
        if is_reaping {
            self.try_again();
        }
    }

    /// Whether nothing goes on, and nothing is to be done with files.
    fn is_done(&self) -> bool {
        let is_idle = self.running.is_empty() && self.filed.work.is_none();
        is_idle && !self.store.wants_files()
    }

    /// Lets all end that is in flight.
    pub(crate) fn drain_files(&mut self) {
        while self.held() > 0 {
            self.end_read(0);
        }
        for round in 0..20_000 {
            self.step_some(true);
            self.answer();
            self.file_step();
            self.reap_one();
            while self.held() > 0 {
                self.end_read(0);
            }
            if self.is_done() {
                return;
            }
            let usage = self.store.index().usage();
            let asked: Vec<_> = self.running.values().map(|one| one.request.ask).collect();
            assert!(round < 19_999, "stuck: {usage:?}, {asked:?}");
        }
    }
}
