// SPDX-License-Identifier: GPL-2.0

//! Recovery of a path: every order in which events, the connecting thread and the teardown worker
//! can take their turns, up to a depth.

use std::collections::HashSet;

use proto::rtrs::{
    path::ClientState,
    recovery::{
        Action,
        Effects,
        Event,
        Outcome,
        Pauses,
        Recovery,
        StaleConnection,
        TearDown, //
    }, //
};

const PAUSES: Pauses = Pauses {
    delay_ms_max: 1000,
    attempts_max: 2,
    least_ms: 0,
    random: 0,
};

/// The holder of the mutex that the connecting thread and the teardown worker share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Busy {
    Nobody,
    Connecting,
    TearingDown(TearDown),
}

/// A driver that carries effects out: what it has at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Driver {
    recovery: Recovery,
    busy: Busy,
    /// The pause that is running.
    timer_ms: Option<u32>,
    is_tear_down_queued: bool,
    has_transport: bool,
    has_stale_connection: bool,
    /// Resources are there that hold a device.
    has_resources: bool,
    /// A device was removed while the path was not connected, and what it kept may be on it.
    is_device_gone: bool,
    /// A reconnect was requested, and no attempt has begun since.
    is_hurried: bool,
    is_released: bool,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Lost,
    LostBefore,
    Abandoned,
    DeviceGone,
    AnyDeviceGone,
    DeviceGoneBefore,
    RetryNow,
    Reconnect,
    Close,
    CloseForGood,
    Remove,
    TimerExpires,
    AttemptSucceeds,
    AttemptFails(Outcome),
    TearDownBegins,
    TearDownEnds,
    TearDownCannotDrain,
}

const TURNS: [Turn; 19] = [
    Turn::Lost,
    Turn::LostBefore,
    Turn::Abandoned,
    Turn::DeviceGone,
    Turn::AnyDeviceGone,
    Turn::DeviceGoneBefore,
    Turn::RetryNow,
    Turn::Reconnect,
    Turn::Close,
    Turn::CloseForGood,
    Turn::Remove,
    Turn::TimerExpires,
    Turn::AttemptSucceeds,
    Turn::AttemptFails(Outcome::Silence),
    Turn::AttemptFails(Outcome::Refused),
    Turn::AttemptFails(Outcome::Other),
    Turn::TearDownBegins,
    Turn::TearDownEnds,
    Turn::TearDownCannotDrain,
];

impl Driver {
    /// A path that was connected for the first time.
    fn connected() -> Self {
        let mut driver = Self {
            recovery: Recovery::NEW,
            busy: Busy::Connecting,
            timer_ms: None,
            is_tear_down_queued: false,
            has_transport: false,
            has_stale_connection: false,
            has_resources: true,
            is_device_gone: false,
            is_hurried: false,
            is_released: false,
        };
        assert!(driver.take(Turn::AttemptSucceeds));
        driver
    }

    fn step(&mut self, event: Event) -> Action {
        let Effects {
            action,
            stale_connection,
        } = self.recovery.step(event);
        match stale_connection {
            StaleConnection::Leave => {}
            StaleConnection::Disconnect => assert!(
                self.has_stale_connection,
                "a stale connection that is not there"
            ),
            StaleConnection::Drop => {
                assert!(self.has_stale_connection, "drops what is not there");
                self.has_stale_connection = false;
            }
        }
        match action {
            Action::StartIn { pause_ms } => {
                assert!(pause_ms == 0 || !self.is_hurried, "a hurry is lost");
                self.timer_ms = Some(pause_ms);
            }
            Action::TearDown | Action::LeaveDevice | Action::GiveUp | Action::TearDownIn { .. } => {
                self.is_tear_down_queued = true;
            }
            Action::Connect => {
                assert!(!self.has_transport, "connects over connections");
                assert!(
                    !self.is_device_gone,
                    "connects with what is on a device that is gone"
                );
                (self.busy, self.has_resources, self.is_hurried) = (Busy::Connecting, true, false);
            }
            Action::GoLive => (self.has_transport, self.is_hurried) = (true, false),
            Action::AnnounceClosed => {
                let is_empty =
                    !self.has_transport && !self.has_stale_connection && !self.has_resources;
                assert!(is_empty, "closed too early");
                self.is_hurried = false;
            }
            Action::Release => self.is_released = true,
            Action::Ignore | Action::Busy | Action::AbortConnect | Action::LookAgain => {}
        }
        action
    }

