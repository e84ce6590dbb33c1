// SPDX-License-Identifier: GPL-2.0

//! The loss of a path and its reconnects: carries out what `proto::recovery` decides.
//!
//! | who | does | excluded by |
//! |---|---|---|
//! | [`Path::connect`], the work item RECONNECT | attempts to connect | [`Path::attempts`] |
//! | the work item TEAR_DOWN | ends a life | [`Path::attempts`] |
//! | events, timers, files of sysfs | report what has happened | the lock of [`Path::recovery`] |
//!
//! The teardown is a work item, so that the context that detects an error need not wait.

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
use rdma::{
    cm::CmId,
    Drained, //
};
use rtrs_core::proto::{
    path::ClientState,
    recovery::{
        record::Operation,
        Action,
        Effects,
        Event,
        Outcome,
        Pauses,
        StaleConnection,
        TearDown, //
    },
    settings::Setting,
    timeouts::ConnectTimeouts,
    LINK_SETTLE_MS, //
};

use crate::client::path::{
    connect,
    connections::Connections, //
    drain::Undrained,
    error::PathError,
    resources::Resources,
    Path,
    HEARTBEAT,
    POLL_SEND_CQS,
    PUT_ASIDE,
    RECONNECT,
    TEAR_DOWN,
};

/// Failed attempts after which a task that waits for a reconnect gets an error; the attempts go on.
/// A server may need a moment to forget the path's last life.
const ATTEMPTS_BEFORE_ERROR: u32 = 4;

/// One failed attempt in so many is logged, besides the first.
const LOG_INTERVAL: u32 = 64;

fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

impl Path {
    /// Applies an event: changes the state and carries out what follows from it, except for what
    /// only the caller can do. `proto::recovery` says for which events any context may call it.
    pub(crate) fn step(self: &Arc<Self>, event: Event) -> Action {
        let effects = self.decide(event);
        self.carry_out(effects.stale_connection);
        effects.action
    }

    /// Applies an event as [`Self::step`] does, but leaves the stale connection to the caller,
    /// which may hold locks.
    pub(super) fn decide(self: &Arc<Self>, event: Event) -> Effects {
        let mut recovery = self.recovery.lock();
        let effects = recovery.step(event);
        let attempts = recovery.attempts();
        if let Action::StartIn { pause_ms } = effects.action {
            // With the lock held: of two pauses the one that was decided last counts.
            recovery.did(Operation::StartIn { pause_ms });
            workqueue::mod_delayed::<_, RECONNECT>(self.clone(), pause_ms);
        }
        if let Action::TearDownIn { pause_ms } = effects.action {
            // It does not replace a run that is queued already: that one may have been asked for
            // since.
            recovery.did(Operation::TearDownIn { pause_ms });
            let _ = workqueue::queue_delayed::<_, TEAR_DOWN>(self.clone(), pause_ms);
        }
        drop(recovery);
        match effects.action {
            Action::TearDown | Action::LeaveDevice => self.queue_tear_down(),
            Action::GiveUp => {
                pr_err!(
                    "session {}: the path to {} has had its {attempts} attempts to connect, it stays closed\n",
                    self.session.name(),
                    self.dst()
                );
                self.queue_tear_down();
                self.did(Operation::LeaveSession);
                self.session.path_left();
            }
            Action::LookAgain => {
                self.did(Operation::GiveUpAddress);
                self.setup.give_up_address();
            }
            _ => {}
        }
        self.state_changed.wake_all();
        effects
    }

    /// Records what is about to be done.
    pub(super) fn did(&self, operation: Operation) {
        self.recovery.lock().did(operation);
    }

    fn queue_tear_down(self: &Arc<Self>) {
        self.did(Operation::QueueTearDown);
        // If it is queued already, that run is enough; one that is to be later begins now.
        workqueue::mod_delayed::<_, TEAR_DOWN>(self.clone(), 0);
    }

    fn pauses(&self) -> Pauses {
        let settings = &self.session.settings;
        Pauses {
            delay_ms_max: settings.get(Setting::ReconnectDelayMs).unsigned_abs(),
            attempts_max: settings.get(Setting::MaxReconnectAttempts),
            least_ms: self.session.away_ms(),
            random: random_u32(),
        }
    }

