// SPDX-License-Identifier: GPL-2.0

//! The life of a device number.

use proto::rnbd::slot::{
    Known,
    Slot, //
};

const ALL: [Slot<u8>; 4] = [Slot::Free, Slot::Reserved, Slot::Open(7), Slot::Retired];

#[test]
fn a_number_goes_from_state_to_state_as_its_owner_says() {
    let mut slot = Slot::Free;
    assert!(slot.reserve());
    assert_eq!(slot.device(), None);
    assert_eq!(slot.open(7), Ok(()));
    assert_eq!(slot.device(), Some(&7));
    assert_eq!(slot.close(false, |device| *device == 7), Some(7));
    assert_eq!(slot, Slot::Reserved);
    slot.release();
    assert_eq!(slot, Slot::Free);
}

#[test]
fn only_a_free_number_is_reserved() {
    for before in ALL {
        let mut slot = before;
        assert_eq!(slot.reserve(), before == Slot::Free, "{before:?}");
        let after = match before {
            Slot::Free => Slot::Reserved,
            other => other,
        };
        assert_eq!(slot, after);
    }
}

#[test]
fn only_a_reserved_number_gets_a_device_or_is_released() {
    for before in ALL {
        let (mut opened, mut released) = (before, before);
        released.release();
        if before == Slot::Reserved {
            assert_eq!(opened.open(8), Ok(()));
            assert_eq!((opened, released), (Slot::Open(8), Slot::Free));
        } else {
            assert_eq!(opened.open(8), Err(8), "{before:?}");
            assert_eq!((opened, released), (before, before));
        }
    }
}

#[test]
fn only_an_open_device_is_closed_and_a_retired_number_stays() {
    for before in ALL {
        for retire in [false, true] {
            let mut slot = before;
            assert_eq!(slot.close(retire, |_| false), None);
            assert_eq!(slot, before, "another device was asked for");
            let closed = slot.close(retire, |device| *device == 7);
            assert_eq!(closed, (before == Slot::Open(7)).then_some(7));
            let after = match (closed, retire) {
                (None, _) => before,
                (Some(_), false) => Slot::Reserved,
                (Some(_), true) => Slot::Retired,
            };
            assert_eq!(slot, after, "{before:?}");
        }
    }
}

#[test]
fn an_open_is_answered_by_what_is_open_as_it_asks_for_and_present() {
    for (is_asked_for, is_present) in [(false, false), (false, true), (true, false), (true, true)] {
        let expected = match (is_asked_for, is_present) {
            (true, true) => Known::Answer,
            // Requests with the number may be under way.
            (_, false) => Known::Close { retire: true },
            (false, true) => Known::Close { retire: false },
        };
        assert_eq!(Known::new(is_asked_for, is_present), expected);
    }
}
