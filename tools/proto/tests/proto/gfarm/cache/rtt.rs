// SPDX-License-Identifier: GPL-2.0

//! The time for which a peer is waited for, by the times of its answers.

use proptest::prelude::*;
use proto::gfarm::cache::rtt::{
    Rtt,
    TIMEOUT_US_LIMIT,
    TIMEOUT_US_MAX,
    TIMEOUT_US_MIN, //
};

#[test]
fn a_peer_that_is_not_known_has_a_time_between() {
    let timing = Rtt::NEW.timing();
    assert_eq!((timing.timeout_us, timing.grace_us), (100_000, 1_000));
    assert_eq!(timing.again_us, 25_000);
}

#[test]
fn the_time_follows_the_answers() {
    for (rtt_us, timeout_us, grace_us) in [
        (10, 50_000, 1_000),
        (8_000, 50_000, 4_000),
        (60_000, 60_000, 20_000),
        (1_000_000, 200_000, 20_000),
    ] {
        let mut rtt = Rtt::NEW;
        for _ in 0..100 {
            rtt.answered(Some(rtt_us));
        }
        let timing = rtt.timing();
        assert!(
            timing.timeout_us.abs_diff(timeout_us) < 1000,
            "{rtt_us}: {timing:?}"
        );
        // Not before an answer can be there, nor for ever.
        assert!(timing.again_us >= rtt_us.min(timeout_us).max(10_000));
        assert!(
            timing.grace_us.abs_diff(grace_us) < 10,
            "{rtt_us}: {timing:?}"
        );
    }
}

#[test]
fn the_first_answers_are_given_room() {
    let mut rtt = Rtt::NEW;
    rtt.answered(Some(40_000));
    assert_eq!(
        rtt.timing().timeout_us,
        120_000,
        "the mean, and twice of it"
    );
}

#[test]
fn silence_doubles_the_time_up_to_the_limit() {
    let mut rtt = Rtt::NEW;
    rtt.answered(Some(100));
    for timeout_us in [50_000, 100_000, 200_000, 200_000, 200_000] {
        assert_eq!(rtt.timing().timeout_us, timeout_us);
        rtt.silent(0);
    }
    rtt.answered(None);
    assert_eq!(rtt.timing().timeout_us, 50_000);
}

#[test]
fn the_administrator_sets_the_limit() {
    let mut rtt = Rtt::NEW;
    rtt.answered(Some(100));
    for timeout_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
        assert_eq!(
            rtt.timing_within(TIMEOUT_US_LIMIT).timeout_us,
            timeout_ms * 1000
        );
        assert_eq!(rtt.timing_within(TIMEOUT_US_MIN).timeout_us, 50_000);
        rtt.silent(0);
    }
    for _ in 0..100 {
        rtt.answered(Some(u32::MAX));
    }
    let timeout_us = rtt.timing_within(TIMEOUT_US_LIMIT).timeout_us;
    assert_eq!(timeout_us, TIMEOUT_US_LIMIT);
    assert_eq!(rtt.timing().timeout_us, TIMEOUT_US_MAX);
}

proptest! {
    #[test]
    fn limits_hold(answers in prop::collection::vec(any::<Option<u32>>(), 0..99)) {
        let mut rtt = Rtt::NEW;
        for answer in answers {
            match answer {
                Some(rtt_us) => rtt.answered(Some(rtt_us)),
                None => rtt.silent(0),
            }
            let timing = rtt.timing();
            prop_assert!((TIMEOUT_US_MIN..=TIMEOUT_US_MAX).contains(&timing.timeout_us));
            prop_assert!((1_000..=20_000).contains(&timing.grace_us));
        }
    }
}

#[test]
fn who_was_silent_three_times_is_lost_for_a_second() {
    let mut rtt = Rtt::NEW;
    assert!(!rtt.is_lost(0));
    rtt.silent(4_000_000);
    assert!(!rtt.is_lost(4_000_000));
    rtt.silent(5_000_000);
    assert!(!rtt.is_lost(5_000_000));
    rtt.silent(6_000_000);
    for (now_us, is_lost) in [
        (5_999_999, true),
        (6_000_000, true),
        (6_999_999, true),
        (7_000_000, false),
    ] {
        assert_eq!(rtt.is_lost(now_us), is_lost, "{now_us}");
    }
    // The next one tries it once.
    rtt.silent(7_200_000);
    assert!(rtt.is_lost(7_200_000));
    rtt.answered(None);
    assert!(!rtt.is_lost(7_200_000));
}

/// A peer whose public queue pair is flooded answers some of the requests.
#[test]
fn who_is_silent_often_is_lost_although_it_answers_at_times() {
    // What it did, `true` for an answer.
    let is_lost = |deeds: &[bool]| {
        let mut rtt = Rtt::NEW;
        for is_answer in deeds {
            match is_answer {
                true => rtt.answered(Some(1000)),
                false => rtt.silent(5_000_000),
            }
        }
        rtt.is_lost(5_500_000)
    };
    assert!(is_lost(&[false, true, false, true, false]));
    assert!(is_lost(&[false, false, true, true, false]));
    assert!(!is_lost(&[false, true, true, false, true, false]));
    assert!(!is_lost(&[false, false, true, true, true, false]));
    // One of five that are lost is not enough, however long it goes on; and one of three is.
    let of = |each: usize| (0..600).map(|n| n % each != 0).collect::<Vec<_>>();
    assert!(!is_lost(&of(5)));
    assert!(is_lost(&of(3)[..=9]));
    // Who is back has to answer some.
    assert!(!is_lost(&[false, false, false, true]));
    assert!(is_lost(&[
        false, false, false, true, true, true, true, false
    ]));
    assert!(!is_lost(&[
        false, false, false, true, true, true, true, true, false
    ]));
}

#[test]
fn who_has_kept_a_read_is_not_asked_for_ten_seconds_whatever_it_answers() {
    let mut rtt = Rtt::NEW;
    rtt.kept(5_000_000);
    rtt.answered(Some(1000));
    rtt.silent(6_000_000);
    rtt.answered(None);
    for (now_us, is_lost) in [(5_000_000, true), (14_999_999, true), (15_000_000, false)] {
        assert_eq!(rtt.is_lost(now_us), is_lost, "{now_us}");
    }
}
