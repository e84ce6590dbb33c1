// SPDX-License-Identifier: GPL-2.0

//! The worker of the connection to gfmd: it connects, receives answers, and recovers.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        MutexGuard, //
    },
    workqueue::WorkItem, //
};
use kernel_ext::{
    errno::ESHUTDOWN,
    random, //
};
use net_ext::TcpStream;

use super::{
    input::Input,
    Link, //
};
use crate::{
    net::{
        call::{
            Answered,
            Call,
            Step, //
        },
        login,
        setup::{
            Shown,
            Trouble,
            LOG, //
        }, //
    },
    proto::{
        auth::AuthFailure,
        conversation::Receiver,
        error::GfarmError,
        gfm::{
            Process,
            ProcessAlloc,
            ProcessKey, //
        },
        gfmd::{
            Effect,
            Event,
            Refused,
            State as Phase, //
        },
        open_file::Failure,
        operation::{
            Operation,
            ReplyError, //
        },
        request::Server,
        retry::Fault,
        xdr::{
            Decoder,
            Encoder, //
        }, //
    }, //
};

impl WorkItem for Link {
    type Pointer = Arc<Link>;

    fn run(this: Arc<Link>) {
        // A task that receives runs the worker again when it is done, if there is more to do.
        let Some(mut input) = this.input.try_lock() else {
            return;
        };
        this.follow_interrupts(&mut input);
        while this.work_once(&mut input) {
            this.follow_interrupts(&mut input);
        }
        this.end_input(input);
    }
}

/// Implements what the worker does.
impl Link {
    /// Ends the connection and fails all that waits, once for each time that this was asked for.
    pub(super) fn follow_interrupts(self: &Arc<Self>, input: &mut Input) -> bool {
        let interrupts = self.setup.interrupts();
        let is_new = core::mem::replace(&mut input.interrupts, interrupts) != interrupts;
        if is_new {
            self.give_up();
        }
        is_new
    }

    /// Has the worker run if all that waits is to fail, which who received has not seen.
    pub(super) fn end_input(self: &Arc<Self>, input: MutexGuard<'_, Input>) {
        let interrupts = input.interrupts;
        drop(input);
        // The worker that a later interruption runs can receive.
        if self.setup.interrupts() != interrupts {
            self.kick();
        }
    }

    /// Returns whether there is more to do.
    fn work_once(self: &Arc<Self>, input: &mut Input) -> bool {
        let interrupts = input.interrupts;
        let mut state = self.state.lock();
        if self.setup.is_closed() {
            drop(state);
            self.give_up();
            return false;
        }
        let is_wanted = !state.queue.is_empty() || state.awaited != 0;
        let (phase, pause_ms) = (state.machine.state(), state.pause_ms);
        let is_condemned = state.is_condemned;
        let next = state.conversation.receiver(state.queue.len());
        match phase {
            Phase::Down if is_wanted => {
                let now_ms = self.setup.now_ms();
                state.machine.step(Event::Wanted { now_ms });
                true
            }
            Phase::Waiting => {
                drop(state);
                if self.setup.pause(pause_ms, interrupts).is_ok() {
                    self.state.lock().machine.step(Event::Timer);
                }
                true
            }
            Phase::Connecting | Phase::Authenticating | Phase::Joining => {
                drop(state);
                if let Err(trouble) = self.attempt(input, interrupts) {
                    self.log_refusal(trouble);
                    self.lose(self.setup.failure(trouble.fault));
                }
                true
            }
            Phase::Ready if is_condemned => {
                drop(state);
                let gone = Fault::Server(GfarmError::GFMD_FAILED_OVER);
                self.lose(self.setup.failure(gone));
                true
            }
            Phase::Ready => {
                drop(state);
                match next {
                    Receiver::Receive => {
                        if let Err(trouble) = self.receive(input) {
                            self.receive_failed(trouble);
                        }
                    }
                    Receiver::HaveSent => self.have_sent(),
                    Receiver::Rest => {}
                }
                next == Receiver::Receive
            }
            Phase::Down | Phase::Closed => false,
        }
    }

