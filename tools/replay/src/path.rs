// SPDX-License-Identifier: GPL-2.0

//! The replay of one path.

use proto::rtrs::recovery::{
    record::{
        Entry,
        Operation,
        Step, //
    },
    Action,
    Effects,
    Event,
    Recovery,
    StaleConnection,
    TearDown, //
};

use crate::line::Line;

/// A path as far as its record has been replayed.
pub(crate) struct Path {
    recovery: Recovery,
    /// What was decided and is not done yet.
    owed: Vec<Operation>,
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
            recovery: Recovery::NEW,
            owed: Vec::new(),
            may_connect: true,
            is_run_queued: false,
            run: None,
            has_dropped: false,
            is_attempting: false,
        }
    }
}

/// What the driver has to do because of a decision.
fn operations(event: Event, effects: Effects) -> Vec<Operation> {
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
        Action::TearDown if event == Event::Close => {
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

/// Whether the driver does it before it releases the lock under which it was decided.
const fn is_under_lock(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::StartIn { .. } | Operation::TearDownIn { .. }
    )
}

impl Path {
    /// Replays a line; returns in words what is wrong with it.
    pub(crate) fn take(&mut self, text: &str) -> Result<(), String> {
        match Line::parse(text).ok_or("it cannot be read")? {
            Line::Step(event) => self.step(event, text),
            Line::Ran(run) => self.begin_run(run),
            Line::Did(operation) => self.did(operation),
        }
    }

    /// Returns in words what is wrong if nothing follows.
    pub(crate) fn end(&self) -> Result<(), String> {
        if !self.owed.is_empty() {
            return Err(format!("decided and not done: {:?}", self.owed));
        }
        if self.is_run_queued {
            return Err("the teardown worker was queued and has not run".into());
        }
        match self.run {
            Some(run) => Err(format!("the run {run:?} has no end")),
            None => Ok(()),
        }
    }

    fn step(&mut self, event: Event, text: &str) -> Result<(), String> {
        if let Some(operation) = self
            .owed
            .iter()
            .find(|operation| is_under_lock(**operation))
        {
            return Err(format!("{operation:?} is not done before the next event"));
        }
        let before = self.recovery;
        let effects = self.recovery.step(event);
        let model = Entry::Step(Step::new(&event, &effects, &self.recovery)).to_string();
        if text != model {
            return Err(format!(
                "in {before:?} the model says '{model}' ({effects:?})"
            ));
        }
        self.check_thread(event)?;
        match event {
            Event::TornDown { run, .. } if run != TearDown::ToConnectAgain && !self.has_dropped => {
                return Err(format!("{run:?} has not dropped the stale connection"));
            }
            Event::TornDown { .. } | Event::Undrained => self.run = None,
            Event::AttemptFailed { .. } => self.is_attempting = false,
            Event::Established if effects.action == Action::GoLive => self.is_attempting = false,
            _ => {}
        }
        self.owed.extend(operations(event, effects));
        Ok(())
    }

    /// Checks that the event comes from the thread of execution that may send it now.
    fn check_thread(&self, event: Event) -> Result<(), String> {
        let is_fit = match event {
            Event::TornDown { run, .. } => self.run == Some(run),
            Event::Undrained => self.run.is_some(),
            Event::Start => self.run.is_none() && !self.is_attempting,
            Event::Established | Event::AttemptFailed { .. } => {
                self.run.is_none() && self.is_attempting
            }
            _ => true,
        };
        if is_fit {
            return Ok(());
        }
        let (run, attempt) = (self.run, self.is_attempting);
        Err(format!("{event:?} with run {run:?}, attempt {attempt}"))
    }

    fn begin_run(&mut self, run: Option<TearDown>) -> Result<(), String> {
        let granted = self.recovery.begin_tear_down();
        if run != granted || self.run.is_some() {
            let current = self.run;
            return Err(format!(
                "{run:?} runs; granted {granted:?}, running {current:?}"
            ));
        }
        self.is_run_queued = false;
        self.has_dropped = false;
        self.run = run;
        Ok(())
    }

    fn did(&mut self, operation: Operation) -> Result<(), String> {
        // What is done in a run pays for nothing that was decided before it.
        if !self.is_allowed(operation) && !self.pay(operation) {
            return Err(format!("{operation:?} was not decided"));
        }
        match operation {
            Operation::QueueTearDown | Operation::TearDownIn { .. } => self.is_run_queued = true,
            Operation::Drop => self.has_dropped = true,
            Operation::Connect => {
                self.may_connect = false;
                self.is_attempting = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Strikes a operation off what is owed; returns whether it was.
    fn pay(&mut self, operation: Operation) -> bool {
        let at = self.owed.iter().position(|owed| *owed == operation);
        at.map(|at| self.owed.remove(at)).is_some()
    }

    /// Returns whether the driver may do this without a decision.
    fn is_allowed(&self, operation: Operation) -> bool {
        match operation {
            Operation::Connect => self.may_connect,
            // The client abandons a server that is away.
            Operation::Disconnect => self.run == Some(TearDown::ToConnectAgain),
            Operation::Drop => self.run.is_some_and(|run| run != TearDown::ToConnectAgain),
            _ => false,
        }
    }
}
