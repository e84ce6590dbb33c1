// SPDX-License-Identifier: GPL-2.0

//! Lives that the search has found, each of which has lost what was flushed.

use seglog::{
    batch::Kind,
    epoch::NoQuorum,
    fault::Fault,
    members::Members, //
};

use crate::{
    disk::Bad,
    search::begun,
    world::{
        Attempt,
        Then,
        World, //
    },
};

/// Members that are there, slots of them that cannot be read, whether it is by force, and the rest
/// of the step.
type Step = (u8, u8, bool, Then);

const WRITES: Then = Then::Open {
    writes: Some(Kind::Striped),
};

const fn cut_off(writes: usize) -> Then {
    Then::CutOff {
        writes,
        is_torn: false,
    }
}

fn attempt((present, bad, is_forced): (u8, u8, bool), swaps: bool) -> Attempt {
    Attempt {
        present: Members::from_bits(present).unwrap(),
        bad: Bad(bad),
        place: None,
        swaps,
        is_forced,
    }
}

fn live(steps: &[Step]) -> World {
    let mut world = begun().unwrap();
    for (present, bad, is_forced, then) in steps {
        let assembled = world.assemble(attempt((*present, *bad, *is_forced), false));
        let assembled = assembled.unwrap();
        world = match *then {
            Then::CutOff { writes, is_torn } => world.cut_off(&assembled, (writes, is_torn), false),
            then => world.go_on(&assembled, then, false),
        }
        .unwrap();
    }
    world
}

/// Checks that nothing is lost without some slots; whether the array is assembled then, by force.
fn check(steps: &[Step], (present, bad): (u8, u8), swaps: bool) -> bool {
    let world = live(steps);
    let world = if swaps { world.swapped() } else { world };
    [false, true].map(|is_forced| {
        let attempt = attempt((present, bad, is_forced), swaps);
        let Ok(assembled) = world.assemble(attempt) else {
            return false;
        };
        let kept = is_forced.then(|| world.kept(attempt));
        let is_right = world.truth.allows(&assembled.found, kept.as_ref());
        assert!(is_right, "{attempt}: {:x?}", assembled.found);
        true
    })[1]
}

/// Assemblies by force of 0 and 1, cut off, and of 1 and 2, which went on, have almost one
/// incarnation: that of the first is the later one. Slots of 1 were not read in either.
#[test]
fn of_two_by_force_the_one_that_went_on_counts() {
    let steps = [
        (0b111, 0, false, cut_off(1)),
        (0b011, 0b00_00_10, true, cut_off(2)),
        (0b110, 0b00_01_00, true, WRITES),
    ];
    // It hides which of both it was told.
    assert!(!check(&steps, (0b111, 0b00_01_00), false));
    // It shows what 2 has, too; or 2 is lost, and it may have been in sync with 0 again.
    assert!(check(&steps, (0b111, 0b00_10_00), false));
    assert!(!check(&steps, (0b011, 0b00_10_00), false));
    assert!(check(&steps, (0b110, 0b00_01_00), false));
}

/// An assembly of 0 and 1 is cut off when it has told 0, and 1 and 2 go on. One that these begin is
/// cut off when it has told 2: it is not as old as the first one, though its parent is hidden.
#[test]
fn what_was_told_behind_a_hidden_parent_is_not_given_up() {
    let begun = [(0b011, 0, false, cut_off(1)), (0b110, 0, false, WRITES)];
    for last in [
        (0b111, 0b01_00_00, false, cut_off(2)),
        (0b110, 0b01_00_00, true, cut_off(2)),
    ] {
        let steps = [&begun[..], &[last]].concat();
        check(&steps, (0b111, 0b00_01_00), false);
        assert!(check(&steps, (0b110, 0b00_01_00), false));
        assert!(check(&steps, (0b111, 0), false));
    }
}

/// An assembly by force is cut off when it has told 0; 1 and 2 go on, and the next one is cut off
/// when it has told 2. What 1 hides was relied on, also before what 2 shows.
#[test]
fn what_went_on_before_what_another_one_shows_is_not_given_up() {
    let steps = [
        (0b011, 0b00_00_01, true, cut_off(1)),
        (0b110, 0, false, WRITES),
        (0b110, 0b10_00_00, false, cut_off(1)),
    ];
    assert!(!check(&steps, (0b111, 0b00_01_00), false));
    assert!(check(&steps, (0b110, 0b00_01_00), false));
    assert!(check(&steps, (0b111, 0), false));
}

/// Four assemblies by force, of which three are cut off: what 0 and 2 show has one incarnation, and
/// the parents of both are hidden. What went on is not given up for the other one.
#[test]
fn of_two_by_force_of_one_incarnation_the_one_that_went_on_counts() {
    let steps = [
        (0b110, 0b00_01_00, true, cut_off(1)),
        (0b110, 0b01_00_00, true, cut_off(2)),
        (0b011, 0b00_01_00, true, WRITES),
        (0b011, 0b00_00_01, true, cut_off(2)),
    ];
    assert!(!check(&steps, (0b111, 0b00_01_00), false));
    assert!(check(&steps, (0b011, 0b00_01_00), false));
    assert!(check(&steps, (0b111, 0), false));
}