    /// Lets somebody take a turn; `false` if that cannot happen now.
    fn take(&mut self, turn: Turn) -> bool {
        let life = self.recovery.life();
        let before = life.wrapping_sub(1);
        match turn {
            // Before the first attempt there is nobody to say so.
            Turn::Lost => drop(self.step(Event::Lost { life: Some(life) })),
            Turn::LostBefore => {
                let was = self.recovery;
                self.step(Event::Lost { life: Some(before) });
                assert_eq!(self.recovery, was, "blames this life for an earlier one");
            }
            Turn::Abandoned => drop(self.step(Event::Abandoned)),
            Turn::DeviceGone => {
                self.is_device_gone = self.has_resources;
                self.step(Event::DeviceGone { life: Some(life) });
            }
            Turn::AnyDeviceGone => {
                self.is_device_gone |=
                    self.recovery.state() != ClientState::Connected && self.has_resources;
                self.step(Event::DeviceGone { life: None });
            }
            Turn::DeviceGoneBefore => {
                self.is_device_gone |= self.has_stale_connection;
                self.step(Event::DeviceGone { life: Some(before) });
            }
            Turn::RetryNow => {
                self.is_hurried = matches!(
                    self.recovery.state(),
                    ClientState::Connecting
                        | ClientState::ConnectingErr
                        | ClientState::Reconnecting
                ) && life > 1;
                self.step(Event::RetryNow);
            }
            Turn::Reconnect => drop(self.step(Event::Reconnect)),
            Turn::Close => drop(self.step(Event::Close)),
            Turn::CloseForGood => drop(self.step(Event::CloseForGood)),
            Turn::Remove if self.recovery.state() == ClientState::Closed => {
                self.step(Event::Remove);
            }
            Turn::TimerExpires if self.timer_ms.is_some() && self.busy == Busy::Nobody => {
                self.timer_ms = None;
                self.step(Event::Start);
            }
            Turn::AttemptSucceeds if self.busy == Busy::Connecting => {
                self.busy = Busy::Nobody;
                if self.step(Event::Established) != Action::GoLive {
                    return self.attempt_failed(Outcome::Other);
                }
            }
            Turn::AttemptFails(outcome) if self.busy == Busy::Connecting => {
                self.busy = Busy::Nobody;
                return self.attempt_failed(outcome);
            }
            Turn::TearDownBegins if self.is_tear_down_queued && self.busy == Busy::Nobody => {
                self.is_tear_down_queued = false;
                if let Some(run) = self.recovery.begin_tear_down() {
                    self.busy = Busy::TearingDown(run);
                }
            }
            Turn::TearDownEnds => return self.tear_down_ends(),
            Turn::TearDownCannotDrain if matches!(self.busy, Busy::TearingDown(_)) => {
                self.busy = Busy::Nobody;
                self.step(Event::Undrained);
            }
            _ => return false,
        }
        true
    }

    fn attempt_failed(&mut self, outcome: Outcome) -> bool {
        self.step(Event::AttemptFailed {
            outcome,
            took_ms: 0,
            pauses: PAUSES,
        });
        true
    }

    fn tear_down_ends(&mut self) -> bool {
        let Busy::TearingDown(run) = self.busy else {
            return false;
        };
        self.busy = Busy::Nobody;
        let had_transport = std::mem::take(&mut self.has_transport);
        let kept = run == TearDown::ToConnectAgain && had_transport;
        if run != TearDown::ToConnectAgain {
            (
                self.has_stale_connection,
                self.has_resources,
                self.is_device_gone,
            ) = (false, false, false);
        }
        self.has_stale_connection |= kept;
        self.step(Event::TornDown {
            run,
            kept,
            pauses: PAUSES,
        });
        true
    }

