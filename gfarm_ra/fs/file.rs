// SPDX-License-Identifier: GPL-2.0

//! Open files, and reading of files.
//!
//! All that have a file open share one stream of it, so they share descriptors and connections.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    prelude::*,
    sync::Arc,
    time::Instant, //
};
use kernel_ext::{
    errno::ESTALE,
    sync::Completion, //
};
use net_ext::Destination;
use vfs_ext::{
    End,
    Inode,
    OpenedName,
    Partial,
    Subrequest, //
};

use super::{
    attributes::Told,
    inode,
    inode::InodeData,
    Gfarm, //
};
use crate::{
    cache::{
        Notice,
        Reads, //
    },
    net::{
        Ending,
        Pages,
        Place,
        Stream, //
    },
    proto::{
        attr::FileId,
        cache::{
            counter::Counter,
            gap::{
                self,
                Gap, //
            }, //
        },
        identity::ContentId,
        name,
        setting::Setting, //
    }, //
};

/// The tasks that have a file open, and its stream.
pub(crate) struct Readers {
    count: usize,
    /// The stream of the file; `None` while the count is 0.
    stream: Option<Arc<Stream<Part>>>,
}

impl Readers {
    /// The file is not open.
    pub(super) const NONE: Self = Self {
        count: 0,
        stream: None,
    };

    /// Has those that have the file open go by another name, if there are any. May sleep.
    pub(super) fn rename(&self, place: &Arc<Place>) -> Result {
        match &self.stream {
            Some(stream) => stream.rename(place),
            None => Ok(()),
        }
    }

    /// Returns whether the file is open.
    pub(super) fn is_open(&self) -> bool {
        self.count != 0
    }
}

/// An open file, which is counted in its inode.
pub(crate) struct OpenFile {
    data: Arc<InodeData>,
    stream: Arc<Stream<Part>>,
}

impl OpenFile {
    /// Opens a file: the server is asked, so what a writer has closed before is seen (close-to-open
    /// consistency), unless an earlier open holds, as `nocto` lets it. It is asked by the name that
    /// is opened, also if the inode was found by another one since: this one may lead to another
    /// file by now.
    pub(super) fn new(inode: &Inode<Gfarm>, name: &OpenedName<'_, Gfarm>) -> Result<Arc<Self>> {
        let sb = inode.super_block();
        let mount = sb.data();
        let data = inode.data();
        let client = mount.client();
        let child = name::Name::new(name.bytes).map_err(|reason| Error::from(reason.errno()))?;
        let place = data.place_of(&name.dir.data().place(), child)?;
        let is_granted = data.is_granted(mount.options());
        let (file, told) = match Self::join(data) {
            Some(file) if is_granted => (file, None),
            None if is_granted => {
                let stream = client.open_later(&place, &data.content)?;
                (Self::begin(data, stream, None, &place)?, None)
            }
            Some(file) => {
                let told = client.permit(&place, |seen| mount.told(seen));
                let told = data.judged(told)?;
                inode::observe(inode, &told, &place).map_err(inode::stale_if_gone)?;
                (file, Some(told))
            }
            None => {
                let opened = client.open(&place, &data.content, |seen| mount.told(seen));
                let (stream, told) = data.judged(opened)?;
                inode::observe(inode, &told, &place)?;
                (Self::begin(data, stream, Some(&told), &place)?, Some(told))
            }
        };
        if let Some(told) = told {
            data.granted(&told);
            data.asked(&told);
        }
        inode::drop_outdated(inode)?;
        Ok(Arc::new(file, GFP_KERNEL)?)
    }

    /// Counts a reader, with its stream if no other task has opened the file meanwhile, and what
    /// gfmd has told if it was asked.
    ///
    /// # Errors
    ///
    /// Returns `ESTALE` if the inode is another object's by now, which another task has found.
    fn begin(
        data: &Arc<InodeData>,
        stream: Arc<Stream<Part>>,
        told: Option<&Told>,
        place: &Arc<Place>,
    ) -> Result<Self> {
        let mut readers = data.readers.lock();
        if told.is_some_and(|told| !data.content.is_of(&told.observed)) {
            return Err(ESTALE);
        }
        let is_first = !readers.is_open();
        if is_first {
            let known = data.place();
            if !Arc::ptr_eq(&known, place) {
                // It was found by this name since.
                stream.rename(&known)?;
            }
            stream.begin(told.map(|told| told.observed.asked.epoch));
            readers.stream = Some(stream.clone());
        }
        readers.count += 1;
        let stream = match (&readers.stream, is_first) {
            (Some(shared), false) => shared.clone(),
            _ => stream,
        };
        drop(readers);
        Ok(Self {
            data: data.clone(),
            stream,
        })
    }

