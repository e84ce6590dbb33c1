// SPDX-License-Identifier: GPL-2.0

//! The knowledge about one other node: which claims count, and when it is suspect, dead or
//! forgotten.

use proto::gfarm::cache::{
    address::{
        Group,
        NodeId, //
    },
    peer::{
        Claim,
        Due,
        Peer,
        Record,
        Standing,
        DEAD_PAUSE_US,
        FORGET_US,
        PROBES_MAX,
        SUSPECT_US, //
    },
    series::{
        PROBE_TIMEOUT_US,
        PROBE_TIMEOUT_US_MAX, //
    },
};

use super::address::address;

const NEWS: u8 = 9;

fn claim(incarnation: u32, standing: Standing) -> Claim {
    Claim {
        incarnation,
        standing,
    }
}

fn record(claim: Claim) -> Record {
    Record {
        node: NodeId::new(5).unwrap(),
        address: address(5),
        boot: 1,
        claim,
        group: Group::new(7).unwrap(),
    }
}

fn alive() -> Peer {
    Peer::heard_of(&record(Claim::FIRST), false, NEWS, 0)
}

/// Lets a peer be silent from `now_us` on, until it has changed; returns the time and the probes.
fn silence(peer: &mut Peer, mut now_us: u64) -> (u64, u32) {
    let mut probes = 0;
    loop {
        match peer.due(NEWS, now_us) {
            Due::Probe => {
                probes += 1;
                peer.probed(probes, now_us);
            }
            Due::Nothing => {}
            Due::Changed | Due::Forget => return (now_us, probes),
        }
        now_us = peer.due_us();
    }
}

#[test]
fn the_newer_claim_holds_in_any_order() {
    let standings = [
        Standing::Alive,
        Standing::Suspect,
        Standing::Dead,
        Standing::Left,
    ];
    let claims = (0..3).flat_map(|i| standings.map(|standing| claim(i, standing)));
    let claims: Vec<Claim> = claims.collect();
    for a in &claims {
        for b in &claims {
            for c in &claims {
                let mut peer = alive();
                for claim in [a, b, c] {
                    peer.learn(&record(*claim), true, NEWS, 1);
                }
                let newest = *[a, b, c].into_iter().max().unwrap();
                assert_eq!(peer.record().unwrap().claim, newest, "{a:?} {b:?} {c:?}");
            }
        }
    }
}

#[test]
fn only_the_node_itself_can_contradict() {
    // What others say of the same incarnation is only ever worse.
    let suspect = claim(4, Standing::Suspect);
    assert!(claim(4, Standing::Alive) < suspect);
    assert!(claim(5, Standing::Alive) > claim(4, Standing::Left));
}

#[test]
fn a_silent_peer_is_suspected_and_then_dead() {
    let mut peer = alive();
    assert_eq!(
        peer.due_us(),
        u64::MAX,
        "nothing is due for a peer that is well"
    );
    peer.check(1000);
    let (at_us, probes) = silence(&mut peer, 1000);
    assert_eq!(probes, u32::from(PROBES_MAX));
    assert_eq!(at_us, 1000 + u64::from(PROBES_MAX) * PROBE_TIMEOUT_US);
    assert_eq!(peer.standing(), Some(Standing::Suspect));
    assert!(!peer.is_live());
    let (dead_us, probes) = silence(&mut peer, at_us);
    assert_eq!(peer.standing(), Some(Standing::Dead));
    assert!(probes > 10, "it is probed while it can contradict");
    assert_eq!(dead_us, at_us + SUSPECT_US);
    // It is probed more and more seldom, and forgotten.
    let (forgotten_us, probes) = silence(&mut peer, dead_us);
    assert_eq!(forgotten_us, dead_us + FORGET_US);
    assert!((20..80).contains(&probes), "{probes} probes in ten minutes");
    assert!(peer.due_us() <= forgotten_us);
}

#[test]
fn a_peer_registered_by_hand_is_never_forgotten() {
    let mut peer = Peer::by_hand(address(5), 7);
    assert_eq!(peer.standing(), None);
    let mut now_us = 7;
    let mut probes = 0;
    while now_us < 10 * FORGET_US {
        match peer.due(NEWS, now_us) {
            Due::Probe => {
                probes += 1;
                peer.probed(probes, now_us);
            }
            Due::Nothing => {}
            other => panic!("{other:?}"),
        }
        now_us = peer.due_us();
    }
    // Four each minute or so.
    assert!((300..600).contains(&probes), "{probes} probes");
    while peer.due(NEWS, now_us) != Due::Probe {
        now_us = peer.due_us();
    }
    peer.probed(1, now_us);
    assert!(peer.answered(&record(Claim::FIRST), 1, NEWS, now_us));
    assert!(peer.is_live());
}

#[test]
fn an_answer_repeats_the_last_number_from_the_right_place() {
    let mut peer = alive();
    let honest = record(Claim::FIRST);
    assert!(!peer.answered(&honest, 0, NEWS, 1), "there was no probe");
    peer.probed(77, 1);
    assert!(!peer.answered(&honest, 76, NEWS, 2));
    let elsewhere = Record {
        address: address(6),
        ..honest
    };
    assert!(!peer.answered(&elsewhere, 77, NEWS, 2));
    assert!(peer.answered(&honest, 77, NEWS, 2));
    assert!(!peer.answered(&honest, 77, NEWS, 2), "a repetition");
}

