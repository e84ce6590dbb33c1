// SPDX-License-Identifier: GPL-2.0

//! The heartbeat: when a peer is asked whether it is there, and when it is given up.

use proto::rtrs::heartbeat::{
    latency_ns,
    Heartbeat,
    Tick, //
};

#[test]
fn a_silent_peer_is_given_up_in_the_seventh_tick() {
    // 0 s: ask; 5 to 25 s: wait; 30 s: give up. As the C driver does, measured.
    let mut missed = 0;
    let mut ticks = Vec::new();
    for _ in 0..7 {
        let tick;
        (missed, tick) = Heartbeat::DEFAULT.tick(missed);
        ticks.push(tick);
    }
    let mut expected = vec![Tick::Wait; 7];
    (expected[0], expected[6]) = (Tick::Send, Tick::Dead);
    assert_eq!(ticks, expected);
}

#[test]
fn a_peer_that_answers_is_asked_at_each_tick_and_never_given_up() {
    for _ in 0..100 {
        let (missed, tick) = Heartbeat::DEFAULT.tick(0);
        assert_eq!((missed, tick), (1, Tick::Send));
    }
}

#[test]
fn every_history_of_answers_ends_only_after_silence() {
    // All histories of 14 ticks, with or without an answer after each.
    for answers in 0u32..1 << 14 {
        let (mut missed, mut silent) = (0, 0);
        for i in 0..14 {
            let (next, tick) = Heartbeat::DEFAULT.tick(missed);
            assert_eq!(tick == Tick::Dead, silent == 6);
            assert_eq!(tick == Tick::Send, silent == 0);
            if tick == Tick::Dead {
                break;
            }
            let answered = (answers >> i) & 1 == 1;
            (missed, silent) = if answered { (0, 0) } else { (next, silent + 1) };
        }
    }
}

#[test]
fn any_setting_and_any_count_is_survived() {
    for missed_max in [0, 1, u32::MAX] {
        let h = Heartbeat {
            interval_ms: u32::MAX,
            missed_max,
        };
        for missed in [0, 1, u32::MAX - 1, u32::MAX] {
            let (next, tick) = h.tick(missed);
            assert!(next >= missed);
            assert_eq!(tick == Tick::Dead, missed > missed_max);
        }
    }
}

#[test]
fn d17_a_measured_latency_is_never_the_one_that_means_unknown() {
    assert_eq!(latency_ns(10, 25), 15);
    assert_eq!(latency_ns(10, 10), 1);
    // A clock that went back.
    assert_eq!(latency_ns(25, 10), 1);
}
