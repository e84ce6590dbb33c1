// SPDX-License-Identifier: GPL-2.0

//! Time limits of an attempt to connect.

use proto::rtrs::{
    timeouts::{
        set_up_left_ms,
        ConnectTimeouts,
        SET_UP_MS, //
    },
    CONNECT_TIMEOUT_MS, //
};

#[test]
fn attempts_are_short_and_the_last_of_each_round_is_longer_than_in_the_round_before() {
    let steps: Vec<u32> = (0..24).map(|n| ConnectTimeouts::again(n).step_ms).collect();
    let short = steps[0];
    let mut longest = short;
    for round in steps.chunks(4) {
        assert_eq!(round[..3], [short; 3]);
        assert!(round[3] <= CONNECT_TIMEOUT_MS, "{steps:?}");
        assert!(
            round[3] == longest * 2 || round[3] == CONNECT_TIMEOUT_MS,
            "{steps:?}"
        );
        longest = round[3];
    }
    assert_eq!(longest, CONNECT_TIMEOUT_MS);
    assert!(short * 2 < CONNECT_TIMEOUT_MS / 4);
    let last = ConnectTimeouts::again(u32::MAX);
    assert_eq!((last.address_ms, last.step_ms), (short, CONNECT_TIMEOUT_MS));
    let first = ConnectTimeouts::FIRST;
    assert_eq!(
        (first.address_ms, first.step_ms),
        (CONNECT_TIMEOUT_MS, CONNECT_TIMEOUT_MS)
    );
}

#[test]
fn a_client_has_time_for_each_connection_and_for_all_of_them() {
    assert_eq!(set_up_left_ms(0, 0), Ok(CONNECT_TIMEOUT_MS));
    assert_eq!(set_up_left_ms(1, 1), Ok(CONNECT_TIMEOUT_MS - 1));
    assert_eq!(
        set_up_left_ms(CONNECT_TIMEOUT_MS, CONNECT_TIMEOUT_MS),
        Err(CONNECT_TIMEOUT_MS)
    );
    // One connection after the other does not go on for ever.
    let mut age_ms = 0;
    while let Ok(left_ms) = set_up_left_ms(0, age_ms) {
        assert!((1..=CONNECT_TIMEOUT_MS).contains(&left_ms));
        age_ms += left_ms;
    }
    assert_eq!(
        (age_ms, set_up_left_ms(0, age_ms)),
        (SET_UP_MS, Err(SET_UP_MS))
    );
}
