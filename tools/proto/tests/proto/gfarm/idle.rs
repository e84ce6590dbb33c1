// SPDX-License-Identifier: GPL-2.0

//! Connections that are kept for a time.

use proto::gfarm::idle::{
    self,
    Idle, //
};

#[test]
fn connections_that_no_file_uses_end_and_the_last_one_later() {
    let left = |left_ms| Idle::Keep { left_ms };
    // Seven others, one other, none.
    for (count, kept_ms) in [(8, 60_000), (2, 60_000), (1, 600_000)] {
        assert_eq!(idle::decide(count, 5, 5, 60), left(kept_ms));
        assert_eq!(idle::decide(count, 5, 4 + kept_ms, 60), left(1));
        assert_eq!(idle::decide(count, 5, 5 + kept_ms, 60), Idle::End);
        assert_eq!(idle::decide(count, 5, u64::MAX, 60), Idle::End);
    }
    assert_eq!(idle::decide(1, 0, 0, u32::MAX), left(42_949_672_950_000));
}
