// SPDX-License-Identifier: GPL-2.0

//! The requests of a mount to its servers.

use core::net::SocketAddr;

use ferro_proto::{
    backoff::{
        Backoff,
        ATTEMPTS_FOR_EVER, //
    },
    text::Escaped, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    errno::ESTALE,
    memory, //
};
use net_ext::Namespace;
use vfs_ext::keyring;

use super::{
    call::Call,
    content::{
        Content,
        Query,
        Seen, //
    },
    descriptors::Descriptors,
    hosts::Hosts,
    link::Link,
    page_source::Pages,
    place::Place,
    reader::Reader,
    setup::{
        random_number,
        Setup,
        Shown,
        Trouble,
        LOG, //
    },
    stats::Stats,
    stream::Stream, //
};
use crate::proto::{
    attr::DirEntry,
    error::GfarmError,
    gfm::Usage,
    gfmd::PAUSE_MS_MAX,
    listing::Progress,
    name::Name,
    options::Options,
    question::{
        Kind,
        Part, //
    },
    retry::{
        AtGfmd,
        Fault, //
    }, //
};

/// The connections of a mount.
pub(crate) struct Client {
    setup: Arc<Setup>,
    link: Arc<Link>,
    hosts: Arc<Hosts>,
    descriptors: Arc<Descriptors>,
}

impl Client {
    /// Connects to the first of the gfmds that answers, once to each. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `EKEYREJECTED` if the user is not known or the key not the server's, `EKEYEXPIRED`,
    /// or the error of the network.
    #[inline(never)]
    pub(crate) fn connect(
        namespace: Namespace,
        servers: KVec<SocketAddr>,
        options: Arc<Options>,
        key: Arc<keyring::Key>,
    ) -> Result<Arc<Self>> {
        let setup = Setup::new(namespace, options, key)?;
        let descriptors = Descriptors::new(&setup)?;
        let link = Link::new(&setup, &descriptors, servers)?;
        let hosts = Hosts::new(&setup)?;
        let this = Self {
            setup,
            link,
            hosts,
            descriptors,
        };
        let this = Arc::new(this, GFP_KERNEL)?;
        this.link.connect_first()?;
        Ok(this)
    }