    /// Connects a new path; sleeps, and can be killed. On failure the path is closed, and the
    /// caller logs the error.
    pub(crate) fn connect(self: &Arc<Self>, first_conn: bool) -> Result<(), PathError> {
        let mut resources = self.attempts.lock();
        let done = self.attempt(&mut resources, first_conn, ConnectTimeouts::FIRST);
        drop(resources);
        done.inspect_err(|_| self.close())
    }

    /// Fails the path. Any context; the first error counts.
    #[cold]
    pub(crate) fn fail(self: &Arc<Self>, fault: PathError) {
        let action = self.step(Event::Lost { life: None });
        self.has_failed(action, fault);
    }

    /// Fails the path because of a connection of `life`, unless a later life has begun. Any
    /// context.
    #[cold]
    pub(crate) fn fail_life(self: &Arc<Self>, life: u16, fault: PathError) {
        let action = self.step(Event::Lost { life: Some(life) });
        self.has_failed(action, fault);
    }

    /// Abandons the path because of a timeout: unlike after an error, its last requests may still
    /// be on their way to the server. Any context.
    #[cold]
    pub(crate) fn abandon(self: &Arc<Self>, fault: PathError) {
        let action = self.step(Event::Abandoned);
        self.has_failed(action, fault);
    }

    /// Handles the removal of a device: that of a connection of `life`, or any. No object of it may
    /// be kept. Any context.
    pub(crate) fn device_removed(self: &Arc<Self>, life: Option<u16>) {
        let action = self.step(Event::DeviceGone { life });
        self.has_failed(action, PathError::DeviceRemoval);
    }

    fn has_failed(&self, action: Action, fault: PathError) {
        match action {
            Action::TearDown => {
                pr_err!(
                    "session {}: {fault}, closing the path to {}\n",
                    self.session.name(),
                    self.dst()
                );
            }
            // The connecting task logs it.
            Action::AbortConnect => self.abort_connect(fault),
            _ => {}
        }
    }

    fn abort_connect(&self, fault: PathError) {
        self.did(Operation::AbortConnect);
        self.setup.failed(fault);
    }

    /// Starts the next attempt of a path that waits to connect again at once, since a change makes
    /// success more likely. Any context.
    pub(crate) fn retry_now(self: &Arc<Self>) {
        self.step(Event::RetryNow);
    }

    /// Connects the path again, whether it is connected or not; sleeps, and can be killed.
    ///
    /// Fails with `EBUSY` if another task is about to connect, close or remove it, and with
    /// `ENOTCONN` if it could not be connected; attempts go on then.
    pub(crate) fn reconnect(self: &Arc<Self>) -> Result {
        let before = self.ended.load(Ordering::Relaxed);
        if self.step(Event::Reconnect) == Action::Busy {
            return Err(EBUSY);
        }
        self.state_changed.wait_until_killable(|| {
            let ended = self.ended.load(Ordering::Relaxed).wrapping_sub(before);
            let failed = ended >= ATTEMPTS_BEFORE_ERROR || !self.may_come_back();
            failed || (ended > 0 && self.is_connected())
        })?;
        if self.is_connected() {
            Ok(())
        } else {
            Err(errno::ENOTCONN)
        }
    }

