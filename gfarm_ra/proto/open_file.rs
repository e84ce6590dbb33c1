// SPDX-License-Identifier: GPL-2.0

//! A file that is open for reading: its descriptor at gfmd, and the gfsd that reads it.
//!
//! ```text
//!   Idle --Start--> Opening --Opened--> Connecting --Connected--> OpeningAtGfsd --> Ready
//!                    ^   ^                    |                        |              |
//!                    |   '------ Waiting <----'-------- failed --------'--------------'
//!                    '------- AwaitingGfmd <--'
//! ```
//!
//! Each attempt opens the file anew at gfmd, by its name: a descriptor that one connection to a
//! gfsd had open cannot be opened by another, and one of an earlier process is gone. What it opened
//! may be another content than before, which the driver compares
//! ([`Label`](super::identity::Label)).

use ferro_proto::{
    backoff::{
        Backoff,
        ATTEMPTS_FOR_EVER, //
    },
    errno::Errno,
};

use super::{
    attr::FileId,
    gfm::Fd,
    gfmd::PAUSE_MS_MAX,
    replica::{
        AllRefuse,
        HostId, //
    },
    retry::{
        AtGfmd,
        AtGfsd,
        Fault,
        GfsdRequest, //
    },
};

/// The number of gfsds that a file remembers to have failed.
const FAILED_MAX: usize = 4;

/// A descriptor of a process of gfmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The number.
    pub fd: Fd,
    /// The process, as [`Gfmd::epoch`](super::gfmd::Gfmd::epoch) counts them.
    pub epoch: u32,
    /// The file for which it was opened.
    pub id: FileId,
}

/// The state of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No server was asked yet.
    Idle,
    /// gfmd opens it and tells who has it.
    Opening,
    /// A connection to this gfsd is taken or made.
    Connecting(HostId),
    /// The gfsd is asked to open the file.
    OpeningAtGfsd(HostId),
    /// The gfsd has the file open and reads it.
    Ready(HostId),
    /// A timer runs before the next attempt.
    Waiting,
    /// gfmd has to be connected again.
    AwaitingGfmd,
    /// The last attempt was given up.
    Failed(Errno),
    /// The file is closed.
    Closed,
}

/// The time of a failure, and how long attempts go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The fault.
    pub fault: Fault,
    /// The time, in milliseconds of a monotonic clock.
    pub now_ms: u64,
    /// `reconnect_timeout` in milliseconds.
    pub timeout_ms: u64,
    /// A random number, for the jitter of the pause.
    pub random: u32,
}

/// The events of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A read, while nothing was asked for yet or reads fail.
    Start,
    /// gfmd has opened it; the best gfsd, if any has it.
    Opened(Descriptor, Option<HostId>),
    /// gfmd has opened it, and all gfsds that it names have refused the user since the reads began
    /// to fail ([`Choice::refusal`](super::replica::Choice::refusal)). It names
    /// those that it has a connection to.
    AllRefuse(Descriptor, AllRefuse, Failure),
    /// gfmd has answered with an error, or not at all.
    GfmdFailed(Failure),
    /// gfmd is connected again, as [`Effect::AwaitGfmd`] asks for.
    GfmdReady,
    /// gfmd cannot be reached, and requests do not wait for it any longer.
    GfmdGivenUp(Errno),
    /// A connection to the gfsd is taken, which has joined this process, as
    /// [`Gfsd::epoch`](super::gfsd::Gfsd::epoch) tells: another process than that of the descriptor
    /// may have another file by its number.
    Connected {
        /// The process.
        epoch: u32,
    },
    /// The gfsd has opened it.
    OpenedAtGfsd,
    /// The gfsd has answered with an error, or not at all.
    GfsdFailed(GfsdRequest, Failure),
    /// The gfsd has told that the process of the descriptor is gone, and is not believed
    /// ([`Gfmd::is_gone`](super::gfmd::Gfmd::is_gone)).
    GfsdWrong(Failure),
    /// A read has returned bytes, or the end of the file.
    Progress,
    /// The descriptor is of another content than the cache: there is no ticket for a read, or it
    /// was not accepted.
    Outdated(Failure),
    /// The timer of [`Effect::StartIn`] has expired.
    Timer,
    /// The name refers to another object, or the file is closed by its user.
    Close,
}

