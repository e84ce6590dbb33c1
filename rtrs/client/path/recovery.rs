// SPDX-License-Identifier: GPL-2.0

//! The life of a path: connected, torn down, connected again.
//!
//! Set-up and teardown exclude each other by a mutex. A teardown is a work item, so that whoever
//! finds a fault need not wait; the attempts to connect again are another, with a pause before
//! each.

use ferro_proto::backoff::Backoff;
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::sync::atomic::Ordering;
use kernel_ext::{
    errno,
    random,
    workqueue, //
};
use rtrs_core::proto::{
    path::{
        ClientEffect,
        ClientEvent,
        ClientState, //
    },
    settings::Setting,
    LINK_SETTLE_MS, //
};

use crate::client::path::{
    connect::{
        self,
        Patience, //
    },
    connections::Transport, //
    error::Fault,
    Path,
    HEARTBEAT,
    LOOK,
    RECONNECT,
    TEAR_DOWN,
};

/// Failed attempts after which somebody who waits for a reconnect is told that it fails; the
/// attempts go on. A server may need a moment to forget the path's last life.
const PATIENCE_ATTEMPTS: u32 = 4;

/// One failed attempt in so many is logged, besides the first.
const LOG_INTERVAL: u32 = 64;

/// What whoever sets a path up or tears it down keeps; guarded by [`Path::attempts`].
pub(crate) struct Attempts {
    /// Connects so far (`recon_cnt`).
    count: u16,
    /// The session counts this path as up.
    up: bool,
    /// It was up once.
    was_up: bool,
    backoff: Backoff,
    /// Attempts in a row that waited for an answer in vain.
    silent: u32,
    /// The connections of the last life, as long as the server may not know of its end: one that
    /// still believes in it turns new ones away.
    ghost: Option<Arc<Transport>>,
}

impl Attempts {
    pub(crate) const NONE: Self = Self {
        count: 0,
        up: false,
        was_up: false,
        backoff: Backoff::NEW,
        silent: 0,
        ghost: None,
    };
}

fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

impl Path {
    pub(crate) fn queue_tear_down(self: &Arc<Self>) {
        // If it is queued already, that run will do.
        let _ = self
            .session
            .library
            .queue
            .enqueue::<_, TEAR_DOWN>(self.clone());
    }

    fn connect_in(self: &Arc<Self>, delay_ms: u32) {
        let queue = &self.session.library.queue;
        workqueue::mod_delayed::<_, RECONNECT>(queue, self.clone(), delay_ms);
    }

    /// Connects a new path; sleeps, and can be killed. On failure the path is closed.
    pub(crate) fn connect(this: &Arc<Self>, first_conn: bool) -> Result {
        let mut attempts = this.attempts.lock();
        let done = Self::attempt(this, &mut attempts, first_conn, Patience::FIRST);
        drop(attempts);
        done.map_err(|fault| {
            pr_err!(
                "session {}: cannot connect to {}: {fault}\n",
                this.session.name(),
                this.dst()
            );
            Self::close(this);
            fault.error()
        })
    }

    /// Something may have changed for the better, or somebody wants to know: a path that waits to
    /// connect again does so now. Any context.
    pub(crate) fn hurry(self: &Arc<Self>) {
        match self.state() {
            ClientState::Reconnecting => self.connect_in(0),
            // A peer that was asked for in vain before the link was there is not asked for again
            // soon. (Not in the first life: whoever makes the path waits for it.)
            ClientState::Connecting if self.life.load(Ordering::Relaxed) > 1 => {
                self.wanted.store(true, Ordering::Relaxed);
                self.progress.give_up_address();
            }
            _ => {}
        }
    }

    /// The device goes away: nothing of it may be kept. Any context.
    pub(crate) fn let_device_go(this: &Arc<Self>) {
        this.device_gone.store(true, Ordering::Relaxed);
        Self::fail(this, Fault::DeviceRemoval);
        this.hurry();
    }

