// SPDX-License-Identifier: GPL-2.0

//! Decides when writes that wait become a batch.

use rnbd_ec::proto::group_commit::is_due;

/// The bytes of a batch at most.
const FULL: usize = 512 << 10;

#[test]
fn a_lone_write_never_waits_and_nothing_begins_nothing() {
    assert!(is_due(1, 0, FULL));
    assert!(!is_due(0, 0, FULL));
    assert!(!is_due(0, 1, FULL));
}

#[test]
fn few_writes_wait_for_more_and_a_full_batch_does_not() {
    assert!(!is_due(4096, 4097, FULL));
    assert!(is_due(4096, 4096, FULL));
    assert!(!is_due(FULL - 1, 4 * FULL, FULL));
    assert!(is_due(FULL, 4 * FULL, FULL));
    assert!(is_due(usize::MAX, usize::MAX, FULL));
}

/// Batches of about half of `depth` writers take turns, if these write again at once.
#[test]
fn many_writers_share_batches() {
    for depth in [2_usize, 3, 8, 32, 64] {
        let (mut waiting, mut in_flight) = (0, std::collections::VecDeque::new());
        let (mut batches, mut writes) = (0, 0);
        let mut come = |count: usize, in_flight: &mut std::collections::VecDeque<usize>| {
            for _ in 0..count {
                waiting += 1;
                if is_due(waiting, in_flight.iter().sum(), FULL) {
                    in_flight.push_back(std::mem::take(&mut waiting));
                }
            }
        };
        come(depth, &mut in_flight);
        for _ in 0..1000 {
            let ended = in_flight.pop_front().expect("something is in flight");
            (batches, writes) = (batches + 1, writes + ended);
            come(ended, &mut in_flight);
        }
        assert!(
            writes * 3 >= batches * depth,
            "{writes} writes in {batches} batches of {depth} writers"
        );
    }
}