/// The action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is to be done.
    Ignore,
    /// Open the file at gfmd. The old descriptor, if there is one and its process still is, is
    /// closed there after that: until then it keeps the number of the object from others.
    Open(Option<Descriptor>),
    /// Take or make a connection to the gfsd.
    Connect(HostId),
    /// Open the descriptor at the gfsd.
    OpenAtGfsd(Descriptor),
    /// Send the reads that wait.
    Read(Descriptor),
    /// Send [`Event::Timer`] after this time.
    StartIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// The process is gone: give the connection to gfmd up if it is of this one. Send
    /// [`Event::GfmdReady`] when there is a newer one; `None`: when there is any.
    AwaitGfmd(Option<u32>),
    /// Fail the reads that wait. The next one sends [`Event::Start`].
    Fail(Errno),
    /// Close the descriptor at the gfsd, if it is open there, and at gfmd.
    Release(Option<Descriptor>),
}

/// A gfsd that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    host: HostId,
    /// The user was refused; if not, the gfsd may work again.
    has_refused: bool,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    state: State,
    descriptor: Option<Descriptor>,
    /// The gfsds that have failed since the last progress, the last one first.
    failed: [Option<Failed>; FAILED_MAX],
    /// The time of the first failure since the last progress.
    since_ms: Option<u64>,
    backoff: Backoff,
}

impl Default for OpenFile {
    fn default() -> Self {
        Self::NEW
    }
}

impl OpenFile {
    /// A file that was not opened yet.
    pub const NEW: Self = Self {
        state: State::Idle,
        descriptor: None,
        failed: [None; FAILED_MAX],
        since_ms: None,
        backoff: Backoff::NEW,
    };

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the descriptor, if the gfsd reads it: for a read of what it was opened for.
    pub const fn readable(&self) -> Option<Descriptor> {
        match self.state {
            State::Ready(_) => self.descriptor,
            _ => None,
        }
    }

    /// Returns the process of the descriptor.
    pub fn epoch(&self) -> Option<u32> {
        self.descriptor.map(|descriptor| descriptor.epoch)
    }

    /// Returns whether a gfsd has failed since the last progress: another one is preferred.
    pub fn has_failed(&self, host: HostId) -> bool {
        let mut failed = self.failed.iter().flatten();
        failed.any(|failed| failed.host == host)
    }

    /// Returns the time of the first failure since the last progress, in milliseconds.
    pub const fn since_ms(&self) -> Option<u64> {
        self.since_ms
    }

    /// Takes note that a gfsd has failed. Those that may work again are remembered longer than
    /// those that have refused the user, of which [`Health`](super::replica::Health) knows.
    fn blame(&mut self, host: HostId, has_refused: bool) {
        let is_place = |known: &Option<Failed>| known.is_none_or(|known| known.host == host);
        let refused = |known: &Option<Failed>| known.is_some_and(|known| known.has_refused);
        let place = self.failed.iter().position(is_place);
        let place = place.or_else(|| self.failed.iter().rposition(refused));
        let place = place.unwrap_or(FAILED_MAX.saturating_sub(1));
        if let Some(later) = self.failed.get_mut(..=place) {
            later.rotate_right(1);
        }
        let [first, ..] = &mut self.failed;
        *first = Some(Failed { host, has_refused });
    }

    /// Handles an event: changes the state and returns what to do.
    pub fn step(&mut self, event: Event) -> Effect {
        match (self.state, event) {
            (State::Closed, _) => Effect::Ignore,
            (_, Event::Close) => {
                self.state = State::Closed;
                Effect::Release(self.descriptor.take())
            }
            (State::Idle | State::Failed(_), Event::Start) => {
                self.begin_anew();
                self.open()
            }
            (State::Waiting, Event::Timer) | (State::AwaitingGfmd, Event::GfmdReady) => self.open(),
            (State::Ready(_), Event::Outdated(failure)) => self.again(&failure),
            (State::Opening, Event::Opened(descriptor, host)) => self.opened(descriptor, host),
            (State::Opening, Event::AllRefuse(descriptor, refusal, failure)) => {
                self.all_refuse(descriptor, refusal, &failure)
            }
            (State::Opening, Event::GfmdFailed(failure)) => self.gfmd_failed(&failure),
            (State::Opening | State::AwaitingGfmd, Event::GfmdGivenUp(errno)) => self.fail(errno),
            (State::Connecting(host), Event::Connected { epoch }) => match self.descriptor {
                Some(descriptor) if descriptor.epoch == epoch => {
                    self.state = State::OpeningAtGfsd(host);
                    Effect::OpenAtGfsd(descriptor)
                }
                _ => self.open(),
            },
            (State::OpeningAtGfsd(host), Event::OpenedAtGfsd) => match self.descriptor {
                Some(descriptor) => {
                    self.state = State::Ready(host);
                    Effect::Read(descriptor)
                }
                None => self.open(),
            },
            (
                State::Connecting(host) | State::OpeningAtGfsd(host) | State::Ready(host),
                Event::GfsdFailed(request, failure),
            ) => self.gfsd_failed(host, request, &failure),
            (
                State::Connecting(host) | State::OpeningAtGfsd(host) | State::Ready(host),
                Event::GfsdWrong(failure),
            ) => self.other_replica(host, &failure),
            (State::Ready(_), Event::Progress) => {
                self.begin_anew();
                Effect::Ignore
            }
            _ => Effect::Ignore,
        }
    }