    /// Connects the path again, whether it is connected or not; sleeps, and can be killed.
    ///
    /// Fails with `EBUSY` if somebody else is about to connect, close or remove it, and with
    /// `ENOTCONN` if it could not be connected; attempts go on then.
    pub(crate) fn reconnect(this: &Arc<Self>) -> Result {
        let before = this.ended.load(Ordering::Relaxed);
        this.wanted.store(true, Ordering::Relaxed);
        match this.step(ClientEvent::Reconnect) {
            ClientEffect::Recover => this.queue_tear_down(),
            ClientEffect::ScheduleStart => this.connect_in(0),
            _ => return Err(EBUSY),
        }
        this.state_changed.wait_until_killable(|| {
            let ended = this.ended.load(Ordering::Relaxed).wrapping_sub(before);
            let failed = ended >= PATIENCE_ATTEMPTS || !this.may_come_back();
            failed || (ended > 0 && this.is_connected())
        })?;
        if this.is_connected() {
            Ok(())
        } else {
            Err(errno::ENOTCONN)
        }
    }

    /// The pause is over, or cut short: one attempt to connect a lost path.
    pub(crate) fn connect_again(this: &Arc<Self>) {
        let mut attempts = this.attempts.lock();
        // A path that is not torn down yet: its teardown comes, and has this run again.
        if attempts.up {
            return;
        }
        if this.device_gone.swap(false, Ordering::Relaxed) {
            drop(attempts.ghost.take());
        }
        if this.step(ClientEvent::Start) != ClientEffect::Connect {
            return;
        }
        // A session that was up once may be new to its server: that may be another one by now.
        let patience = Patience::again(attempts.silent);
        let begun = Instant::<Monotonic>::now();
        // Unless chunks are held for other paths: then it is asked whether it knows the session.
        let inquiry = this
            .session
            .quarantine
            .inquiry(this.number.get())
            .filter(|_| attempts.was_up);
        let done = Self::attempt(this, &mut attempts, inquiry.is_none(), patience);
        if let (Some(losses), Err(fault)) = (inquiry, &done) {
            if fault.is_unknown_session() {
                this.session.end_quarantine(losses);
                this.wanted.store(true, Ordering::Relaxed);
                Self::retry(this, &mut attempts, 0);
                return;
            }
        }
        this.stats.count_reconnect(done.is_ok());
        this.ended.fetch_add(1, Ordering::Relaxed);
        match done {
            Ok(()) => {
                pr_info!(
                    "session {}: the path to {} is connected again\n",
                    this.session.name(),
                    this.dst()
                );
                attempts.silent = 0;
                attempts.backoff.reset();
                attempts.ghost = None;
            }
            Err(fault) => {
                attempts.silent = if fault.is_silence() {
                    attempts.silent.saturating_add(1)
                } else {
                    0
                };
                if let (true, Some(ghost)) = (fault.is_servers_word(), &attempts.ghost) {
                    // The server can be reached, and may not have noticed what we have.
                    ghost.say_farewell();
                }
                if attempts.backoff.attempts() % LOG_INTERVAL == 1 {
                    pr_err!(
                        "session {}: cannot connect to {} again: {fault}, trying on\n",
                        this.session.name(),
                        this.dst()
                    );
                }
                let took_ms = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
                Self::retry(this, &mut attempts, took_ms);
            }
        }
        drop(attempts);
        this.state_changed.wake_all();
    }

    /// An attempt has failed: there will be another one, unless the path was closed meanwhile.
    fn retry(this: &Arc<Self>, attempts: &mut Attempts, took_ms: u32) {
        this.step(ClientEvent::Failed);
        if this.step(ClientEvent::Retry) == ClientEffect::ScheduleStart {
            Self::schedule(this, attempts, took_ms);
        }
    }

    /// Has the path connect again after a pause, or leaves it closed if it has had its attempts.
    /// The pause is from the beginning of the last attempt, `since_ms` ago.
    fn schedule(this: &Arc<Self>, attempts: &mut Attempts, since_ms: u32) {
        let settings = &this.session.settings;
        if this.wanted.swap(false, Ordering::Relaxed) {
            attempts.backoff.reset();
        }
        let pause_ms = attempts.backoff.next(
            settings.get(Setting::ReconnectDelayMs).unsigned_abs(),
            settings.get(Setting::MaxReconnectAttempts),
            random_u32(),
        );
        match pause_ms {
            Some(pause_ms) => {
                let pause_ms = pause_ms.saturating_sub(since_ms);
                this.connect_in(pause_ms.max(this.session.away_ms()));
            }
            None => {
                pr_err!(
                    "session {}: the path to {} has had its {} attempts to connect, it stays closed\n",
                    this.session.name(),
                    this.dst(),
                    attempts.backoff.attempts()
                );
                this.step(ClientEvent::Close);
                this.step(ClientEvent::TornDown);
                this.session.path_left();
            }
        }
    }

