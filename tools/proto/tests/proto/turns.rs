// SPDX-License-Identifier: GPL-2.0

//! The order of OPEN, CLOSE and surveys.

use proto::rnbd::turns::{
    Doubts,
    Turn,
    Turns, //
};

const ALL: [Turn; 3] = [Turn::Open, Turn::Close, Turn::Survey];

/// Which turns may be taken while one is held.
fn may_join(held: Turn, turn: Turn) -> bool {
    held == turn && held != Turn::Survey
}

#[test]
fn only_opens_and_closes_among_themselves_share() {
    for held in ALL {
        for turn in ALL {
            let mut turns = Turns::NONE;
            assert!(turns.take(held));
            assert_eq!(turns.take(turn), may_join(held, turn), "{held:?} {turn:?}");
        }
    }
}

#[test]
fn a_turn_that_was_not_taken_changes_nothing() {
    for held in ALL {
        for turn in ALL.into_iter().filter(|turn| !may_join(held, *turn)) {
            let mut turns = Turns::NONE;
            assert!(turns.take(held));
            let before = turns;
            assert!(!turns.take(turn));
            assert_eq!(turns, before);
        }
    }
}

#[test]
fn the_last_end_frees_the_order() {
    for held in [Turn::Open, Turn::Close] {
        let mut turns = Turns::NONE;
        for _ in 0..3 {
            assert!(turns.take(held));
        }
        for left in [2, 1, 0] {
            assert_eq!(turns.end(), left == 0);
            if left > 0 {
                assert!(!turns.take(Turn::Survey));
            }
        }
        assert_eq!(turns, Turns::NONE);
        assert!(turns.take(Turn::Survey));
        assert!(turns.end());
        assert_eq!(turns, Turns::NONE);
    }
}

#[test]
fn a_lost_close_makes_its_number_doubtful_until_nothing_is_lost() {
    let mut doubts = Doubts::NONE;
    doubts.add(7);
    doubts.add(7);
    assert!(doubts.include(7, true));
    assert!(!doubts.include(8, true));
    assert!(!doubts.include(7, false));
    // Also later, when something else is lost.
    assert!(!doubts.include(7, true));
    assert_eq!(doubts, Doubts::NONE);
}

#[test]
fn more_lost_closes_than_are_stored_make_every_number_doubtful() {
    let mut doubts = Doubts::NONE;
    (0..8).for_each(|number| doubts.add(number));
    assert!((0..8).all(|number| doubts.include(number, true)));
    assert!(!doubts.include(8, true));
    // One that is stored needs no room.
    doubts.add(0);
    assert!(!doubts.include(8, true));
    doubts.add(8);
    assert!(doubts.include(8, true) && doubts.include(99, true));
    assert!(!doubts.include(99, false));
}
