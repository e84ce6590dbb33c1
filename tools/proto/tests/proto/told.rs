// SPDX-License-Identifier: GPL-2.0

//! Devices that are open for no one, and a model of a client that asks a server for a silent one.

use std::collections::VecDeque;

use proto::{
    rnbd::{
        answer_time::{
            AnswerTime,
            LOOK_MS, //
        },
        control::DeviceState,
        doubt::{
            Doubt,
            Heard,
            Settle, //
        },
        message_queue::{
            is_stale,
            Step, //
        },
        occasion::{
            Occasion,
            ANSWER_MS, //
        },
        told::Told,
    },
    rtrs::availability::REOPEN_AGAIN_MS,
};

/// The time between two OPEN of a client that asks for one silent device.
const AGAIN_MS: u32 = 2_000;

#[test]
fn what_a_client_knows_is_not_closed() {
    let mut told = Told::YES;
    assert!(!told.is_no() && !told.is_over(u64::MAX, 0));
    assert!(!told.ask(), "it knew");
    told.lost(1000);
    assert!(told.is_no() && !told.is_over(1000, 0));
    assert!(told.ask() && !told.is_no() && !told.is_over(u64::MAX, 0));
}

#[test]
fn what_no_client_knows_is_kept_as_long_as_the_session_asks_for_others() {
    let mut told = Told::YES;
    told.lost(10_000);
    let over_ms = |asked_ms| {
        (10_000..)
            .find(|now_ms| told.is_over(*now_ms, asked_ms))
            .unwrap()
    };
    // Two paths are validated in between, for 5 s each.
    for asked_ms in [0, 3_000, 10_000] {
        assert_eq!(over_ms(asked_ms), 25_000, "asked at {asked_ms}");
    }
    assert_eq!(over_ms(12_000), 27_000);
    assert!(told.is_no(), "until it is closed");
    // Others are silent for ever.
    let asks_ms = |now_ms: u64| now_ms - now_ms % u64::from(AGAIN_MS);
    let over_ms = (10_000..400_000).find(|now_ms| told.is_over(*now_ms, asks_ms(*now_ms)));
    assert!(over_ms.is_some_and(|over_ms| (200_000..=320_000).contains(&over_ms)));
}

const TICK_MS: u64 = 100;

/// A message at the server.
struct Message {
    step: Step,
    arrived_ms: u64,
    has_client: bool,
}

/// The server, which has one device of the session.
struct Server {
    /// The device is silent until then.
    silent_ms: u64,
    answer_time: AnswerTime,
    messages: VecDeque<Message>,
    open: Option<Told>,
    /// The time of the last OPEN.
    asked_ms: u64,
}

impl Server {
    /// Does what is due; returns the answer to the client's message.
    fn tick(&mut self, now_ms: u64) -> Option<Answer> {
        let mut answer = None;
        if now_ms % u64::from(LOOK_MS) == 0 {
            let is_over = |m: &Message| self.answer_time.is_over(now_ms - m.arrived_ms);
            let due = |m: &Message| m.has_client && is_over(m);
            if let Some(index) = self.messages.iter().position(due) {
                self.messages[index].has_client = false;
                answer = Some(Answer::TimedOut);
            }
            // What is not being carried out is dropped.
            let mut is_first = true;
            let stays = |m: &Message| m.has_client || m.step != Step::Open;
            self.messages
                .retain(|m| core::mem::take(&mut is_first) || stays(m));
            let close = Step::CloseUntold(0);
            let is_over = self
                .open
                .is_some_and(|told| told.is_over(now_ms, self.asked_ms));
            if is_over && !is_stale(close, self.messages.iter().map(|m| m.step)) {
                self.messages.push_back(Message {
                    step: close,
                    arrived_ms: now_ms,
                    has_client: false,
                });
            }
        }
        if self.open.is_none() && now_ms < self.silent_ms {
            return answer;
        }
        let message = self.messages.pop_front()?;
        if message.step != Step::Open {
            let asked_ms = self.asked_ms;
            self.open = self.open.filter(|told| !told.is_over(now_ms, asked_ms));
            return answer;
        }
        let is_untold = self.open.as_mut().is_none_or(Told::ask);
        let told = self.open.get_or_insert(Told::YES);
        match message.has_client {
            true => answer = Some(Answer::Open),
            false if is_untold => told.lost(now_ms),
            false => {}
        }
        answer
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Open,
    TimedOut,
}

/// The state of the client.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    /// The user waits for the answer to the message sent then.
    Asks {
        sent_ms: u64,
    },
    /// The user is gone, and the message is under way.
    Leaves {
        sent_ms: u64,
    },
    /// The device is asked for again, to close it.
    Ends {
        sent_ms: u64,
    },
    Mapped,
    Gone,
}

