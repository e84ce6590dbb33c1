// SPDX-License-Identifier: GPL-2.0

//! The tags of requests.

use std::collections::HashSet;

use proto::gfarm::cache::tags::Tags;

/// The tags of a queue pair differ until all were taken, and each tells its queue pair.
#[test]
fn a_queue_pair_takes_all_its_tags_in_turn() {
    for qps in [1, 2, 3, 7, 64, 1000, 4095, 4096] {
        let of_lane = |index: u16| (0..=u16::MAX).filter(move |tag| tag % qps == index).count();
        for index in [0, qps / 2, qps - 1] {
            let mut tags = Tags::new(index, qps);
            let round = of_lane(index);
            assert!(round >= 65_536 / usize::from(qps));
            let first: Vec<u16> = (0..round).map(|_| tags.take()).collect();
            assert_eq!(first.iter().collect::<HashSet<_>>().len(), round);
            assert!(first.iter().all(|tag| Tags::qp_index(*tag, qps) == index));
            let again: Vec<u16> = (0..round).map(|_| tags.take()).collect();
            assert_eq!(first, again);
        }
    }
}

#[test]
fn a_tag_without_queue_pairs_has_the_first() {
    assert_eq!(Tags::qp_index(17, 0), 0);
}