/// An assembly by force is cut off when it has told 0, whose place another device takes then.
#[test]
fn a_device_that_force_had_told_is_not_taken_for_the_one_in_its_place() {
    let begun = (0b011, 0b00_00_01, true, cut_off(1));
    for told in 0..=3 {
        let returns = Then::Returns { is_new: true, told };
        let steps = [begun, (0b110, 0, false, returns)];
        for bad in (0..6).map(|bit| 1 << bit) {
            for present in [0b111, 0b011, 0b101] {
                check(&steps, (present, bad), true);
            }
        }
    }
}

/// An assembly of all is cut off when it has told 0, and one of 1 and 2 when it has begun to write;
/// then 2 is lost, and one by force of 0 and 1 is cut off when it has told 1 no more than the epoch
/// of 0. It can be forced again. So it is if 1 and 2 had gone on, and the slot of 1 hid that.
#[test]
fn who_was_told_what_force_began_with_can_be_forced_again() {
    let begun = |then| [(0b111, 0, false, cut_off(1)), (0b110, 0, false, then)];
    for (then, bad) in [
        (cut_off(3), 0),
        (cut_off(4), 0b00_01_00),
        (WRITES, 0b00_01_00),
    ] {
        let told = (0b011, bad, true, cut_off(1));
        let steps = [&begun(then)[..], &[told]].concat();
        assert!(check(&steps, (0b011, 0), false), "{then:?}");
        // The third one was not lost: with it all is found.
        assert!(check(&steps, (0b110, 0), false), "{then:?}");
    }
}

/// Members 1 and 2 had gone on, and 1 shows that: no force takes it back to what 0 has. What was
/// flushed cannot be read without 2, so no other result is right: 2 may come back.
#[test]
fn what_the_third_one_alone_has_with_one_that_is_there_is_not_given_up() {
    let steps = [(0b111, 0, false, cut_off(1)), (0b110, 0, false, WRITES)];
    assert!(!check(&steps, (0b011, 0), false));
    let world = live(&steps);
    let attempt = attempt((0b011, 0, true), false);
    let answers = world.truth.answers(Some(&world.kept(attempt)));
    let can_read = |batch: &_| world.can_read(attempt.present, *batch);
    assert!(!answers.is_empty());
    assert!(!answers.iter().any(|answer| answer.iter().all(can_read)));
    assert!(check(&steps, (0b111, 0), false));
}

/// An assembly by force of 0 and 1 is cut off when it has begun to write, one of 0 and 2, which
/// counts that, when it has told 0, and 1 and 2 go on by force: by its incarnation theirs is as old
/// as what the second one was to give up.
#[test]
fn what_went_on_since_force_has_counted_another_one_is_not_given_up() {
    let steps = [
        (0b011, 0b00_00_01, true, cut_off(3)),
        (0b101, 0b00_00_01, true, cut_off(1)),
        (0b110, 0b00_01_00, true, WRITES),
    ];
    // What 1 and 2 have flushed cannot be read without 1.
    assert!(!check(&steps, (0b101, 0), false));
    assert!(check(&steps, (0b110, 0), false));
    assert!(check(&steps, (0b111, 0), false));
}

/// Two go on by force, 0 and 2, and assemblies of 0 and 1, and of 1 and 2, that count it are cut
/// off when they have told one. What went on is not given up, and the reason says what helps.
#[test]
fn of_three_by_force_two_are_named_that_went_on() {
    let torn = Then::CutOff {
        writes: 1,
        is_torn: true,
    };
    let steps = [
        (0b101, 0b00_00_01, true, WRITES),
        (0b011, 0b00_00_01, true, torn),
        (0b110, 0b01_00_00, true, cut_off(1)),
    ];
    let all = live(&steps).assemble(attempt((0b111, 0, false), false));
    let Err(Fault::NoQuorum(NoQuorum { force_helps, .. })) = all else {
        panic!("it is not refused for that");
    };
    assert!(!force_helps);
    assert!(!check(&steps, (0b111, 0), false));
    assert!(check(&steps, (0b101, 0), false));
}

/// Two give up by force what all three had flushed; the power fails in the first batch, in the
/// place of one of theirs, of which others are behind.
#[test]
fn a_first_batch_that_was_torn_behind_what_was_given_up_is_no_damage() {
    let torn = Then::CutOff {
        writes: 3,
        is_torn: true,
    };
    let begun = [(0b111, 0, false, WRITES), (0b011, 0b00_01_01, true, torn)];
    let is_assembled = |steps: &[Step]| {
        for present in [0b011, 0b111] {
            let usual = attempt((present, 0, false), false);
            assert!(check(steps, (present, 0), false), "{steps:?}");
            assert!(live(steps).assemble(usual).is_ok(), "{steps:?}");
        }
    };
    is_assembled(&begun);
    // So is that of the next assembly, which may be cut off anywhere.
    for (writes, is_torn) in (0..6).flat_map(|writes| [(writes, false), (writes, true)]) {
        let last = (0b011, 0, false, Then::CutOff { writes, is_torn });
        is_assembled(&[&begun[..], &[last]].concat());
    }
}
