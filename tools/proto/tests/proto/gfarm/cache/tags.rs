// SPDX-License-Identifier: GPL-2.0

//! The tags of requests.

use std::collections::HashSet;

use proto::gfarm::cache::tags::Tags;

/// Those of a queue pair differ for as long as there are any, and tell it.
#[test]
fn a_queue_pair_takes_all_its_tags_in_turn() {
    for lanes in [1, 2, 3, 7, 64, 1000, 4095, 4096] {
        let of_lane = |lane: u16| {
            (0..=u16::MAX)
                .filter(move |tag| tag % lanes == lane)
                .count()
        };
        for lane in [0, lanes / 2, lanes - 1] {
            let mut tags = Tags::new(lane, lanes);
            let round = of_lane(lane);
            assert!(round >= 65_536 / usize::from(lanes));
            let first: Vec<u16> = (0..round).map(|_| tags.take()).collect();
            assert_eq!(first.iter().collect::<HashSet<_>>().len(), round);
            assert!(first.iter().all(|tag| Tags::lane(*tag, lanes) == lane));
            let again: Vec<u16> = (0..round).map(|_| tags.take()).collect();
            assert_eq!(first, again);
        }
    }
}

#[test]
fn a_tag_without_queue_pairs_has_the_first() {
    assert_eq!(Tags::lane(17, 0), 0);
}