    fn check(&self) {
        let state = self.recovery.state();
        let somebody_comes = self.is_tear_down_queued || self.busy != Busy::Nobody;
        assert_eq!(
            self.has_stale_connection,
            self.recovery.has_stale_connection()
        );
        assert!(state != ClientState::Connected || self.has_transport);
        match state {
            ClientState::Reconnecting => {
                assert!(
                    somebody_comes || self.timer_ms.is_some(),
                    "waits for nothing"
                );
            }
            ClientState::Connecting | ClientState::ConnectingErr => {
                assert_eq!(self.busy, Busy::Connecting);
            }
            ClientState::Closing => assert!(somebody_comes, "is never closed"),
            ClientState::Closed | ClientState::Dead => {
                assert!(
                    !self.has_transport && !self.has_stale_connection && !self.has_resources,
                    "leaks"
                );
            }
            ClientState::Connected => {}
        }
        assert!(
            somebody_comes || !self.is_device_gone,
            "keeps something of a device that is gone"
        );
        assert_eq!(self.is_released, state == ClientState::Dead);
    }
}

#[test]
fn no_order_of_turns_leaks_loses_a_wish_or_forgets_a_path() {
    let first = Driver::connected();
    let mut seen = HashSet::from([first]);
    let mut now = vec![first];
    for _ in 0..14 {
        let mut next = Vec::new();
        for driver in now {
            for turn in TURNS {
                let mut driver = driver;
                if driver.take(turn) {
                    driver.check();
                    if seen.insert(driver) {
                        next.push(driver);
                    }
                }
            }
        }
        now = next;
    }
    assert!(seen.len() > 1000, "{} situations only", seen.len());
    let closed = |d: &&Driver| d.recovery.state() == ClientState::Closed;
    let after_all = |d: &&Driver| d.recovery.attempts() == PAUSES.attempts_max.unsigned_abs();
    assert!(
        seen.iter().filter(closed).any(|d| after_all(&d)),
        "attempts are never used up"
    );
}

/// A lost path whose teardown is over, and that keeps a stale connection.
fn lost() -> Driver {
    let mut driver = Driver::connected();
    for turn in [Turn::Lost, Turn::TearDownBegins, Turn::TearDownEnds] {
        assert!(driver.take(turn));
    }
    assert!(driver.has_stale_connection);
    driver
}

#[test]
fn only_a_path_that_the_client_ends_waits_for_the_disconnects_of_its_peer() {
    use Turn::{Abandoned, AnyDeviceGone, Close, DeviceGone, Lost, Reconnect, RetryNow};
    for (turns, waits) in [
        (&[Abandoned][..], true),
        (&[Close], true),
        (&[Reconnect], true),
        (&[AnyDeviceGone, Close], true),
        (&[Abandoned, Lost], true),
        (&[Lost], false),
        (&[DeviceGone], false),
        (&[Lost, Abandoned], false),
        (&[Lost, Close], false),
        (&[Lost, Reconnect], false),
        (&[DeviceGone, RetryNow, Close], false),
    ] {
        let mut driver = Driver::connected();
        for turn in turns {
            assert!(driver.take(*turn));
        }
        let timeout_ms = driver.recovery.peer_disconnect_ms(false);
        // A server that knows the fence message is asked instead.
        assert_eq!(driver.recovery.peer_disconnect_ms(true), 0);
        assert_eq!(timeout_ms != 0, waits, "{turns:?}");
    }
}

#[test]
fn a_new_life_does_not_wait_because_of_the_last_one() {
    let mut driver = Driver::connected();
    for turn in [
        Turn::Reconnect,
        Turn::TearDownBegins,
        Turn::TearDownEnds,
        Turn::TimerExpires,
        Turn::AttemptSucceeds,
        Turn::Lost,
    ] {
        assert!(driver.take(turn), "{turn:?}");
    }
    assert_eq!(driver.recovery.peer_disconnect_ms(false), 0);
}

#[test]
fn a_path_that_has_had_its_attempts_is_torn_down_for_good() {
    let mut driver = lost();
    for _ in 0..2 {
        assert!(driver.take(Turn::TimerExpires));
        assert!(driver.take(Turn::AttemptFails(Outcome::Silence)));
    }
    assert_eq!(driver.recovery.state(), ClientState::Closing);
    assert_eq!(driver.recovery.begin_tear_down(), Some(TearDown::ForGood));
    assert!(driver.take(Turn::TearDownBegins) && driver.take(Turn::TearDownEnds));
    assert_eq!(driver.recovery.state(), ClientState::Closed);
    assert!(!driver.has_stale_connection);
}