    /// Looks up a name; `None` if there is no such one. What is there is given to `take`.
    ///
    /// # Errors
    ///
    /// Returns `ESTALE` if the directory is not where it was.
    pub(crate) fn lookup<R>(
        &self,
        dir: &Arc<Place>,
        name: Name<'_>,
        take: impl FnOnce(&Seen<'_>) -> R,
    ) -> Result<Option<R>> {
        let call = Call::new(Kind::Attributes, dir.path(Some(name))?)?;
        let mut take = Some(take);
        let (mut is_it, mut result) = (true, None);
        let found = self.ask(&call, Kind::Attributes, |part, query| {
            match part {
                // The last one is that of the name.
                Part::Directory(id) => is_it = dir.has(id),
                Part::Attr(attr) if is_it => {
                    result = take.take().map(|take| take(&Seen { attr, query }));
                }
                _ => {}
            }
            Ok(())
        });
        match found {
            _ if !is_it => Err(ESTALE),
            Ok(()) => result.map(Some).ok_or(EIO),
            Err(trouble) if is_absent(trouble) => Ok(None),
            Err(trouble) => Err(trouble.error),
        }
    }

    /// Asks for the attributes of an object, which are given to `take`.
    ///
    /// # Errors
    ///
    /// Returns `ENOENT` if its name is gone, `ESTALE` if it leads to another object.
    pub(crate) fn attributes<R>(
        &self,
        place: &Arc<Place>,
        take: impl FnOnce(&Seen<'_>) -> R,
    ) -> Result<R> {
        self.ask_attributes(Kind::Attributes, place, take)
    }

    /// Asks whether the user may read a file. Its attributes are given to `take`.
    ///
    /// # Errors
    ///
    /// Returns those of [`Self::attributes`], and `EACCES`.
    pub(crate) fn permit<R>(
        &self,
        place: &Arc<Place>,
        take: impl FnOnce(&Seen<'_>) -> R,
    ) -> Result<R> {
        self.ask_attributes(Kind::Permission, place, take)
    }

    fn ask_attributes<R>(
        &self,
        kind: Kind,
        place: &Arc<Place>,
        take: impl FnOnce(&Seen<'_>) -> R,
    ) -> Result<R> {
        let call = Call::new(kind, place.path(None)?)?;
        let mut take = Some(take);
        let mut result = None;
        self.ask(&call, kind, |part, query| {
            match part {
                Part::Attr(attr) if !place.has(attr.id) => return Err(ESTALE),
                Part::Attr(attr) => {
                    result = take.take().map(|take| take(&Seen { attr, query }));
                }
                _ => {}
            }
            Ok(())
        })
        .map_err(|trouble| trouble.error)?;
        result.ok_or(EIO)
    }

    /// Returns the target of a symbolic link. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// `ENOENT` if its name is gone, `ESTALE` if it leads to another object, the server's error,
    /// and that of a wait that was ended.
    pub(crate) fn read_link(&self, place: &Arc<Place>) -> Result<KVec<u8>> {
        let call = Call::new(Kind::Link, place.path(None)?)?;
        let mut target = KVec::new();
        self.ask(&call, Kind::Link, |part, _| {
            match part {
                Part::Object(opened) if !place.has(opened.id) => return Err(ESTALE),
                Part::Link(bytes) => target.extend_from_slice(bytes, GFP_KERNEL)?,
                _ => {}
            }
            Ok(())
        })
        .map_err(|trouble| trouble.error)?;
        Ok(target)
    }

    /// Reads the entries of a directory from position `at` on, at most `max`, and returns their
    /// number. Each is given to `take` with the question that it answers, after
    /// all have come.
    ///
    /// # Errors
    ///
    /// Returns `EIO` if the directory has no end, by what `progress` has seen of it.
    pub(crate) fn list(
        &self,
        dir: &Arc<Place>,
        at: u64,
        max: u32,
        progress: &mut Progress,
        mut take: impl FnMut(&DirEntry<'_>, Query) -> Result,
    ) -> Result<u32> {
        let kind = Kind::List { at, max };
        let call = Call::new(kind, dir.path(None)?)?;
        let mut count = 0;
        progress.begin();
        self.ask(&call, kind, |part, query| {
            match part {
                Part::Object(opened) if !dir.has(opened.id) => return Err(ESTALE),
                Part::Count(entries) => count = entries,
                Part::Entry(entry) => {
                    progress.entry(entry.name);
                    take(&entry, query)?;
                }
                _ => {}
            }
            Ok(())
        })
        .map_err(|trouble| trouble.error)?;
        let next = at.saturating_add(count.into());
        let ended = progress.end(next, count).map_err(|endless| {
            if let Some(_suppressed) = LOG.allow() {
                let (inum, endless) = (dir.inum(), Shown(endless));
                pr_warn!("gfmd has told of inode {inum}: {endless}\n");
            }
            EIO
        });
        ended.map(|_| count)
    }

    /// Asks gfmd for the space of the file system. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// The server's error, and that of a wait that was ended.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let call = Call::new(Kind::Usage, KVec::new())?;
        let mut usage = None;
        self.ask(&call, Kind::Usage, |part, _| {
            if let Part::Usage(told) = part {
                usage = Some(told);
            }
            Ok(())
        })
        .map_err(|trouble| trouble.error)?;
        usage.ok_or(EIO)
    }

    /// Opens a file at gfmd; a gfsd opens it when it is read. What gfmd tells of it is observed in
    /// `content`, and given to `take`. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ESTALE` if its name leads to another object.
    pub(crate) fn open<P: Pages, R>(
        self: &Arc<Self>,
        place: &Arc<Place>,
        content: &Arc<Content>,
        take: impl FnOnce(&Seen<'_>) -> R,
    ) -> Result<(Arc<Stream<P>>, R)> {
        let mut reader = Reader::new(self, place, content)?;
        let mut take = Some(take);
        let mut result = None;
        reader.open(self.setup.interrupts(), &mut |seen| {
            if let Some(take) = take.take() {
                result = Some(take(seen));
            }
        })?;
        // From here on the stream closes the descriptor.
        let stream = Stream::new(self, reader)?;
        Ok((stream, result.ok_or(EIO)?))
    }

    /// Makes an open file of which gfmd is asked when it is read: it is an error then if the name
    /// leads to another content. May sleep.
    pub(crate) fn open_later<P: Pages>(
        self: &Arc<Self>,
        place: &Arc<Place>,
        content: &Arc<Content>,
    ) -> Result<Arc<Stream<P>>> {
        Stream::new(self, Reader::new(self, place, content)?.opened_later())
    }

    /// Logs in with another key from now on. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EKEYREJECTED` if it is malformed, or why the keyring does not give it.
    pub(crate) fn renew(&self, key: Arc<keyring::Key>) -> Result {
        self.setup.key.replace(key)
    }

    /// Fails all requests and reads that wait now, as `umount -f` asks. Sleeps.
    pub(crate) fn interrupt(&self) {
        self.setup.interrupt();
        self.link.interrupt();
        self.hosts.abandon_all();
    }

    /// Ends all connections, and waits for the workers. Sleeps for a short time.
    pub(crate) fn close(&self) {
        if self.setup.close() {
            self.link.interrupt();
            self.hosts.abandon_all();
            self.setup.end_queues();
        }
    }

    /// Returns what the connections have done.
    pub(crate) fn stats(&self) -> &Stats {
        &self.setup.stats
    }

    /// Passes a line for each connection.
    pub(crate) fn describe(&self, line: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let (server, is_ready, processes) = self.link.describe();
        let state = if is_ready {
            "connected"
        } else {
            "not connected"
        };
        if let Some(server) = server {
            line(fmt!(
                "gfmd {} {} processes {}",
                Shown(server),
                state,
                processes
            ));
        }
        line(fmt!("key expires in {} s", self.setup.key.left_s()));
        self.hosts.for_each(|name, connections| {
            line(fmt!("gfsd {} connections {}", Escaped(name), connections));
        });
    }

    pub(super) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn descriptors(&self) -> &Arc<Descriptors> {
        &self.descriptors
    }

    pub(super) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// Asks, again if gfmd says that it can answer later, and reads the answer: `each` gets each
    /// part, and the question that it answers. An answer like that ends before the part that
    /// counts.
    fn ask(
        &self,
        call: &Arc<Call>,
        kind: Kind,
        mut each: impl FnMut(Part<'_>, Query) -> Result,
    ) -> Result<(), Trouble> {
        self.setup.key.warn(self.setup.options.user());
        memory::without_io(|| {
            let interrupts = self.setup.interrupts();
            let begun_ms = self.setup.now_ms();
            let mut backoff = Backoff::NEW;
            let mut was_full = false;
            loop {
                self.link.ask(call, kind)?;
                let trouble = match call.read(&mut each) {
                    Ok(()) => return Ok(()),
                    Err(trouble) => trouble,
                };
                let is_full = trouble.fault == Fault::Server(GfarmError::TOO_MANY_OPEN_FILES);
                if is_full && !core::mem::replace(&mut was_full, true) {
                    self.descriptors.make_room(interrupts)?;
                    continue;
                }
                let waited_ms = self.setup.now_ms().saturating_sub(begun_ms);
                let is_late = waited_ms >= self.setup.reconnect_timeout_ms().into();
                let is_busy = matches!(trouble.fault, Fault::Server(_))
                    && AtGfmd::decide(trouble.fault) == AtGfmd::Wait;
                if !is_busy || is_late {
                    return Err(trouble);
                }
                let pause_ms = backoff.next(PAUSE_MS_MAX, ATTEMPTS_FOR_EVER, random_number());
                self.setup
                    .pause(pause_ms.unwrap_or(PAUSE_MS_MAX), interrupts)?;
            }
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
        // An open file has a reference to this, so none gives a connection back any more.
        self.hosts.close();
    }
}

/// Returns whether the object itself has no such name.
fn is_absent(trouble: Trouble) -> bool {
    trouble.fault == Fault::Server(GfarmError::NO_SUCH_FILE_OR_DIRECTORY) && trouble.error != ESTALE
}
