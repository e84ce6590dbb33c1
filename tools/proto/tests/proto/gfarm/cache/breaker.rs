// SPDX-License-Identifier: GPL-2.0

//! The breaker, which keeps a node that has no answers from asking others for a while.

use proptest::prelude::*;
use proto::gfarm::cache::breaker::{
    Breaker,
    Change,
    Cut,
    DOUBT_US,
    FRUITLESS_MAX,
    PAUSE_US_MIN,
    SILENCES_MAX,
    TOGETHER_US, //
};

/// Nodes are silent from `now_us` on until it is in doubt; returns the time of its end.
fn doubted(breaker: &mut Breaker, now_us: u64) -> u64 {
    for _ in 1..SILENCES_MAX {
        assert_eq!(breaker.silent(now_us), None);
    }
    assert_eq!(breaker.silent(now_us), Some(Change::Doubted));
    now_us + DOUBT_US
}

#[test]
fn silences_and_no_answer_cut_it_off() {
    let mut breaker = Breaker::NEW;
    let end_us = doubted(&mut breaker, 7);
    assert_eq!((breaker.cut(), breaker.look(end_us - 1)), (None, None));
    assert_eq!(breaker.look(end_us), Some(Change::Cut(Cut::Silence)));
    assert_eq!(breaker.cut(), Some(Cut::Silence));
    assert_eq!(
        (breaker.look(u64::MAX), breaker.silent(u64::MAX)),
        (None, None)
    );
    // An answer that is on its way yet does not count.
    assert_eq!(breaker.answered(end_us + PAUSE_US_MIN - 1), None);
    let joined = breaker.answered(end_us + PAUSE_US_MIN);
    assert_eq!((joined, breaker.cut()), (Some(Change::Joined), None));
}

#[test]
fn an_answer_ends_a_doubt() {
    let mut breaker = Breaker::NEW;
    for round in 0..3 {
        let end_us = doubted(&mut breaker, round * DOUBT_US);
        assert_eq!(breaker.answered(end_us - 1), None);
        assert_eq!((breaker.look(end_us), breaker.cut()), (None, None));
    }
    // So does one between two silences.
    let mut breaker = Breaker::NEW;
    for _ in 0..100 {
        assert_eq!(breaker.silent(0), None);
        assert_eq!(breaker.answered(0), None);
    }
}

#[test]
fn the_pause_doubles_while_nodes_are_silent_again_soon() {
    let (mut breaker, mut now_us, mut pauses_us) = (Breaker::NEW, 0, Vec::new());
    for _ in 0..12 {
        let end_us = doubted(&mut breaker, now_us);
        assert!(breaker.look(end_us).is_some());
        let is_joined = |pause_us: &u64| {
            let mut copy = breaker;
            copy.answered(end_us + pause_us).is_some()
        };
        let pause_us = (0..20).map(|n| PAUSE_US_MIN << n).find(is_joined).unwrap();
        pauses_us.push(pause_us / PAUSE_US_MIN);
        now_us = end_us + pause_us;
        assert_eq!(breaker.answered(now_us), Some(Change::Joined));
    }
    assert_eq!(pauses_us, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256]);
    // Later it begins anew.
    let end_us = doubted(&mut breaker, now_us + 60_000_000);
    assert!(breaker.look(end_us).is_some());
    assert!(breaker.answered(end_us + PAUSE_US_MIN).is_some());
}

/// A node is silent again and again; probes are answered each time. Returns the number of silences
/// and the time when it is cut off.
fn fruitless(breaker: &mut Breaker, mut now_us: u64) -> (u8, u64) {
    for silences in 1..=100 {
        now_us += TOGETHER_US;
        if breaker.silent(now_us) == Some(Change::Cut(Cut::Silence)) {
            return (silences, now_us);
        }
        assert_eq!((breaker.answered(now_us), breaker.cut()), (None, None));
    }
    panic!("it is not cut off");
}

/// Replies come to another queue pair than answers to probes, which may be the one that fails.
#[test]
fn silences_without_a_reply_cut_it_off_although_probes_are_answered() {
    let mut breaker = Breaker::NEW;
    let (silences, cut_us) = fruitless(&mut breaker, 0);
    assert_eq!(silences, FRUITLESS_MAX);
    // The next time it takes less, and the pause is longer.
    let mut joined_us = cut_us + PAUSE_US_MIN;
    assert_eq!(breaker.answered(joined_us), Some(Change::Joined));
    for doubling in 1..4 {
        let (silences, cut_us) = fruitless(&mut breaker, joined_us);
        assert_eq!(silences, 2);
        joined_us = cut_us + (PAUSE_US_MIN << doubling);
        assert_eq!(breaker.answered(joined_us - 1), None);
        assert_eq!(breaker.answered(joined_us), Some(Change::Joined));
    }
    // Until some replies come.
    for _ in 0..FRUITLESS_MAX {
        assert_eq!(breaker.replied(joined_us), None);
    }
    assert_eq!(fruitless(&mut breaker, joined_us).0, FRUITLESS_MAX);
}

