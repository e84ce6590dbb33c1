// SPDX-License-Identifier: GPL-2.0

//! Sessions: the connection to a server, and the store of it that is used.

mod attaching;
mod events;

use ferro_proto::errno::Errno;
use kernel::{
    cpu::CpuId,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex,
        SetOnce, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    errno,
    sync::{
        atomic::{
            AtomicU8,
            Ordering, //
        },
        new_wait_queue,
        WaitQueue, //
    },
    sysfs::Directory,
    text, //
};
use rtrs_client::{
    IoQueue,
    OpenParam, //
};
use rtrs_core::proto::shortage;

pub(super) use self::attaching::Attachment;
use super::{
    lane::{
        Ended,
        Flight,
        Lanes, //
    },
    sysfs,
    Client,
    LOG_LIMIT, //
};
use crate::{
    proto::{
        answer::{
            Attached,
            Unbelievable, //
        },
        connect::Line,
        retry::{
            self,
            AGAIN_MS, //
        },
    },
    shown::Shown, //
};

/// Whether operations are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// The session is being connected for the first time, and no program uses it.
    Connecting,
    /// Operations are sent.
    Connected,
    /// Operations wait for a path, or for the store.
    Waiting,
    /// Operations fail, as there was no path for too long.
    Failing,
    /// The session was disconnected.
    Closed,
}

impl State {
    const ALL: [Self; 5] = [
        Self::Connecting,
        Self::Connected,
        Self::Waiting,
        Self::Failing,
        Self::Closed,
    ];

    /// Returns its word in sysfs.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
            Self::Closed => "closed",
        }
    }
}

/// The parts of a session that it has from when it is connected.
struct Usage {
    /// The programs' files; `None` before the session is ready, and when it is being disconnected.
    users: Option<u32>,
    attached: Option<Attached>,
    folder: Option<Directory<Session>>,
}

/// A session.
#[pin_data]
pub(super) struct Session {
    name: CString,
    store: CString,
    client: Arc<Client>,
    /// Set before it waits for a server.
    rtrs: SetOnce<Arc<rtrs_client::Session>>,
    lanes: SetOnce<Arc<Lanes>>,
    /// A [`State`].
    state: AtomicU8,
    #[pin]
    changed: WaitQueue,
    /// Held while the server is asked whether it knows what was sent before; nothing is sent again
    /// meanwhile.
    #[pin]
    asking: Mutex<()>,
    #[pin]
    usage: Mutex<Usage>,
}

/// A file that uses a session.
pub(super) struct User(Arc<Session>);

impl User {
    /// Returns the session.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.users = usage.users.map(|users| users.saturating_sub(1));
    }
}

