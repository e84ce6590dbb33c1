// SPDX-License-Identifier: GPL-2.0

//! Open files, and reading of files.
//!
//! All that have a file open share one stream of it, so they share descriptors and connections.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::Completion;
use net_ext::Destination;
use vfs_ext::{
    End,
    Inode,
    OpenedName,
    Subrequest, //
};

use super::{
    node,
    node::Node,
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
        Stream, //
    },
    proto::{
        name,
        setting::Setting, //
    }, //
};

/// Who has a file open, and its stream.
pub(crate) struct Readers {
    count: usize,
    /// There as long as the count is not 0.
    stream: Option<Arc<Stream<Part>>>,
}

impl Readers {
    /// The file is not open.
    pub(super) const NONE: Self = Self {
        count: 0,
        stream: None,
    };

    /// Returns whether the file is open.
    pub(super) fn is_open(&self) -> bool {
        self.count != 0
    }
}

/// An open file, which is counted in its inode.
pub(crate) struct OpenFile {
    node: Arc<Node>,
    stream: Arc<Stream<Part>>,
}

impl OpenFile {
    /// Opens a file: the server is asked in any case, so what a writer has closed before is seen
    /// (close-to-open consistency). It is asked by the name that is opened, also if the inode was
    /// found by another one since: this one may lead to another file by now.
    pub(super) fn new(inode: &Inode<Gfarm>, name: &OpenedName<'_, Gfarm>) -> Result<Arc<Self>> {
        let sb = inode.super_block();
        let mount = sb.data();
        let node = inode.data();
        let client = mount.client();
        let child = name::Name::new(name.bytes).map_err(|reason| Error::from(reason.errno()))?;
        let place = node.found_at(&name.dir.data().place(), child)?;
        let file = match Self::join(node, None) {
            Some(file) => {
                client
                    .attributes(&place, |seen| mount.told(seen))
                    .and_then(|told| node::observe(inode, &told))
                    .map_err(node::stale_if_gone)?;
                file
            }
            None => {
                let (stream, told) = client
                    .open(&place, &node.content, |seen| mount.told(seen))
                    .map_err(node::stale_if_gone)?;
                node::observe(inode, &told)?;
                Self::join(node, Some(stream)).ok_or(EIO)?
            }
        };
        node::drop_outdated(inode)?;
        Ok(Arc::new(file, GFP_KERNEL)?)
    }

    /// Counts a reader, with the stream of those who have the file open, else with `stream`; `None`
    /// if there is neither.
    fn join(node: &Arc<Node>, stream: Option<Arc<Stream<Part>>>) -> Option<Self> {
        let mut readers = node.readers.lock();
        let stream = match &readers.stream {
            Some(shared) => shared.clone(),
            None => stream?,
        };
        readers.stream = Some(stream.clone());
        readers.count += 1;
        Some(Self {
            node: node.clone(),
            stream,
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut readers = self.node.readers.lock();
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

/// A part of a file that a task reads. The fields are dropped in this order.
pub(crate) struct Part {
    subrequest: Subrequest<Gfarm>,
    /// What other nodes are told when it is there.
    notice: Option<(Reads, Notice)>,
    /// Of `ra_async=0`: who waits for the end.
    waiter: Option<Waiter>,
}

impl Part {
    /// Asks other nodes for the pages of a file of this size. Returns what is left of it, and
    /// whether the file ends there; `None` if the subrequest has ended with an error.
    fn ask(self, reads: Reads, node: &Node, size_bytes: u64, owes: bool) -> Option<(Self, bool)> {
        let (id, changes) = node.content.current();
        if node.holds(id) != Some(changes) {
            // Its pages are about to be dropped.
            return Some((self, false));
        }
        let Self {
            subrequest, waiter, ..
        } = self;
        let part = |subrequest, notice| Self {
            subrequest,
            notice,
            waiter,
        };
        let lent = match subrequest.lend() {
            Ok(lent) => lent,
            Err(subrequest) => return Some((part(subrequest, None), false)),
        };
        let (lent, notice) = reads.fill(lent, id, size_bytes, owes)?;
        let mut subrequest = lent.into_subrequest(size_bytes);
        // As with a gfsd: bytes are given to readers if the label is still the one asked for.
        let is_same = node.holds(id) == Some(changes) && subrequest.inode().size() == size_bytes;
        if !is_same {
            subrequest.rewind();
            return Some((part(subrequest, None), false));
        }
        subrequest.progress();
        let is_end = subrequest.position() >= size_bytes;
        let notice = notice.map(|notice| (reads, notice));
        Some((part(subrequest, notice), is_end))
    }
}

impl Pages for Part {
    fn ask_nodes(self, owes: bool) -> Option<Self> {
        let reads = {
            let sb = self.subrequest.inode().super_block();
            sb.data().reads()
        };
        let Some(reads) = reads else {
            return Some(self);
        };
        let (node, size_bytes) = {
            let inode = self.subrequest.inode();
            (inode.data().clone(), inode.size())
        };
        let (part, is_end) = self.ask(reads.clone(), &node, size_bytes, owes)?;
        let how = match (part.len(), is_end) {
            (0, _) => Ending::Read,
            (_, true) => Ending::EndOfFile,
            (len, false) => {
                let rest = size_bytes.saturating_sub(part.position());
                // CAST: From 64 bits to 64.
                reads.left(rest.min(len as u64));
                return Some(part);
            }
        };
        part.end(how);
        None
    }

    fn position(&self) -> u64 {
        self.subrequest.position()
    }

    fn len(&self) -> usize {
        self.subrequest.len()
    }

    fn destination(&mut self) -> Destination<'_> {
        self.subrequest.destination()
    }

    fn progress(&mut self) {
        self.subrequest.progress();
    }

    fn rewind(&mut self) {
        self.subrequest.rewind();
    }

    fn end(self, how: Ending) {
        let Self {
            subrequest,
            notice,
            waiter,
        } = self;
        let end = match how {
            Ending::Read => End::Read,
            Ending::EndOfFile => {
                // Before the readers see the pages: they compare with the size then.
                node::take_live_size(subrequest.inode());
                End::EndOfFile
            }
            Ending::Failed(error) => End::Failed(error),
        };
        subrequest.end(end);
        if let (Some((reads, notice)), false) = (notice, matches!(how, Ending::Failed(_))) {
            reads.tell(&notice);
        }
        drop(waiter);
    }
}

/// Has a part of a file read. Returns before it is there, unless the mount has `ra_async=0`.
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
    let notice = None;
    file.stream.read(Part {
        subrequest,
        notice,
        waiter,
    });
    if let Some(done) = done {
        // What is not waited for is read nevertheless.
        let _ = done.wait_killable();
    }
}