    /// Connects to the next server, authenticates, and creates a process. Sleeps.
    ///
    /// # Errors
    ///
    /// The reason why this server cannot be used, or `ESHUTDOWN` if waits were interrupted since
    /// `interrupts`.
    pub(super) fn attempt(&self, input: &mut Input, interrupts: u32) -> Result<(), Trouble> {
        let index = self.state.lock().server;
        let server = *self.servers.get(index).ok_or(EINVAL)?;
        let socket = login::socket(&self.setup, server)?;
        self.state.lock().socket = Some(socket.clone());
        // An interruption that came before has not seen the socket.
        if self.setup.interrupts() != interrupts {
            return Err(ESHUTDOWN.into());
        }
        let timeout_ms = self.setup.connect_timeout_ms();
        // Of several servers, those that are not the master are silent.
        let servers = u32::try_from(self.servers.len()).unwrap_or(1);
        let share_ms = timeout_ms.checked_div(servers).unwrap_or(timeout_ms);
        login::login(&self.setup, &socket, share_ms)?;
        self.setup.stats.connected(Server::Gfmd);
        let mut state = self.state.lock();
        state.machine.step(Event::Connected);
        state.machine.step(Event::Authenticated);
        drop(state);
        let process = self.join(&socket, input)?;
        let now_ms = self.setup.now_ms();
        let mut state = self.state.lock();
        state.process = process;
        state.machine.step(Event::Joined { now_ms });
        let was_lost = core::mem::take(&mut state.is_loss_logged);
        drop(state);
        self.descriptors.renew();
        if was_lost {
            pr_info!("gfmd {}: connected again\n", Shown(server));
        }
        self.changed.wake_all();
        Ok(())
    }

    fn join(&self, socket: &TcpStream, input: &mut Input) -> Result<Process, Trouble> {
        input.clear();
        let mut key = ProcessKey([0; 32]);
        random::fill(&mut key.0);
        let alloc = ProcessAlloc(&key);
        let mut output = [0; 64];
        let mut to = Encoder::new(&mut output);
        alloc.encode(&mut to);
        let len = to.finish().map_err(|_| EINVAL)?;
        let timeout_ms = self.setup.connect_timeout_ms();
        socket.send(output.get(..len).unwrap_or_default(), timeout_ms)?;
        let end_ms = self.setup.end_ms(timeout_ms);
        loop {
            let mut from = Decoder::new(input.unread());
            match alloc.decode(&mut from) {
                Ok(pid) => {
                    let taken = from.consumed();
                    input.take(taken);
                    // They would be taken for the answer to the first question.
                    return match input.unread() {
                        [] => Ok(Process { pid, key }),
                        _ => Err(Trouble::of(Fault::malformed("end of the answer"))),
                    };
                }
                Err(ReplyError::NeedMore(more)) => {
                    input.fill(socket, more, self.setup.left_ms(end_ms)?)?;
                }
                Err(ReplyError::Malformed(why)) => return Err(Trouble::of(Fault::Malformed(why))),
                Err(ReplyError::Server(error)) => return Err(Trouble::of(Fault::Server(error))),
            }
        }
    }

    /// The answer to the first call cannot be received.
    pub(super) fn receive_failed(self: &Arc<Self>, trouble: Trouble) {
        // Asked again, the server would answer the same.
        let is_malformed = matches!(trouble.fault, Fault::Malformed(_));
        let first = is_malformed.then(|| self.take_first()).flatten();
        self.lose(self.setup.failure(trouble.fault));
        // Not before: what its task asks next may not fail with what waits now.
        if let Some(call) = first {
            call.finish(Answered::failed(trouble));
        }
    }

