// SPDX-License-Identifier: GPL-2.0

//! The choice of the path that the next request takes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proto::rtrs::policy::{
    lesser,
    next,
    stays,
    PathLoad,
    Policy,
    Tried,
    UnknownPolicy, //
};

const POLICIES: [Policy; 3] = [Policy::RoundRobin, Policy::MinInflight, Policy::MinLatency];

fn load(connected: bool, inflight: u32, latency_ns: Option<u64>) -> PathLoad {
    PathLoad {
        connected,
        inflight,
        latency_ns,
    }
}

/// The rule in plain words: sort what is usable, take the first.
fn model(
    policy: Policy,
    last: Option<usize>,
    tried: &BTreeSet<usize>,
    paths: &[PathLoad],
) -> Option<usize> {
    let mut usable: Vec<usize> = (0..paths.len())
        .filter(|i| paths[*i].connected && !tried.contains(i))
        .collect();
    usable.sort_by_key(|i| match policy {
        Policy::RoundRobin => (last.is_some_and(|l| *i <= l).into(), *i),
        Policy::MinInflight => (paths[*i].inflight.into(), *i),
        Policy::MinLatency => (paths[*i].latency_ns.unwrap_or(u64::MAX), *i),
    });
    usable.first().copied()
}

#[test]
fn who_counts_no_requests_does_not_choose_by_them() {
    for policy in POLICIES {
        let chosen = |counts: [u32; 3]| {
            let latencies = [Some(7), Some(5), Some(5)];
            let paths = counts.into_iter().zip(latencies);
            let paths = paths.map(|(count, latency)| load(true, count, latency));
            policy.choose(Some(0), &Tried::NONE, paths)
        };
        let by_count = [[0, 1, 1], [1, 0, 1], [1, 1, 0]].map(chosen);
        let is_one = by_count.iter().all(|one| *one == by_count[0]);
        assert_eq!(is_one, !policy.counts_requests(), "{policy}");
    }
}

#[test]
fn d1_a_request_tries_each_connected_path_once_and_none_is_hidden_by_others() {
    // Two submitters, interleaved as if each preempted the other between two tries.
    let paths = [load(true, 0, None); 5];
    for policy in POLICIES {
        let (mut first, mut second) = (Tried::NONE, Tried::NONE);
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        for _ in 0..paths.len() {
            for (tried, seen) in [&mut first, &mut second].into_iter().zip(&mut seen) {
                let i = policy.choose(None, tried, paths.into_iter()).unwrap();
                tried.insert(i);
                assert!(seen.insert(i), "{policy} tried path {i} twice");
            }
        }
        assert_eq!(policy.choose(None, &first, paths.into_iter()), None);
        assert_eq!(
            policy.choose(None, &Tried::NONE, paths.into_iter()),
            Some(0)
        );
    }
}

#[test]
fn round_robin_goes_round() {
    let paths = [
        load(true, 9, None),
        load(false, 0, None),
        load(true, 0, None),
        load(true, 5, None),
    ];
    let mut last = None;
    let mut taken = Vec::new();
    for _ in 0..7 {
        last = Policy::RoundRobin.choose(last, &Tried::NONE, paths.into_iter());
        taken.push(last.unwrap());
    }
    assert_eq!(taken, [0, 2, 3, 0, 2, 3, 0]);
}

#[test]
fn d17_a_path_whose_latency_is_not_known_does_not_win() {
    let paths = [
        load(true, 0, None),
        load(true, 0, Some(90)),
        load(true, 0, Some(80)),
    ];
    let choose = |tried: &Tried| Policy::MinLatency.choose(None, tried, paths.into_iter());
    let mut tried = Tried::NONE;
    assert_eq!(choose(&tried), Some(2));
    tried.insert(2);
    assert_eq!(choose(&tried), Some(1));
    tried.insert(1);
    assert_eq!(choose(&tried), Some(0));
}

