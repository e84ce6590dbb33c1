// SPDX-License-Identifier: GPL-2.0

//! What a driver records of the turns of a session.

use ferro_proto::{
    record::Machine,
    words, //
};

use super::{
    Turn,
    Turns, //
};

/// The events of the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread asks for a turn: see [`Turns::take`].
    Take(Turn),
    /// A thread ends its turn: see [`Turns::end`].
    End,
}

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends OPEN in its turn.
    Open(Turn),
    /// Uses the number in the answer for the requests of a device, in its turn.
    Use(Turn),
    /// Sends CLOSE in its turn.
    Close(Turn),
    /// Wakes the threads that wait for a turn.
    Wake,
}

impl Machine for Turns {
    const NAME: &'static str = "turns";
    type Event = Event;
    type Effect = bool;
    type Operation = Operation;

    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Take(turn) => self.take(turn),
            Event::End => self.end(),
        }
    }
}

words!(struct Turns { kind, count });

words!(enum Turn { 1 => Open, 2 => Close, 3 => Survey });

words!(enum Event { 1 => Take(turn), 2 => End });

words!(enum Operation { 1 => Open(turn), 2 => Use(turn), 3 => Close(turn), 4 => Wake });
