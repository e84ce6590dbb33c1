// SPDX-License-Identifier: GPL-2.0

//! Two tasks that ask, the worker that receives, the one that closes descriptors, a gfmd, and a
//! connection that holds little: each step that one of them can make.
//!
//! The steps are those of the driver between two moments at which it has its lock.

mod receiver;

use proto::gfarm::conversation::{
    Conversation,
    Receiver, //
};

use super::Rules;

const TASKS: usize = 2;
/// The call of who closes descriptors, which is behind those of the tasks.
const CLOSING: u8 = TASKS as u8;
const CALLS: usize = TASKS + 1;
/// The parts of a question.
const PARTS: usize = 2;
/// The places of the queue. One part is on its way to gfmd at a time, and one answer back.
const QUEUED_MAX: usize = 2;

/// The one that does something: a task, or one of the workers.
type Who = u8;
const WORKER: Who = 10;
const CLOSER: Who = 11;

/// A question as it was written: the call, and how often that was asked.
type Written = (u8, u8);

/// The state of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sending {
    /// Waits for its turn.
    Waits,
    /// Sends a question, of which gfmd was sent so many parts.
    Sends(u8, usize),
    /// Has sent all there was.
    Done,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    /// Asks so many times more.
    Asks,
    Sends(Sending),
    Leads,
    /// Is woken when its call is given back.
    Waits,
    /// Is answered.
    Over,
    Killed,
}

/// The state of the worker that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Rests,
    Works,
    /// Sends, with the right to receive: what it may not do.
    Sends(Sending),
}

/// The state of the worker that closes descriptors, and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Closer {
    Rests,
    /// Sends first.
    Sends(Sending),
    /// Waits for room in the queue.
    Pushes,
    /// Sends what fills the queue.
    MakesRoom(Sending),
    /// Sends its question.
    Asks(Sending),
    Waits,
}

/// The state of gfmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Server {
    /// The question that it has a part of, and how many.
    reads: Option<(Written, usize)>,
    has_refused: bool,
    /// An answer that was not taken: it does not read.
    tells: Option<Written>,
    /// More bytes are behind the answer.
    tells_more: bool,
}

impl Server {
    const NEW: Self = Self {
        reads: None,
        has_refused: false,
        tells: None,
        tells_more: false,
    };
}

/// All there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    queue: Vec<u8>,
    conversation: Conversation<u8, ()>,
    /// The times that each call was asked, and whether it is given back.
    written: [u8; CALLS],
    is_done: [bool; CALLS],
    turn: Option<Who>,
    input: Option<Who>,
    tasks: [Task; TASKS],
    worker: Worker,
    is_kicked: bool,
    closer: Closer,
    is_closer_kicked: bool,
    /// The number of descriptors that are to be closed.
    closes: u8,
    kills: u8,
    losses: u8,
    /// The times that all that waits was made to fail, and how many of them the receiver has seen.
    interrupts: u8,
    interrupts_seen: u8,
    /// The calls that waited then.
    is_interrupted: [bool; CALLS],
    /// The times that gfmd has told more than the answer. The receiver gets that too, and is to see
    /// it.
    strays: u8,
    has_stray: bool,
    is_ready: bool,
    /// The socket is good.
    is_alive: bool,
    part: Option<(Written, usize)>,
    server: Server,
    pub(crate) out_of_step: Option<&'static str>,
}

impl World {
    pub(crate) const NEW: Self = Self {
        queue: Vec::new(),
        conversation: Conversation::NEW,
        written: [0; CALLS],
        is_done: [true; CALLS],
        turn: None,
        input: None,
        tasks: [Task::Asks; TASKS],
        worker: Worker::Rests,
        is_kicked: false,
        closer: Closer::Rests,
        is_closer_kicked: false,
        closes: 0,
        kills: 0,
        losses: 0,
        interrupts: 0,
        interrupts_seen: 0,
        is_interrupted: [false; CALLS],
        strays: 0,
        has_stray: false,
        is_ready: true,
        is_alive: true,
        part: None,
        server: Server::NEW,
        out_of_step: None,
    };

    /// Returns whether everybody has what they wanted.
    pub(crate) fn is_over(&self) -> bool {
        let is_over = |task: &Task| matches!(task, Task::Over | Task::Killed);
        self.tasks.iter().all(is_over) && self.closes == 0 && self.closer == Closer::Rests
    }

