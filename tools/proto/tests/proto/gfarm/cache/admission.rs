// SPDX-License-Identifier: GPL-2.0

//! Limits of the work at a time: credits and shares of requesters, the rate, and requests that are
//! kept.

use proptest::prelude::*;
use proto::gfarm::cache::{
    admission::{
        Admission,
        Credits,
        PeerLoad,
        CREDITS_FIRST,
        CREDITS_MAX, //
    },
    keep::{
        Keep,
        Kept,
        KEEP_MS, //
    },
    reply::Answer,
    requester::READ_US_MAX, //
};

const MIB: u64 = 1 << 20;

#[test]
fn one_peer_has_no_more_than_its_credits() {
    let mut admission = Admission::new(128, 0);
    let (mut one, mut other) = (PeerLoad::NEW, PeerLoad::NEW);
    for _ in 0..CREDITS_MAX {
        assert_eq!(admission.admit(&mut one, MIB, 0), Ok(()));
    }
    let busy = admission.admit(&mut one, MIB, 0);
    assert!(matches!(busy, Err(Answer::Busy { wait_ms: 1.. })));
    assert_eq!(admission.admit(&mut other, MIB, 0), Ok(()));
    admission.release(&mut one);
    assert_eq!(admission.admit(&mut one, MIB, 0), Ok(()));
}

#[test]
fn the_capacity_is_shared_by_those_who_are_served() {
    let mut admission = Admission::new(12, 0);
    assert_eq!(admission.credits(), 12);
    let mut peers = [PeerLoad::NEW; 20];
    let shares = [12, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1];
    for (load, share) in peers.iter_mut().zip(shares) {
        assert_eq!(admission.admit(load, 1, 0), Ok(()));
        assert_eq!(admission.credits(), share);
    }
    assert!(
        admission.admit(&mut peers[12], 1, 0).is_err(),
        "12 are served"
    );
    for load in &mut peers {
        admission.release(load);
        admission.release(load);
    }
    assert_eq!(
        admission,
        Admission::new(12, 0),
        "what was not admitted is not released"
    );
}

#[test]
fn a_node_without_capacity_serves_none() {
    let mut admission = Admission::new(0, 0);
    assert!(admission.admit(&mut PeerLoad::default(), 1, 0).is_err());
    assert_eq!(admission.credits(), 1, "who asks is told why");
}

#[test]
fn the_rate_is_kept_on_the_average() {
    // 10 MiB a second, of requests for 1 MiB as often as one is admitted.
    let mut admission = Admission::new(1000, 10 * MIB);
    let mut now_us = 5_000_000;
    let mut sent = 0;
    while now_us < 15_000_000 {
        let mut load = PeerLoad::NEW;
        match admission.admit(&mut load, MIB, now_us) {
            Ok(()) => {
                sent += 1;
                admission.release(&mut load);
            }
            Err(Answer::Busy { wait_ms }) => {
                assert!((1..=1000).contains(&wait_ms));
                now_us += u64::from(wait_ms) * 1000;
            }
            Err(answer) => panic!("{answer:?}"),
        }
    }
    assert!((100..=102).contains(&sent), "{sent} MiB in 10 s");
}

#[test]
fn bytes_may_be_paid_when_it_is_known_how_many_are_sent() {
    let mut admission = Admission::new(4, MIB);
    let mut load = PeerLoad::NEW;
    assert!(load.is_idle());
    assert_eq!(admission.pay(MIB, 0), Ok(()));
    // What sends nothing is admitted although too much was sent.
    assert_eq!(admission.admit(&mut load, 0, 1), Ok(()));
    assert!(!load.is_idle());
    let busy = Err(Answer::Busy { wait_ms: 900 });
    assert_eq!(admission.pay(4096, 1), busy);
    assert_eq!(admission.pay(0, 1), Ok(()));
    assert_eq!(admission.pay(4096, 900_001), Ok(()));
    admission.release(&mut load);
    assert!(load.is_idle());
}

#[test]
fn a_large_request_is_admitted_at_any_rate() {
    let mut admission = Admission::new(1, 1);
    let mut load = PeerLoad::NEW;
    assert_eq!(admission.admit(&mut load, u64::MAX, 0), Ok(()));
    admission.release(&mut load);
    let busy = Err(Answer::Busy { wait_ms: 1000 });
    assert_eq!(admission.admit(&mut load, 1, 1), busy);
}

proptest! {
    #[test]
    fn no_more_are_served_than_the_capacity(
        capacity in 0u16..20,
        steps in prop::collection::vec((0usize..8, any::<bool>()), 0..200),
    ) {
        let mut admission = Admission::new(capacity, 0);
        let (mut peers, mut counts) = ([PeerLoad::NEW; 8], [0u16; 8]);
        for (who, is_new) in steps {
            let load = &mut peers[who];
            if is_new {
                let credits = admission.credits();
                let is_free = counts.iter().sum::<u16>() < capacity && counts[who] < credits;
                let admitted = admission.admit(load, MIB, 0);
                prop_assert_eq!(admitted.is_ok(), is_free);
                counts[who] += u16::from(is_free);
            } else {
                admission.release(load);
                counts[who] = counts[who].saturating_sub(1);
            }
            let sharers = counts.iter().filter(|count| **count > 0).count().max(1) as u16;
            prop_assert_eq!(admission.credits(), (capacity / sharers).clamp(1, CREDITS_MAX));
        }
    }
}

#[test]
fn a_node_asks_no_more_than_it_was_told() {
    let mut credits = Credits::NEW;
    for _ in 0..CREDITS_FIRST {
        assert!(credits.take());
    }
    assert!(!credits.take());
    credits.granted(CREDITS_FIRST + 1);
    assert!(credits.take());
    assert!(!credits.take());
    credits.granted(0);
    for _ in 0..CREDITS_FIRST {
        credits.give_back();
        assert!(!credits.take());
    }
    credits.give_back();
    assert!(credits.take(), "one is always allowed");
    credits.granted(u16::MAX);
    for _ in 1..CREDITS_MAX {
        assert!(credits.take());
    }
    assert!(!credits.take(), "no peer allows more");
}

#[test]
fn a_kept_request_is_answered_again_and_again() {
    let mut keep = Keep::new(1_000_000);
    let mut now_us = 1_000_000;
    let mut said_us = Vec::new();
    loop {
        match keep.look(now_us, 3) {
            Kept::Say(answer, next_us) => {
                let wait_ms = KEEP_MS;
                assert_eq!(answer, Answer::Wait { wait_ms, depth: 3 });
                assert_eq!(keep.look(now_us, 3), Kept::Until(next_us));
                said_us.push(now_us);
                now_us = next_us;
            }
            Kept::Until(_) => panic!("not at the time that was told"),
            Kept::Forget => break,
        }
    }
    assert_eq!(said_us[0], 1_000_000, "at once");
    let wait_us = u64::from(KEEP_MS) * 1000;
    let two_lost = said_us
        .windows(3)
        .all(|three| three[2] - three[0] < wait_us);
    assert!(
        two_lost,
        "one that is lost in between does not end the wait"
    );
    assert!(now_us >= 1_000_000 + READ_US_MAX);
}