#[test]
fn a_suspect_that_contradicts_is_alive_again() {
    let mut peer = alive();
    peer.check(0);
    let (at_us, _) = silence(&mut peer, 0);
    assert_eq!(peer.due(NEWS, at_us), Due::Probe);
    peer.probed(5, at_us);
    // It does not know yet that it is suspected.
    assert!(peer.answered(&record(Claim::FIRST), 5, NEWS, at_us + 1));
    assert!(!peer.is_live());
    peer.probed(6, at_us + 2);
    let contradiction = record(claim(1, Standing::Alive));
    assert!(peer.answered(&contradiction, 6, NEWS, at_us + 3));
    assert!(peer.is_live() && peer.has_news());
}

#[test]
fn who_asks_itself_counts_only_after_a_probe() {
    let mut peer = Peer::heard_of(&record(Claim::FIRST), true, NEWS, 0);
    assert_eq!((peer.standing(), peer.record()), (None, None));
    assert_eq!(peer.due(NEWS, 0), Due::Probe);
    peer.probed(9, 0);
    assert!(peer.answered(&record(Claim::FIRST), 9, NEWS, 1));
    assert!(peer.is_live() && peer.has_news());
    let mut silent = Peer::heard_of(&record(Claim::FIRST), true, NEWS, 0);
    let (at_us, _) = silence(&mut silent, 0);
    let waits_us = [1, 2, 4, 8].map(|times| times * PROBE_TIMEOUT_US);
    assert_eq!(at_us, waits_us.into_iter().sum());
    assert_eq!(waits_us.last(), Some(&PROBE_TIMEOUT_US_MAX));
}

#[test]
fn a_peer_that_needs_long_for_an_answer_becomes_a_member() {
    for (mut peer, took_us) in [
        (Peer::by_hand(address(5), 0), 2_000_000),
        (
            Peer::heard_of(&record(Claim::FIRST), true, NEWS, 0),
            1_500_000,
        ),
        (alive(), 500_000),
    ] {
        peer.check(0);
        let (mut first, mut now_us, mut sent) = (None, 0, 0);
        while now_us < took_us {
            if peer.due(NEWS, now_us) == Due::Probe {
                // Each has another number; all of a series count.
                let number = peer.probed(1000 * sent, now_us);
                first = first.or(Some(number));
                sent += 1;
            }
            now_us = peer.due_us();
        }
        let honest = record(Claim::FIRST);
        assert!(peer.answered(&honest, first.unwrap(), NEWS, took_us));
        assert!(peer.is_live(), "{took_us} us");
        // From then on it is given the time that it needs, up to a limit.
        peer.check(10_000_000);
        assert_eq!(peer.due(NEWS, 10_000_000), Due::Probe);
        peer.probed(7, 10_000_000);
        let wait_us = (2 * took_us).clamp(PROBE_TIMEOUT_US, PROBE_TIMEOUT_US_MAX);
        assert_eq!(peer.due_us(), 10_000_000 + wait_us);
    }
}

#[test]
fn the_time_of_an_answer_counts_from_its_own_probe() {
    let mut peer = alive();
    peer.check(0);
    for probe in 0..3 {
        let now_us = probe * PROBE_TIMEOUT_US;
        assert_eq!(peer.due(NEWS, now_us), Due::Probe);
        // CAST: Below 3.
        assert_eq!(peer.probed(40, now_us), 40 + probe as u32);
    }
    assert!(!peer.awaits(39) && peer.awaits(40) && peer.awaits(42) && !peer.awaits(43));
    let at_us = 2 * PROBE_TIMEOUT_US + 100_000;
    assert!(peer.answered(&record(Claim::FIRST), 42, NEWS, at_us));
    peer.check(at_us);
    peer.probed(50, at_us);
    assert_eq!(peer.due_us(), at_us + 200_000);
}

#[test]
fn another_start_of_the_machine_replaces_it() {
    let peer = alive();
    let other = Record {
        node: NodeId::new(6).unwrap(),
        ..record(Claim::FIRST)
    };
    let second_mount = Record {
        address: proto::gfarm::cache::address::Address::new(super::address::gid(5), 0, 18, 111, 0)
            .unwrap(),
        ..other
    };
    assert!(peer.is_replaced_by(&other), "the same queue pair");
    assert!(
        !peer.is_replaced_by(&second_mount),
        "two mounts of one machine"
    );
    assert!(peer.is_replaced_by(&Record {
        boot: 2,
        ..second_mount
    }));
    assert!(!peer.is_replaced_by(&Record {
        boot: 2,
        ..record(Claim::FIRST)
    }));
}

#[test]
fn numbers_of_datagrams_go_on_after_the_peer_was_forgotten() {
    let mut peer = Peer::by_hand(address(5), 1_000);
    let first: Vec<u64> = (0..3).map(|_| peer.next_sequence()).collect();
    assert_eq!(first, [1_001, 1_002, 1_003]);
    let mut again = Peer::by_hand(address(5), 2_000);
    assert!(again.next_sequence() > first[2]);
    assert!(peer.accept(8) && !peer.accept(8) && peer.accept(7));
}

#[test]
fn the_pause_of_a_dead_peer_grows() {
    let mut peer = alive();
    peer.learn(&record(claim(0, Standing::Dead)), true, NEWS, 0);
    assert_eq!(peer.due_us(), DEAD_PAUSE_US);
    assert!(peer.is_replaceable());
    let mut by_hand = Peer::by_hand(address(5), 9);
    assert!(by_hand.accept(8));
    peer.unite(&by_hand);
    assert!(!peer.is_replaceable());
    assert!(!peer.accept(8), "the numbers of both are known");
}