    /// Receives the answer to the first call. gfmd may be silent for a time, and take as long again
    /// for the whole answer once it has begun.
    pub(super) fn receive(self: &Arc<Self>, input: &mut Input) -> Result<(), Trouble> {
        let state = self.state.lock();
        let (Some(call), Some(socket)) = (state.queue.get(0).cloned(), state.socket.clone()) else {
            drop(state);
            return Err(Trouble::of(Fault::Disconnected));
        };
        let epoch = state.machine.epoch();
        drop(state);
        let timeout_ms = self.setup.receive_timeout_ms();
        let (mut end_ms, mut has_begun) = (self.setup.end_ms(timeout_ms), false);
        let mut receiver = call.receiver()?;
        let result = loop {
            match receiver.step(input.unread())? {
                Step::NeedMore(more) => {
                    input.fill(&socket, more, self.setup.left_ms(end_ms)?)?;
                    if !core::mem::replace(&mut has_begun, true) {
                        end_ms = self.setup.end_ms(timeout_ms);
                    }
                }
                Step::Taken(taken) => input.take(taken),
                Step::Last(taken, result) => {
                    input.take(taken);
                    break result;
                }
            }
        };
        let question = self.refused(&call, result);
        let (answered, unknown) = call.answered(epoch);
        let mut state = self.state.lock();
        // The next process answers the question.
        let moved = |fault: &Fault| state.machine.gives_up(*fault, question);
        if let Some(fault) = result.err().filter(moved) {
            drop(state);
            if is_full(result) {
                self.descriptors.give_up();
            }
            return Err(Trouble::of(fault));
        }
        // Also drops the reference of the queue: this is another one.
        drop(state.queue.pop());
        let given = state.conversation.answered(answered);
        let is_asked = state.conversation.is_owed();
        drop(state);
        if let Some(fault) = result.err().filter(|_| is_full(result)) {
            if self.descriptors.lower() {
                let index = self.state.lock().server;
                self.log(index, fault, FEWER);
            }
        }
        let us = self.setup.now_us().saturating_sub(call.asked_us());
        let result = result.map_err(|fault| fault.errno().into());
        self.setup.stats.answered(call.kind().request(), us, result);
        if let Some(fd) = unknown {
            self.close_fd(fd, epoch, None);
        }
        // If not, who sends the rest of the question gives it back.
        self.give_back(given.map(|answered| (call, answered)));
        self.changed.wake_all();
        // They would be taken for the answer to the next question, and each answer for another. One
        // that was sent meanwhile is asked again.
        if !is_asked && !input.unread().is_empty() {
            self.lose(self.setup.failure(Fault::malformed("end of the answer")));
        }
        Ok(())
    }

    /// Returns what the machine decides by whether another process answers a question. Reads the
    /// key if that is needed.
    fn refused(&self, call: &Call, result: Result<(), Fault>) -> Refused {
        let is_full = is_full(result);
        Refused {
            now_ms: self.setup.now_ms(),
            asked_ms: call.asked_us() / 1000,
            has_key: is_full && self.setup.key.is_valid(),
            kept_ms: is_full.then(|| self.descriptors.kept_ms()).flatten(),
        }
    }

    /// The connection, or an attempt, has failed: tells the machine, and does what it decides.
    pub(super) fn lose(self: &Arc<Self>, failure: Failure) {
        let (fault, timeout_ms) = (failure.fault, failure.timeout_ms);
        let socket = self.state.lock().socket.clone();
        if let Some(socket) = socket {
            // A task that sends gives up its turn.
            socket.shutdown();
        }
        let _turn = self.output.lock();
        let mut state = self.state.lock();
        let was_ready = state.machine.ready().is_some();
        let index = state.server;
        if !was_ready {
            let next = index.wrapping_add(1);
            state.server = if next < self.servers.len() { next } else { 0 };
        }
        let socket = state.socket.take();
        let first = state.queue.get(0).cloned();
        let (again, answered) = state.conversation.lost();
        state.is_condemned = false;
        let effect = state.machine.step(Event::Failed {
            fault,
            now_ms: failure.now_ms,
            timeout_ms,
            random: failure.random,
        });
        if let Effect::StartIn { pause_ms } = effect {
            state.pause_ms = pause_ms;
        }
        state.is_loss_logged |= was_ready;
        let epoch = state.machine.epoch();
        drop(state);
        drop(socket);
        if let Some(call) = first {
            call.restart();
        }
        let stats = &self.setup.stats;
        stats.again(Server::Gfmd, again, fault.errno().into());
        if was_ready && !self.setup.is_closed() {
            self.log(index, fault, loss(fault));
        }
        self.drop_moot();
        if let Effect::FailWaiting(errno) = effect {
            if epoch != 0 && !self.setup.is_closed() {
                self.log(index, fault, "not back in time; requests fail");
            }
            self.fail_all(errno.into());
        }
        // Not before: what its task asks next may not fail with what waits now.
        self.give_back(answered);
    }

