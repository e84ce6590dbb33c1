// SPDX-License-Identifier: GPL-2.0

//! The availability of a session: which of its paths are up, and what is done with its IO when
//! none is.
//!
//! Requests in flight on a path that goes down are sent again on another one, with the same chunk
//! id and data. When the last one goes down, everything that was agreed with the server may be
//! lost (it may have been restarted), so no request is sent again as it was: the upper layer gets
//! its requests back, makes the session usable again when there is a path, and only then sends
//! them. A request from before an outage never leaves on a path from after it: a new path is
//! published to senders under the lock under which the upper layer is told of the outage.

use kernel::{
    impl_has_delayed_work,
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    memory,
    workqueue::{
        self,
        DelayedItem,
        WorkQueue, //
    }, //
};
use rdma::Drained;
use rtrs_core::proto::{
    availability::{
        self,
        record::Operation,
        Admission,
        Conditions,
        Effect,
        Event, //
    },
    outage, //
};

use crate::client::{
    io::table::RequestTable,
    path::{
        connections::Connections, //
        error::PathError,
        fence::LifeEnd,
        Path,
    },
    session::{
        admin::OnePath,
        Session, //
    },
    trace::Traced, //
};

/// Id of the work item that makes the session usable again.
pub(crate) const REOPEN: u64 = 0;
/// Id of the work item that fails the IO that waits for a path.
pub(crate) const GIVE_UP: u64 = 1;

/// Events of a session. Process context, may sleep; must not close the session.
pub trait SessionEvents: Send + Sync {
    /// A path is up again after all were down: the upper layer agrees with the server anew. Unless
    /// that succeeds this is called again, about once a second, as long as there is a path.
    ///
    /// No lock is held; [`Self::disconnected`] may be called meanwhile.
    fn connected(&self) -> Result;

    /// The last path is down. Requests in flight are given back by
    /// [`Transfer::requeue`](crate::Transfer::requeue) after this; no path comes up before it
    /// returns.
    ///
    /// When this returns no request that was made before may be about to call [`Session::submit`].
    fn disconnected(&self);

    /// A path is connected while others are up, and would carry requests from now on. It may lead
    /// to another server than they do: one that was restarted. `path` carries messages already.
    ///
    /// `Ok(true)`: what was agreed upon holds there as well. `Ok(false)`: it does not; the other
    /// paths are failed, and everything is agreed upon anew. An error: the path must not be used
    /// yet, and is tried again later.
    fn validate_path(&self, path: &OnePath<'_>) -> Result<bool>;

    /// The session had no path for `fast_io_fail_tmo`: queued IO fails, and all IO until
    /// [`Self::connected`].
    fn io_failed(&self);

    /// Returns whether memory may be freed only when requests of the session have ended, since
    /// pages are swapped out by them. Must be quick: locks as for [`Self::disconnected`].
    fn carries_swap(&self) -> bool;
}

/// The state of a session's paths and outages.
pub(crate) struct Availability {
    state: Traced<availability::Availability>,
    /// Set while the session is open: the listener's code may be unloaded before the last
    /// reference to the session is dropped.
    events: Option<Arc<dyn SessionEvents>>,
}

impl Availability {
    pub(crate) fn new() -> Self {
        Self {
            state: Traced::new(availability::Availability::NEW),
            events: None,
        }
    }

    /// Calls the listener with `availability` locked. The path that reconnects waits for that
    /// lock, so the call must not wait for memory.
    fn tell(&self, event: impl FnOnce(&dyn SessionEvents)) {
        if let Some(events) = &self.events {
            while_io_waits(self.carries_swap(), || event(&**events));
        }
    }

    fn carries_swap(&self) -> bool {
        let events = self.events.as_ref();
        events.is_some_and(|events| events.carries_swap())
    }
}

/// Runs `work`, for which IO waits, and which starts none itself. If swap waits, memory may be
/// freed only by it: then it takes the reserves, for what must start no IO tries for ever else.
fn while_io_waits<R>(swap_waits: bool, work: impl FnOnce() -> R) -> R {
    if swap_waits {
        memory::from_reserves(work)
    } else {
        memory::without_io(work)
    }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Session { self.reopen }
    impl HasDelayedWork<Self, 1> for Session { self.give_up }
}

impl DelayedItem<REOPEN> for Session {
    fn wq(&self) -> &WorkQueue {
        &self.module.connect_queue
    }
}

impl DelayedItem<GIVE_UP> for Session {
    fn wq(&self) -> &WorkQueue {
        &self.module.queue
    }
}

impl WorkItem<REOPEN> for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        this.while_io_waits(|| this.make_usable());
    }
}