#[test]
fn who_hears_a_reply_for_two_silences_is_not_cut_off() {
    let mut breaker = Breaker::NEW;
    for n in 0..300 {
        let now_us = n * TOGETHER_US;
        breaker.silent(now_us);
        let change = match n % 2 {
            0 => breaker.answered(now_us),
            _ => breaker.replied(now_us),
        };
        assert_eq!((change, breaker.cut()), (None, None));
    }
}

/// Many reads ask one node when it dies.
#[test]
fn silences_at_one_time_count_once() {
    let mut breaker = Breaker::NEW;
    for n in 0..u64::from(FRUITLESS_MAX) * 8 {
        breaker.silent(n);
        assert_eq!((breaker.answered(n), breaker.cut()), (None, None));
    }
}

/// Many reads wait for nodes, and a reply comes for one of many.
#[test]
fn few_replies_for_many_silences_cut_it_off() {
    let cut_after = |silences: u64, replies: u64| {
        let mut breaker = Breaker::NEW;
        (1..=100).find(|time| {
            let now_us = time * TOGETHER_US;
            let cut = (0..silences).any(|_| breaker.silent(now_us).is_some_and(is_cut));
            for n in 0..replies {
                // Behind the silences, and by their times also in between.
                breaker.replied(now_us + n * TOGETHER_US / replies);
            }
            cut
        })
    };
    assert_eq!(cut_after(16, 1), Some(FRUITLESS_MAX.into()));
    assert_eq!(cut_after(16, 7), Some(FRUITLESS_MAX.into()));
    // Half of the nodes that are known, or a node that dies among many.
    assert_eq!((cut_after(16, 8), cut_after(16, 16)), (None, None));
}

fn is_cut(change: Change) -> bool {
    matches!(change, Change::Cut(_))
}

#[test]
fn a_port_that_is_down_cuts_it_off_at_once() {
    let mut breaker = Breaker::NEW;
    assert_eq!(breaker.port(true), Some(Change::Cut(Cut::Port)));
    assert_eq!((breaker.cut(), breaker.port(true)), (Some(Cut::Port), None));
    // An answer from before it went down does not bring it back, but has it looked at.
    for is_down in [true, true, false] {
        assert_eq!(
            (breaker.answered(9), breaker.cut()),
            (Some(Change::PortDoubted), Some(Cut::Port))
        );
        if is_down {
            assert_eq!(breaker.port(is_down), None);
        }
    }
    assert_eq!(
        (breaker.port(false), breaker.cut()),
        (Some(Change::Joined), None)
    );
    // A port that comes back says nothing of the nodes behind it.
    let end_us = doubted(&mut breaker, 9);
    assert!(breaker.look(end_us).is_some());
    assert_eq!((breaker.port(true), breaker.port(false)), (None, None));
    assert_eq!(breaker.cut(), Some(Cut::Silence));
}

#[test]
fn a_device_that_has_failed_cuts_it_off_for_good() {
    let mut breaker = Breaker::NEW;
    assert_eq!(breaker.device_failed(), Some(Change::Cut(Cut::Device)));
    assert_eq!(
        (breaker.device_failed(), breaker.cut()),
        (None, Some(Cut::Device))
    );
    // Neither an answer from before nor a port that is active, as its driver says, brings it back.
    assert_eq!((breaker.answered(9), breaker.port(false)), (None, None));
    let end_us = doubted(&mut breaker, 9);
    assert_eq!(
        (breaker.look(end_us), breaker.answered(u64::MAX)),
        (None, None)
    );
    assert_eq!(breaker.cut(), Some(Cut::Device));
    // What is cut off already is not told of it, but stays so.
    let mut breaker = Breaker::NEW;
    assert_eq!(breaker.port(true), Some(Change::Cut(Cut::Port)));
    assert_eq!((breaker.device_failed(), breaker.port(false)), (None, None));
    assert_eq!(breaker.cut(), Some(Cut::Device));
}

proptest! {
    /// Each change is told, once, and is the one that `cut` shows.
    #[test]
    fn what_is_told_is_so(events in proptest::collection::vec((0u8..50, 0u64..400_000), 0..200)) {
        let (mut breaker, mut now_us, mut told) = (Breaker::NEW, 0u64, None);
        for (event, later_us) in events {
            now_us += later_us;
            let change = match event {
                0..10 => breaker.look(now_us),
                10..20 => breaker.silent(now_us),
                20..26 => breaker.answered(now_us),
                26..30 => breaker.replied(now_us),
                30..39 => breaker.port(true),
                39..49 => breaker.port(false),
                _ => breaker.device_failed(),
            };
            let before = told;
            match change {
                Some(Change::Cut(cut)) => told = Some(cut),
                Some(Change::Joined) => told = None,
                Some(Change::Doubted | Change::PortDoubted) | None => {}
            }
            prop_assert_eq!(told.is_some(), breaker.cut().is_some());
            let is_news = !matches!(
                change,
                None | Some(Change::Doubted | Change::PortDoubted)
            );
            prop_assert_eq!(before.is_some() != told.is_some(), is_news);
        }
    }
}
