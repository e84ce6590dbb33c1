// SPDX-License-Identifier: GPL-2.0

//! The replay of one record.

use std::fmt::Debug;

use proto::common::record::{
    Entry,
    Machine, //
};

use crate::line::Line;

/// Rules for a driver: what it has to do, and may do, by its machine's decisions. A breach is told
/// in words.
pub(crate) trait Rules: Default {
    /// The machine that is recorded.
    type Machine: Machine + Debug;

    /// The machine in its first state.
    const FIRST: Self::Machine;

    /// Returns what the driver has to do because of a decision.
    fn operations(
        event: &<Self::Machine as Machine>::Event,
        effect: &<Self::Machine as Machine>::Effect,
    ) -> Vec<<Self::Machine as Machine>::Operation>;

    /// Whether the driver does it before it releases the lock under which it was decided.
    fn is_under_lock(operation: &<Self::Machine as Machine>::Operation) -> bool;

    /// Checks whether the event may come now.
    fn check(
        &self,
        machine: &Self::Machine,
        event: &<Self::Machine as Machine>::Event,
    ) -> Result<(), String>;

    /// Takes notice of a step.
    fn stepped(
        &mut self,
        event: &<Self::Machine as Machine>::Event,
        effect: &<Self::Machine as Machine>::Effect,
    );

    /// Checks whether the driver may do this now, decided or not. Returns whether it may without a
    /// decision; then this is not what was decided earlier.
    fn may(
        &self,
        machine: &Self::Machine,
        operation: &<Self::Machine as Machine>::Operation,
    ) -> Result<bool, String>;

    /// Takes notice of an operation.
    fn done(&mut self, operation: &<Self::Machine as Machine>::Operation);

    /// Checks whether it may end like this.
    fn end(&self, machine: &Self::Machine) -> Result<(), String>;
}

type Event<R> = <<R as Rules>::Machine as Machine>::Event;
type Operation<R> = <<R as Rules>::Machine as Machine>::Operation;

/// A machine and its driver as far as the record has been replayed.
pub(crate) struct Replay<R: Rules> {
    machine: R::Machine,
    /// The operations that were decided and are not done yet.
    owed: Vec<Operation<R>>,
    rules: R,
}

impl<R: Rules> Default for Replay<R> {
    fn default() -> Self {
        Self {
            machine: R::FIRST,
            owed: Vec::new(),
            rules: R::default(),
        }
    }
}

impl<R: Rules> Replay<R> {
    /// Replays a line; returns in words what is wrong with it.
    pub(crate) fn take(&mut self, text: &str) -> Result<(), String> {
        match Line::parse(text).ok_or("it cannot be read")? {
            Line::Step(event) => self.step(event, text),
            Line::Did(operation) => self.did(operation),
        }
    }

    /// Returns in words what is wrong if nothing follows.
    pub(crate) fn end(&self) -> Result<(), String> {
        if !self.owed.is_empty() {
            return Err(format!("decided and not done: {:?}", self.owed));
        }
        self.rules.end(&self.machine)
    }

    fn step(&mut self, event: Event<R>, text: &str) -> Result<(), String> {
        if let Some(operation) = self.owed.iter().find(|owed| R::is_under_lock(owed)) {
            return Err(format!("{operation:?} is not done before the next event"));
        }
        let allowed = self.rules.check(&self.machine, &event);
        let before = format!("{:?}", self.machine);
        let effect = self.machine.handle(event);
        let after = &self.machine;
        let model: Entry<'_, R::Machine> = Entry::Step {
            event,
            effect,
            after,
        };
        let model = model.to_string();
        if text != model {
            return Err(format!(
                "in {before} the model says '{model}': {effect:?}, then {after:?}"
            ));
        }
        allowed?;
        self.rules.stepped(&event, &effect);
        self.owed.extend(R::operations(&event, &effect));
        Ok(())
    }

    fn did(&mut self, operation: Operation<R>) -> Result<(), String> {
        if !self.rules.may(&self.machine, &operation)? {
            let at = self.owed.iter().position(|owed| *owed == operation);
            let at = at.ok_or_else(|| format!("{operation:?} was not decided"))?;
            self.owed.remove(at);
        }
        self.rules.done(&operation);
        Ok(())
    }
}
