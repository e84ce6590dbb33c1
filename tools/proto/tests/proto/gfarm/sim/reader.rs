// SPDX-License-Identifier: GPL-2.0

//! A reader, which opens one file after another and reads it through the cache; and the checks.

use proto::gfarm::{
    error::GfarmError,
    gfm::Fd,
    gfs,
    gfs::LiveAttr,
    gfsd::State,
    identity::{
        Closed,
        Ticket,
        Verdict, //
    },
    open_file::{
        Effect,
        Event,
        OpenFile, //
    },
    operation::{
        Operation,
        ReplyError, //
    },
    replica::HostId,
    retry::{
        Fault,
        GfsdRequest, //
    },
    xdr::Decoder,
};

use super::{
    client::{
        failure,
        Ask,
        Client,
        Timer, //
    },
    files::{
        page_bytes,
        size,
        FILES,
        PAGE, //
    },
    world::World,
};
use crate::gfarm::stream::request;

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) file: usize,
    pub(crate) sm: OpenFile,
    pub(crate) conn: Option<usize>,
    /// The descriptor that the gfsd has open.
    pub(crate) fd: Option<Fd>,
    pub(crate) awaits_gfmd: bool,
    pub(crate) wants_open: Option<()>,
    pub(crate) serial: u64,
    /// The next page to read.
    pub(crate) page: usize,
    /// The writes that were closed when the file was opened: nothing older may be read.
    pub(crate) bound: Vec<u64>,
    pub(crate) ticket: Option<Ticket>,
    /// Size and time of the closed file, which gfmd has told with the descriptor.
    pub(crate) closed: Option<Closed>,
    /// The pages that were asked for.
    pub(crate) asked: usize,
    /// The bytes of a read that were not accepted yet.
    pub(crate) data: Vec<u8>,
}

impl Client {
    pub(crate) fn start_job(&mut self, world: &mut World, reader: usize) {
        let file = world.chance.below(FILES);
        self.readers[reader] = Reader {
            file,
            bound: world.servers.files.files[file].closed.clone(),
            serial: self.readers[reader].serial,
            ..Reader::default()
        };
        self.event(world, reader, Event::Start);
    }

    pub(crate) fn event(&mut self, world: &mut World, reader: usize, event: Event) {
        match self.readers[reader].sm.step(event) {
            Effect::Ignore => {}
            Effect::Open(old) => {
                self.leave_gfsd(world, reader);
                self.open(world, reader, old);
            }
            Effect::Connect(host) => self.take(world, reader, host),
            Effect::OpenAtGfsd(descriptor) => {
                let id = self.readers[reader].conn.unwrap();
                self.readers[reader].fd = Some(descriptor.fd);
                self.ask(world, id, Ask::Open, request(&gfs::Open(descriptor.fd)));
            }
            Effect::Read(_) => {
                let host =
                    HostId(self.conns[&self.readers[reader].conn.unwrap()].server as u32 - 1);
                let bytes = [1, 1 << 20][world.chance.below(2)];
                let did_agree = world.chance.below(4) != 0;
                let inode = &self.inodes[&self.readers[reader].file];
                match inode.label.asks_first(host, bytes, did_agree) {
                    true => self.ask_witness(world, reader, false),
                    false => self.read_on(world, reader),
                }
            }
            Effect::StartIn { pause_ms } => {
                self.leave_gfsd(world, reader);
                self.readers[reader].serial += 1;
                let serial = self.readers[reader].serial;
                world.timer(pause_ms.into(), Timer::Reader(reader, serial));
            }
            Effect::AwaitGfmd(epoch) => {
                self.leave_gfsd(world, reader);
                self.await_gfmd(world, reader, epoch);
            }
            Effect::Fail(errno) => {
                assert!(world.may_fail(), "{errno} at {} ms: {self:?}", world.now_ms);
                world.jobs_failed += 1;
                self.event(world, reader, Event::Close);
            }
            Effect::Release(descriptor) => {
                self.leave_gfsd(world, reader);
                self.close_at_gfmd(world, descriptor);
                let pause_ms = world.chance.below(20) as u64;
                world.timer(pause_ms, Timer::Job(reader));
            }
        }
    }

    /// Gives the connection back, after the file was closed there.
    fn leave_gfsd(&mut self, world: &mut World, reader: usize) {
        let Some(id) = self.readers[reader].conn.take() else {
            return;
        };
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.reader = None;
        let fd = self.readers[reader].fd.take();
        match (conn.ask, conn.gfsd.state(), fd) {
            (Ask::Nothing, State::Busy, Some(fd)) => {
                self.ask(world, id, Ask::Close, request(&gfs::Close(fd)));
            }
            (Ask::Nothing, State::Busy, None) => conn.gfsd.answered(),
            // A reply that nothing waits for must not be taken for another.
            _ => self.lose(world, id, Fault::Disconnected),
        }
    }

