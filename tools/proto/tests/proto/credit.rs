// SPDX-License-Identifier: GPL-2.0

//! The credit of a send queue.

use std::collections::VecDeque;

use proto::rtrs::credit::Credit;

use crate::chance::Chance;

#[test]
fn the_interval_is_a_power_of_two_within_room_and_depth() {
    for room in 0..600 {
        for depth in [1, 2, 3, 7, 8, 64, 100, 512, 513, 65_535] {
            let interval = Credit::new(room, depth).interval();
            let most = u32::from(depth).min(room.max(1)).min(512);
            assert!(interval.is_power_of_two());
            assert!(interval <= most && most < interval * 2, "{room} {depth}");
        }
    }
}

#[test]
fn exactly_the_room_is_given_out_and_a_completion_gives_an_interval_back() {
    let credit = Credit::new(6, 64);
    let mut begun = u32::MAX - 2;
    let done = begun;
    for n in 1..=6 {
        let reserved = credit.reserve(begun, done).unwrap();
        assert_eq!(reserved.begun, done.wrapping_add(n));
        begun = reserved.begun;
    }
    assert_eq!(credit.reserve(begun, done), None);
    assert_eq!(credit.interval(), 4);
    assert!(credit.reserve(begun, done.wrapping_add(4)).is_some());
}

/// A send queue that reports a signaled entry, and all before it, at some time after it was posted.
#[test]
fn a_full_queue_always_has_a_completion_to_wait_for() {
    let mut chance = Chance::new(5);
    for room in 1..40 {
        let credit = Credit::new(room, 64);
        // As far from its overflow as whole intervals are.
        let mut begun = 0u32.wrapping_sub(1024);
        let mut done = begun;
        let mut posted: VecDeque<bool> = VecDeque::new();
        for _ in 0..2000 {
            match credit.reserve(begun, done) {
                Some(reserved) if chance.below(4) != 0 => {
                    begun = reserved.begun;
                    posted.push_back(reserved.is_signaled);
                    assert!(posted.len() <= room as usize);
                }
                _ => {
                    let signaled = posted.iter().position(|s| *s);
                    if credit.reserve(begun, done).is_none() {
                        assert!(signaled.is_some(), "room {room}: nothing will be reported");
                    }
                    if let Some(at) = signaled {
                        assert!(posted.drain(..=at).count() <= credit.interval() as usize);
                        done = done.wrapping_add(credit.interval());
                    }
                }
            }
            assert!(begun.wrapping_sub(done) as usize >= posted.len());
        }
    }
}
