// SPDX-License-Identifier: GPL-2.0

//! The order of OPEN, CLOSE and validations.

use proto::rnbd::admin_lock::{
    LockMode,
    LockState, //
    LostCloses,
};

const ALL: [LockMode; 3] = [LockMode::Open, LockMode::Close, LockMode::Validate];

/// Returns whether a lock may be taken while one is held.
fn may_join(held: LockMode, mode: LockMode) -> bool {
    held == mode && held != LockMode::Validate
}

#[test]
fn only_opens_and_closes_among_themselves_share() {
    for held in ALL {
        for mode in ALL {
            let mut lock = LockState::NONE;
            assert!(lock.lock(held));
            assert_eq!(lock.lock(mode), may_join(held, mode), "{held:?} {mode:?}");
        }
    }
}

#[test]
fn a_lock_that_was_not_taken_changes_nothing() {
    for held in ALL {
        for mode in ALL.into_iter().filter(|mode| !may_join(held, *mode)) {
            let mut lock = LockState::NONE;
            assert!(lock.lock(held));
            let before = lock;
            assert!(!lock.lock(mode));
            assert_eq!(lock, before);
        }
    }
}

#[test]
fn the_last_end_frees_the_order() {
    for held in [LockMode::Open, LockMode::Close] {
        let mut lock = LockState::NONE;
        for _ in 0..3 {
            assert!(lock.lock(held));
        }
        for left in [2, 1, 0] {
            assert_eq!(lock.unlock(), left == 0);
            if left > 0 {
                assert!(!lock.lock(LockMode::Validate));
            }
        }
        assert_eq!(lock, LockState::NONE);
        assert!(lock.lock(LockMode::Validate));
        assert!(lock.unlock());
        assert_eq!(lock, LockState::NONE);
    }
}

#[test]
fn a_lost_close_makes_its_number_doubtful_until_nothing_is_lost() {
    let mut lost_closes = LostCloses::NONE;
    lost_closes.add(7);
    lost_closes.add(7);
    assert!(lost_closes.include(7, true));
    assert!(!lost_closes.include(8, true));
    assert!(!lost_closes.include(7, false));
    // Also later, when something else is lost.
    assert!(!lost_closes.include(7, true));
    assert_eq!(lost_closes, LostCloses::NONE);
}

#[test]
fn more_lost_closes_than_are_stored_make_every_number_doubtful() {
    let mut lost_closes = LostCloses::NONE;
    (0..8).for_each(|number| lost_closes.add(number));
    assert!((0..8).all(|number| lost_closes.include(number, true)));
    assert!(!lost_closes.include(8, true));
    // One that is stored needs no room.
    lost_closes.add(0);
    assert!(!lost_closes.include(8, true));
    lost_closes.add(8);
    assert!(lost_closes.include(8, true) && lost_closes.include(99, true));
    assert!(!lost_closes.include(99, false));
}
