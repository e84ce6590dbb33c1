// SPDX-License-Identifier: GPL-2.0

//! How long a client waits for a device that it opens.

use proto::{
    rnbd::occasion::{
        Occasion,
        ANSWER_MS, //
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
