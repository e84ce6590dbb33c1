// SPDX-License-Identifier: GPL-2.0

//! Shortages: tasks wait for the end of lost requests, and the session is begun anew if that takes
//! too long.

use proto::rtrs::{
    outage::FastIoFail,
    quarantine::{
        Chunk,
        Quarantine, //
    },
    shortage::{
        away_ms,
        outage_setting,
        wait_limit_ms,
        Shortage, //
    },
    timeouts::ONE_PATH_ANSWER_MS,
    CONNECT_TIMEOUT_MS, //
};

/// Refuses each 10 ms from `from_ms` to `to_ms`.
fn refuse(shortage: &mut Shortage, from_ms: u64, to_ms: u64) {
    for now_ms in (from_ms..=to_ms).step_by(10) {
        shortage.refused(now_ms);
    }
}

/// Looks at the requests in flight twice, as heartbeats do; between the looks all were answered.
fn look(shortage: &mut Shortage, now_ms: u64) {
    for now_ms in [now_ms, now_ms + 5000] {
        let Some(look) = shortage.look(now_ms) else {
            panic!("it is time at {now_ms} ms");
        };
        shortage.looked(look, false);
    }
}

#[test]
fn a_shortage_of_ten_seconds_is_too_long_and_then_one_of_fifteen() {
    let mut s = Shortage::NONE;
    let is_too_long = |s: &mut Shortage, now_ms| s.is_too_long(now_ms, FastIoFail::DEFAULT, 3);
    assert!(!is_too_long(&mut s, 0), "nothing is short");
    refuse(&mut s, 0, 9_990);
    look(&mut s, 0);
    assert!(!is_too_long(&mut s, 10_000));
    s.refused(10_000);
    assert!(is_too_long(&mut s, 10_000));
    assert!(!is_too_long(&mut s, 10_000), "once");
    refuse(&mut s, 11_000, 25_990);
    assert!(!is_too_long(&mut s, 26_000));
    s.refused(26_000);
    assert!(is_too_long(&mut s, 26_000));
    for _ in 0..20 {
        refuse(&mut s, 100_000, 740_000);
        assert!(is_too_long(&mut s, 740_000), "at most 640 s");
    }
    s.end();
    refuse(&mut s, 0, 10_000);
    look(&mut s, 0);
    assert!(is_too_long(&mut s, 10_000));
}

#[test]
fn three_tries_fall_into_the_shortest_wait_and_outlast_a_half_made_path() {
    for setting in [FastIoFail::DEFAULT, FastIoFail::After(0)] {
        let mut s = Shortage::NONE;
        let mut tries = Vec::new();
        for now_ms in (0..60_000).step_by(10) {
            s.refused(now_ms);
            if let Some(look) = s.look(now_ms) {
                s.looked(look, false);
            }
            if s.is_too_long(now_ms, setting, 1) {
                tries.push(now_ms);
            }
        }
        assert_eq!(tries.len(), 3, "{setting}");
        assert!(tries[2] - tries[0] > u64::from(CONNECT_TIMEOUT_MS));
    }
}

#[test]
fn what_is_not_asked_for_any_more_is_not_short() {
    let mut s = Shortage::NONE;
    s.refused(0);
    let is_too_long = |s: &mut Shortage, now_ms| s.is_too_long(now_ms, FastIoFail::Off, 0);
    assert!(!is_too_long(&mut s, 59_000), "it does not ask again");
    s.refused(60_000);
    assert!(!is_too_long(&mut s, 60_000), "another one");
    refuse(&mut s, 60_000, 70_000);
    assert!(is_too_long(&mut s, 70_000));
}

#[test]
fn a_device_that_is_not_opened_is_waited_for_however_rarely_it_is_asked_for() {
    let mut s = Shortage::NONE;
    s.needed(0, 1);
    look(&mut s, 0);
    assert!(!s.is_too_long(9_999, FastIoFail::Off, 1));
    assert!(s.is_too_long(10_000, FastIoFail::Off, 1));
    assert!(!s.is_too_long(90_000, FastIoFail::Off, 1), "once");
    // Asked for once in two minutes.
    s.needed(120_000, 1);
    assert!(!s.is_too_long(134_999, FastIoFail::Off, 1));
    assert!(s.is_too_long(135_000, FastIoFail::Off, 1));
    // Or all the time.
    s.needed(200_000, 1);
    s.needed(229_000, 1);
    assert!(s.is_too_long(229_000, FastIoFail::Off, 1));
    s.needed(300_000, 1);
    s.end();
    assert!(
        !s.is_too_long(990_000, FastIoFail::Off, 1),
        "nothing is held"
    );
}

#[test]
fn a_device_does_not_wait_for_requests_that_have_ended() {
    let mut s = Shortage::NONE;
    // The last chunk is released just before the device is found to be in doubt.
    s.end();
    s.needed(0, 0);
    // Weeks later a request is lost, and another device waits for its end.
    s.needed(10_000_000, 1);
    assert!(!s.is_too_long(10_009_999, FastIoFail::Off, 0));
    assert!(s.is_too_long(10_010_000, FastIoFail::Off, 0));
}