    /// Counts a reader, with the stream of those who have the file open; `None` if it is not open.
    fn join(data: &Arc<InodeData>) -> Option<Self> {
        let mut readers = data.readers.lock();
        let stream = readers.stream.clone()?;
        readers.count += 1;
        Some(Self {
            data: data.clone(),
            stream,
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut readers = self.data.readers.lock();
        readers.count -= 1;
        let last = if readers.count == 0 {
            readers.stream.take()
        } else {
            None
        };
        drop(readers);
        // The last reference closes the file, and does not wait for that.
        drop(last);
    }
}

/// Wakes the reader when it is dropped.
struct Waiter(Arc<Completion>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.complete_all();
    }
}

/// The content of which other nodes have given pages. From then on a label has its count of changes
/// only while it is of that content (`proto::identity`).
#[derive(Clone, Copy)]
struct Given {
    file: FileId,
    /// The count of changes of the content.
    changes: u64,
    size_bytes: u64,
}

/// A part of a file that a task reads. The fields are dropped in this order.
pub(crate) struct Part {
    pages: Partial<Gfarm>,
    /// The content of which other nodes have given pages; `None` if they were not asked.
    given: Option<Given>,
    /// The read fails, as it is not known where its bytes were written.
    is_torn: bool,
    /// The notice for other nodes when the part is there.
    notice: Option<(Reads, Notice)>,
    /// The task that waits for the end, with `ra_async=0`.
    waiter: Option<Waiter>,
}

impl Part {
    /// Returns what is left to account for, those pages included that other nodes have given;
    /// `None` if they were not asked.
    fn rest(&self) -> Option<gap::Part> {
        let given = self.given?;
        let subrequest = self.pages.subrequest();
        Some(gap::Part {
            position: subrequest.position(),
            len: subrequest.len(),
            size: given.size_bytes,
        })
    }

    /// Returns the next bytes that are to be read from the gfsd.
    fn gap(&self) -> Gap {
        match self.rest() {
            Some(rest) => rest.gap(|page| self.pages.is_filled(page)),
            None => Gap {
                passed: 0,
                len: self.pages.subrequest().len(),
            },
        }
    }

    /// Gives up what other nodes have given between pages that are to be read, where it is little.
    fn join(&mut self) {
        let island = |part: &Self| part.rest()?.island(|page| part.pages.is_filled(page));
        while let Some(pages) = island(self) {
            self.pages.refill(pages);
        }
    }

    /// Passes over what other nodes have given here.
    fn pass(&mut self) {
        let passed = self.gap().passed;
        // A gap begins behind pages that have been filled, so they can be passed over.
        self.is_torn |= !self.pages.pass(passed);
    }

    /// Keeps the sums of pages that a gfsd has sent, before others see them, if the mount makes
    /// sums and the pages stay. May sleep for a lock.
    fn note_sums(&self) {
        let subrequest = self.pages.subrequest();
        let mount = subrequest.inode().super_block().data();
        let Some(sums) = mount.sums() else {
            return;
        };
        let content = self.shared().filter(|_| subrequest.is_cached());
        if let Some((id, Given { size_bytes, .. })) = content {
            let made = |page, sum| sums.made(id, size_bytes, page, sum);
            self.pages.sums(size_bytes, made);
        }
    }

    /// Counts the bytes that readers are about to be given, by where they come from.
    fn count(&self) {
        let subrequest = self.pages.subrequest();
        let Some(reads) = subrequest.inode().super_block().data().reads() else {
            return;
        };
        // CAST: From 64 bits to 64.
        let fresh = self.pages.fresh() as u64;
        let part = gap::Part {
            position: subrequest.position().saturating_sub(fresh),
            len: self.pages.fresh(),
            size: u64::MAX,
        };
        // CAST: As above.
        let from_gfsd = part.missing(|page| self.pages.is_filled(page)) as u64;
        reads.count(Counter::GfsdBytes, from_gfsd);
        reads.count(Counter::PeerBytes, fresh.saturating_sub(from_gfsd));
    }

    /// Has all be read from the gfsd that has not been given to readers yet.
    fn forget(&mut self) {
        self.pages.forget();
        self.given = None;
    }

    /// Returns whether a content is the one that the pages hold.
    fn is_current(&self, given: &Given) -> bool {
        let inode = self.pages.subrequest().inode();
        inode.data().is_at(given.changes) && inode.size() == given.size_bytes
    }

    /// Returns the content that other nodes are to be asked for; `None` if they are not.
    fn shared(&self) -> Option<(ContentId, Given)> {
        let inode = self.pages.subrequest().inode();
        let (id, changes) = inode.data().content.shared()?;
        let given = Given {
            file: id.file,
            changes,
            size_bytes: inode.size(),
        };
        // Else its pages are about to be dropped.
        self.is_current(&given).then_some((id, given))
    }

    /// Returns whether pages that nodes have given of `id` may be cached: the label is still the
    /// one that they were asked for, which from now on no gfsd changes without a word.
    fn may_keep(&self, id: &ContentId, given: &Given) -> bool {
        let inode = self.pages.subrequest().inode();
        self.is_current(given) && inode.data().content.give(id, given.changes)
    }

