// SPDX-License-Identifier: GPL-2.0

//! The paths and outages of a session.

use proto::rtrs::{
    availability::{
        Availability,
        Conditions,
        Effect,
        Event,
        Reopening,
        REOPEN_AGAIN_MS, //
    },
    outage::{
        self,
        FastIoFail,
        Outage, //
    },
};

const FAIL_QUEUED: Effect = Effect::Outage(outage::Effect::FailQueued);
const NOW: Effect = Effect::ReopenIn { pause_ms: 0 };

fn at(now_ms: u64) -> Conditions {
    Conditions {
        now_ms,
        setting: FastIoFail::After(3),
        is_away: false,
    }
}

fn queue(until_ms: u64) -> Effect {
    let until_ms = Some(until_ms);
    Effect::BeginOutage(outage::Effect::Queue { until_ms })
}

fn ended(reopening: Reopening, succeeded: bool) -> Event {
    Event::Reopened {
        reopening,
        succeeded,
    }
}

fn in_outage() -> Availability {
    let mut session = Availability::NEW;
    assert_eq!(session.step(Event::Opened(at(1000))), queue(4000));
    session
}

#[test]
fn the_first_path_makes_the_session_usable_and_the_last_ends_that() {
    let mut session = in_outage();
    assert!(!session.is_connected());
    assert_eq!(session.reopening(), None, "there is no path to do it on");
    assert_eq!(session.step(Event::PathUp), NOW);
    assert!(session.is_connected());
    assert_eq!(session.step(Event::PathUp), Effect::Ignore);
    let reopening = session.reopening().unwrap();
    let again = Effect::ReopenIn {
        pause_ms: REOPEN_AGAIN_MS,
    };
    assert_eq!(session.step(ended(reopening, false)), again);
    assert!(matches!(session.outage(), Outage::Queueing { .. }));
    let resume = Effect::Outage(outage::Effect::Resume);
    assert_eq!(session.step(ended(reopening, true)), resume);
    assert_eq!(session.outage(), Outage::Up);
    assert_eq!(session.step(Event::PathDown(at(5000))), Effect::Ignore);
    assert!(session.is_connected());
    assert_eq!(session.step(Event::PathDown(at(5000))), queue(8000));
    assert!(!session.is_connected());
}

#[test]
fn before_a_session_is_open_its_upper_layer_is_told_nothing() {
    let mut session = Availability::NEW;
    for _ in 0..2 {
        assert_eq!(session.step(Event::PathUp), Effect::Ignore);
        assert_eq!(session.step(Event::PathDown(at(1000))), Effect::Ignore);
    }
    assert_eq!(session.outage(), Outage::Up);
    session.step(Event::PathUp);
    assert_eq!(session.step(Event::Opened(at(1000))), Effect::Ignore);
    assert_eq!(session.step(Event::PathDown(at(2000))), queue(5000));
}

#[test]
fn after_a_session_is_closed_its_upper_layer_is_told_nothing() {
    let mut session = in_outage();
    session.step(Event::PathUp);
    let reopening = session.reopening().unwrap();
    let close = Event::Outage(outage::Event::Closed);
    assert_eq!(session.step(close), FAIL_QUEUED);
    assert_eq!(session.outage(), Outage::Closed);
    for succeeded in [false, true] {
        assert_eq!(session.step(ended(reopening, succeeded)), Effect::Ignore);
    }
    assert_eq!(session.step(Event::PathDown(at(2000))), Effect::Ignore);
    assert_eq!(session.step(Event::PathUp), Effect::Ignore);
    assert_eq!(session.outage(), Outage::Closed);
}

#[test]
fn a_try_that_another_outage_overtakes_does_nothing() {
    let mut session = in_outage();
    session.step(Event::PathUp);
    let reopening = session.reopening().unwrap();
    session.step(Event::PathDown(at(2000)));
    session.step(Event::PathUp);
    for succeeded in [false, true] {
        assert_eq!(session.step(ended(reopening, succeeded)), Effect::Ignore);
    }
    assert!(matches!(session.outage(), Outage::Queueing { .. }));
    let now = session.reopening().unwrap();
    assert!(matches!(
        session.step(ended(now, false)),
        Effect::ReopenIn { .. }
    ));
}

#[test]
fn a_path_that_was_validated_before_an_outage_is_not_admitted_after_it() {
    let mut session = in_outage();
    let first = session.admission();
    assert!(session.admits(first), "all is agreed upon anew after it");
    session.step(Event::PathUp);
    let second = session.admission();
    assert!(session.admits(first) && session.admits(second));
    session.step(Event::PathDown(at(2000)));
    assert!(session.admits(second), "no path is there to differ from");
    session.step(Event::PathUp);
    assert!(!session.admits(second));
    assert!(session.admits(session.admission()));
}

#[test]
fn an_outage_that_the_client_begins_itself_leaves_requests_time() {
    let failing = Conditions {
        setting: FastIoFail::After(0),
        ..at(1000)
    };
    let mut session = Availability::NEW;
    let effect = session.step(Event::Opened(failing));
    assert_eq!(effect, Effect::BeginOutage(outage::Effect::FailQueued));
    let mut session = Availability::NEW;
    let away = Conditions {
        is_away: true,
        ..failing
    };
    let effect = session.step(Event::Opened(away));
    let Effect::BeginOutage(outage::Effect::Queue {
        until_ms: Some(end),
    }) = effect
    else {
        panic!("{effect:?}");
    };
    assert!(end > 2000);
}