impl WorkItem<GIVE_UP> for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        memory::without_io(|| {
            let mut availability = this.availability.lock();
            let now_ms = this.now_ms();
            let event = outage::Event::DeadlinePassed { now_ms };
            this.step(&mut availability, Event::Outage(event));
        });
    }
}

impl Session {
    /// Runs `work`, for which requests wait: it starts no IO, and uses the kernel's reserves of
    /// memory if there is swap on the session's disks. Sleeps; the caller holds no lock.
    pub(crate) fn while_io_waits<R>(&self, work: impl FnOnce() -> R) -> R {
        let swap_waits = self.availability.lock().carries_swap();
        while_io_waits(swap_waits, work)
    }

    /// Calls `events` for the events of the open session from now on.
    pub(crate) fn start_events(self: &Arc<Self>, events: Arc<dyn SessionEvents>) {
        let mut availability = self.availability.lock();
        availability.events = Some(events);
        self.step(&mut availability, Event::Opened(self.conditions()));
    }

    /// Calls no events any more, since the session is being closed.
    pub(crate) fn stop_events(self: &Arc<Self>) {
        let mut availability = self.availability.lock();
        let events = availability.events.take();
        self.step(&mut availability, Event::Outage(outage::Event::Closed));
        drop(availability);
        drop(events);
        // Both work items check for the listener before they act or queue anything.
        drop(workqueue::cancel_delayed::<_, REOPEN>(self));
        drop(workqueue::cancel_delayed::<_, GIVE_UP>(self));
    }

    /// Asks the upper layer about a path that is connected, and not yet published to senders.
    /// Sleeps; the path's `attempts` are locked.
    pub(crate) fn admit(
        &self,
        path: &Arc<Path>,
        connections: &Arc<Connections>,
    ) -> Result<Admission, PathError> {
        let availability = self.availability.lock();
        let admission = availability.state.admission();
        // In an outage everything is agreed upon anew before a request leaves.
        let Some(events) = availability
            .events
            .clone()
            .filter(|_| availability.state.is_connected())
        else {
            return Ok(admission);
        };
        drop(availability);
        let one_path = OnePath {
            session: self,
            connections,
        };
        match path.asking(connections, || events.validate_path(&one_path)) {
            Ok(true) => Ok(admission),
            Ok(false) => {
                if let Some(paths) = self.paths.get() {
                    let others = paths.all.iter().filter(|other| !Arc::ptr_eq(other, path));
                    others.for_each(|other| other.abandon(PathError::ServerRestarted));
                }
                Err(PathError::ServerRestarted)
            }
            // In an outage, or after one, it does not matter: the path is not to blame.
            Err(_) if !self.is_admission_due(admission) => Ok(admission),
            Err(e) => Err(PathError::NotAdmitted(e)),
        }
    }

    /// Returns whether a path needs the upper layer's consent, and `admission` has asked for it in
    /// the same time between two outages.
    fn is_admission_due(&self, admission: Admission) -> bool {
        let availability = self.availability.lock();
        availability.state.is_connected() && availability.state.admits(admission)
    }

    /// Counts a path that comes up, unless `go_live` finds that it does not.
    ///
    /// Returns `None`, and does nothing, if the path was validated before an outage that is over,
    /// or its server has not been asked about a life that has ended since.
    pub(crate) fn path_up(
        self: &Arc<Self>,
        admission: Admission,
        connections: &Connections,
        go_live: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let mut availability = self.availability.lock();
        if !availability.state.admits(admission) || self.next_fence(connections).is_some() {
            return None;
        }
        availability.state.did(Operation::Admit(admission));
        let is_up = go_live();
        if is_up {
            self.step(&mut availability, Event::PathUp);
        }
        Some(is_up)
    }

    /// Counts the end of a path that was up. Its requests in flight wait for
    /// [`Self::requests_down`], which gets what this returns: [`None`] if it was the last path, for
    /// an outage ends the right to send them again as they were.
    pub(crate) fn path_down(self: &Arc<Self>) -> Option<Admission> {
        let mut availability = self.availability.lock();
        self.step(&mut availability, Event::PathDown(self.conditions()));
        let is_connected = availability.state.is_connected();
        is_connected.then(|| availability.state.admission())
    }

    /// Returns the number of a life that the server of `connections` has to be asked about before
    /// they carry a request.
    pub(crate) fn next_fence(&self, connections: &Connections) -> Option<u32> {
        self.fences.lock().next(&connections.place)
    }

