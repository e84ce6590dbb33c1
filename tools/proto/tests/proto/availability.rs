// SPDX-License-Identifier: GPL-2.0

//! The paths and outages of a session.

use proto::rtrs::{
    availability::{
        Availability,
        Reopened, //
    },
    outage::{
        Effect,
        Event,
        FastIoFail,
        Outage, //
    },
};

const SETTING: FastIoFail = FastIoFail::After(3);

fn in_outage() -> Availability {
    let mut session = Availability::NEW;
    let effect = session.begin_outage(1000, SETTING, false);
    let until_ms = Some(4000);
    assert_eq!(effect, Effect::Queue { until_ms });
    session
}

#[test]
fn the_first_path_makes_the_session_usable_and_the_last_ends_that() {
    let mut session = in_outage();
    assert!(!session.is_connected());
    assert_eq!(session.reopening(), None, "there is no path to do it on");
    assert!(session.path_up());
    assert!(session.is_connected() && !session.path_up());
    let reopening = session.reopening().unwrap();
    assert_eq!(session.reopened(reopening, false), Reopened::Again);
    assert!(matches!(session.outage(), Outage::Queueing { .. }));
    let usable = Reopened::Usable(Effect::Resume);
    assert_eq!(session.reopened(reopening, true), usable);
    assert_eq!(session.outage(), Outage::Up);
    assert!(!session.path_down() && session.is_connected());
    assert!(session.path_down() && !session.is_connected());
    assert!(session.path_down(), "one too many changes nothing");
}

#[test]
fn a_try_that_another_outage_overtakes_does_nothing() {
    let mut session = in_outage();
    session.path_up();
    let reopening = session.reopening().unwrap();
    session.path_down();
    session.begin_outage(2000, SETTING, false);
    session.path_up();
    for succeeded in [false, true] {
        assert_eq!(session.reopened(reopening, succeeded), Reopened::Late);
    }
    assert!(matches!(session.outage(), Outage::Queueing { .. }));
    let now = session.reopening().unwrap();
    assert_eq!(session.reopened(now, false), Reopened::Again);
}

#[test]
fn a_path_that_was_validated_before_an_outage_is_not_admitted_after_it() {
    let mut session = in_outage();
    let first = session.admission();
    assert!(session.admits(first), "all is agreed upon anew after it");
    session.path_up();
    let second = session.admission();
    assert!(session.admits(first) && session.admits(second));
    session.path_down();
    session.begin_outage(2000, SETTING, false);
    assert!(session.admits(second), "no path is there to differ from");
    session.path_up();
    assert!(!session.admits(second));
    assert!(session.admits(session.admission()));
}

#[test]
fn an_outage_that_the_client_begins_itself_leaves_requests_time() {
    let mut session = Availability::NEW;
    let failing = session.begin_outage(1000, FastIoFail::After(0), false);
    assert_eq!(failing, Effect::FailQueued);
    let mut session = Availability::NEW;
    let away = session.begin_outage(1000, FastIoFail::After(0), true);
    assert!(matches!(away, Effect::Queue { until_ms: Some(until) } if until > 2000));
    assert_eq!(session.step(Event::Closed), Effect::FailQueued);
    assert_eq!(session.outage(), Outage::Closed);
}
