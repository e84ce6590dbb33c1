// SPDX-License-Identifier: GPL-2.0

//! The client's side of gfmd: the connection, and what is opened by it.

use std::collections::BTreeMap;

use proto::gfarm::{
    attr::{
        Attr,
        FileType,
        ReplicaHost, //
    },
    closing::Fds,
    descriptors::FULL_MS_MIN,
    gfm, gfmd,
    identity::{
        Asked,
        Change,
        Closed,
        Label,
        Observation, //
    },
    name::Path,
    open_file::{
        Descriptor,
        Event,
        Failure, //
    },
    operation::{
        Operation,
        ReplyError, //
    },
    question::{
        Answer,
        Kind,
        Part,
        Question, //
    },
    replica::{
        Choice,
        HostId,
        Rank, //
    },
    retry::Fault,
    xdr::Decoder,
};

use super::{
    client::{
        failure,
        Client,
        Inode,
        Pending,
        Timer, //
    },
    world::World, //
};
use crate::gfarm::stream::{
    request,
    written, //
};

const NAMES: [&[u8]; 3] = [b"f0", b"f1", b"f2"];

fn closing(fd: gfm::Fd) -> Kind {
    let mut fds = Fds::NONE;
    fds.push(fd);
    Kind::Close(fds)
}

fn closed(attr: &Attr<'_>) -> Closed {
    Closed {
        size: attr.size,
        mtime: attr.mtime,
    }
}

impl Client {
    pub(crate) fn gfmd_event(&mut self, world: &mut World, event: gfmd::Event) {
        match self.gfmd.step(event) {
            gfmd::Effect::Ignore | gfmd::Effect::Authenticate | gfmd::Effect::Release => {}
            gfmd::Effect::Connect => self.meta = Some(self.connect(world, 0, 0)),
            gfmd::Effect::Join => {
                let key = world.chance.number().to_be_bytes();
                self.process.key = gfm::ProcessKey([key; 4].concat().try_into().unwrap());
                let alloc = request(&gfm::ProcessAlloc(&self.process.key));
                self.send_gfmd(world, alloc, Pending::Alloc);
            }
            gfmd::Effect::SendWaiting => {
                for reader in 0..self.readers.len() {
                    if std::mem::take(&mut self.readers[reader].awaits_gfmd) {
                        self.event(world, reader, Event::GfmdReady);
                    }
                    self.send_open(world, reader);
                }
            }
            gfmd::Effect::StartIn { pause_ms } => {
                let serial = self.next_serial();
                world.timer(pause_ms.into(), Timer::Gfmd(serial));
            }
            gfmd::Effect::FailWaiting(errno) => {
                for reader in 0..self.readers.len() {
                    let state = &mut self.readers[reader];
                    let opens = std::mem::take(&mut state.wants_open).is_some();
                    if std::mem::take(&mut state.awaits_gfmd) || opens {
                        self.event(world, reader, Event::GfmdGivenUp(errno));
                    }
                }
            }
        }
    }

    fn send_gfmd(&mut self, world: &mut World, bytes: Vec<u8>, pending: Pending) {
        let Some(id) = self.meta else {
            return;
        };
        self.pending.push_back(pending);
        world.send(id, bytes);
        self.watch(world, id);
    }

    /// The connection to gfmd is lost.
    pub(crate) fn lose_gfmd(&mut self, world: &mut World, fault: Fault) {
        if let Some(id) = self.meta.take() {
            self.conns.remove(&id);
            world.close(id);
        }
        let pending = std::mem::take(&mut self.pending);
        let failed = failure(world, fault);
        let Failure {
            fault,
            now_ms,
            timeout_ms,
            random,
        } = failed;
        self.gfmd_event(
            world,
            gfmd::Event::Failed {
                fault,
                now_ms,
                timeout_ms,
                random,
            },
        );
        for pending in pending {
            if let Pending::Open { reader, .. } = pending {
                self.event(world, reader, Event::GfmdFailed(failed));
            }
        }
    }

