// SPDX-License-Identifier: GPL-2.0

//! Carries out what [`OpenFile`] decides for one open file: by one worker, or by the task that
//! opens it.

mod blame;
mod ending;
mod lease;

use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno::{
    EHOSTUNREACH,
    ENOTCONN,
    ESTALE, //
};

use super::{
    batch,
    client::Client,
    content::{
        Content,
        Seen, //
    },
    descriptors::Lease,
    gfsd::Turn,
    hosts::{
        Host,
        Taken, //
    },
    naming,
    naming::Naming,
    page_source::Pages,
    place::Place,
    setup::{
        random_number,
        Trouble, //
    }, //
};
use crate::proto::{
    attr::Time,
    error::GfarmError,
    gfm::Process,
    gfs,
    identity::{
        Change,
        Closed,
        Opening,
        Verdict, //
    },
    open_file::{
        Descriptor,
        Effect,
        Event,
        OpenFile,
        State as Phase, //
    },
    question::{
        Kind,
        Part, //
    },
    replica::{
        Choice,
        HostId, //
    },
    request::Request,
    retry::{
        Fault,
        GfsdRequest, //
    },
    setting::Setting, //
};

/// An open file, for its worker.
pub(super) struct Reader {
    client: Arc<Client>,
    /// Allocated with the file: its reads may be what reclaim waits for.
    naming: Naming,
    content: Arc<Content>,
    /// The stream by which the label of the content knows this reader.
    opening: Opening,
    machine: OpenFile,
    /// The effect that the machine has decided and that was not carried out.
    effect: Effect,
    /// The right to the descriptor at gfmd, while there is one.
    lease: Option<Lease>,
    /// The connection to the gfsd, while it is taken.
    taken: Option<Taken>,
    /// The state of the content that gfmd has told with the descriptor.
    closed: Closed,
    /// The reason why the last attempt has failed, for the log; `None` if no gfsd has an address
    /// here.
    reason: Option<Fault>,
    /// Tells whether the file was opened to the end: then the label judges the object that is found
    /// when it is opened again, and before that the task that opens it does.
    was_opened: bool,
}

impl Reader {
    /// Prepares to open a file. May sleep.
    pub(super) fn new(
        client: &Arc<Client>,
        place: &Arc<Place>,
        content: &Arc<Content>,
    ) -> Result<Self> {
        Ok(Self {
            client: client.clone(),
            naming: Naming::new(place)?,
            content: content.clone(),
            opening: content.opening(),
            machine: OpenFile::NEW,
            effect: Effect::Ignore,
            lease: None,
            taken: None,
            closed: Closed {
                size: 0,
                mtime: Time { sec: 0, nsec: 0 },
            },
            reason: None,
            was_opened: false,
        })
    }

    /// Returns the label of what is cached.
    pub(super) fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// Returns what it is for the label of the content.
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    /// Opens the file by another name from now on.
    pub(super) fn rename(&mut self, naming: Naming) {
        self.naming = naming;
    }