#[test]
fn a_run_that_was_not_for_good_does_not_close() {
    let mut driver = Driver::connected();
    for turn in [
        Turn::Lost,
        Turn::TearDownBegins,
        Turn::Close,
        Turn::TearDownEnds,
    ] {
        assert!(driver.take(turn));
    }
    assert_eq!(driver.recovery.state(), ClientState::Closing);
    assert!(driver.take(Turn::TearDownBegins) && driver.take(Turn::TearDownEnds));
    assert_eq!(driver.recovery.state(), ClientState::Closed);
}

#[test]
fn a_stale_connection_is_disconnected_when_the_server_refuses() {
    let mut driver = lost();
    assert!(driver.take(Turn::TimerExpires));
    let effects = driver.recovery.step(Event::AttemptFailed {
        outcome: Outcome::Refused,
        took_ms: 30,
        pauses: PAUSES,
    });
    assert_eq!(effects.stale_connection, StaleConnection::Disconnect);
    assert_eq!(effects.action, Action::StartIn { pause_ms: 70 });
    let mut driver = lost();
    assert!(driver.take(Turn::TimerExpires));
    let effects = driver.recovery.step(Event::AttemptFailed {
        outcome: Outcome::Refused,
        took_ms: 30,
        pauses: Pauses {
            least_ms: 500,
            ..PAUSES
        },
    });
    assert_eq!(effects.action, Action::StartIn { pause_ms: 500 });
}

#[test]
fn somebody_who_asks_gets_an_attempt_and_counting_starts_again() {
    let mut recovery = lost().recovery;
    let none = Pauses {
        attempts_max: 0,
        ..PAUSES
    };
    let failed = Event::AttemptFailed {
        outcome: Outcome::Other,
        took_ms: 0,
        pauses: none,
    };
    assert_eq!(recovery.step(Event::Start).action, Action::Connect);
    assert_eq!(recovery.step(failed).action, Action::GiveUp);
    assert_eq!(recovery.step(Event::Reconnect).action, Action::Busy);
    let run = recovery.begin_tear_down().unwrap();
    recovery.step(Event::TornDown {
        run,
        kept: false,
        pauses: none,
    });
    assert_eq!(
        recovery.step(Event::Reconnect).action,
        Action::StartIn { pause_ms: 0 }
    );
    assert_eq!(recovery.attempts(), 1);
    assert_eq!(recovery.step(Event::Start).action, Action::Connect);
    assert_eq!(recovery.life(), 3);
}

#[test]
fn a_silent_peer_is_counted() {
    let mut driver = lost();
    for n in 1..=2 {
        assert!(driver.take(Turn::TimerExpires));
        assert!(driver.take(Turn::AttemptFails(Outcome::Silence)));
        assert_eq!(driver.recovery.silent(), n);
        driver.take(Turn::RetryNow);
    }
    let other = Event::AttemptFailed {
        outcome: Outcome::Other,
        took_ms: 0,
        pauses: PAUSES,
    };
    driver.recovery.step(other);
    assert_eq!(driver.recovery.silent(), 0);
}

#[test]
fn a_path_that_is_not_drained_neither_connects_nor_closes_before_it_is() {
    let later = Action::TearDownIn { pause_ms: 5_000 };
    let mut path = Driver::connected().recovery;
    path.step(Event::Lost { life: None });
    assert_eq!(path.step(Event::Undrained).action, later);
    // Whatever is asked for waits for the next run.
    assert_eq!(path.step(Event::Start).action, Action::Ignore);
    assert_eq!(path.step(Event::RetryNow).action, Action::Ignore);
    assert_eq!(path.step(Event::Reconnect).action, Action::Ignore);
    assert_eq!(path.begin_tear_down(), Some(TearDown::ToConnectAgain));
    assert_eq!(path.step(Event::Close).action, Action::TearDown);
    assert_eq!(path.begin_tear_down(), Some(TearDown::ForGood));
    assert_eq!(path.step(Event::Undrained).action, later);
    assert_eq!(path.state(), ClientState::Closing);
}
