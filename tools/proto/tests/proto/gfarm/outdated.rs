// SPDX-License-Identifier: GPL-2.0

//! Pages that are dropped before other attributes are shown, and the tasks that drop them.

use proptest::prelude::*;
use proto::gfarm::outdated::{
    Look,
    Pages, //
};

/// Pages of the content of 3 changes, 4096 bytes.
const LOOK: Look = Look {
    changes: 3,
    live_size: None,
    dropped_at: 3,
    shown_size: 4096,
};

#[test]
fn pages_of_the_content_stay_as_long_as_the_file_does_not_grow() {
    for may_wait in [false, true] {
        assert_eq!(LOOK.decide(4096, may_wait), Pages::Stay(4096));
        assert_eq!(LOOK.decide(10, may_wait), Pages::Stay(10));
    }
    assert_eq!(LOOK.decide(4097, true), Pages::Drop(4097));
    let live = Look {
        live_size: Some(100),
        ..LOOK
    };
    assert_eq!(live.decide(5000, true), Pages::Stay(100));
    let live = Look {
        live_size: Some(5000),
        ..LOOK
    };
    assert_eq!(live.decide(100, true), Pages::Drop(5000));
}

#[test]
fn pages_of_another_content_are_dropped() {
    for dropped_at in [2, 4] {
        let look = Look { dropped_at, ..LOOK };
        assert_eq!(look.decide(4096, true), Pages::Drop(4096));
    }
}

proptest! {
    #[test]
    fn who_must_not_wait_drops_nothing(
        changes in 0u64..3,
        dropped_at in 0u64..3,
        shown_size in 0u64..3,
        live_size in proptest::option::of(0u64..3),
        told_size in 0u64..3,
    ) {
        let look = Look { changes, live_size, dropped_at, shown_size };
        let expected = match look.decide(told_size, true) {
            Pages::Drop(_) => Pages::Leave,
            other => other,
        };
        prop_assert_eq!(look.decide(told_size, false), expected);
    }
}