#[test]
fn the_first_of_equal_paths_wins() {
    let paths = [
        load(false, 0, Some(1)),
        load(true, 3, Some(7)),
        load(true, 3, Some(7)),
    ];
    for policy in [Policy::MinInflight, Policy::MinLatency] {
        assert_eq!(
            policy.choose(Some(1), &Tried::NONE, paths.into_iter()),
            Some(1)
        );
    }
}

/// Paths that answer nothing, and the turns of one CPU.
struct Requests {
    last: u32,
    compared: u32,
    inflight: Vec<u32>,
}

impl Requests {
    fn new(paths: usize) -> Self {
        Self {
            last: 0,
            compared: 0,
            inflight: vec![0; paths],
        }
    }

    fn send(&mut self) -> usize {
        let count = self.inflight.len() as u32;
        let inflight = |place: u32| self.inflight[place as usize];
        (self.last, self.compared) = lesser(self.last, self.compared, count, inflight);
        self.inflight[self.last as usize] += 1;
        self.last as usize
    }
}

#[test]
fn each_route_has_its_turn() {
    for paths in [1, 2, 3, 128] {
        let mut place = 0;
        for turn in 1..=2 * paths {
            place = next(place, paths);
            assert_eq!(place, turn % paths);
        }
        assert_eq!([next(paths, paths), next(u32::MAX, paths)], [0, 0]);
    }
    assert_eq!(next(0, 0), 0);
}

#[test]
fn of_two_routes_the_one_with_fewer_requests_is_chosen() {
    for counts in [[3, 4], [4, 3], [0, 9], [9, 0]] {
        let mut requests = Requests::new(2);
        requests.inflight = counts.into();
        for _ in 0..20 {
            let least = *requests.inflight.iter().min().unwrap();
            let taken = requests.send();
            assert_eq!(requests.inflight[taken], least + 1, "{counts:?}");
        }
    }
}

#[test]
fn a_route_that_is_ahead_of_the_others_is_found_within_a_round() {
    for paths in [2, 3, 128] {
        // One that does not answer any more gets nothing.
        let mut requests = Requests::new(paths);
        requests.inflight[0] = 2;
        for _ in 0..4 * paths {
            let taken = requests.send();
            assert_ne!(taken, 0, "of {paths}");
            requests.inflight[taken] -= 1;
        }
        // One is idle.
        requests.inflight = vec![50; paths];
        requests.inflight[paths - 1] = 1;
        let found = (0..paths).any(|_| requests.send() == paths - 1);
        assert!(found, "of {paths}");
    }
}

#[test]
fn all_routes_fill_alike() {
    for paths in [2, 3, 16, 128] {
        let mut requests = Requests::new(paths);
        for sent in 1..=2048 {
            requests.send();
            let most = *requests.inflight.iter().max().unwrap() as usize;
            assert!(most <= sent / paths + 3, "{most} of {sent} on {paths}");
        }
    }
}

#[test]
fn two_routes_are_looked_at_however_many_there_are() {
    for paths in [2, 3, 128] {
        let looks = std::cell::Cell::new(0);
        lesser(0, 0, paths, |_| {
            looks.set(looks.get() + 1);
            1
        });
        assert_eq!(looks.get(), 2, "of {paths}");
    }
}

#[test]
fn routes_are_connected_and_under_min_latency_the_fastest() {
    let paths = [
        load(true, 9, Some(8)),
        load(false, 0, Some(1)),
        load(true, 0, None),
        load(true, 5, Some(7)),
    ];
    let routes = |policy: Policy| policy.routes(paths.into_iter()).collect::<Vec<_>>();
    assert_eq!(
        POLICIES.map(routes),
        [vec![0, 2, 3], vec![0, 2, 3], vec![3]]
    );
    let none = [load(false, 0, Some(1)); 3];
    for policy in POLICIES {
        assert_eq!(policy.routes(none.into_iter()).count(), 0);
    }
}

