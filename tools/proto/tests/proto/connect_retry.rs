// SPDX-License-Identifier: GPL-2.0

//! Repetitions in a connect of a path, which have an end.

use proto::rtrs::{
    connect_retry::{
        memory_pause_ms,
        resolution_ms, //
    },
    CONNECT_TIMEOUT_MS,
};

/// The timeouts of all resolutions in so much time.
fn resolutions(total_ms: u32) -> Vec<u32> {
    (0..).map_while(|n| resolution_ms(total_ms, n)).collect()
}

#[test]
fn resolutions_take_the_whole_time_and_no_more() {
    for total_ms in (0..=CONNECT_TIMEOUT_MS + 4001).step_by(7) {
        let all = resolutions(total_ms);
        assert_eq!(all.iter().sum::<u32>(), total_ms);
        assert!(all.iter().all(|ms| (1..=4000).contains(ms)), "{all:?}");
    }
}

#[test]
fn a_first_connect_resolves_eight_times_and_a_reconnect_once() {
    assert_eq!(resolutions(CONNECT_TIMEOUT_MS).len(), 8);
    assert_eq!(resolutions(1500), [1500]);
}

#[test]
fn numbers_without_end_are_no_resolutions() {
    assert_eq!(resolution_ms(u32::MAX, u32::MAX), None);
}

#[test]
fn memory_is_asked_for_again_for_three_seconds() {
    let pauses: Vec<u32> = (0..).map_while(memory_pause_ms).collect();
    assert_eq!(pauses, [200, 400, 800, 1600]);
    assert_eq!(memory_pause_ms(u32::MAX), None);
}