    fn ask_witness(&mut self, world: &mut World, reader: usize, is_read: bool) {
        let descriptor = self.readers[reader].sm.readable().unwrap();
        if world.options.no_witness {
            let closed = self.readers[reader].closed.unwrap();
            let live = LiveAttr {
                size: closed.size,
                atime: closed.mtime,
                mtime: closed.mtime,
            };
            return self.witnessed(world, reader, is_read, &live);
        }
        let id = self.readers[reader].conn.unwrap();
        let ask = Ask::Witness { is_read };
        self.ask(world, id, ask, request(&gfs::Fstat(descriptor.fd)));
    }

    fn pread(&self, reader: usize) -> gfs::Pread {
        let state = &self.readers[reader];
        let (offset, len) = (state.page * PAGE, state.asked * PAGE);
        let range = gfs::Range::new(offset as u64, len as u64).unwrap();
        gfs::Pread {
            fd: state.sm.readable().unwrap().fd,
            range,
        }
    }

    /// Takes what a gfsd has sent; returns whether more has to arrive.
    pub(crate) fn answer_of_gfsd(&mut self, world: &mut World, id: usize) -> bool {
        let conn = self.conns.get_mut(&id).unwrap();
        let (ask, reader) = (conn.ask, conn.reader);
        if ask == Ask::Nothing {
            assert!(conn.received.is_empty(), "a reply that was not asked for");
            return true;
        }
        let received = std::mem::take(&mut conn.received);
        let mut from = Decoder::new(&received);
        let mut live = None;
        let fd = Fd::new(0).unwrap();
        let answer = match ask {
            Ask::Witness { .. } => gfs::Fstat(fd)
                .decode(&mut from)
                .map(|told| live = Some(told)),
            Ask::Read => self.read_reply(reader.unwrap(), &mut from),
            _ => gfs::Open(fd).decode(&mut from),
        };
        let consumed = from.consumed();
        let conn = self.conns.get_mut(&id).unwrap();
        if let Err(ReplyError::NeedMore(_)) = answer {
            conn.received = received;
            return true;
        }
        conn.received = received[consumed..].to_vec();
        conn.ask = Ask::Nothing;
        if ask == Ask::Join && answer.is_ok() {
            conn.gfsd.joined();
        }
        if ask == Ask::Close {
            conn.gfsd.answered();
            return false;
        }
        let Some(reader) = reader else {
            return false;
        };
        match (ask, answer) {
            (_, Err(error)) => self.gfsd_failed(world, id, reader, ask, error),
            (Ask::Join, Ok(())) => self.take_again(world, id, reader),
            (Ask::Open, Ok(())) => self.event(world, reader, Event::OpenedAtGfsd),
            (Ask::Read, Ok(())) => self.ask_witness(world, reader, true),
            (Ask::Witness { is_read }, Ok(())) => {
                self.witnessed(world, reader, is_read, &live.unwrap());
            }
            (Ask::Nothing | Ask::Close, Ok(())) => {}
        }
        false
    }

    /// A gfsd has told what it has, behind a read or before it.
    fn witnessed(&mut self, world: &mut World, reader: usize, is_read: bool, live: &LiveAttr) {
        let state = &mut self.readers[reader];
        let host = HostId(self.conns[&state.conn.unwrap()].server as u32 - 1);
        let inode = self.inodes.get_mut(&state.file).unwrap();
        let changes = inode.label.changes();
        let verdict = match is_read {
            true => {
                let (ticket, closed) = (state.ticket.take().unwrap(), state.closed.unwrap());
                Some(inode.label.judge(ticket, live, &closed))
            }
            false => {
                inode.label.witness(host, live);
                None
            }
        };
        if inode.label.changes() != changes {
            inode.pages.clear();
        }
        match verdict {
            None => self.read_on(world, reader),
            Some(Verdict::Again(next))
                if !world.options.trusts_first || inode.label.changes() != changes =>
            {
                world.read_again += 1;
                self.readers[reader].ticket = Some(next);
                self.ask_read(world, reader);
            }
            Some(Verdict::Outdated) => {
                let failed = failure(world, Fault::malformed("gen"));
                self.event(world, reader, Event::Outdated(failed));
            }
            Some(_) => self.accept(world, reader),
        }
    }

