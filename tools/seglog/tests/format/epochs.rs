// SPDX-License-Identifier: GPL-2.0

//! Which epoch an array is assembled with.

use seglog::{
    epoch::{
        choose,
        Epoch,
        NoQuorum, //
    },
    members::Members, //
};

const FIRST: Epoch = Epoch::first(1);

fn members(bits: u8) -> Members {
    Members::from_bits(bits).unwrap()
}

/// The epoch of an assembly from these members.
fn assembled(id: u64, parent: Epoch, incarnation: u64, in_sync: u8) -> Epoch {
    Epoch {
        id,
        parent: parent.id,
        incarnation,
        failed: Members::ALL.minus(members(in_sync)),
    }
}

#[test]
fn two_that_hold_an_epoch_are_enough() {
    let choice = choose(&[Some(FIRST), None, Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (FIRST, members(0b101)));
    let epoch = choice.assembly(2);
    assert_eq!(epoch, assembled(2, FIRST, 1, 0b101));
    // The one that was absent is stale.
    let choice = choose(&[Some(epoch), Some(FIRST), Some(epoch)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (epoch, members(0b101)));
    assert_eq!(choice.assembly(3).failed, members(0b010));
}

#[test]
fn one_is_refused_and_so_is_a_stale_one_beside_it() {
    let present = members(0b001);
    assert_eq!(
        choose(&[Some(FIRST), None, None]),
        Err(NoQuorum { present })
    );
    let epoch = FIRST.without(2, members(0b100));
    let present = members(0b101);
    assert_eq!(
        choose(&[Some(epoch), None, Some(epoch)]),
        Err(NoQuorum { present })
    );
}

#[test]
fn an_epoch_that_one_member_holds_is_given_to_those_with_its_parent() {
    let epoch = FIRST.without(2, members(0b100));
    let choice = choose(&[Some(epoch), Some(FIRST), Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.behind), (epoch, members(0b010)));
    assert_eq!(choice.in_sync, members(0b011));
    // Nothing was acknowledged that relies on it, as the other member does not hold it.
    let choice = choose(&[None, Some(FIRST), Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (FIRST, members(0b110)));
}

#[test]
fn two_assemblies_with_others_absent_do_not_mix() {
    // The first one was cut off when one of its members held it.
    let one = assembled(2, FIRST, 1, 0b011);
    let other = assembled(3, FIRST, 1, 0b110);
    let choice = choose(&[Some(one), Some(other), Some(other)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (other, members(0b110)));
    // That incarnation is not used again.
    assert_eq!(choice.assembly(4).incarnation, 2);
    // Both say that the other one's member has failed, and neither is held by two.
    let held = [Some(one), None, Some(other)];
    assert!(choose(&held).is_err());
}

#[test]
fn all_states_of_a_change_are_assembled_when_all_are_there() {
    let mount = assembled(2, FIRST, 1, 0b111);
    let failure = mount.without(3, members(0b001));
    let steps: [(Epoch, Epoch, u8); 3] = [
        (FIRST, mount, 0b111),
        (mount, failure, 0b110),
        (FIRST, assembled(4, FIRST, 1, 0b011), 0b011),
    ];
    for (before, after, to) in steps {
        for written in (0..8u8).filter(|written| written & !to == 0) {
            let held = [0, 1, 2].map(|m| Some(if written >> m & 1 == 1 { after } else { before }));
            let choice = choose(&held).unwrap();
            let is_known = choice.epoch == before || choice.epoch == after;
            assert!(
                is_known && choice.in_sync.count() >= 2,
                "{written:b} {choice:?}"
            );
            // What all have that are to have it is not given up.
            assert!(
                written != to || choice.epoch == after,
                "{written:b} {choice:?}"
            );
        }
    }
}