#[test]
fn only_an_idle_route_stays_without_a_look_at_another() {
    assert!(stays(1, 2, || 0));
    assert!(!stays(1, 2, || 1));
    assert!(!stays(2, 2, || panic!("there is no such route")));
}

proptest! {
    #[test]
    fn a_turn_of_another_time_leads_to_a_route_that_is_there(
        last: u32, compared: u32, count in 1u32..=128, seed: u32,
    ) {
        let inflight = |place: u32| {
            assert!(place < count, "{place} of {count}");
            place.wrapping_mul(seed) >> 28
        };
        prop_assert!(next(last, count) < count);
        let (place, next_compared) = lesser(last, compared, count, inflight);
        if stays(last, count, || inflight(last)) {
            prop_assert_eq!((place, next_compared), (last, compared));
        }
        let compared = next_compared;
        prop_assert!(place < count);
        prop_assert!(lesser(place, compared, count, inflight).0 < count);
    }
}

#[test]
fn a_path_beyond_the_last_possible_one_is_never_tried_for_ever() {
    let mut tried = Tried::NONE;
    assert!(tried.contains(128) && tried.contains(usize::MAX));
    tried.insert(128);
    tried.insert(usize::MAX);
    assert_eq!(tried, Tried::NONE);
    tried.insert(127);
    assert!(tried.contains(127) && !tried.contains(126));
    let paths = (0..200).map(|i| load(i >= 128, 0, None));
    assert_eq!(Policy::MinInflight.choose(None, &Tried::NONE, paths), None);
}

#[test]
fn policies_are_written_as_the_c_driver_reads_them() {
    for (written, policy) in [
        ("0", Policy::RoundRobin),
        ("1\n", Policy::MinInflight),
        ("+2", Policy::MinLatency),
        ("rr", Policy::RoundRobin),
        ("RR\n", Policy::RoundRobin),
        ("mi", Policy::MinInflight),
        ("Ml\n", Policy::MinLatency),
        ("round-robin", Policy::RoundRobin),
        ("Round-Robin\n", Policy::RoundRobin),
        ("min-inflight (MI: 1)\n", Policy::MinInflight),
        ("MIN-LATENCY-whatever", Policy::MinLatency),
    ] {
        assert_eq!(Policy::parse(written.as_bytes()), Ok(policy), "{written:?}");
    }
    for written in [
        "",
        "\n",
        "3",
        "-1",
        "r",
        "rrr",
        "round",
        "min-",
        " rr",
        "99999999999",
        "0x1",
    ] {
        assert_eq!(
            Policy::parse(written.as_bytes()),
            Err(UnknownPolicy),
            "{written:?}"
        );
    }
}

#[test]
fn policies_are_shown_as_the_c_driver_shows_them_and_can_be_written_back() {
    for (policy, shown) in POLICIES.into_iter().zip([
        "round-robin (RR: 0)",
        "min-inflight (MI: 1)",
        "min-latency (ML: 2)",
    ]) {
        assert_eq!(policy.to_string(), shown);
        assert_eq!(Policy::parse(shown.as_bytes()), Ok(policy));
        assert_eq!(Policy::from_u8(policy as u8), Some(policy));
    }
    assert_eq!(Policy::from_u8(3), None);
    assert_eq!(Policy::default(), Policy::MinInflight);
}

proptest! {
    #[test]
    fn every_choice_is_that_of_the_plain_rule(
        loads in prop::collection::vec((any::<bool>(), 0..4u32, prop::option::of(0..4u64)), 0..20),
        last in prop::option::of(0..20usize),
        tried in prop::collection::btree_set(0..20usize, 0..10),
    ) {
        let paths: Vec<_> = loads.iter().map(|(c, n, l)| load(*c, *n, *l)).collect();
        let mut bits = Tried::NONE;
        tried.iter().for_each(|i| bits.insert(*i));
        for policy in POLICIES {
            let chosen = policy.choose(last, &bits, paths.iter().copied());
            prop_assert_eq!(chosen, model(policy, last, &tried, &paths));
        }
    }
}
