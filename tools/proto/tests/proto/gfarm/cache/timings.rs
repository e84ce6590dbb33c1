// SPDX-License-Identifier: GPL-2.0

//! Times and credits that a node remembers of those that it has asked.

use proto::gfarm::cache::{
    address::NodeId,
    admission::CREDITS_FIRST,
    excluded::EXCLUDED_MAX,
    requester::event::Heard,
    rtt::TIMEOUT_US_MAX,
    timings::{
        PeerTiming,
        Timings,
        PLACES, //
    },
};

fn node(n: u64) -> NodeId {
    NodeId::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).unwrap()
}

fn timings(places: usize) -> Timings<Vec<Option<PeerTiming>>> {
    Timings::new(vec![None; places])
}

/// Far more peers than were remembered before: the requests that are under way and the silences are
/// not forgotten while all others are asked.
#[test]
fn what_a_peer_owes_is_not_forgotten_for_others() {
    let mut timings = timings(PLACES);
    let all = PLACES as u64;
    for n in 0..64 {
        for _ in 0..CREDITS_FIRST {
            assert!(timings.take(node(n), TIMEOUT_US_MAX).is_some());
        }
    }
    for n in 100..104 {
        for _ in 0..3 {
            timings.take(node(n), TIMEOUT_US_MAX).unwrap();
            timings.give_back(node(n));
            timings.heard(node(n), Heard::Silence, 1_000);
        }
    }
    for n in 1_000..1_000 + all {
        timings.take(node(n), TIMEOUT_US_MAX).unwrap();
        timings.give_back(node(n));
        let rtt_us = Some(100);
        timings.heard(node(n), Heard::Answer { rtt_us }, 2_000);
    }
    for n in 0..64 {
        assert!(timings.take(node(n), TIMEOUT_US_MAX).is_none(), "{n}");
        timings.give_back(node(n));
        assert!(timings.take(node(n), TIMEOUT_US_MAX).is_some(), "{n}");
    }
    let mut lost: Vec<_> = timings.lost(3_000).into_iter().flatten().collect();
    lost.sort_unstable();
    let mut silent: Vec<_> = (100..104).map(node).collect();
    silent.sort_unstable();
    assert_eq!(lost, silent);
    assert_eq!(timings.lost(2_000_000), [None; EXCLUDED_MAX]);
}

/// Asks as many peers as a node may know: the times of most of them are remembered.
#[test]
fn most_of_all_peers_are_remembered() {
    let mut timings = timings(PLACES);
    let all = PLACES as u64;
    for n in 0..all {
        timings.take(node(n), TIMEOUT_US_MAX).unwrap();
        timings.granted(node(n), 1);
        timings.give_back(node(n));
    }
    let is_known = |n: &u64| {
        timings.take(node(*n), TIMEOUT_US_MAX).unwrap();
        let is_known = timings.take(node(*n), TIMEOUT_US_MAX).is_none();
        timings.give_back(node(*n));
        is_known
    };
    // The last ones first: each question takes the place of the one that was asked longest ago.
    let known = (0..all).rev().filter(is_known).count() as u64;
    assert!(known * 100 > all * 80, "{known} of {all}");
}

/// The peers that were lost last are avoided, and one that answers is asked again.
#[test]
fn the_peers_that_were_lost_last_are_avoided() {
    let mut timings = timings(PLACES);
    let lose = |timings: &mut Timings<_>, n: u64| {
        timings.take(node(n), TIMEOUT_US_MAX).unwrap();
        timings.heard(node(n), Heard::Kept, n);
    };
    for n in 0..20 {
        lose(&mut timings, n);
    }
    let last = |from: u64| [0, 1, 2, 3].map(|n| Some(node(from - n)));
    assert_eq!(timings.lost(20), last(19));
    // It waits itself no more, 10 s later.
    assert_eq!(timings.lost(10_000_018), [Some(node(19)), None, None, None]);
    lose(&mut timings, 30);
    assert_eq!(timings.lost(30)[..2], [Some(node(30)), Some(node(19))]);
}
