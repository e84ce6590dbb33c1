// SPDX-License-Identifier: GPL-2.0

//! The connection of a mount to gfmd: one TCP connection, on which questions follow one another
//! without waiting for answers: the side of the tasks that ask.
//!
//! A task that asks adds its call to the queue, sends it behind those before it, and waits. The
//! answers come in the same order. Who has `input` receives them and finishes the calls: the task
//! itself until it has its answer ([`leader`]), or else one worker. The worker
//! runs while calls are under way that no task receives, or the connection is being made: an idle
//! mount has none. After a loss it connects anew and sends what is in the queue again, as
//! [`Gfmd`] decides.
//!
//! Lock order: `input`, then `senders`, `output`, and the lock of a call; each before `state`.

mod closer;
mod input;
mod leader;
mod worker;

use core::net::SocketAddr;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work, //
    }, //
};
use kernel_ext::{
    new_turns,
    new_wait_queue,
    sync::{
        Turns,
        WaitQueue, //
    }, //
};
use net_ext::TcpStream;

use super::{
    call::{
        Answered,
        Call, //
    },
    descriptors::Descriptors,
    ring::Ring,
    setup::{
        Setup,
        Workers, //
    },
};
use crate::proto::{
    auth::AuthFailure,
    closing::places,
    conversation::{
        Conversation,
        Next, //
    },
    gfm::{
        Process,
        ProcessKey, //
    },
    gfmd::{
        Event,
        Gfmd, //
    },
    open_file::Failure,
    question::Kind,
    retry::Fault,
    setting::Setting, //
};
use closer::Closing;
use input::Input;

/// The number of calls that may be under way; a task with another one waits.
const CALLS_MAX: usize = 128;

/// The connection to gfmd.
#[pin_data]
pub(super) struct Link {
    setup: Arc<Setup>,
    descriptors: Arc<Descriptors>,
    servers: KVec<SocketAddr>,
    #[pin]
    state: SpinLock<State>,
    /// The turn to send, which may last as long as gfmd takes nothing.
    #[pin]
    senders: Turns,
    /// Locked by who sends, whom the end of the connection ends, and by who changes that.
    #[pin]
    output: Mutex<()>,
    /// The bytes for the thread that receives.
    #[pin]
    input: Mutex<Input>,
    /// The state has changed, or there is room in the queue.
    #[pin]
    changed: WaitQueue,
    #[pin]
    work: Work<Link>,
    /// The question that closes descriptors, for the closer only.
    closing: Arc<Call>,
    #[pin]
    closer: Work<Link, { closer::ID }>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
    impl HasWork<Self, { closer::ID }> for Link { self.closer }
}

/// The state of the link.
struct State {
    machine: Gfmd,
    /// The pause before the next attempt.
    pause_ms: u32,
    socket: Option<Arc<TcpStream>>,
    /// The process of the machine's epoch.
    process: Process,
    /// The calls that are under way.
    queue: Ring<Arc<Call>>,
    /// The descriptors that are to be closed.
    closes: Ring<Closing>,
    /// The number of questions so far, see [`Asked`](crate::proto::identity::Asked).
    asked: u64,
    /// The calls that this connection has sent.
    conversation: Conversation<Arc<Call>, Answered>,
    /// The number of waiters for a process.
    awaited: u32,
    /// The number of times that waiting was given up, and the last reason.
    given_up: u32,
    reason: Error,
    /// The index of the next server to connect to.
    server: usize,
    /// A gfsd has told that the process is gone, so the connection is given up.
    is_condemned: bool,
    /// The connection is lost, and that was logged.
    is_loss_logged: bool,
}

