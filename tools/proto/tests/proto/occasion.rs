// SPDX-License-Identifier: GPL-2.0

//! The time that a client waits for a device that it opens.

use proto::{
    rnbd::{
        answer_time::LOOK_MS,
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

#[test]
fn a_silent_device_holds_no_path_back() {
    // The validation of a path waits for the lock that the OPEN has.
    assert!(Occasion::AfterOutage.timeout_ms() < ONE_PATH_ANSWER_MS);
    assert_eq!(Occasion::Asked.timeout_ms(), ANSWER_MS);
    // And for no id that messages to silent devices have.
    assert_eq!(Occasion::NewPath.waits(), AnswerWaits::ForNothing);
    for occasion in [Occasion::Asked, Occasion::AfterOutage] {
        assert_eq!(occasion.waits(), AnswerWaits::ForDevice);
    }
}

#[test]
fn a_server_answers_before_the_client_gives_up() {
    for occasion in [Occasion::Asked, Occasion::AfterOutage, Occasion::NewPath] {
        for max_ms in [ONE_PATH_ANSWER_MS, u32::MAX] {
            let answer_time = occasion.answer_time(max_ms).unwrap();
            // The server looks now and then, and the message has its way.
            let gives_up_ms = occasion.timeout_ms().min(max_ms);
            let before_ms = u64::from(gives_up_ms - LOOK_MS) - 100;
            assert!(answer_time.is_over(before_ms), "{occasion:?}");
            assert!(!answer_time.is_over(before_ms - 500), "{occasion:?}: early");
        }
    }
}