    /// The connection is given up, and the next process answers what waits.
    fn ask_again(&mut self, world: &mut World, fault: Fault) {
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Open { reader, .. } = pending {
                self.readers[reader].wants_open = Some(());
            }
        }
        self.lose_gfmd(world, fault);
    }

    /// Waits for gfmd, or for a newer process than `epoch`.
    pub(crate) fn await_gfmd(&mut self, world: &mut World, reader: usize, epoch: Option<u32>) {
        if epoch.is_some() && self.gfmd.ready() == epoch {
            self.lose_gfmd(world, Fault::Disconnected);
        }
        if self.gfmd.ready().is_some() {
            self.event(world, reader, Event::GfmdReady);
            return;
        }
        self.readers[reader].awaits_gfmd = true;
        let now_ms = world.now_ms;
        self.gfmd_event(world, gfmd::Event::Wanted { now_ms });
    }

    /// Opens a reader's file, after its old descriptor was closed.
    pub(crate) fn open(&mut self, world: &mut World, reader: usize, old: Option<Descriptor>) {
        self.close_at_gfmd(world, old);
        self.readers[reader].wants_open = Some(());
        self.send_open(world, reader);
        if self.gfmd.ready().is_none() {
            let now_ms = world.now_ms;
            self.gfmd_event(world, gfmd::Event::Wanted { now_ms });
        }
    }

    pub(crate) fn close_at_gfmd(&mut self, world: &mut World, old: Option<Descriptor>) {
        if let Some(old) = old.filter(|old| self.gfmd.ready() == Some(old.epoch)) {
            let close = Question::new(closing(old.fd), Path::default());
            let bytes = written(|to| close.encode(to));
            self.send_gfmd(
                world,
                bytes,
                Pending::Close(old.fd.get(), Answer::new(&close)),
            );
        }
    }

    fn open_question(&self, reader: usize) -> Question<'static> {
        let path = Path::new(NAMES[self.readers[reader].file]).unwrap();
        Question::new(Kind::Open, path)
    }

    fn send_open(&mut self, world: &mut World, reader: usize) {
        if self.gfmd.ready().is_none() || self.readers[reader].wants_open.take().is_none() {
            return;
        }
        let open = self.open_question(reader);
        let pending = Pending::Open {
            reader,
            state: Answer::new(&open),
            fd: None,
            opened: None,
            choice: Choice::NONE,
        };
        self.send_gfmd(world, written(|to| open.encode(to)), pending);
    }

    /// Takes the next part of what gfmd has sent.
    pub(crate) fn answer_of_gfmd(&mut self, world: &mut World, id: usize) -> bool {
        let Some(mut pending) = self.pending.pop_front() else {
            assert!(self.conns[&id].received.is_empty());
            return true;
        };
        let received = std::mem::take(&mut self.conns.get_mut(&id).unwrap().received);
        let mut from = Decoder::new(&received);
        let (mut opened, mut answer) = (None, Ok(true));
        match &mut pending {
            Pending::Alloc => match gfm::ProcessAlloc(&self.process.key).decode(&mut from) {
                Ok(pid) => self.process.pid = pid,
                Err(error) => answer = Err(error),
            },
            Pending::Close(fd, state) => {
                let kind = closing(gfm::Fd::new(*fd).unwrap());
                let close = Question::new(kind, Path::default());
                answer = state.part(&close, &mut from).map(|_| state.is_over());
            }
            Pending::Open {
                reader,
                state,
                fd,
                opened: told,
                choice,
            } => {
                let open = self.open_question(*reader);
                match state.part(&open, &mut from) {
                    Ok(Part::Attr(attr)) => *told = Some((attr.id, closed(&attr))),
                    Ok(Part::Host(host)) => self.offer(world, *reader, &host, choice),
                    Ok(Part::Exported(number)) => *fd = Some(number),
                    Ok(_) => {}
                    Err(error) => answer = Err(error),
                }
                answer = answer.map(|_| state.is_over());
                if answer == Ok(true) {
                    let ((id, closed), epoch) = (told.unwrap(), self.gfmd.epoch());
                    let fd = fd.unwrap();
                    self.readers[*reader].closed = Some(closed);
                    opened = Some((*reader, Descriptor { fd, epoch, id }, choice.get()));
                }
            }
        }
        let consumed = from.consumed();
        if let Err(ReplyError::NeedMore(_)) = answer {
            self.conns.get_mut(&id).unwrap().received = received;
            self.pending.push_front(pending);
            return true;
        }
        self.conns.get_mut(&id).unwrap().received = received[consumed..].to_vec();
        if let (Pending::Close(..), Err(ReplyError::Server(_))) = (&pending, answer) {
            answer = Ok(true);
        }
        let now_ms = world.now_ms;
        match (answer, pending) {
            (Ok(false), pending) => self.pending.push_front(pending),
            (Ok(true), Pending::Alloc) => self.gfmd_event(world, gfmd::Event::Joined { now_ms }),
            (Err(error), pending) => self.refused(world, pending, error),
            (Ok(true), _) => {}
        }
        if let Some((reader, descriptor, host)) = opened {
            self.observe(world, reader, descriptor);
            self.event(world, reader, Event::Opened(descriptor, host));
        }
        false
    }

    /// gfmd has answered with an error.
    fn refused(&mut self, world: &mut World, pending: Pending, error: ReplyError) {
        let fault = Fault::of_reply(error).unwrap();
        let question = gfmd::Refused {
            now_ms: world.now_ms,
            asked_ms: world.now_ms,
            has_key: true,
            kept_ms: Some(FULL_MS_MIN),
        };
        if self.gfmd.gives_up(fault, question) {
            self.pending.push_front(pending);
            return self.ask_again(world, fault);
        }
        let Pending::Open { reader, .. } = pending else {
            panic!("{error}");
        };
        let failed = failure(world, fault);
        self.event(world, reader, Event::GfmdFailed(failed));
    }

    fn offer(&self, world: &mut World, reader: usize, host: &ReplicaHost<'_>, choice: &mut Choice) {
        let number = std::str::from_utf8(&host.name[1..]).unwrap();
        let id = HostId(number.parse().unwrap());
        let mut rank = Rank::new(host, true);
        rank.has_failed = self.readers[reader].sm.has_failed(id);
        choice.offer(id, rank, world.chance.number() as u32);
    }

    /// Compares what was opened with what is cached.
    fn observe(&mut self, world: &World, reader: usize, opened: Descriptor) {
        let file_type = FileType::Regular;
        let (id, epoch) = (opened.id, opened.epoch);
        let mtime = self.readers[reader].closed.unwrap().mtime;
        let asked = Asked { epoch, number: 0 };
        let seen = Observation {
            id,
            mtime,
            file_type,
            asked,
        };
        let inode = self.inodes.entry(self.readers[reader].file);
        let inode = inode.or_insert_with(|| Inode {
            label: Label::new(seen),
            pages: BTreeMap::new(),
        });
        match inode.label.observe(seen, None) {
            Change::Rewritten if !world.options.keep_pages => inode.pages.clear(),
            Change::Replaced => panic!("no file is replaced"),
            _ => {}
        }
    }
}