impl Link {
    /// Prepares the connection. Its stack is not below the first attempt.
    #[inline(never)]
    pub(super) fn new(
        setup: &Arc<Setup>,
        descriptors: &Arc<Descriptors>,
        servers: KVec<SocketAddr>,
    ) -> Result<Arc<Self>> {
        // CAST: From 32 bits to 64.
        let open_files = setup.options.get(Setting::OpenFiles) as usize;
        let state = State {
            machine: Gfmd::NEW,
            pause_ms: 0,
            socket: None,
            process: Process {
                pid: 0,
                key: ProcessKey([0; 32]),
            },
            queue: Ring::new(CALLS_MAX)?,
            closes: Ring::new(places(open_files))?,
            asked: 0,
            conversation: Conversation::NEW,
            awaited: 0,
            given_up: 0,
            reason: EIO,
            server: 0,
            is_condemned: false,
            is_loss_logged: false,
        };
        let input = Input::new(setup.interrupts())?;
        let closing = closer::call()?;
        Arc::pin_init(
            pin_init!(Self {
                setup: setup.clone(),
                descriptors: descriptors.clone(),
                servers,
                state <- new_spinlock!(state, "Link::state"),
                senders <- new_turns!("Link::senders"),
                output <- new_mutex!((), "Link::output"),
                input <- new_mutex!(input, "Link::input"),
                changed <- new_wait_queue!("Link::changed"),
                work <- new_work!("Link::work"),
                closing,
                closer <- new_work!("Link::closer"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes the first connection: each server is tried once. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns the error of the last server, or that a server has refused the user or the key.
    pub(super) fn connect_first(self: &Arc<Self>) -> Result {
        let mut input = self.input.lock();
        let mut first = Err(EINVAL);
        let interrupts = self.setup.interrupts();
        for _ in &self.servers {
            let now_ms = self.setup.now_ms();
            self.state.lock().machine.step(Event::Wanted { now_ms });
            match self.attempt(&mut input, interrupts) {
                Ok(()) => return Ok(()),
                Err(trouble) => {
                    self.log_refusal(trouble);
                    let is_refused = matches!(trouble.fault, Fault::Auth(AuthFailure::Refused(_)));
                    let is_killed = trouble.error == ERESTARTSYS;
                    first = Err(trouble.error);
                    // No time is left for another attempt: the state is `Down` again.
                    self.lose(Failure {
                        timeout_ms: 0,
                        ..self.setup.failure(trouble.fault)
                    });
                    if is_refused || is_killed {
                        break;
                    }
                }
            }
        }
        first
    }

    /// Returns the process, if it is that of this epoch.
    pub(super) fn process(&self, epoch: u32) -> Option<Process> {
        let state = self.state.lock();
        let is_joined = state.machine.epoch() == epoch && epoch != 0;
        is_joined.then_some(state.process)
    }

    /// Returns the server of the last attempt, whether it is connected, and the number of processes
    /// so far.
    pub(super) fn describe(&self) -> (Option<SocketAddr>, bool, u32) {
        let state = self.state.lock();
        let server = self.servers.get(state.server).copied();
        let machine = &state.machine;
        (server, machine.ready().is_some(), machine.epoch())
    }

    /// Returns the number of processes so far.
    pub(super) fn epoch(&self) -> u32 {
        self.state.lock().machine.epoch()
    }

    /// Asks, and waits for the answer. Sleeps, killable. The call can be read after `Ok`.
    ///
    /// # Errors
    ///
    /// Returns `ERESTARTSYS` when the task is killed, `EIO` if no gfmd can be reached or requests
    /// are interrupted.
    pub(super) fn ask(self: &Arc<Self>, call: &Arc<Call>, kind: Kind) -> Result {
        call.begin(kind, self.setup.now_us())?;
        self.enqueue(call)?;
        if self.setup.is_closed() {
            // The worker may have seen that before it could see the call.
            let _turn = self.output.lock();
            self.fail_all(EIO);
        }
        match self.send_waiting() {
            Ok(()) => self.lead(call),
            // The task is killed: workers send what is left, and receive.
            Err(_) => {
                self.have_sent();
                self.kick();
            }
        }
        let waited = call.wait();
        if waited.is_err() {
            call.abandon();
            self.close_orphan(call);
        }
        waited
    }

    fn enqueue(&self, call: &Arc<Call>) -> Result {
        let interrupts = self.setup.interrupts();
        loop {
            if self.setup.is_closed() {
                break;
            }
            let mut state = self.state.lock();
            state.asked = state.asked.wrapping_add(1);
            call.set_number(state.asked);
            if state.queue.push(call.clone()).is_ok() {
                return Ok(());
            }
            drop(state);
            let has_room =
                || !self.state.lock().queue.is_full() || self.setup.interrupts() != interrupts;
            if let Err(error) = self.changed.wait_until_killable(has_room) {
                call.finish(Answered::MOOT);
                return Err(error);
            }
            if self.setup.interrupts() != interrupts {
                break;
            }
        }
        call.finish(Answered::MOOT);
        Err(EIO)
    }

    /// Queues the worker.
    fn kick(self: &Arc<Self>) {
        // It may be queued already.
        self.setup.on_queue(Workers::Link, |queue| {
            drop(queue.enqueue::<_, 0>(self.clone()))
        });
    }

    /// Sends what the connection has not sent yet, if it is there. Who calls this does not receive:
    /// gfmd takes no question while its answers are not taken. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ERESTARTSYS` when the task is killed before all is sent: [`Self::have_sent`] has a
    /// worker send the rest.
    fn send_waiting(self: &Arc<Self>) -> Result {
        let _turn = self.senders.take()?;
        let _output = self.output.lock();
        while let Some((socket, next)) = self.next_to_send() {
            // What has come without a question would be taken for the answer to this one.
            let is_lost = next.is_first && !is_quiet(&socket);
            if is_lost {
                self.break_off(&socket);
                return Ok(());
            }
            let mut sent = next.bytes;
            let send = |bytes: &[u8]| self.send_rest(&socket, bytes, &mut sent);
            match next.question.with_request(send) {
                Ok(()) => {
                    let answered = self.state.lock().conversation.sent();
                    self.give_back(answered);
                }
                // gfmd has a part of the question, or nothing: the connection is as good as before.
                Err(ERESTARTSYS) => {
                    self.state.lock().conversation.left(sent);
                    return Err(ERESTARTSYS);
                }
                Err(_) => {
                    self.break_off(&socket);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the call to be sent next; `None` if there is none, or no connection.
    fn next_to_send(&self) -> Option<(Arc<TcpStream>, Next<Arc<Call>>)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.machine.ready()?;
        let socket = state.socket.clone()?;
        let next = state.conversation.next(|at| state.queue.get(at).cloned())?;
        Some((socket, next))
    }

    /// Sends the rest of a question. If gfmd takes no more of it for now, it may wait for its
    /// answers to be taken: so another thread receives meanwhile.
    fn send_rest(self: &Arc<Self>, socket: &TcpStream, bytes: &[u8], sent: &mut usize) -> Result {
        match socket.send_rest(bytes, sent, 0) {
            Err(ETIMEDOUT) => {}
            done => return done,
        }
        self.kick();
        socket.send_rest(bytes, sent, self.setup.receive_timeout_ms())
    }

    /// Ends the connection for sending: the thread that receives sees its end.
    fn break_off(&self, socket: &TcpStream) {
        self.state.lock().conversation.broken();
        socket.shutdown();
    }

    /// Gives a question back that is answered, and whose end gfmd has, or needs no more.
    fn give_back(self: &Arc<Self>, answered: Option<(Arc<Call>, Answered)>) {
        if let Some((call, answered)) = answered {
            call.finish(answered);
            self.changed.wake_all();
            self.close_orphan(&call);
        }
    }

    /// Waits for a process that is newer than `epoch`, or any. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns why no gfmd could be reached, or `EIO` if waits are interrupted.
    pub(super) fn await_process(self: &Arc<Self>, epoch: Option<u32>) -> Result {
        let interrupts = self.setup.interrupts();
        let mut state = self.state.lock();
        let given_up = state.given_up;
        state.awaited = state.awaited.saturating_add(1);
        drop(state);
        match epoch {
            // The process is gone, though the connection is there.
            Some(epoch) => self.condemn(epoch),
            None => self.kick(),
        }
        let waited = self.changed.wait_until_killable(|| {
            let state = self.state.lock();
            let now = state.machine.ready();
            now.is_some() && now != epoch
                || state.given_up != given_up
                || self.setup.interrupts() != interrupts
        });
        let mut state = self.state.lock();
        state.awaited = state.awaited.saturating_sub(1);
        waited?;
        let now = state.machine.ready();
        if now.is_some() && now != epoch {
            return Ok(());
        }
        if state.given_up != given_up {
            return Err(state.reason);
        }
        Err(EIO)
    }

    /// Returns whether a gfsd is believed that the process `epoch` is gone.
    pub(super) fn is_gone(&self, epoch: u32) -> bool {
        let now_ms = self.setup.now_ms();
        self.state.lock().machine.is_gone(epoch, now_ms)
    }

    /// Ends the connection of the process `epoch`, if that is there; the next one has another.
    fn condemn(self: &Arc<Self>, epoch: u32) {
        let mut state = self.state.lock();
        state.is_condemned |= state.machine.ready() == Some(epoch);
        let socket = state.socket.clone().filter(|_| state.is_condemned);
        drop(state);
        if let Some(socket) = socket {
            socket.shutdown();
        }
        self.kick();
    }

    /// Ends the connection: the worker sees it, and all that waits fails.
    pub(super) fn interrupt(self: &Arc<Self>) {
        let socket = self.state.lock().socket.clone();
        if let Some(socket) = socket {
            socket.shutdown();
        }
        self.changed.wake_all();
        self.descriptors.interrupt();
        self.kick();
    }

    /// Closes a descriptor that gfmd has opened for a task that was killed.
    fn close_orphan(self: &Arc<Self>, call: &Call) {
        let Some((fd, epoch)) = call.take_orphan() else {
            return;
        };
        self.close_fd(fd, epoch, None);
    }
}

/// Returns whether a server that was asked nothing is silent, and has not closed the connection.
fn is_quiet(socket: &TcpStream) -> bool {
    // The task may have been killed: that says nothing of the server.
    matches!(socket.receive(&mut [0], 0), Err(ETIMEDOUT | ERESTARTSYS))
}
