// SPDX-License-Identifier: GPL-2.0

//! Refusals that wait for the look-up of an address, and how many do.

use std::collections::VecDeque;

use proto::gfarm::cache::{
    admission::{
        Admission,
        PeerLoad, //
    },
    waiting::{
        Waiting,
        KEEPING_MAX,
        REFUSING_MAX, //
    },
};

/// The time that the look-up of an address takes that no machine has, in microseconds.
const LOOK_UP_US: u64 = 1_000_000;

#[test]
fn no_more_wait_than_may() {
    for max in [0, 1, REFUSING_MAX, KEEPING_MAX] {
        let mut waiting = Waiting::new(max);
        for _ in 0..max {
            assert!(waiting.begin());
        }
        assert!(!waiting.begin());
        // One that was dropped does not end.
        if max != 0 {
            waiting.end();
            assert!(waiting.begin());
        }
        assert!(!waiting.begin());
    }
}

/// A node sends a request each 100 us for some seconds, beyond its share, and its address cannot be
/// looked up: each refusal waits for a second.
#[test]
fn a_node_that_is_refused_without_end_has_few_wait() {
    const EACH_US: u64 = 100;
    let mut admission = Admission::new(4, 0);
    let (mut greedy, mut other) = (PeerLoad::NEW, PeerLoad::NEW);
    while admission.admit(&mut greedy, 0, 0).is_ok() {}
    let mut waiting = Waiting::new(REFUSING_MAX);
    let (mut ends_us, mut most, mut told, mut dropped) = (VecDeque::new(), 0, 0, 0);
    for number in 0..30_000 {
        let now_us = number * EACH_US;
        while ends_us.front().is_some_and(|end_us| *end_us <= now_us) {
            ends_us.pop_front();
            waiting.end();
            told += 1;
        }
        assert!(admission.admit(&mut greedy, 0, now_us).is_err());
        if waiting.begin() {
            ends_us.push_back(now_us + LOOK_UP_US);
        } else {
            dropped += 1;
        }
        most = most.max(ends_us.len());
    }
    assert_eq!(most, usize::from(REFUSING_MAX));
    // Those of each second that found room, and none is lost from the count.
    assert_eq!(told + ends_us.len() + dropped, 30_000);
    assert!(told >= 2 * usize::from(REFUSING_MAX));
    // They have taken nothing of what is served.
    admission.release(&mut greedy);
    assert!(admission.admit(&mut other, 0, 3_000_000).is_ok());
}