impl Session {
    /// Makes one that is not connected.
    pub(super) fn new(client: &Arc<Client>, line: &Line<'_>) -> Result<Arc<Self>> {
        let (name, store) = (text::c_string(line.session)?, text::c_string(line.store)?);
        Arc::pin_init(
            pin_init!(Self {
                name,
                store,
                client: client.clone(),
                rtrs: SetOnce::new(),
                lanes: SetOnce::new(),
                state: AtomicU8::new(State::Connecting as u8),
                changed <- new_wait_queue!(),
                asking <- new_mutex!(()),
                usage <- new_mutex!(Usage {
                    users: None,
                    attached: None,
                    folder: None,
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// Connects it. Sleeps, and can be killed; [`Self::close`] ends it.
    pub(super) fn connect(
        self: &Arc<Self>,
        line: &Line<'_>,
        folder: Option<Arc<Directory<()>>>,
    ) -> Result {
        let mut paths = KVec::with_capacity(line.path_count, GFP_KERNEL)?;
        for path in line.paths() {
            paths.push(path, GFP_KERNEL)?;
        }
        let param = OpenParam {
            name: self.name.to_str().map_err(|_| EINVAL)?,
            paths: &paths,
            port: line.port,
            io_queues: None,
            poll_queues: 0,
            settings: line.settings,
            events: self.clone(),
        };
        let opened = rtrs_client::Session::open(param, |rtrs| {
            self.rtrs.populate(rtrs.clone());
            if self.client.is_ending() {
                rtrs.abort_open();
            }
        });
        let rtrs = opened.inspect_err(|error| {
            let name = self.name();
            pr_err!("connect: session {name} is not connected: {error:?}\n");
        })?;
        self.lanes.populate(Lanes::new(rtrs.io_depth())?);
        self.attach_again()?;
        self.set_state(State::Connected);
        let mut usage = self.usage.lock();
        if self.state() == State::Closed {
            // By the end of the module, which would not see the files.
            return Err(errno::ESHUTDOWN);
        }
        let parent = folder.ok_or(ENODEV)?;
        usage.folder = Some(sysfs::files(&parent, self)?);
        usage.users = Some(0);
        Ok(())
    }

    /// Returns the error of an answer that makes no sense.
    pub(super) fn disbelieve(&self, reason: Unbelievable) -> Error {
        if LOG_LIMIT.allow().is_some() {
            let name = self.name();
            pr_err!("session {name}: {} is not believed\n", Shown(reason));
        }
        reason.errno().into()
    }

    /// Returns the client.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the session's name.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns the name of its store.
    pub(super) fn store(&self) -> &CStr {
        &self.store
    }

    /// Returns whether operations are sent.
    pub(super) fn state(&self) -> State {
        let state = self.state.load(Ordering::Acquire);
        let state = State::ALL.get(usize::from(state));
        state.copied().unwrap_or(State::Closed)
    }

    fn set_state(&self, state: State) {
        if self.state() != State::Closed {
            self.state.store(state as u8, Ordering::Release);
        }
        self.changed.wake_all();
    }

    /// Returns what the server has said of the store.
    pub(super) fn attached(&self) -> Result<Attached> {
        self.usage.lock().attached.ok_or(errno::ENOTCONN)
    }

    /// Returns it for a program.
    pub(super) fn user(self: &Arc<Self>) -> Result<User> {
        let mut usage = self.usage.lock();
        let users = usage.users.as_mut().ok_or(ENOENT)?;
        *users = users.saturating_add(1);
        Ok(User(self.clone()))
    }

    /// No program uses it from now on.
    ///
    /// # Errors
    ///
    /// `EBUSY` if one does now, or the session is not ready.
    pub(super) fn begin_end(&self) -> Result {
        let mut usage = self.usage.lock();
        if usage.users != Some(0) {
            let users = usage.users.unwrap_or_default();
            pr_err!(
                "disconnect: session {} is used by {users} open files of /dev/rioc, or is being \
                 connected or disconnected\n",
                self.name()
            );
            return Err(EBUSY);
        }
        usage.users = None;
        Ok(())
    }

    /// Ends the connection, or the attempt to make it: operations in flight fail. Sleeps.
    pub(super) fn close(&self) {
        self.set_state(State::Closed);
        if let Some(rtrs) = self.rtrs.as_ref() {
            rtrs.abort_open();
            rtrs.close();
        }
        // Again: an event that was under way may have set another one.
        self.set_state(State::Closed);
        let folder = self.usage.lock().folder.take();
        drop(folder);
    }

    /// Returns its lanes.
    pub(super) fn lanes(&self) -> Result<&Arc<Lanes>> {
        self.lanes.as_ref().ok_or(errno::ENOTCONN)
    }

    /// Waits until operations are sent; sleeps, and can be killed, or given up by who has
    /// [woken](Self::wake) it.
    fn wait_until_sent(&self, is_given_up: impl Fn() -> bool) -> Result {
        self.changed.wait_until_killable(|| {
            let state = self.state();
            (state != State::Waiting && state != State::Connecting) || is_given_up()
        })?;
        if is_given_up() {
            return Err(errno::ECANCELED);
        }
        match self.state() {
            State::Failing => Err(EIO),
            State::Closed => Err(errno::ESHUTDOWN),
            _ => Ok(()),
        }
    }

    /// Lets those look that wait until operations are sent.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    /// Sends an operation. Sleeps, and can be killed. If that fails its lane is idle again.
    pub(super) fn start(&self, flight: KBox<Flight>) -> Result {
        self.start_unless(flight, || false)
    }

    /// Sends an operation, unless it was given up before.
    pub(super) fn start_unless(
        &self,
        mut flight: KBox<Flight>,
        is_given_up: impl Fn() -> bool,
    ) -> Result {
        let (lanes, rtrs) = (self.lanes()?, self.rtrs.as_ref().ok_or(errno::ENOTCONN)?);
        let since = Instant::now();
        loop {
            if let Err(error) = self.wait_until_sent(&is_given_up) {
                lanes.give_back(flight);
                return Err(error);
            }
            let was_sent = flight.was_sent();
            let asking = was_sent.then(|| self.asking.try_lock());
            if matches!(asking, Some(None)) {
                if let Err(error) = self.pause(EAGAIN, retry::is_sent_later, since) {
                    lanes.give_back(flight);
                    return Err(told(error, was_sent));
                }
                continue;
            }
            if !flight.is_sent_in(lanes.life()) {
                // It may have been carried out, and would be so again.
                lanes.give_back(flight);
                return Err(EIO);
            }
            let io_queue = IoQueue::Cpu(CpuId::current().into());
            let sent = flight.submit(lanes, |lane, direction, message, sent| {
                rtrs.submit(lane, io_queue, direction, message, sent)
            });
            drop(asking);
            let Err((error, back)) = sent else {
                return Ok(());
            };
            flight = back;
            if !was_sent {
                flight.was_not_sent();
            }
            if let Err(error) = self.pause(error, retry::is_sent_later, since) {
                lanes.give_back(flight);
                return Err(told(error, was_sent));
            }
        }
    }

    /// Waits for an operation that was sent, and sends it again as long as that is right. Sleeps,
    /// and can be killed. If it fails its lane is idle again.
    pub(super) fn finish(&self, lane: u16) -> Result<KBox<Flight>> {
        let (lanes, since) = (self.lanes()?, Instant::now());
        loop {
            let mut flight = lanes.wait(lane)?;
            if let Ended::Answered(result) = flight.ended() {
                let Err(error) = result else {
                    return Ok(flight);
                };
                let errno = errno_of(error);
                let goes_on = if retry::is_of_no_store(errno) {
                    // Each time: the one that has its name now may be deleted as well.
                    let paused = self.pause(error, retry::is_of_no_store, since);
                    paused.and_then(|()| self.ask_for_store())
                } else {
                    self.pause(error, retry::is_sent_again, since)
                };
                if let Err(error) = goes_on {
                    lanes.give_back(flight);
                    return Err(error);
                }
                if retry::is_a_new_one(errno) {
                    flight.renew();
                }
            }
            self.start(flight)?;
        }
    }

    /// Waits for a moment if an operation that has failed is repeated.
    ///
    /// # Errors
    ///
    /// Returns that of the operation if it is not, or not any more.
    fn pause(
        &self,
        error: Error,
        is_repeated: fn(Errno) -> bool,
        since: Instant<Monotonic>,
    ) -> Result {
        let rtrs = self.rtrs.as_ref().ok_or(error)?;
        let errno = errno_of(error);
        let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(0);
        let limit_ms = shortage::wait_limit_ms(rtrs.fast_io_fail_ms());
        if !is_repeated(errno) || limit_ms.is_some_and(|limit_ms| waited_ms > limit_ms) {
            return Err(error);
        }
        self.rest()
    }

    /// Waits for a moment; sleeps, and can be killed.
    fn rest(&self) -> Result {
        let never = || false;
        match self.changed.wait_until_killable_timeout_ms(never, AGAIN_MS) {
            Err(ETIMEDOUT) => Ok(()),
            waited => waited,
        }
    }
}

/// Returns what a program is told of an operation that was not sent because of `error`: that it was
/// not carried out only if no copy of it was sent before.
fn told(error: Error, was_sent: bool) -> Error {
    match retry::is_sent_later(errno_of(error)) && was_sent {
        true => EIO,
        false => error,
    }
}

fn errno_of(error: Error) -> Errno {
    Errno::new(error.to_errno()).unwrap_or(Errno::EIO)
}