    fn gfsd_failed(
        &mut self,
        world: &mut World,
        id: usize,
        reader: usize,
        ask: Ask,
        error: ReplyError,
    ) {
        let what = match ask {
            Ask::Join => GfsdRequest::Connect,
            Ask::Open => GfsdRequest::Open,
            _ => GfsdRequest::Read,
        };
        if ask == Ask::Join {
            // It belongs to no process.
            self.readers[reader].conn = None;
            self.conns.remove(&id);
            world.close(id);
        }
        let failed = failure(world, Fault::of_reply(error).unwrap());
        let gone = Fault::Server(GfarmError::GFMD_FAILED_OVER);
        let epoch = self.readers[reader].sm.epoch();
        let is_gone = epoch.is_none_or(|epoch| self.gfmd.is_gone(epoch, world.now_ms));
        let event = match failed.fault == gone && !is_gone {
            true => Event::GfsdWrong(failed),
            false => Event::GfsdFailed(what, failed),
        };
        self.event(world, reader, event);
    }

    fn read_reply(&mut self, reader: usize, from: &mut Decoder<'_>) -> Result<(), ReplyError> {
        let header = self.pread(reader).decode(from)?;
        let data = from.raw(header.len as usize)?;
        self.readers[reader].data = data.to_vec();
        Ok(())
    }

    /// Fills pages with what was read.
    fn accept(&mut self, world: &mut World, reader: usize) {
        let file = self.readers[reader].file;
        let inode = self.inodes.get_mut(&file).unwrap();
        let state = &mut self.readers[reader];
        let data = std::mem::take(&mut state.data);
        let host = HostId(self.conns[&state.conn.unwrap()].server as u32 - 1);
        let mut page = state.page;
        for bytes in data.chunks(PAGE) {
            inode.pages.insert(page, (host, bytes.to_vec()));
            page += 1;
        }
        if data.len() < state.asked * PAGE {
            // The end: an empty page says so behind a full one.
            inode.pages.entry(page).or_insert((host, Vec::new()));
        }
        self.check_states(world, file, host);
        self.event(world, reader, Event::Progress);
        self.read_on(world, reader);
    }

    /// Reads the next pages, from the cache if they are there.
    fn read_on(&mut self, world: &mut World, reader: usize) {
        let file = self.readers[reader].file;
        while let Some((_, bytes)) = self.inodes[&file].pages.get(&self.readers[reader].page) {
            let bytes = bytes.clone();
            let state = &mut self.readers[reader];
            if !bytes.is_empty() {
                let write = write_of(file, state.page, &bytes);
                let bound = state.bound[state.page];
                assert!(
                    write >= bound,
                    "page {} of f{file}: {write} is older than {bound}",
                    state.page
                );
                state.page += 1;
            }
            if bytes.len() < PAGE {
                let pages = state.bound.len();
                assert_eq!(state.page, pages, "f{file} has {} bytes", size(pages, file));
                world.jobs_done += 1;
                return self.event(world, reader, Event::Close);
            }
        }
        let Some(descriptor) = self.readers[reader].sm.readable() else {
            return;
        };
        let host = HostId(self.conns[&self.readers[reader].conn.unwrap()].server as u32 - 1);
        let ticket = self.inodes[&file].label.ticket(descriptor.id, host);
        if ticket.is_none() {
            let failed = failure(world, Fault::malformed("gen"));
            return self.event(world, reader, Event::Outdated(failed));
        }
        self.readers[reader].ticket = ticket;
        self.readers[reader].asked = 1 + world.chance.below(3);
        self.ask_read(world, reader);
    }

    fn ask_read(&mut self, world: &mut World, reader: usize) {
        let read = self.pread(reader);
        let id = self.readers[reader].conn.unwrap();
        self.ask(world, id, Ask::Read, request(&read));
    }

    /// All pages that one gfsd has given are of one state of a file on its disk.
    fn check_states(&self, world: &World, file: usize, host: HostId) {
        let pages = self.inodes[&file].pages.iter();
        let given: Vec<(usize, u64)> = pages
            .filter(|(_, (giver, bytes))| *giver == host && !bytes.is_empty())
            .map(|(page, (_, bytes))| (*page, write_of(file, *page, bytes)))
            .collect();
        let objects = world
            .servers
            .files
            .objects
            .iter()
            .filter(|object| object.file == file);
        let is_one = objects.flat_map(|object| &object.states).any(|state| {
            given
                .iter()
                .all(|(page, write)| state.get(*page) == Some(write))
        });
        assert!(
            is_one,
            "pages of f{file} from {host:?} are of no one state: {given:?}"
        );
    }
}

/// The write that made a page, of which every byte must be right.
fn write_of(file: usize, page: usize, bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    head[3..].copy_from_slice(&bytes[3..8]);
    let write = u64::from_be_bytes(head);
    let expected = page_bytes(file, page, write);
    assert_eq!(bytes, &expected[..bytes.len()], "page {page} of f{file}");
    write
}