    /// Makes one attempt to connect a lost path, after the pause or when it was cut short.
    pub(crate) fn connect_again(self: &Arc<Self>) {
        let mut resources = self.attempts.lock();
        // Before the state says that an attempt is under way: an error from then on counts.
        self.setup.begin();
        if self.step(Event::Start) != Action::Connect {
            return;
        }
        let (silent, number, was_up) = {
            let recovery = self.recovery.lock();
            (recovery.silent(), recovery.attempts(), recovery.was_up())
        };
        let begun = Instant::<Monotonic>::now();
        // A session that was up may be new to its server, which may be another one by now. But if
        // chunks are held for other paths, the server is asked whether it knows the session.
        let quarantine = &self.session.quarantine;
        let inquiry = quarantine.inquiry(self.number.get(), was_up);
        let first_conn = inquiry.is_none();
        let done = self.attempt(&mut resources, first_conn, ConnectTimeouts::again(silent));
        if let (Some(losses), Err(fault)) = (inquiry, &done) {
            if fault.is_unknown_session() {
                self.session.end_quarantine(losses);
                self.retry_now();
                self.step(Event::AttemptFailed {
                    outcome: Outcome::Other,
                    took_ms: 0,
                    pauses: self.pauses(),
                });
                return;
            }
        }
        self.stats.count_reconnect(done.is_ok());
        self.ended.fetch_add(1, Ordering::Relaxed);
        match done {
            Ok(()) => pr_info!(
                "session {}: the path to {} is connected again\n",
                self.session.name(),
                self.dst()
            ),
            Err(fault) => {
                if number % LOG_INTERVAL == 1 {
                    pr_err!(
                        "session {}: cannot connect to {} again: {fault}, trying on\n",
                        self.session.name(),
                        self.dst()
                    );
                }
                self.step(Event::AttemptFailed {
                    outcome: fault.outcome(),
                    took_ms: u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX),
                    pauses: self.pauses(),
                });
            }
        }
        drop(resources);
        self.state_changed.wake_all();
    }

    /// Makes one attempt to connect; `attempts` is locked. On failure no connection is left, unless
    /// it could not be drained.
    fn attempt(
        self: &Arc<Self>,
        resources: &mut Resources,
        first_conn: bool,
        timeouts: ConnectTimeouts,
    ) -> Result<(), PathError> {
        self.did(Operation::Connect);
        self.drain_again(resources)?;
        let life = self.life();
        self.disconnected.store(0, Ordering::Relaxed);
        let connections = connect::connect(self, resources, life, first_conn, timeouts)?;
        self.session.end_quarantine_of(self);
        match self.come_up(&connections) {
            Ok(true) => {}
            Ok(false) => {
                self.undo(resources, connections);
                return Err(self.setup.fault().unwrap_or(PathError::Requested));
            }
            Err(fault) => {
                self.undo(resources, connections);
                return Err(fault);
            }
        }
        // With `attempts` locked, so that the teardown finds it.
        self.start_heartbeat();
        Ok(())
    }

    /// Ends the connections of an attempt that is not up; admin messages may be in flight on them.
    fn undo(self: &Arc<Self>, resources: &mut Resources, connections: Arc<Connections>) {
        let drained = connections.hang_up();
        if let Ok(drained) = &drained {
            let (requests, number) = (&connections.requests, self.number.get());
            self.session.requests_lost(requests, number, drained);
        }
        if let Some(e) = drained.err() {
            return self.keep_undrained(resources, Undrained::Life(connections), e);
        }
        Self::end_life(resources, connections);
    }

    /// Begins to close the path, if it is not closed: [`Self::wait_closed`] waits for the end.
    /// `event` is [`Event::Close`] or [`Event::CloseForGood`].
    pub(crate) fn begin_close(self: &Arc<Self>, event: Event) {
        if self.step(event) == Action::TearDown {
            self.abort_connect(PathError::Requested);
        }
    }

    /// Closes the path and waits until nothing of it is left; sleeps. Not for the path's own work
    /// items.
    pub(crate) fn close(self: &Arc<Self>) {
        self.begin_close(Event::Close);
        self.wait_closed();
    }

    /// Closes the path as [`Self::close`] does, for a user: the wait is killable, and the path is
    /// closed if the caller is killed, too.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller was killed.
    pub(crate) fn close_killable(self: &Arc<Self>) -> Result {
        self.begin_close(Event::Close);
        let closed = self.state_changed.wait_until_killable(|| self.is_closed());
        closed.map_err(|_| {
            pr_info!(
                "session {}: the path to {} is closed when its device has ended its work requests\n",
                self.session.name(),
                self.dst()
            );
            EINTR
        })
    }

    /// Sleeps until the path is closed.
    pub(crate) fn wait_closed(&self) {
        self.state_changed.wait_until(|| self.is_closed());
    }

    fn is_closed(&self) -> bool {
        matches!(self.state(), ClientState::Closed | ClientState::Dead)
    }

    /// Closes the path for good and removes it; sleeps. Of several callers, one gets `true`.
    pub(crate) fn remove(self: &Arc<Self>) -> bool {
        self.begin_close(Event::CloseForGood);
        self.wait_closed();
        let removed = self.step(Event::Remove) == Action::Release;
        if removed {
            self.did(Operation::Release);
        }
        // Cancels a reconnect that was requested before the removal.
        drop(workqueue::cancel_delayed_sync::<_, RECONNECT>(self));
        removed
    }

    fn begin_tear_down(&self) -> Option<TearDown> {
        let mut recovery = self.recovery.lock();
        let run = recovery.begin_tear_down();
        recovery.did(Operation::TearDown(run));
        run
    }

    /// Stops IO, heartbeat and connections; requests in flight are sent elsewhere or requeued.
    pub(crate) fn tear_down(self: &Arc<Self>) {
        // An attempt that is under way ends soon, since `fail` and `begin_close` have told it.
        let mut resources = self.attempts.lock();
        let Some(run) = self.begin_tear_down() else {
            return;
        };
        // The heartbeat does not take the lock.
        drop(workqueue::cancel_delayed_sync::<_, HEARTBEAT>(self));
        let mut kept = false;
        if let Some(connections) = self.connections.replace(None) {
            self.session.refresh_routes();
            let drained = self.end_sends(&connections);
            drop(workqueue::cancel_sync::<_, POLL_SEND_CQS>(self));
            drop(workqueue::cancel_sync::<_, PUT_ASIDE>(self));
            let down = self.session.path_down();
            if let Ok(drained) = &drained {
                self.give_on(&connections, drained, down);
            }
            if let Some(e) = drained.err() {
                self.keep_undrained(&mut resources, Undrained::Life(connections), e);
                self.step(Event::Undrained);
                return;
            }
            if run == TearDown::ToConnectAgain && self.may_come_back() {
                fsleep(Delta::from_millis(LINK_SETTLE_MS.into()));
            }
            let stale_connection = Self::end_life(&mut resources, connections);
            if run == TearDown::ToConnectAgain {
                kept = self.keep_stale_connection(stale_connection);
                if self.session.away_ms() != 0 {
                    self.carry_out(StaleConnection::Disconnect);
                }
            }
        }
        if self.drain_again(&mut resources).is_err() {
            self.step(Event::Undrained);
            return;
        }
        if run != TearDown::ToConnectAgain {
            self.drop_stale_connection();
            *resources = Resources::NONE;
        }
        self.step(Event::TornDown {
            run,
            kept,
            pauses: self.pauses(),
        });
        drop(resources);
    }

    /// Drains the connections of a path that was up. After this a server that does not know the
    /// fence message gets no packet of them any more, as far as the client can know.
    fn end_sends<'a>(&self, connections: &'a Connections) -> Result<Drained<'a>> {
        let knows_fences = connections.life().is_some();
        let (is_abandoned, timeout_ms) = {
            let recovery = self.recovery.lock();
            (
                recovery.is_abandoned(),
                recovery.peer_disconnect_ms(knows_fences),
            )
        };
        if !is_abandoned {
            return connections.drain();
        }
        let drained = connections.hang_up()?;
        if timeout_ms == 0 || !connections.requests.is_any_unanswered() {
            return Ok(drained);
        }
        let all = connections.count();
        let is_done = || self.disconnected.load(Ordering::Relaxed) >= all;
        let waited = self
            .state_changed
            .wait_until_timeout_ms(is_done, timeout_ms);
        if waited.is_err() {
            pr_warn!(
                "session {}: no disconnect from {} within {timeout_ms} ms, its requests are sent elsewhere\n",
                self.session.name(),
                self.dst()
            );
        }
        Ok(drained)
    }

    /// Counts a connection of the current life that the peer has disconnected. Any context.
    pub(super) fn peer_disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
        self.state_changed.wake_all();
    }

    /// Frees drained connections and takes back what they have used. Returns the identifier on
    /// which a disconnect tells the server of the end of the last life; dropping it disconnects
    /// it.
    pub(super) fn end_life(
        resources: &mut Resources,
        connections: Arc<Connections>,
    ) -> Option<CmId> {
        let (requests, stale_connection) = Connections::end(connections)?;
        resources.take_back(requests);
        stale_connection
    }
}
