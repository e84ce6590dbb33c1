// SPDX-License-Identifier: GPL-2.0

//! The state of a path's recovery, which tells its driver more than the actions.

use proto::rtrs::recovery::{
    Action,
    Event,
    Pauses,
    Recovery,
    TearDown, //
};

const PAUSES: Pauses = Pauses {
    delay_ms_max: 1000,
    attempts_max: 2,
    least_ms: 0,
    random: 0,
};

fn after(events: &[Event]) -> Recovery {
    let mut recovery = Recovery::NEW;
    for event in events {
        recovery.step(*event);
    }
    recovery
}

const LOST: Event = Event::Lost { life: None };
const TORN_DOWN: Event = Event::TornDown {
    run: TearDown::ToConnectAgain,
    kept: false,
    pauses: PAUSES,
};

#[test]
fn a_path_that_was_up_once_is_known_for_ever() {
    assert!(!Recovery::NEW.was_up());
    assert!(!after(&[LOST]).was_up());
    assert!(after(&[Event::Established]).was_up());
    assert!(after(&[Event::Established, LOST, TORN_DOWN, Event::Start]).was_up());
}

#[test]
fn a_run_is_granted_once_for_a_loss() {
    let lost = after(&[Event::Established, LOST]);
    assert_eq!(lost.begin_tear_down(), Some(TearDown::ToConnectAgain));
    let torn_down = after(&[Event::Established, LOST, TORN_DOWN]);
    assert_eq!(torn_down.begin_tear_down(), None);
    let mut leaving = torn_down;
    let effects = leaving.step(Event::DeviceGone { life: None });
    assert_eq!(effects.action, Action::LeaveDevice);
    assert_eq!(leaving.begin_tear_down(), Some(TearDown::ToLeaveDevice));
    assert_eq!(after(&[]).begin_tear_down(), None);
    assert_eq!(after(&[Event::Established]).begin_tear_down(), None);
}

#[test]
fn a_fault_ends_the_attempt_under_way_once() {
    let mut recovery = Recovery::NEW;
    assert_eq!(recovery.step(LOST).action, Action::AbortConnect);
    assert_eq!(recovery.step(LOST).action, Action::Ignore);
    let mut again = after(&[Event::Established, LOST, TORN_DOWN, Event::Start]);
    let of_the_first = Event::Lost { life: Some(1) };
    assert_eq!(again.step(of_the_first).action, Action::Ignore);
    assert_eq!(again.step(Event::Abandoned).action, Action::AbortConnect);
}

#[test]
fn a_change_for_the_better_starts_only_what_waits() {
    let retry = |events: &[Event]| after(events).step(Event::RetryNow).action;
    // The task that adds the path waits for the first life.
    assert_eq!(retry(&[]), Action::Ignore);
    assert_eq!(retry(&[LOST]), Action::Ignore);
    assert_eq!(retry(&[Event::Established]), Action::Ignore);
    assert_eq!(retry(&[Event::Established, LOST]), Action::Ignore);
    let waits = [Event::Established, LOST, TORN_DOWN, Event::Start];
    assert_eq!(retry(&waits[..3]), Action::StartIn { pause_ms: 0 });
    assert_eq!(retry(&waits), Action::LookAgain);
}

#[test]
fn a_device_is_left_by_the_run_that_is_queued_if_there_is_one() {
    let leave = |events: &[Event]| after(events).step(Event::DeviceGone { life: None }).action;
    let lost = [Event::Established, LOST, TORN_DOWN];
    assert_eq!(leave(&lost[..2]), Action::Ignore);
    assert_eq!(leave(&lost), Action::LeaveDevice);
}

#[test]
fn a_path_is_announced_closed_and_only_then_removed() {
    let mut recovery = after(&[Event::Established, Event::Close]);
    assert_eq!(recovery.step(Event::Remove).action, Action::Busy);
    let torn_down = Event::TornDown {
        run: TearDown::ForGood,
        kept: false,
        pauses: PAUSES,
    };
    assert_eq!(recovery.step(torn_down).action, Action::AnnounceClosed);
    assert_eq!(recovery.step(Event::Remove).action, Action::Release);
    assert_eq!(recovery.step(Event::Remove).action, Action::Ignore);
}

#[test]
fn a_path_that_is_closed_for_good_is_never_connected_again() {
    let torn_down = Event::TornDown {
        run: TearDown::ForGood,
        kept: false,
        pauses: PAUSES,
    };
    let waits = [Event::Established, LOST, TORN_DOWN];
    for before in 0..=waits.len() {
        let mut path = after(&waits[..before]);
        assert_eq!(path.step(Event::CloseForGood).action, Action::TearDown);
        assert_eq!(path.step(Event::Reconnect).action, Action::Busy);
        path.step(torn_down);
        assert_eq!(path.step(Event::Reconnect).action, Action::Busy);
        assert_eq!(path.step(Event::CloseForGood).action, Action::Ignore);
        assert_eq!(path.step(Event::Remove).action, Action::Release);
    }
    // One that an administrator has closed is connected again until then.
    let mut path = after(&[Event::Established, Event::Close, torn_down]);
    let again = path.step(Event::Reconnect).action;
    assert_eq!(again, Action::StartIn { pause_ms: 0 });
    path = after(&[Event::Established, Event::Close, torn_down]);
    assert_eq!(path.step(Event::CloseForGood).action, Action::Ignore);
    assert_eq!(path.step(Event::Reconnect).action, Action::Busy);
}

#[test]
fn a_stale_connection_is_kept_until_it_is_dropped() {
    let kept = Event::TornDown {
        run: TearDown::ToConnectAgain,
        kept: true,
        pauses: PAUSES,
    };
    let mut recovery = after(&[Event::Established, LOST]);
    for event in [kept, kept, TORN_DOWN] {
        recovery.step(event);
        assert!(recovery.has_stale_connection());
    }
}