    /// Returns what can be next.
    pub(crate) fn nexts(&self, rules: Rules) -> Vec<Self> {
        let mut nexts = Vec::new();
        for who in 0..TASKS {
            nexts.extend(self.task(who, rules));
        }
        nexts.extend(self.worker(rules));
        nexts.extend(self.closer(rules));
        nexts.extend(self.server());
        if self.interrupts < rules.interrupts {
            nexts.extend(self.with(|next| {
                next.interrupts += 1;
                next.is_alive = false;
                next.is_kicked = true;
                for call in &self.queue {
                    next.is_interrupted[usize::from(*call)] = true;
                }
            }));
        }
        if self.strays < rules.strays && self.server.tells.is_some() && !self.server.tells_more {
            nexts.extend(self.with(|next| {
                next.strays += 1;
                next.server.tells_more = true;
            }));
        }
        if self.losses < rules.losses && self.is_ready && self.is_alive {
            nexts.extend(self.with(|next| {
                next.losses += 1;
                next.is_alive = false;
            }));
        }
        nexts
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Option<Self> {
        let mut next = self.clone();
        change(&mut next);
        (next != *self).then_some(next)
    }

    /// Begins with descriptors that are to be closed, or none.
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            closes: rules.closes,
            is_closer_kicked: rules.closes != 0,
            ..Self::NEW
        }
    }

    fn is_idle(&self) -> bool {
        let next = self.conversation.receiver(self.queue.len());
        self.queue.is_empty() && next == Receiver::Rest
    }

    fn is_behind(&self) -> bool {
        self.conversation.is_behind(self.queue.len())
    }

    fn give_back(&mut self, call: u8) {
        self.is_done[usize::from(call)] = true;
        self.is_interrupted[usize::from(call)] = false;
    }

    /// Somebody receives from now on.
    fn begin_input(&mut self, who: Who, rules: Rules) {
        self.input = Some(who);
        if !rules.interrupts_are_kept {
            self.interrupts_seen = self.interrupts;
        }
    }

    /// Looks for what is next to be sent, by the one that has the turn.
    fn look(&mut self, who: Who) -> Sending {
        let queue = &self.queue;
        let found = match self.is_ready {
            true => self.conversation.next(|at| queue.get(at).copied()),
            false => None,
        };
        self.turn = found.map(|_| who);
        found.map_or(Sending::Done, |next| {
            Sending::Sends(next.question, next.bytes)
        })
    }

    /// A step of who sends; `None` if there is none.
    fn sending(&self, who: Who, sending: Sending, rules: Rules) -> Option<(Self, Sending)> {
        let mut next = self.clone();
        let then = match sending {
            Sending::Waits if self.turn.is_none() => next.look(who),
            Sending::Waits | Sending::Done => return None,
            Sending::Sends(..) if !self.is_alive => {
                if rules.sender_tells_of_the_end {
                    next.conversation.broken();
                }
                next.turn = None;
                Sending::Done
            }
            Sending::Sends(_, PARTS) => {
                if let Some((call, ())) = next.conversation.sent() {
                    next.give_back(call);
                }
                next.look(who)
            }
            Sending::Sends(call, sent) if self.part.is_none() => {
                next.part = Some(((call, self.written[usize::from(call)]), sent));
                Sending::Sends(call, sent + 1)
            }
            Sending::Sends(..) => {
                if !rules.sender_has_answers_taken || self.is_kicked {
                    return None;
                }
                // It has to wait.
                next.is_kicked = true;
                sending
            }
        };
        Some((next, then))
    }

    /// A task is killed while it waits.
    fn killed(&self, who: usize, rules: Rules) -> Option<Self> {
        if self.kills >= rules.kills {
            return None;
        }
        self.with(|next| {
            match self.tasks[who] {
                Task::Sends(Sending::Waits) => {}
                Task::Sends(Sending::Sends(_, sent)) if self.part.is_some() => {
                    next.conversation.left(sent);
                    next.turn = None;
                }
                Task::Leads => next.input = None,
                Task::Waits => {}
                _ => return,
            }
            next.kills += 1;
            next.tasks[who] = Task::Killed;
            next.is_closer_kicked = true;
            next.is_kicked = true;
        })
    }

    fn task(&self, who: usize, rules: Rules) -> Vec<Self> {
        let mut nexts: Vec<Self> = self.killed(who, rules).into_iter().collect();
        let call = who as u8;
        nexts.extend(match self.tasks[who] {
            Task::Asks if self.queue.len() < QUEUED_MAX => self.with(|next| {
                next.written[who] += 1;
                next.is_done[who] = false;
                next.queue.push(call);
                next.tasks[who] = Task::Sends(Sending::Waits);
            }),
            Task::Sends(sending) => {
                let step = self.sending(call, sending, rules);
                step.map(|(mut next, sending)| {
                    next.tasks[who] = match (sending, self.input) {
                        (Sending::Done, None) => {
                            next.begin_input(call, rules);
                            Task::Leads
                        }
                        (Sending::Done, Some(_)) => {
                            next.is_kicked = true;
                            Task::Waits
                        }
                        _ => Task::Sends(sending),
                    };
                    next
                })
            }
            Task::Leads if self.has_stray => self.stray_seen(rules),
            Task::Leads if self.interrupts != self.interrupts_seen => self.given_up(),
            Task::Leads if !self.is_done[who] && self.is_ready && self.conversation.is_owed() => {
                self.received(rules)
            }
            Task::Leads => self.with(|next| {
                next.input = None;
                next.is_kicked |= !self.is_idle();
                next.tasks[who] = Task::Waits;
            }),
            Task::Waits if self.is_done[who] => self.with(|next| {
                // The first one asks twice.
                let is_over = who != 0 || self.written[who] == rules.asks;
                next.tasks[who] = if is_over { Task::Over } else { Task::Asks };
            }),
            Task::Asks | Task::Waits | Task::Over | Task::Killed => None,
        });
        nexts
    }

    fn worker(&self, rules: Rules) -> Option<Self> {
        match self.worker {
            Worker::Rests if self.is_kicked => self.with(|next| {
                next.is_kicked = false;
                if self.input.is_none() {
                    next.begin_input(WORKER, rules);
                    next.worker = Worker::Works;
                }
            }),
            Worker::Rests => None,
            Worker::Works if self.has_stray => self.stray_seen(rules),
            Worker::Works if self.interrupts != self.interrupts_seen => self.given_up(),
            Worker::Works if !self.is_ready && !self.queue.is_empty() => self.with(|next| {
                next.connected();
                if !rules.receiver_does_not_send {
                    next.worker = Worker::Sends(Sending::Waits);
                }
            }),
            Worker::Works => match self.conversation.receiver(self.queue.len()) {
                Receiver::Receive if self.is_ready => self.received(rules),
                Receiver::HaveSent if !rules.receiver_does_not_send => {
                    self.with(|next| next.worker = Worker::Sends(Sending::Waits))
                }
                does => self.with(|next| {
                    next.is_closer_kicked |= does == Receiver::HaveSent;
                    next.input = None;
                    next.worker = Worker::Rests;
                }),
            },
            Worker::Sends(sending) => {
                let (mut next, sending) = self.sending(WORKER, sending, rules)?;
                next.worker = match sending {
                    Sending::Done => Worker::Works,
                    _ => Worker::Sends(sending),
                };
                Some(next)
            }
        }
    }

    fn closer(&self, rules: Rules) -> Option<Self> {
        let step = |sending, to: fn(Sending) -> Closer, then| {
            let (mut next, sending) = self.sending(CLOSER, sending, rules)?;
            next.closer = to(sending);
            if sending == Sending::Done {
                (next.is_kicked, next.closer) = (true, then);
            }
            Some(next)
        };
        let to = |closer| self.with(|next| next.closer = closer);
        match self.closer {
            Closer::Rests if self.is_closer_kicked => self.with(|next| {
                next.is_closer_kicked = false;
                next.closer = match (self.is_behind(), self.closes) {
                    (true, _) => Closer::Sends(Sending::Waits),
                    (false, 0) => Closer::Rests,
                    (false, _) => Closer::Pushes,
                };
            }),
            Closer::Rests => None,
            Closer::Sends(sending) => match self.closes {
                0 => step(sending, Closer::Sends, Closer::Rests),
                _ => step(sending, Closer::Sends, Closer::Pushes),
            },
            // The end of the process has closed it.
            Closer::Pushes if self.losses != 0 => {
                self.with(|next| (next.closes, next.closer) = (0, Closer::Rests))
            }
            Closer::Pushes if self.queue.len() < QUEUED_MAX => self.with(|next| {
                next.queue.push(CLOSING);
                next.written[usize::from(CLOSING)] += 1;
                next.is_done[usize::from(CLOSING)] = false;
                next.closer = Closer::Asks(Sending::Waits);
            }),
            Closer::Pushes if rules.closer_makes_room && self.is_behind() => {
                to(Closer::MakesRoom(Sending::Waits))
            }
            Closer::Pushes => None,
            Closer::MakesRoom(sending) => step(sending, Closer::MakesRoom, Closer::Pushes),
            Closer::Asks(sending) => step(sending, Closer::Asks, Closer::Waits),
            // Another one is closed then.
            Closer::Waits if self.is_done[usize::from(CLOSING)] => self.with(|next| {
                next.closes -= 1;
                let is_last = next.closes == 0;
                next.closer = [Closer::Pushes, Closer::Rests][usize::from(is_last)];
            }),
            Closer::Waits => None,
        }
    }

    /// gfmd reads a part, refuses what it belongs to or not, and answers.
    fn server(&self) -> Vec<Self> {
        let Some((written, part)) = self
            .part
            .filter(|_| self.is_ready && self.is_alive && self.server.tells.is_none())
        else {
            return Vec::new();
        };
        let read = |refuses: bool| {
            self.with(|next| {
                next.part = None;
                let expected = match self.server.reads {
                    Some((reads, parts)) => reads == written && parts == part,
                    None => part == 0,
                };
                if !expected {
                    next.out_of_step = Some("a part of another question");
                }
                let server = &mut next.server;
                let is_last = part + 1 == PARTS;
                if refuses || (is_last && !server.has_refused) {
                    server.tells = Some(written);
                }
                server.has_refused = (refuses || server.has_refused) && !is_last;
                server.reads = (!is_last).then_some((written, part + 1));
            })
        };
        let may_refuse = !self.server.has_refused && part + 1 != PARTS;
        let refused = may_refuse.then(|| read(true)).flatten();
        read(false).into_iter().chain(refused).collect()
    }
}