struct World {
    server: Server,
    client: Client,
    killed_ms: u64,
}

impl World {
    fn new(silent_ms: u64, killed_ms: u64) -> Self {
        let answer_time = Occasion::Asked.answer_time().unwrap();
        let mut world = Self {
            server: Server {
                silent_ms,
                answer_time,
                messages: VecDeque::new(),
                open: None,
                asked_ms: 0,
            },
            client: Client::Gone,
            killed_ms,
        };
        world.client = Client::Asks {
            sent_ms: world.send(0),
        };
        world
    }

    fn send(&mut self, now_ms: u64) -> u64 {
        self.server.asked_ms = now_ms;
        self.server.messages.push_back(Message {
            step: Step::Open,
            arrived_ms: now_ms,
            has_client: true,
        });
        now_ms
    }

    /// Lets the client give up on its message, which the server may have carried out, or not.
    fn settle(&mut self, now_ms: u64, may_be_open: bool) -> Client {
        let mut doubt = Doubt::NONE;
        doubt.hear(match may_be_open {
            true => Heard::Nothing,
            false => Heard::Refused,
        });
        match doubt.settle(DeviceState::Unmapped, None) {
            Settle::Ask => Client::Ends {
                sent_ms: self.send(now_ms),
            },
            Settle::Nothing | Settle::HandOver => Client::Gone,
        }
    }

    /// Lets the client act on what it hears.
    fn hear(&mut self, now_ms: u64, answer: Option<Answer>) {
        let timeout_ms = u64::from(Occasion::Asked.timeout_ms(true));
        let (Client::Asks { sent_ms } | Client::Leaves { sent_ms } | Client::Ends { sent_ms }) =
            self.client
        else {
            return;
        };
        let took_ms = now_ms - sent_ms;
        let is_lost = answer.is_none() && took_ms >= timeout_ms;
        let answer = match is_lost {
            true => Some(Answer::TimedOut),
            false => answer,
        };
        self.client = match (self.client, answer) {
            (Client::Asks { .. }, Some(Answer::Open)) => Client::Mapped,
            (Client::Asks { .. }, Some(Answer::TimedOut)) => {
                match Occasion::Asked.asks_again(took_ms, now_ms) {
                    true => Client::Asks {
                        sent_ms: self.send(now_ms),
                    },
                    false => self.settle(now_ms, is_lost),
                }
            }
            (Client::Asks { .. }, None) if now_ms >= self.killed_ms => Client::Leaves { sent_ms },
            (Client::Leaves { .. }, Some(answer)) => {
                self.settle(now_ms, is_lost || answer == Answer::Open)
            }
            (Client::Ends { .. }, Some(Answer::Open)) => {
                self.server.open = None;
                Client::Gone
            }
            (Client::Ends { .. }, Some(Answer::TimedOut)) => Client::Gone,
            (other, _) => other,
        };
    }

    /// Lets time pass, in which the `lost`th answer does not come.
    fn run(mut self, lost: u32) -> End {
        let end_ms = self.server.silent_ms.max(u64::from(ANSWER_MS)) + 40_000;
        let (mut answers, mut is_last_lost) = (0, false);
        for now_ms in (0..end_ms).step_by(TICK_MS as usize) {
            let answer = self.server.tick(now_ms);
            let is_lost = answer.is_some() && answers == lost;
            answers += u32::from(answer.is_some());
            is_last_lost |= is_lost && matches!(self.client, Client::Ends { .. });
            self.hear(now_ms, answer.filter(|_| !is_lost));
            if self.client == Client::Mapped {
                assert_eq!(self.server.open, Some(Told::YES), "at {now_ms}");
            }
        }
        End {
            is_mapped: self.client == Client::Mapped,
            is_open: self.server.open.is_some(),
            is_last_lost,
        }
    }
}

struct End {
    is_mapped: bool,
    is_open: bool,
    /// The client asks for nothing any more after the answer that was lost.
    is_last_lost: bool,
}

/// No answer is lost.
const NONE: u32 = u32::MAX;

#[test]
fn a_user_who_waits_gets_a_slow_device() {
    for silent_ms in (0..59_000).step_by(700) {
        let end = World::new(silent_ms, u64::MAX).run(NONE);
        assert!(end.is_mapped && end.is_open, "{silent_ms}");
    }
}

