// SPDX-License-Identifier: GPL-2.0

//! A client's session: `rtrs/client/session/outage.rs`.

use proto::rtrs::{
    availability::{
        record::Operation,
        Availability,
        Effect,
        Event,
        Reopening, //
    },
    outage, //
};

use crate::replay::Rules;

/// The state of a session's driver, as far as the record shows it.
#[derive(Default)]
pub(crate) struct Session {
    /// A path is admitted that is not counted yet.
    is_admitting: bool,
    /// The timer of an outage was started.
    had_timer: bool,
    /// The upper layer was to make the session usable so many times, and has not begun yet.
    reopens: u32,
    /// The upper layer makes the session usable.
    reopening: Option<Reopening>,
}

fn operations_of_outage(effect: outage::Effect) -> Vec<Operation> {
    match effect {
        outage::Effect::Ignore => vec![],
        outage::Effect::Queue { until_ms: None } | outage::Effect::Resume => {
            vec![Operation::StopTimer]
        }
        outage::Effect::Queue {
            until_ms: Some(until_ms),
        } => vec![Operation::StartTimer { until_ms }],
        outage::Effect::FailQueued => vec![Operation::FailQueued],
    }
}

impl Rules for Session {
    type Machine = Availability;

    const FIRST: Availability = Availability::NEW;

    fn operations(_event: &Event, effect: &Effect) -> Vec<Operation> {
        match *effect {
            Effect::Ignore => vec![],
            Effect::BeginOutage(effect) => {
                let mut operations = vec![Operation::Requeue];
                operations.extend(operations_of_outage(effect));
                operations
            }
            Effect::Outage(effect) => operations_of_outage(effect),
            Effect::ReopenIn { pause_ms } => vec![Operation::ReopenIn { pause_ms }],
        }
    }

    /// All of it, with the mutex.
    fn is_under_lock(_operation: &Operation) -> bool {
        true
    }

    fn check(&self, _session: &Availability, event: &Event) -> Result<(), String> {
        match *event {
            Event::PathUp if !self.is_admitting => Err("a path is up that was not admitted".into()),
            Event::Reopened { reopening, .. } if self.reopening != Some(reopening) => {
                Err(format!("{event:?}, but {:?} is tried", self.reopening))
            }
            Event::Outage(outage::Event::DeadlinePassed { now_ms })
                if now_ms != u64::MAX && !self.had_timer =>
            {
                Err("there was no timer".into())
            }
            _ => Ok(()),
        }
    }

    fn stepped(&mut self, event: &Event, _effect: &Effect) {
        // A path that is not up after all is not counted, and its admission is over.
        self.is_admitting = false;
        if matches!(event, Event::Reopened { .. }) {
            self.reopening = None;
        }
    }

    fn may(&self, session: &Availability, operation: &Operation) -> Result<bool, String> {
        match *operation {
            Operation::Admit(admission) if session.admits(admission) => Ok(true),
            Operation::Admit(_) => Err("the session does not admit it".into()),
            Operation::Reopen(reopening)
                if self.reopens > 0
                    && self.reopening.is_none()
                    && session.reopening() == Some(reopening) =>
            {
                Ok(true)
            }
            Operation::Reopen(_) => Err(format!(
                "queued {} times, {:?} is tried",
                self.reopens, self.reopening
            )),
            _ => Ok(false),
        }
    }

    fn done(&mut self, operation: &Operation) {
        match *operation {
            Operation::Admit(_) => self.is_admitting = true,
            Operation::StartTimer { .. } => self.had_timer = true,
            Operation::ReopenIn { .. } => self.reopens += 1,
            Operation::Reopen(reopening) => {
                self.reopens -= 1;
                self.reopening = Some(reopening);
            }
            Operation::Requeue | Operation::StopTimer | Operation::FailQueued => {}
        }
    }

    fn end(&self, _session: &Availability) -> Result<(), String> {
        match self.reopening {
            Some(reopening) => Err(format!("{reopening:?} has no end")),
            None => Ok(()),
        }
    }
}