    /// One attempt to connect.
    fn attempt(
        this: &Arc<Self>,
        attempts: &mut Attempts,
        first_conn: bool,
        patience: Patience,
    ) -> Result<(), Fault> {
        attempts.count = attempts.count.wrapping_add(1);
        let transport = connect::connect(this, attempts.count, first_conn, patience)?;
        let session = &this.session;
        session.end_quarantine_of(this);
        if let Err(fault) = session.admit(this, &transport) {
            transport.hang_up();
            let lost = |orphan| session.give_back_orphan(orphan);
            transport
                .exchange
                .abandon(&session.quarantine, this.number.get(), lost);
            return Err(fault);
        }
        attempts.up = this.session.path_up(|| {
            let live = this.step(ClientEvent::Established) == ClientEffect::GoLive;
            if live {
                drop(this.transport.replace(Some(transport.clone())));
            }
            live
        });
        if !attempts.up {
            transport.hang_up();
            return Err(this.progress.fault().unwrap_or(Fault::Asked));
        }
        attempts.was_up = true;
        // Under the lock, so that the teardown finds it.
        Self::start_heartbeat(this);
        Ok(())
    }

    /// Begins to close the path, if it is not closed: [`Self::wait_closed`] sees the end of it.
    pub(crate) fn begin_close(this: &Arc<Self>) {
        if this.step(ClientEvent::Close) == ClientEffect::TearDown {
            this.progress.failed(Fault::Asked);
            this.queue_tear_down();
        }
    }

    /// Closes the path and waits until nothing of it is left; sleeps. Not for the path's own work.
    pub(crate) fn close(this: &Arc<Self>) {
        Self::begin_close(this);
        this.wait_closed();
    }

    /// Sleeps until the path is closed.
    pub(crate) fn wait_closed(&self) {
        self.state_changed
            .wait_until(|| matches!(self.state(), ClientState::Closed | ClientState::Dead));
    }

    /// Takes a closed path out of its life. Of several callers, one gets `true`.
    pub(crate) fn bury(this: &Arc<Self>) -> bool {
        Self::close(this);
        let buried = this.step(ClientEvent::Remove) == ClientEffect::Release;
        // Whoever hurried it before has done so in vain.
        drop(workqueue::cancel_delayed_sync::<_, RECONNECT>(this));
        buried
    }

    /// Stops everything: no IO, no heartbeat, no connection; what was in flight goes elsewhere.
    pub(crate) fn tear_down(this: &Arc<Self>) {
        // An attempt takes the lock; one that is under way ends soon, for `fail` and `begin_close`
        // have told it.
        drop(workqueue::cancel_delayed_sync::<_, RECONNECT>(this));
        let mut attempts = this.attempts.lock();
        // Two who ask at the same time make it run twice; the second time there may be a new life.
        if !matches!(
            this.state(),
            ClientState::Reconnecting | ClientState::Closing
        ) {
            return;
        }
        // The tick does not take the lock.
        drop(workqueue::cancel_delayed_sync::<_, HEARTBEAT>(this));
        if let Some(transport) = this.transport.replace(None) {
            transport.drain();
            drop(workqueue::cancel_sync::<_, LOOK>(this));
            if core::mem::take(&mut attempts.up) {
                this.session
                    .path_down(&transport.exchange, this.number.get());
            }
            if this.state() == ClientState::Reconnecting {
                fsleep(Delta::from_millis(LINK_SETTLE_MS.into()));
            }
            transport.hang_up_but_one();
            if this.session.away_ms() != 0 {
                transport.say_farewell();
            }
            attempts.ghost = Some(transport);
        }
        if this.state() == ClientState::Reconnecting {
            Self::schedule(this, &mut attempts, 0);
        }
        if this.state() != ClientState::Reconnecting {
            // Dropping it hangs up.
            attempts.ghost = None;
        }
        this.step(ClientEvent::TornDown);
    }
}
