// SPDX-License-Identifier: GPL-2.0

//! Operations that are sent, again, and not.

use rioc::proto::retry::{
    again,
    Again,
    Life,
    Sendings, //
};

const fn life(incarnation: u64, store: u64) -> Life {
    Life { incarnation, store }
}

/// Is sent again what the server knows, or what no server can have carried out, over nothing that
/// is gone.
#[test]
fn what_may_have_been_carried_out_is_not_sent_anew() {
    let before = life(7, 1);
    for (now, is_in_doubt, expected) in [
        (before, false, Again::Same),
        (before, true, Again::Same),
        // A log that has kept no operation of this client, or none any more.
        (life(8, 1), false, Again::Renewed),
        (life(8, 1), true, Again::Refused),
        // Another store, which has kept nothing.
        (life(8, 2), false, Again::Refused),
        (life(7, 2), false, Again::Refused),
        (life(8, 2), true, Again::Refused),
    ] {
        assert_eq!(again(before, now, is_in_doubt), expected, "{now:?}");
    }
}

/// Also what was never sent: it has waited for a path, and is asked for over a file of the store
/// that was there then.
#[test]
fn a_change_goes_to_the_store_of_its_file() {
    let mut change = Sendings::new(true, 1);
    assert_eq!(change.send(life(7, 2)), Again::Refused);
    assert!(!change.was_sent());
    assert_eq!(change.send(life(8, 1)), Again::Same);
    assert!(change.was_sent());
    // What is read there is not given to the program: nothing is done to the store.
    assert_eq!(Sendings::new(false, 1).send(life(7, 2)), Again::Same);
}

#[test]
fn a_doubt_ends_with_the_number() {
    let mut change = Sendings::new(true, 1);
    assert_eq!(change.send(life(7, 1)), Again::Same);
    change.has_lost_a_copy();
    assert_eq!(change.send(life(7, 1)), Again::Same);
    assert_eq!(change.send(life(8, 1)), Again::Refused);
    // The server has answered that the number was not carried out, and never will be.
    change.renew();
    assert_eq!(change.send(life(7, 1)), Again::Same);
    assert_eq!(change.send(life(8, 1)), Again::Renewed);
}

#[test]
fn a_copy_goes_over_another_path_to_the_same_life() {
    let mut change = Sendings::new(true, 1);
    assert!(!change.is_valid(life(7, 1)));
    assert_eq!(change.send(life(7, 1)), Again::Same);
    assert!(change.is_valid(life(7, 1)));
    assert!(!change.is_valid(life(8, 1)));
    assert!(!change.is_valid(life(7, 2)));
    change.was_not_sent();
    assert!(!change.was_sent());
    assert!(Sendings::new(false, 1).is_valid(life(9, 9)));
}
