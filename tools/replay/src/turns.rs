// SPDX-License-Identifier: GPL-2.0

//! The turns of a session of `rnbd_client`: `rnbd/client/session/turn.rs`.

use proto::rnbd::turns::{
    record::{
        Event,
        Operation, //
    },
    Turn,
    Turns, //
};

use crate::replay::Rules;

/// The turns that the threads of a driver have.
#[derive(Default)]
pub(crate) struct Taken(Vec<Turn>);

impl Rules for Taken {
    type Machine = Turns;

    const FIRST: Turns = Turns::NONE;

    fn operations(event: &Event, is_free: &bool) -> Vec<Operation> {
        match event {
            Event::End if *is_free => vec![Operation::Wake],
            Event::End | Event::Take(_) => vec![],
        }
    }

    fn is_under_lock(_operation: &Operation) -> bool {
        false
    }

    fn check(&self, _turns: &Turns, event: &Event) -> Result<(), String> {
        match event {
            Event::End if self.0.is_empty() => Err("a turn ends that was not taken".into()),
            Event::End | Event::Take(_) => Ok(()),
        }
    }

    fn stepped(&mut self, event: &Event, is_free: &bool) {
        match event {
            Event::Take(turn) if *is_free => self.0.push(*turn),
            // All that are taken are of one kind.
            Event::End => drop(self.0.pop()),
            Event::Take(_) => {}
        }
    }

    fn may(&self, _turns: &Turns, operation: &Operation) -> Result<bool, String> {
        let fits = match operation {
            Operation::Open(turn @ (Turn::Open | Turn::Survey))
            | Operation::Use(turn @ Turn::Open)
            | Operation::Close(turn @ (Turn::Close | Turn::Survey)) => self.0.contains(turn),
            Operation::Wake => return Ok(false),
            Operation::Open(_) | Operation::Use(_) | Operation::Close(_) => false,
        };
        match fits {
            true => Ok(true),
            false => Err(format!("the turns are {:?}", self.0)),
        }
    }

    fn done(&mut self, _operation: &Operation) {}

    fn end(&self, _turns: &Turns) -> Result<(), String> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("the turns {:?} have no end", self.0)),
        }
    }
}