    /// Opens the file at gfmd, in the task that opens it. Sleeps, killable. What gfmd has told is
    /// given to `take`.
    pub(super) fn open(&mut self, interrupts: u32, take: &mut dyn FnMut(&Seen<'_>)) -> Result {
        self.effect = self.machine.step(Event::Start);
        loop {
            match self.machine.state() {
                Phase::Connecting(_) => {
                    self.machine.begin_anew();
                    self.was_opened = true;
                    return Ok(());
                }
                Phase::Failed(errno) => return Err(self.give_up(errno)),
                Phase::Closed | Phase::Idle => return Err(EIO),
                _ => self.carry_out(interrupts, take)?,
            }
        }
    }

    /// Opens the file as far as it is not open, up to the gfsd. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns why the reads fail that wait.
    pub(super) fn prepare(&mut self, interrupts: u32) -> Result {
        if self.effect == Effect::Ignore {
            // Nothing happens if it is open.
            self.effect = self.machine.step(Event::Start);
        }
        loop {
            match self.machine.state() {
                Phase::Ready(_) if self.effect == Effect::Ignore => return Ok(()),
                Phase::Failed(errno) => {
                    // The next read begins anew.
                    self.effect = Effect::Ignore;
                    return Err(self.give_up(errno));
                }
                Phase::Closed => return Err(EIO),
                _ => {
                    if self.carry_out(interrupts, &mut |_| {}).is_err() {
                        self.reset();
                        return Err(EIO);
                    }
                }
            }
        }
    }

    /// The attempts have ended. That a user may not open a file, or that it is gone, is no news.
    fn give_up(&self, errno: Errno) -> Error {
        let error = Error::from(errno);
        if matches!(error, EIO | EHOSTUNREACH | EAGAIN) && !self.client.setup().is_closed() {
            naming::warn_unreadable(&self.naming.place, self.reason);
        }
        error
    }

    /// Carries out what was decided, and has the machine decide about the result.
    fn carry_out(&mut self, interrupts: u32, take: &mut dyn FnMut(&Seen<'_>)) -> Result {
        let setup = self.client.setup().clone();
        let effect = core::mem::replace(&mut self.effect, Effect::Ignore);
        let event = match effect {
            Effect::Open(old) => {
                self.leave();
                match self.take_lease(old.is_some(), interrupts) {
                    Ok(()) => {}
                    Err(ENFILE) => {
                        self.effect = self.machine.step(Event::GfmdGivenUp(Errno::ENFILE));
                        return Ok(());
                    }
                    Err(error) => {
                        self.effect = Effect::Open(old);
                        return Err(error);
                    }
                }
                let event = self.open_with_room(interrupts, take);
                // Until now it has kept the number of the object from others.
                self.close_at_gfmd(old, None);
                let event = event?;
                self.hold(match event {
                    Event::Opened(descriptor, _) | Event::AllRefuse(descriptor, ..) => {
                        Some(descriptor.epoch)
                    }
                    _ => None,
                });
                event
            }
            Effect::Connect(host) => self.connect(host),
            Effect::OpenAtGfsd(descriptor) => self.open_at_gfsd(descriptor),
            Effect::StartIn { pause_ms } => {
                self.leave();
                setup.pause(pause_ms, interrupts)?;
                Event::Timer
            }
            Effect::AwaitGfmd(epoch) => {
                self.leave();
                match self.client.link().await_process(epoch) {
                    Ok(()) => Event::GfmdReady,
                    Err(ERESTARTSYS) => return Err(ERESTARTSYS),
                    Err(_) => Event::GfmdGivenUp(Errno::EIO),
                }
            }
            Effect::Release(old) => {
                self.leave();
                let lease = self.lease.take();
                self.close_at_gfmd(old, lease);
                return Ok(());
            }
            // The caller sees the state, and reads or fails what waits.
            Effect::Read(_) | Effect::Fail(_) | Effect::Ignore => return Ok(()),
        };
        // Also if waits are interrupted: who gives up closes the descriptor that the machine knows.
        self.effect = self.machine.step(event);
        match setup.interrupts() == interrupts {
            true => Ok(()),
            false => Err(EIO),
        }
    }

    /// Takes note of the process in which gfmd holds the descriptor.
    fn hold(&self, epoch: Option<u32>) {
        if self.was_opened {
            self.content.hold(self.opening, epoch);
        }
    }

    /// Opens the file at gfmd, observes what was opened, and chooses a gfsd.
    fn open_at_gfmd(&mut self, take: &mut dyn FnMut(&Seen<'_>)) -> Result<Event> {
        let client = self.client.clone();
        client.link().ask(&self.naming.opening, Kind::Open)?;
        let (mut choice, mut dir) = (Choice::NONE, None);
        let (mut opened, mut fd, mut is_it) = (None, None, true);
        let (mut hosts, since_ms) = (0, self.machine.since_ms());
        let answer = self.naming.opening.read(|part, query| {
            match part {
                Part::Directory(id) => dir = Some(id),
                Part::Attr(attr) => {
                    let seen = Seen { attr, query };
                    // Of a file that is not open yet the task that opens it takes what was found.
                    let takes = || self.content.observe(seen.observation(), Some(true));
                    is_it = self.naming.place.is_object(dir, attr.id)
                        && (!self.was_opened || takes() != Change::Replaced);
                    if is_it {
                        take(&seen);
                    }
                    opened = Some(attr.id);
                    self.closed = Closed {
                        size: attr.size,
                        mtime: attr.mtime,
                    };
                }
                Part::Count(count) => hosts = count,
                Part::Host(told) => {
                    if let Some((host, mut rank)) = client.hosts().rank(&told, since_ms) {
                        rank.has_failed |= self.machine.has_failed(host);
                        choice.offer(host, rank, random_number());
                    }
                }
                Part::Exported(exported) => fd = Some((exported, query.asked.epoch)),
                _ => {}
            }
            Ok(())
        });
        let stale = Fault::Server(GfarmError::STALE_FILE_HANDLE);
        let fault = match (answer, opened, fd) {
            (Ok(()), Some(id), Some((fd, epoch))) => {
                let descriptor = Descriptor { fd, epoch, id };
                if is_it && hosts != 0 {
                    return Ok(self.chosen(descriptor, choice));
                }
                self.close_at_gfmd(Some(descriptor), None);
                // Those that have it are down, and may come back.
                let down = Fault::Server(GfarmError::NO_FILESYSTEM_NODE);
                if is_it {
                    down
                } else {
                    stale
                }
            }
            (Ok(()), ..) => Fault::malformed("answer"),
            (Err(trouble), ..) if trouble.error == ESTALE => stale,
            (Err(trouble), ..) => match trouble.fault {
                Fault::Server(_) => trouble.fault,
                // The link has waited for gfmd as long as it may, or this is no answer of gfmd.
                fault => {
                    self.reason = Some(fault);
                    return Ok(Event::GfmdGivenUp(fault.errno()));
                }
            },
        };
        self.reason = Some(fault);
        Ok(Event::GfmdFailed(client.setup().failure(fault)))
    }

    /// Has gfmd close a descriptor. Without its right the file has it still, for another one.
    fn close_at_gfmd(&self, old: Option<Descriptor>, lease: Option<Lease>) {
        if let Some(old) = old {
            self.client.link().close_fd(old.fd, old.epoch, lease);
        }
    }

    /// Takes a connection to a gfsd, which joins the descriptor's process.
    fn connect(&mut self, id: HostId) -> Event {
        let client = self.client.clone();
        let epoch = client.link().epoch();
        let (Some(host), Some(process)) = (client.hosts().get(id), client.link().process(epoch))
        else {
            return self.gfsd_failed(GfsdRequest::Connect, Trouble::of(Fault::Disconnected));
        };
        // Those that were kept may all have ended meanwhile, as when a gfsd is restarted.
        for _ in 0..=client.setup().options.get(Setting::Connections) {
            match self.join(&host, &process, epoch) {
                Ok(()) => return Event::Connected { epoch },
                Err(trouble) if trouble.error == ENOTCONN => {}
                Err(trouble) => {
                    // The read fails since before the gfsd has refused it.
                    let event = self.gfsd_failed(GfsdRequest::Connect, trouble);
                    host.failed(client.setup(), trouble);
                    return event;
                }
            }
        }
        self.gfsd_failed(GfsdRequest::Connect, Trouble::of(Fault::Disconnected))
    }

    fn join(&mut self, host: &Arc<Host>, process: &Process, epoch: u32) -> Result<(), Trouble> {
        let connection = host.take(self.client.setup(), process, epoch)?;
        let joined = connection
            .turn()
            .map_err(Trouble::from)
            .and_then(|turn| turn.join(process, epoch));
        if joined.is_err() {
            self.client.hosts().give_back(host, connection);
            return joined;
        }
        self.taken = Some(Taken {
            host: host.clone(),
            connection,
            fd: None,
        });
        Ok(())
    }

    fn open_at_gfsd(&mut self, descriptor: Descriptor) -> Event {
        let Descriptor { fd, epoch, .. } = descriptor;
        let opened =
            self.with_turn(|turn| turn.request(epoch, Request::OpenAtGfsd, &gfs::Open(fd)));
        match (opened, &mut self.taken) {
            (Ok(()), Some(taken)) => {
                taken.fd = Some((fd, epoch));
                Event::OpenedAtGfsd
            }
            (Ok(()), None) => self.gfsd_failed(GfsdRequest::Open, Trouble::of(Fault::Disconnected)),
            (Err(trouble), _) => self.gfsd_failed(GfsdRequest::Open, trouble),
        }
    }

    fn with_turn<R>(
        &self,
        work: impl FnOnce(&Turn<'_>) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let Some(taken) = &self.taken else {
            return Err(Trouble::of(Fault::Disconnected));
        };
        let turn = taken.connection.turn()?;
        work(&turn)
    }

    /// Gives the connection back, after the file was closed there.
    fn leave(&mut self) {
        let Some(taken) = self.taken.take() else {
            return;
        };
        if let Some((fd, epoch)) = taken.fd {
            if let Ok(turn) = taken.connection.turn() {
                // If it fails, the connection is not used any more, or the file was not open.
                let _ = turn.request(epoch, Request::CloseAtGfsd, &gfs::Close(fd));
            }
        }
        self.client.hosts().give_back(&taken.host, taken.connection);
    }

    /// Carries out reads, by the descriptor that is ready. Those that cannot be carried out stay in
    /// `batch`, and the machine has decided what follows.
    pub(super) fn read<P: Pages>(&mut self, batch: &mut KVec<P>) {
        let (Some(descriptor), Some(taken)) = (self.machine.readable(), &self.taken) else {
            // The caller reads only what `prepare` has left ready, with its connection. Without one
            // there is nothing to read by, so the file is opened anew.
            return self.reset();
        };
        let host = taken.host.clone();
        let read = self.read_content(descriptor, &host, batch);
        match read {
            Ok(Some(size)) => batch::end_all(batch, size),
            _ => batch::rewind_all(batch),
        }
        let event = match read {
            Ok(Some(_)) => Event::Progress,
            Ok(None) => {
                let why = Fault::malformed("gen");
                Event::Outdated(self.client.setup().failure(why))
            }
            Err(trouble) => self.gfsd_failed(GfsdRequest::Read, trouble),
        };
        self.effect = self.machine.step(event);
    }

    /// Reads until it is known what the bytes are. Returns the size of the file that they are of;
    /// `None` if they are not of the content that the descriptor was opened for.
    fn read_content<P: Pages>(
        &self,
        descriptor: Descriptor,
        host: &Host,
        batch: &mut [P],
    ) -> Result<Option<u64>, Trouble> {
        let Descriptor { fd, epoch, id } = descriptor;
        let bytes = batch.iter().map(P::len).fold(0, usize::saturating_add);
        if self.content.asks_first(host.id(), bytes, host.did_agree()) {
            let asked = self.with_turn(|turn| turn.request(epoch, Request::Stat, &gfs::Fstat(fd)));
            let live = asked?;
            self.content.witness(host.id(), &live);
            host.set_did_agree(self.closed.agrees(&live));
        }
        let mut permit = self.content.ticket(id, host.id());
        while let Some(ticket) = permit {
            let live = self.with_turn(|turn| {
                turn.within(epoch, Request::Read, || {
                    let mut source = turn.source(fd);
                    batch::fill_all(&mut source, id, batch)?;
                    source.stat()
                })
            })?;
            let verdict = self.content.judge(ticket, &live, &self.closed);
            if verdict == Verdict::Accepted && !batch::ends_at(batch, live.size) {
                let early = Trouble::of(Fault::malformed("end of the file"));
                return self.with_turn(|turn| turn.reject(early));
            }
            host.answered();
            match verdict {
                Verdict::Accepted => return Ok(Some(live.size)),
                Verdict::Outdated => return Ok(None),
                Verdict::Again(next) => {
                    host.set_did_agree(false);
                    batch::rewind_all(batch);
                    permit = Some(next);
                }
            }
        }
        Ok(None)
    }
}