#[test]
fn requests_in_flight_are_not_made_to_fail_as_long_as_nothing_else_fails() {
    for (setting, in_flight, leaves) in [
        (FastIoFail::After(0), 1, false),
        (FastIoFail::After(10), 1, false),
        (FastIoFail::After(0), 0, true),
        (FastIoFail::After(11), 1, true),
        (FastIoFail::Off, 1, true),
    ] {
        let mut s = Shortage::NONE;
        refuse(&mut s, 0, 10_000);
        let mut device = Shortage::NONE;
        device.needed(0, 1);
        look(&mut s, 0);
        look(&mut device, 0);
        assert_eq!(
            s.is_too_long(10_000, setting, in_flight),
            leaves,
            "{setting}"
        );
        assert_eq!(
            device.is_too_long(10_000, setting, in_flight),
            leaves,
            "{setting}"
        );
        if leaves {
            continue;
        }
        // A busy session always has some in flight.
        refuse(&mut s, 10_000, 15_000);
        assert!(s.is_too_long(15_000, setting, in_flight));
        assert!(!device.is_too_long(14_999, setting, in_flight));
        assert!(device.is_too_long(15_000, setting, in_flight));
    }
}

/// The requests of one disk hang at the server, those of the others are answered.
#[test]
fn a_session_is_not_begun_anew_while_the_server_does_not_end_a_request() {
    for setting in [FastIoFail::After(0), FastIoFail::DEFAULT, FastIoFail::Off] {
        let mut q = Quarantine::new(vec![Chunk::default(); 3]);
        let mut s = Shortage::NONE;
        q.lost(0, 0);
        s.needed(0, q.held());
        let mut left_ms = None;
        for now_ms in (1000u64..).step_by(1000).take(300) {
            // Chunk 1 is the hung disk's, until it works again.
            let hangs = now_ms < 200_000;
            // Chunk 2 is used all the time.
            assert!(q.take(2, None).is_some());
            assert!(!s.is_too_long(now_ms, setting, 2) || !hangs, "{setting}");
            if let Some(look) = s.look(now_ms) {
                let mut is_any = false;
                for (chunk, is_in_flight) in [(0, false), (1, hangs), (2, true)] {
                    is_any |= q.look(chunk, is_in_flight);
                }
                assert_eq!(is_any, hangs && now_ms > 1000);
                s.looked(look, is_any);
            }
            if s.is_too_long(now_ms, setting, 2) {
                left_ms = Some(now_ms);
                break;
            }
        }
        let left_ms = left_ms.expect("the device is opened in the end");
        assert!((200_000..206_000).contains(&left_ms), "{setting}");
    }
}

#[test]
fn no_look_says_that_a_request_hangs_that_has_followed_another_in_its_chunk() {
    let mut q = Quarantine::new(vec![Chunk::default(); 2]);
    let ticket = q.lost(0, 0);
    assert!(!q.look(0, true) && !q.look(1, true) && !q.look(9, true));
    assert!(q.must_take(0) && q.must_take(1) && !q.must_take(9));
    // The lost request is the same one when it is sent again.
    assert!(q.take(1, Some(ticket)).is_some_and(|p| p.is_again));
    assert!(q.take(1, None).is_some());
    assert!(!q.must_take(1));
    assert!(q.look(0, true) && !q.look(1, true));
    assert!(q.look(0, true) && q.look(1, true), "and these hang");
    assert!(!q.look(1, false) && !q.look(1, true), "it has ended");
}

#[test]
fn looks_are_far_apart_and_the_first_one_tells_nothing() {
    let mut s = Shortage::NONE;
    assert_eq!(s.look(0), None, "nothing waits");
    s.needed(0, 1);
    let first = s.look(20_000).expect("it is time");
    assert_eq!(s.look(24_999), None);
    s.looked(first, false);
    assert!(!s.is_too_long(24_999, FastIoFail::Off, 1));
    let second = s.look(25_000).expect("it is time");
    s.looked(second, false);
    let mut gone = s;
    assert!(s.is_too_long(25_000, FastIoFail::Off, 1));
    // All chunks are released during a look, and then another is held.
    gone.end();
    gone.needed(26_000, 1);
    gone.looked(second, false);
    assert!(!gone.is_too_long(90_000, FastIoFail::Off, 1));
    assert!(gone.is_too_long(90_000, FastIoFail::Off, 0), "none waits");
}

#[test]
fn what_waits_does_not_fail_because_the_session_is_begun_anew() {
    for (setting, away) in [
        (FastIoFail::After(0), FastIoFail::After(10)),
        (FastIoFail::DEFAULT, FastIoFail::DEFAULT),
        (FastIoFail::Off, FastIoFail::Off),
    ] {
        assert_eq!(outage_setting(setting, true), away);
        assert_eq!(outage_setting(setting, false), setting);
    }
}

#[test]
fn no_path_comes_back_before_one_that_was_being_connected_has_left_the_server() {
    assert!(away_ms(false) < away_ms(true));
    let still_there_ms = away_ms(true) - away_ms(false);
    assert!(still_there_ms >= ONE_PATH_ANSWER_MS);
    // Nor does IO fail before: the outage lasts longer.
    let FastIoFail::After(s) = outage_setting(FastIoFail::After(0), true) else {
        panic!("no limit");
    };
    assert!(s * 1000 > away_ms(true) + 2000);
}

#[test]
fn a_request_waits_for_its_chunk_for_a_minute_at_least() {
    assert_eq!(wait_limit_ms(None), None);
    assert_eq!(wait_limit_ms(Some(0)), Some(60_000));
    assert_eq!(wait_limit_ms(Some(600_000)), Some(600_000));
}
