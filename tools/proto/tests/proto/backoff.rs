// SPDX-License-Identifier: GPL-2.0

//! Pauses before a lost path is connected again, and the number of attempts after which it is left.

use proptest::prelude::*;
use proto::common::backoff::{
    Backoff,
    ATTEMPTS_FOR_EVER,
    DELAY_MS_DEFAULT, //
};

/// The longest pauses, which the random number 0 gives.
fn pauses(delay_ms_max: u32, attempts_max: i32) -> Vec<u32> {
    let mut backoff = Backoff::NEW;
    std::iter::from_fn(|| backoff.next(delay_ms_max, attempts_max, 0))
        .take(20)
        .collect()
}

#[test]
fn the_first_attempt_comes_at_once_and_the_pause_doubles_up_to_the_setting() {
    let long = pauses(DELAY_MS_DEFAULT, ATTEMPTS_FOR_EVER);
    assert_eq!(long[..6], [0, 100, 200, 400, 800, 1000]);
    assert!(long[6..].iter().all(|ms| *ms == 1000));
    assert_eq!(pauses(100, -1)[..4], [0, 100, 100, 100]);
    let longest = pauses(600_000, -1);
    assert_eq!(longest[12..16], [204_800, 409_600, 600_000, 600_000]);
}

#[test]
fn attempts_are_counted_against_the_setting_and_success_starts_again() {
    assert_eq!(pauses(1000, 0), []);
    assert_eq!(pauses(1000, 1), [0]);
    assert_eq!(pauses(1000, 3), [0, 100, 200]);
    let mut backoff = Backoff::NEW;
    for _ in 0..3 {
        assert!(backoff.next(1000, 3, 0).is_some());
    }
    assert_eq!((backoff.next(1000, 3, 0), backoff.attempts()), (None, 3));
    // A setting that was raised meanwhile counts, and one that was lowered.
    assert_eq!(backoff.next(1000, 4, 0), Some(400));
    assert_eq!(backoff.next(1000, 2, 0), None);
    backoff.reset();
    assert_eq!(backoff, Backoff::NEW);
    assert_eq!(backoff.next(1000, 2, 0), Some(0));
}

#[test]
fn it_can_go_on_for_ever() {
    let mut backoff = Backoff::NEW;
    for _ in 0..100_000 {
        assert!(backoff.next(1000, -1, u32::MAX).is_some());
    }
    assert_eq!(backoff.attempts(), 100_000);
}

#[test]
fn d16_chance_reaches_both_ends_of_the_jitter_and_nothing_beyond() {
    let second = |random| {
        let mut backoff = Backoff::NEW;
        let _ = backoff.next(1000, -1, random);
        backoff.next(1000, -1, random)
    };
    assert_eq!(second(0), Some(100));
    assert_eq!(second(u32::MAX), Some(50));
    assert_eq!(second(1 << 31), Some(75));
}

proptest! {
    #[test]
    fn every_pause_is_within_half_and_all_of_what_is_due(
        delay_ms_max: u32,
        attempts_max in -5..50i32,
        randoms in prop::collection::vec(any::<u32>(), 1..40),
    ) {
        let mut backoff = Backoff::NEW;
        for (n, random) in (0u32..).zip(randoms) {
            let due = match n {
                0 => 0,
                n => 100u64
                    .saturating_mul(1 << (n - 1))
                    .min(delay_ms_max.clamp(100, 600_000).into()),
            };
            match backoff.next(delay_ms_max, attempts_max, random) {
                Some(ms) => prop_assert!(u64::from(ms) <= due && u64::from(ms) >= due / 2),
                None => prop_assert!(attempts_max >= 0 && i64::from(n) >= i64::from(attempts_max)),
            }
        }
    }
}