#[test]
fn nothing_is_open_for_a_user_who_has_given_up() {
    for silent_ms in (0..70_000).step_by(500) {
        for killed_ms in (0..70_000).step_by(700) {
            let end = World::new(silent_ms, killed_ms).run(NONE);
            let case = format!("silent for {silent_ms}, killed at {killed_ms}");
            assert_eq!(end.is_open, end.is_mapped, "{case}");
            assert!(!end.is_mapped || silent_ms <= killed_ms + 500, "{case}");
        }
    }
}

#[test]
fn an_answer_that_is_lost_keeps_nothing_open() {
    for lost in 0..4 {
        for silent_ms in (0..10_000).step_by(200) {
            for killed_ms in (0..12_000).step_by(500) {
                let end = World::new(silent_ms, killed_ms).run(lost);
                assert!(
                    end.is_open == end.is_mapped || end.is_last_lost,
                    "answer {lost}, silent for {silent_ms}, killed at {killed_ms}"
                );
            }
        }
    }
}

/// A device of a server that has several.
#[derive(Clone, Copy, PartialEq)]
enum Disk {
    Closed,
    /// A thread opens it; the client that waits has asked then.
    Opening {
        until_ms: u64,
        asked_ms: Option<u64>,
    },
    Open(Told),
}

impl Disk {
    /// Does what is due; returns whether the client hears that it is open.
    fn tick(&mut self, now_ms: u64, last_asked_ms: u64) -> Option<bool> {
        let answer_time = Occasion::AfterOutage.answer_time().unwrap();
        let is_look = now_ms % u64::from(LOOK_MS) == 0;
        match self {
            Self::Opening { until_ms, asked_ms } if now_ms >= *until_ms => {
                let mut told = Told::YES;
                let hears = asked_ms.is_some();
                if !hears {
                    told.lost(now_ms);
                }
                *self = Self::Open(told);
                hears.then_some(true)
            }
            Self::Opening { asked_ms, .. } if is_look => {
                let is_due =
                    asked_ms.is_some_and(|asked_ms| answer_time.is_over(now_ms - asked_ms));
                if is_due {
                    *asked_ms = None;
                }
                is_due.then_some(false)
            }
            Self::Open(told) if is_look && told.is_over(now_ms, last_asked_ms) => {
                *self = Self::Closed;
                None
            }
            _ => None,
        }
    }

    /// Asks for it; returns whether it is open.
    fn ask(&mut self, now_ms: u64, slow_ms: u64) -> bool {
        match self {
            Self::Open(told) => {
                assert!(told.ask());
                return true;
            }
            Self::Opening { asked_ms, .. } => *asked_ms = Some(now_ms),
            Self::Closed => {
                *self = Self::Opening {
                    until_ms: now_ms + slow_ms,
                    asked_ms: Some(now_ms),
                };
            }
        }
        false
    }
}

/// Returns the time at which all of `count` devices are back that need `slow_ms` to open each time.
fn back_ms(count: usize, slow_ms: u64) -> Option<u64> {
    let mut disks = vec![Disk::Closed; count];
    let mut mapped = vec![false; count];
    // The client asks for one after the other; the round begins anew a second after it.
    let (mut at, mut next_ms, mut asks, mut asked_ms) = (0, 0, false, 0);
    for now_ms in (0..1_800_000).step_by(TICK_MS as usize) {
        let heard: Vec<bool> = disks
            .iter_mut()
            .filter_map(|disk| disk.tick(now_ms, asked_ms))
            .collect();
        if let (true, Some(is_open)) = (asks, heard.first()) {
            asks = false;
            mapped[at] = *is_open;
            at += 1;
        }
        while !asks && now_ms >= next_ms {
            if mapped.iter().all(|mapped| *mapped) {
                return Some(now_ms);
            }
            if at == count {
                at = 0;
                next_ms = now_ms + u64::from(REOPEN_AGAIN_MS);
                break;
            }
            if !mapped[at] {
                asked_ms = now_ms;
                mapped[at] = disks[at].ask(now_ms, slow_ms);
                asks = !mapped[at];
            }
            at += usize::from(!asks);
        }
    }
    None
}

#[test]
fn slow_devices_come_back_however_many_there_are() {
    for count in [1, 2, 4, 8, 10, 12, 16, 24, 32, 64] {
        for slow_ms in [1_100, 2_600, 4_000, 6_000, 10_000, 20_000] {
            let back_ms = back_ms(count, slow_ms);
            assert!(back_ms.is_some(), "{count} that need {slow_ms} ms");
        }
    }
}
