// SPDX-License-Identifier: GPL-2.0

//! A client's path: `rtrs/client/path/recovery.rs`.

use proto::rtrs::recovery::{
    record::Operation,
    Action,
    Effects,
    Event,
    Recovery,
    StaleConnection,
    TearDown, //
};

use crate::replay::Rules;

/// The state of a path's driver, as far as the record shows it.
pub(crate) struct Path {
    /// The first attempt needs no decision.
    may_connect: bool,
    /// A run of the teardown worker was queued, and has not begun.
    is_run_queued: bool,
    /// The teardown worker's run; it and attempts exclude each other.
    run: Option<TearDown>,
    /// The stale connection was dropped in this run.
    has_dropped: bool,
    /// An attempt is under way.
    is_attempting: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            may_connect: true,
            is_run_queued: false,
            run: None,
            has_dropped: false,
            is_attempting: false,
        }
    }
}

impl Rules for Path {
    type Machine = Recovery;

    const FIRST: Recovery = Recovery::NEW;

    fn operations(event: &Event, effects: &Effects) -> Vec<Operation> {
        let mut operations = match effects.stale_connection {
            StaleConnection::Leave => vec![],
            StaleConnection::Disconnect => vec![Operation::Disconnect],
            StaleConnection::Drop => vec![Operation::Drop],
        };
        operations.extend(match effects.action {
            Action::Ignore | Action::Busy | Action::AnnounceClosed => vec![],
            Action::GoLive => vec![Operation::GoLive, Operation::StartHeartbeat],
            Action::AbortConnect => vec![Operation::AbortConnect],
            Action::LookAgain => vec![Operation::GiveUpAddress],
            // An attempt may be under way as well.
            Action::TearDown if matches!(event, Event::Close | Event::CloseForGood) => {
                vec![Operation::QueueTearDown, Operation::AbortConnect]
            }
            Action::TearDown | Action::LeaveDevice => vec![Operation::QueueTearDown],
            Action::GiveUp => vec![Operation::QueueTearDown, Operation::LeaveSession],
            Action::TearDownIn { pause_ms } => vec![Operation::TearDownIn { pause_ms }],
            Action::StartIn { pause_ms } => vec![Operation::StartIn { pause_ms }],
            Action::Connect => vec![Operation::Connect],
            Action::Release => vec![Operation::Release],
        });
        operations
    }

    fn is_under_lock(operation: &Operation) -> bool {
        matches!(
            operation,
            Operation::StartIn { .. } | Operation::TearDownIn { .. }
        )
    }

    /// The event has to come from the thread of execution that may send it now.
    fn check(&self, _recovery: &Recovery, event: &Event) -> Result<(), String> {
        let (run, attempt) = (self.run, self.is_attempting);
        let is_fit = match *event {
            Event::TornDown { run, .. } if run != TearDown::ToConnectAgain && !self.has_dropped => {
                return Err(format!("{run:?} has not dropped the stale connection"));
            }
            Event::TornDown { run: ended, .. } => run == Some(ended),
            Event::Undrained => run.is_some(),
            Event::Start => run.is_none() && !attempt,
            Event::Established | Event::AttemptFailed { .. } => run.is_none() && attempt,
            _ => true,
        };
        if is_fit {
            return Ok(());
        }
        Err(format!("{event:?} with run {run:?}, attempt {attempt}"))
    }

    fn stepped(&mut self, event: &Event, effects: &Effects) {
        match event {
            Event::TornDown { .. } | Event::Undrained => self.run = None,
            Event::AttemptFailed { .. } => self.is_attempting = false,
            Event::Established if effects.action == Action::GoLive => self.is_attempting = false,
            _ => {}
        }
    }

    fn may(&self, recovery: &Recovery, operation: &Operation) -> Result<bool, String> {
        Ok(match *operation {
            Operation::Connect => self.may_connect,
            // The client abandons a server that is away.
            Operation::Disconnect => self.run == Some(TearDown::ToConnectAgain),
            Operation::Drop => self.run.is_some_and(|run| run != TearDown::ToConnectAgain),
            Operation::TearDown(run) => {
                let granted = recovery.begin_tear_down();
                if run != granted || self.run.is_some() {
                    let current = self.run;
                    return Err(format!(
                        "{run:?} runs; granted {granted:?}, running {current:?}"
                    ));
                }
                true
            }
            _ => false,
        })
    }

    fn done(&mut self, operation: &Operation) {
        match *operation {
            Operation::QueueTearDown | Operation::TearDownIn { .. } => self.is_run_queued = true,
            Operation::Drop => self.has_dropped = true,
            Operation::Connect => {
                self.may_connect = false;
                self.is_attempting = true;
            }
            Operation::TearDown(run) => {
                self.is_run_queued = false;
                self.has_dropped = false;
                self.run = run;
            }
            _ => {}
        }
    }

    fn end(&self, _recovery: &Recovery) -> Result<(), String> {
        if self.is_run_queued {
            return Err("the teardown worker was queued and has not run".into());
        }
        match self.run {
            Some(run) => Err(format!("the run {run:?} has no end")),
            None => Ok(()),
        }
    }
}