    /// Drops the calls that no task waits for: another process need not answer them.
    fn drop_moot(&self) {
        loop {
            // Those that close a descriptor are of this kind.
            let moot = self.state.lock().queue.take(|call| call.is_abandoned());
            let Some(call) = moot else {
                return;
            };
            call.finish(Answered::MOOT);
        }
    }

    /// Takes the call whose answer was being received, if there is one, out of the queue.
    fn take_first(&self) -> Option<Arc<Call>> {
        let mut state = self.state.lock();
        let is_owed = state.conversation.dropped();
        is_owed.then(|| state.queue.pop()).flatten()
    }

    /// Fails all that waits.
    pub(super) fn fail_all(self: &Arc<Self>, error: Error) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.wrapping_add(1);
        state.reason = error;
        let (_, answered) = state.conversation.lost();
        drop(state);
        loop {
            let Some(call) = self.state.lock().queue.pop() else {
                break;
            };
            call.finish(Answered::failed(error.into()));
        }
        self.give_back(answered);
        self.changed.wake_all();
    }

    /// Ends the connection and fails all that waits, at once.
    pub(super) fn give_up(self: &Arc<Self>) {
        self.lose(Failure {
            timeout_ms: 0,
            ..self.setup.failure(Fault::Disconnected)
        });
        self.fail_all(EIO);
    }

    pub(super) fn log_refusal(&self, trouble: Trouble) {
        let index = self.state.lock().server;
        match trouble.fault {
            Fault::Auth(AuthFailure::Refused(_)) => {
                self.log(index, trouble.fault, "the user is refused");
            }
            _ if self.epoch() == 0 => {
                let server = self.servers.get(index).copied();
                if let (Some(server), Some(_)) = (server, LOG.allow()) {
                    let (fault, errno) = (Shown(trouble.fault), trouble.error.to_errno());
                    let server = Shown(server);
                    pr_warn!("gfmd {server}: cannot be connected: {fault} (error {errno})\n");
                }
            }
            _ => {}
        }
    }

    fn log(&self, index: usize, fault: Fault, what: &str) {
        let server = self.servers.get(index).copied();
        if let (Some(server), Some(_)) = (server, LOG.allow()) {
            pr_warn!("gfmd {}: {}: {}\n", Shown(server), what, Shown(fault));
        }
    }
}

/// Says that gfmd allows fewer open files than the mount.
const FEWER: &str = "its process has no room for more open files, fewer are kept open there; \
                     raise max_open_files in gfmd.conf, or lower open_files=";

/// Says that the connection is given up.
fn loss(fault: Fault) -> &'static str {
    match fault {
        // What gfsds have open that do not answer, too.
        Fault::Server(GfarmError::TOO_MANY_OPEN_FILES) => {
            "its process is full, connecting again for another one; requests wait"
        }
        _ => "lost, connecting again; requests wait",
    }
}

/// Returns whether gfmd has answered that its process has no room for another descriptor.
fn is_full(result: Result<(), Fault>) -> bool {
    result == Err(Fault::Server(GfarmError::TOO_MANY_OPEN_FILES))
}