    /// Forgets earlier failures: a read has made progress or begins, or the user has the file open,
    /// who may read it much later.
    pub fn begin_anew(&mut self) {
        self.failed = [None; FAILED_MAX];
        self.since_ms = None;
        self.backoff.reset();
    }

    fn open(&mut self) -> Effect {
        self.state = State::Opening;
        Effect::Open(self.descriptor.take())
    }

    fn opened(&mut self, descriptor: Descriptor, host: Option<HostId>) -> Effect {
        self.descriptor = Some(descriptor);
        // No gfsd has it: an error.
        let Some(host) = host else {
            return self.fail(Errno::EIO);
        };
        self.state = State::Connecting(host);
        Effect::Connect(host)
    }

    fn fail(&mut self, errno: Errno) -> Effect {
        self.state = State::Failed(errno);
        Effect::Fail(errno)
    }

    fn gfmd_failed(&mut self, failure: &Failure) -> Effect {
        match AtGfmd::decide(failure.fault) {
            AtGfmd::Reconnect => self.await_gfmd(failure),
            AtGfmd::Wait => self.again(failure),
            AtGfmd::Fail(errno) => self.fail(errno),
        }
    }

    fn gfsd_failed(&mut self, host: HostId, request: GfsdRequest, failure: &Failure) -> Effect {
        match AtGfsd::decide(request, failure.fault) {
            AtGfsd::Reopen | AtGfsd::Wait => self.again(failure),
            AtGfsd::OtherReplica => self.other_replica(host, failure),
            AtGfsd::Reconnect => self.await_gfmd(failure),
            AtGfsd::Fail(errno) => self.fail(errno),
        }
    }

    /// All gfsds that gfmd names have refused the user. One that has failed otherwise, and that
    /// gfmd does not name while it is restarted, may come back.
    fn all_refuse(&mut self, opened: Descriptor, refusal: AllRefuse, failure: &Failure) -> Effect {
        self.descriptor = Some(opened);
        let mut failed = self.failed.iter().flatten();
        if failed.all(|failed| failed.has_refused) || !self.may_wait(failure) {
            return self.fail(refusal.errno);
        }
        match refusal.may_accept {
            Some(host) => self.opened(opened, Some(host)),
            None => self.again(failure),
        }
    }

    fn other_replica(&mut self, host: HostId, failure: &Failure) -> Effect {
        let is_known = self.has_failed(host);
        let has_refused = failure.fault.refusal().is_some();
        self.blame(host, has_refused);
        if has_refused && !is_known && self.may_wait(failure) {
            // It will not do what it can later, so another one is asked without a pause.
            return self.open();
        }
        self.again(failure)
    }

    /// Returns whether attempts go on.
    fn may_wait(&mut self, failure: &Failure) -> bool {
        let since_ms = *self.since_ms.get_or_insert(failure.now_ms);
        failure.now_ms.saturating_sub(since_ms) < failure.timeout_ms
    }

    /// Opens the file again: at once after the first failure, and after a growing pause then.
    fn again(&mut self, failure: &Failure) -> Effect {
        if !self.may_wait(failure) {
            return self.fail(Errno::EIO);
        }
        match self
            .backoff
            .next(PAUSE_MS_MAX, ATTEMPTS_FOR_EVER, failure.random)
        {
            Some(0) | None => self.open(),
            Some(pause_ms) => {
                self.state = State::Waiting;
                Effect::StartIn { pause_ms }
            }
        }
    }

    fn await_gfmd(&mut self, failure: &Failure) -> Effect {
        if !self.may_wait(failure) {
            return self.fail(Errno::EIO);
        }
        self.state = State::AwaitingGfmd;
        Effect::AwaitGfmd(self.epoch())
    }
}