    /// Sends the requests of path number `path` again that were in flight when it went `down`, if
    /// another path is up and there was no outage since; else requeues them to the upper layer.
    ///
    /// Returns `false`, and does nothing, while a path is up and it is not `settled` that the
    /// server executes none of them any more.
    pub(crate) fn requests_down(
        &self,
        requests: &RequestTable,
        path: u8,
        drained: &Drained<'_>,
        down: Option<Admission>,
        end: LifeEnd,
    ) -> bool {
        let availability = self.availability.lock();
        // Not their count: a path that is being lost counts until its teardown runs, which may wait
        // for the caller where a queue has one worker.
        let paths = self.paths.get();
        let is_any_up = paths.is_some_and(|paths| paths.all.iter().any(|path| path.is_connected()));
        if is_any_up && end == LifeEnd::Unknown {
            return false;
        }
        let is_connected = availability.state.is_connected();
        let is_admitted = down.is_some_and(|down| availability.state.admits(down));
        let may_resend = end != LifeEnd::Unknown && is_connected && is_admitted;
        requests.take_unanswered(drained, &self.quarantine, path, |unanswered| {
            self.resend(unanswered, may_resend, end);
        });
        true
    }

    /// Gives the requests of path number `path`, which was not up, back to the upper layer.
    pub(crate) fn requests_lost(&self, requests: &RequestTable, path: u8, drained: &Drained<'_>) {
        let give_back = |unanswered| self.give_back_unanswered(unanswered);
        requests.take_unanswered(drained, &self.quarantine, path, give_back);
    }

    /// Handles a path that will not reconnect by itself. If no other one will either, queued IO
    /// fails.
    pub(crate) fn path_left(self: &Arc<Self>) {
        let may_recover = self
            .paths
            .get()
            .is_some_and(|paths| paths.all.iter().any(|p| p.may_come_back()));
        if !may_recover {
            let mut availability = self.availability.lock();
            let event = outage::Event::DeadlinePassed { now_ms: u64::MAX };
            self.step(&mut availability, Event::Outage(event));
        }
    }

    /// Applies a new value of `fast_io_fail_tmo`.
    pub(crate) fn fast_io_fail_changed(self: &Arc<Self>) {
        let mut availability = self.availability.lock();
        let event = outage::Event::SettingChanged {
            now_ms: self.now_ms(),
            setting: self.settings.snapshot().fast_io_fail(),
        };
        self.step(&mut availability, Event::Outage(event));
    }

    /// Returns what an outage depends on that begins now.
    fn conditions(&self) -> Conditions {
        Conditions {
            now_ms: self.now_ms(),
            setting: self.settings.snapshot().fast_io_fail(),
            is_away: self.away_ms() != 0,
        }
    }

    /// Applies an event and carries out what follows from it.
    fn step(self: &Arc<Self>, availability: &mut Availability, event: Event) {
        match availability.state.step(event) {
            Effect::Ignore => {}
            Effect::BeginOutage(effect) => {
                availability.state.did(Operation::Requeue);
                availability.tell(|events| events.disconnected());
                self.carry_out(availability, effect);
            }
            Effect::Outage(effect) => self.carry_out(availability, effect),
            Effect::ReopenIn { pause_ms } => {
                // The session is open, so that closing it finds what is queued.
                availability.state.did(Operation::ReopenIn { pause_ms });
                workqueue::mod_delayed::<_, REOPEN>(self.clone(), pause_ms);
            }
        }
    }

    fn carry_out(self: &Arc<Self>, availability: &mut Availability, effect: outage::Effect) {
        match effect {
            outage::Effect::Ignore => {}
            outage::Effect::Queue { until_ms: None } | outage::Effect::Resume => {
                availability.state.did(Operation::StopTimer);
                drop(workqueue::cancel_delayed::<_, GIVE_UP>(self));
            }
            outage::Effect::Queue {
                until_ms: Some(until_ms),
            } => {
                availability.state.did(Operation::StartTimer { until_ms });
                let delay_ms = until_ms.saturating_sub(self.now_ms());
                let delay_ms = u32::try_from(delay_ms).unwrap_or(u32::MAX);
                workqueue::mod_delayed::<_, GIVE_UP>(self.clone(), delay_ms);
            }
            outage::Effect::FailQueued => {
                availability.state.did(Operation::FailQueued);
                if availability.events.is_some() {
                    pr_err!(
                        "session {}: no path has come back, requests fail until one does\n",
                        self.name()
                    );
                }
                availability.tell(|events| events.io_failed());
            }
        }
    }

    /// Calls the upper layer to make the session usable again.
    fn make_usable(self: &Arc<Self>) {
        let mut availability = self.availability.lock();
        let reopening = availability.state.reopening();
        let (Some(events), Some(reopening)) = (availability.events.clone(), reopening) else {
            return;
        };
        availability.state.did(Operation::Reopen(reopening));
        drop(availability);
        let succeeded = events.connected().is_ok();
        let event = Event::Reopened {
            reopening,
            succeeded,
        };
        self.step(&mut self.availability.lock(), event);
        // With the last reference the upper layer may be freed, and close the session.
        drop(events);
    }
}
