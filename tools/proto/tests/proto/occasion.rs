// SPDX-License-Identifier: GPL-2.0

//! The time that a client waits for the answer to an OPEN, and when it asks again.

use ferro_proto::errno::Errno;
use proto::{
    rnbd::{
        answer_time::LOOK_MS,
        control::DeviceState,
        occasion::{
            Occasion,
            ANSWER_MS, //
        },
    },
    rtrs::{
        permit::AnswerWaits,
        timeouts::ONE_PATH_ANSWER_MS, //
    },
};

const ALL: [Occasion; 3] = [Occasion::Asked, Occasion::AfterOutage, Occasion::NewPath];

#[test]
fn a_silent_device_holds_no_path_back() {
    // The validation of a path waits for the lock that the OPEN has.
    for occasion in [Occasion::Asked, Occasion::AfterOutage] {
        // So long for its id, and so long for its answer.
        let held_ms = 2 * occasion.timeout_ms(true);
        assert!(held_ms + 1000 <= ONE_PATH_ANSWER_MS, "{occasion:?}");
        assert_eq!(occasion.waits(), AnswerWaits::ForDevice);
    }
    // And for no id that messages to silent devices have.
    assert_eq!(Occasion::NewPath.waits(), AnswerWaits::ForNothing);
    assert_eq!(Occasion::NewPath.timeout_ms(true), ONE_PATH_ANSWER_MS);
}

#[test]
fn a_server_of_the_c_driver_is_asked_once_for_long() {
    assert_eq!(Occasion::Asked.timeout_ms(false), ANSWER_MS);
    assert_eq!(Occasion::NewPath.timeout_ms(false), ANSWER_MS);
    // Its ETIMEDOUT comes at once, or was its client's.
    for took_ms in [0, 10, 900, u64::from(ANSWER_MS)] {
        for occasion in ALL {
            assert!(!occasion.asks_again(took_ms, took_ms), "{occasion:?}");
        }
    }
}

#[test]
fn a_server_answers_before_the_client_gives_up() {
    for occasion in ALL {
        let answer_time = occasion.answer_time().unwrap();
        // The server looks now and then, and the message has its way.
        let before_ms = u64::from(occasion.timeout_ms(true) - LOOK_MS) - 100;
        assert!(answer_time.is_over(before_ms), "{occasion:?}");
        assert!(!answer_time.is_over(before_ms - 500), "{occasion:?}: early");
    }
}

#[test]
fn a_user_waits_a_minute_for_a_silent_device_and_not_for_an_error_of_it() {
    let took_ms = Occasion::Asked.timeout_ms(true).into();
    let again = |waited_ms| Occasion::Asked.asks_again(took_ms, waited_ms);
    assert!(again(took_ms) && again(u64::from(ANSWER_MS) - 1));
    assert!(!again(ANSWER_MS.into()) && !again(u64::MAX));
    // A server tells it between these.
    let answer_time = Occasion::Asked.answer_time().unwrap();
    let told_ms = (0..).find(|ms| answer_time.is_over(*ms)).unwrap();
    assert!(Occasion::Asked.asks_again(told_ms, told_ms));
    assert!(!Occasion::Asked.asks_again(told_ms - 1, told_ms));
    // Who opens what was open before an outage comes back to it after the others.
    assert!(!Occasion::AfterOutage.asks_again(took_ms, took_ms));
}

#[test]
fn a_device_is_asked_for_again_until_it_is_open_or_unmapped() {
    for (state, wanted) in [
        (DeviceState::Init, Ok(())),
        (DeviceState::Disconnected, Ok(())),
        (DeviceState::Fenced, Ok(())),
        // Another writer has opened it, or unmaps it: that is said, and not that it was silent.
        (DeviceState::Mapped, Err(Errno::EALREADY)),
        (DeviceState::Unmapped, Err(Errno::ENOENT)),
    ] {
        assert_eq!(state.check_to_be_opened(), wanted, "{state}");
    }
}