    /// Asks other nodes for the pages of a file; `None` if a device keeps its pages.
    fn ask(self, reads: Reads, is_over: &dyn Fn() -> bool) -> Option<Self> {
        let Some((id, given)) = self.shared() else {
            return Some(self);
        };
        let Self { pages, waiter, .. } = self;
        let part = |pages, notice| Self {
            pages,
            given: None,
            is_torn: false,
            notice,
            waiter,
        };
        let lent = match pages.into_subrequest().lend() {
            Ok(lent) => lent,
            Err(subrequest) => return Some(part(subrequest.into(), None)),
        };
        let (lent, notice) = reads.fill(lent, id, given.size_bytes, is_over)?;
        let notice = notice.map(|notice| (reads, notice));
        let is_given = (0..lent.pages()).any(|page| lent.is_filled(page));
        let mut part = part(lent.into_partial(), notice);
        if !is_given {
            return Some(part);
        }
        // As with a gfsd: bytes are given to readers if the label is still the one asked for.
        if part.may_keep(&id, &given) {
            part.given = Some(given);
            part.join();
            part.progress();
        } else {
            part.forget();
            part.notice = None;
        }
        Some(part)
    }
}

impl Pages for Part {
    fn ask_nodes(self, is_late: bool, is_over: &dyn Fn() -> bool) -> Option<Self> {
        let reads = {
            let sb = self.pages.subrequest().inode().super_block();
            sb.data().reads()
        };
        let Some(reads) = reads else {
            return Some(self);
        };
        if is_late {
            reads.count(Counter::NotAsked, 1);
            return Some(self);
        }
        let part = self.ask(reads, is_over)?;
        if part.len() == 0 {
            part.end(Ending::Read);
            return None;
        }
        Some(part)
    }

    fn announce(&mut self, id: FileId) {
        if let Some(given) = self.given {
            if given.file != id || !self.is_current(&given) {
                self.forget();
            }
        }
    }

    fn position(&self) -> u64 {
        let passed = self.gap().passed;
        let subrequest = self.pages.subrequest();
        // CAST: From 64 bits to 64.
        subrequest.position().saturating_add(passed as u64)
    }

    fn len(&self) -> usize {
        self.gap().len
    }

    fn has_more(&self) -> bool {
        let behind = self.rest().map(|rest| rest.behind(&self.gap()));
        behind.is_some_and(|rest| rest.gap(|page| self.pages.is_filled(page)).len != 0)
    }

    fn destination(&mut self) -> Destination<'_> {
        self.pass();
        self.pages.destination()
    }

    fn progress(&mut self) {
        self.pass();
        match self.is_torn {
            true => self.pages.rewind(),
            false => {
                self.note_sums();
                self.count();
                self.pages.progress();
            }
        }
    }

    fn rewind(&mut self) {
        self.pages.rewind();
    }

    fn end(self, how: Ending) {
        // Other nodes have given all up to the end of the file.
        let ended = self.rest().filter(|rest| rest.position >= rest.size);
        let Self {
            pages,
            is_torn,
            notice,
            waiter,
            ..
        } = self;
        let subrequest = pages.into_subrequest();
        let end = match how {
            _ if is_torn => End::Failed(EIO),
            Ending::Read => match ended.filter(|_| !subrequest.is_empty()) {
                Some(rest) => inode::end_at(&subrequest, rest.size),
                None => End::Read,
            },
            Ending::EndOfFile { size } => inode::end_at(&subrequest, size),
            Ending::Failed(error) => {
                let error = inode::stale_if_gone(error);
                if error == ESTALE {
                    // The next open finds out what is there.
                    subrequest.inode().data().withdraw(Instant::now());
                }
                End::Failed(error)
            }
        };
        subrequest.end(end);
        if let (Some((reads, notice)), false) = (notice, matches!(how, Ending::Failed(_))) {
            reads.tell(&notice);
        }
        drop(waiter);
    }
}

/// Starts to read a part of a file. Returns before it is there, unless the mount has `ra_async=0`.
pub(super) fn read(subrequest: Subrequest<Gfarm>) {
    let file = Arc::from(subrequest.file());
    let is_async = {
        let sb = subrequest.inode().super_block();
        sb.data().options().get(Setting::RaAsync) != 0
    };
    // Without memory for it the reader does not wait here.
    let done = match is_async {
        true => None,
        false => Arc::pin_init(Completion::new(), GFP_NOWAIT).ok(),
    };
    let waiter = done.clone().map(Waiter);
    file.stream.read(Part {
        pages: subrequest.into(),
        given: None,
        is_torn: false,
        notice: None,
        waiter,
    });
    if let Some(done) = done {
        // What is not waited for is read nevertheless.
        let _ = done.wait_killable();
    }
}
