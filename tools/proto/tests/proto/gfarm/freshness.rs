// SPDX-License-Identifier: GPL-2.0

//! Answers that are old when they come, and rights that are withdrawn meanwhile.

use proptest::prelude::*;
use proto::gfarm::freshness::{
    is_right_after,
    is_within,
    Grant,
    Own, //
};

const TASK: i32 = 7;
const OTHER: i32 = 8;

/// An answer that a task has had at 1000 ms, and the time since.
fn own() -> Own<u64> {
    let mut own = Own::NONE;
    own.told(TASK, 1000);
    own
}

fn take(own: &mut Own<u64>, task: i32, now_ms: u64, max_s: u32) -> bool {
    own.take(task)
        .is_some_and(|came| is_right_after(now_ms - came, max_s))
}

#[test]
fn an_answer_is_used_once_by_the_task_that_has_asked() {
    let mut none = Own::NONE;
    assert!(!take(&mut none, TASK, 1000, 1));
    let mut answer = own();
    assert!(!take(&mut answer, OTHER, 1000, 1));
    assert!(take(&mut answer, TASK, 1001, 1));
    assert!(!take(&mut answer, TASK, 1001, 1));
}

#[test]
fn an_answer_is_used_right_after_it_has_come() {
    assert!(take(&mut own(), TASK, 1199, 1));
    assert!(!take(&mut own(), TASK, 1200, 3600));
    // One that comes too late has been used: it is not taken by a use that comes later still.
    let mut late = own();
    assert!(!take(&mut late, TASK, 1500, 1));
    assert!(!take(&mut late, TASK, 1100, 1));
    // With `actimeo=0` each use asks.
    assert!(!take(&mut own(), TASK, 1000, 0));
}

/// A gfmd that is slower than the age that attributes may have: each walk asks once for each thing
/// that it uses, and comes to its end.
#[test]
fn a_slow_gfmd_is_asked_once_for_each_use() {
    const UNDER_WAY_MS: u64 = 1400;
    const MAX_S: u32 = 1;
    let (mut now_ms, mut asked_ms, mut questions) = (10_000, 0, 0);
    let mut own = Own::NONE;
    for walk in 1..=20 {
        // The look-up of the name tells the attributes.
        asked_ms = now_ms.max(asked_ms);
        now_ms += UNDER_WAY_MS;
        questions += 1;
        own.told(TASK, now_ms);
        // The use of the attributes.
        let is_own = take(&mut own, TASK, now_ms, MAX_S);
        if !is_own && !is_within(now_ms - asked_ms, MAX_S) {
            questions += 1;
        }
        assert_eq!(questions, walk);
        // Another use, and the use of another task, find that they are old.
        for task in [TASK, OTHER] {
            assert!(!take(&mut own, task, now_ms, MAX_S));
            assert!(!is_within(now_ms - asked_ms, MAX_S));
        }
    }
}

#[test]
fn a_right_that_is_withdrawn_meanwhile_is_not_granted() {
    let mut grant = Grant::NONE;
    grant.grant(10);
    assert_eq!(grant.asked(), Some(10));
    // Asked for at 20, withdrawn at 30, and answered after that.
    grant.withdraw(30);
    grant.grant(20);
    assert_eq!(grant.asked(), None);
    grant.grant(31);
    assert_eq!(grant.asked(), Some(31));
    // An answer that was overtaken makes it no older.
    grant.grant(30);
    assert_eq!(grant.asked(), Some(31));
}

#[test]
fn what_finds_the_next_content_grants_it() {
    let mut grant = Grant::NONE;
    grant.grant(10);
    // The answer to an open tells of another content, which it has opened.
    grant.withdraw(20);
    grant.grant(20);
    assert_eq!(grant.asked(), Some(20));
}

#[derive(Clone, Copy, Debug)]
enum Told {
    Granted(u64),
    Withdrawn(u64),
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        (0u64..9).prop_map(Told::Granted),
        (0u64..9).prop_map(Told::Withdrawn),
    ]
}

proptest! {
    /// Whatever order the answers are taken in, the last grant counts that was not withdrawn since.
    #[test]
    fn the_order_of_the_questions_counts(answers in proptest::collection::vec(told(), 0..12)) {
        let mut grant = Grant::NONE;
        for answer in &answers {
            match *answer {
                Told::Granted(at) => grant.grant(at),
                Told::Withdrawn(at) => grant.withdraw(at),
            }
        }
        let withdrawn = answers.iter().filter_map(|answer| match answer {
            Told::Withdrawn(at) => Some(*at),
            Told::Granted(_) => None,
        });
        let since = withdrawn.max().unwrap_or(0);
        let granted = answers.iter().filter_map(|answer| match answer {
            Told::Granted(at) if *at >= since => Some(*at),
            _ => None,
        });
        prop_assert_eq!(grant.asked(), granted.max());
    }
}
