// SPDX-License-Identifier: GPL-2.0

//! The members that a read asks, when some are slow and some have too much to do.

use rnbd_ec::proto::asking::{
    Asking,
    Patience,
    Wait, //
};
use seglog::{
    members::{
        Members,
        MEMBERS, //
    },
    record::Spot,
    source, //
};

fn spot(copy: Option<usize>) -> Spot {
    Spot {
        segment: 0,
        column: 0,
        offset: 4096,
        bytes: 4096,
        block: 0,
        blocks: 1,
        copy,
    }
}

fn all_sets() -> impl Iterator<Item = Members> {
    let member = |bits: u32, member: usize| bits >> member & 1 != 0;
    (0..1 << MEMBERS).map(move |bits| (0..MEMBERS).filter(|m| member(bits, *m)).collect())
}

/// Returns the members of the first way.
fn first_way(spot: &Spot, asked: Members) -> Members {
    match source::sources(spot, asked).next() {
        Some(source::Source::Member(member)) => Members::of(member),
        Some(source::Source::Rebuild(members)) => members.into_iter().collect(),
        None => Members::NONE,
    }
}

const MIRROR: Option<usize> = Some(2);

#[test]
fn those_that_are_slow_or_full_are_left_alone_if_others_have_it() {
    let (one, others) = (Members::of(0), Members::ALL.minus(Members::of(0)));
    for copy in [None, MIRROR] {
        let mut asking = Asking::default();
        assert_eq!(
            asking.ask(&spot(copy), Members::ALL, Members::NONE),
            Members::ALL
        );
        assert_eq!(asking.ask(&spot(copy), Members::ALL, one), others);
        // Whoever is full is not for ever.
        assert_eq!(
            asking.ask(&spot(copy), Members::ALL, Members::NONE),
            Members::ALL
        );
        assert!(asking.hedge(&spot(copy), Members::ALL, one));
        assert_eq!(asking.ask(&spot(copy), Members::ALL, Members::NONE), others);
    }
}

/// Full is a matter of milliseconds, and slow of the whole request.
#[test]
fn those_that_are_full_are_waited_for_and_not_those_that_are_slow() {
    let (all, one) = (Members::ALL, Members::of(0));
    for copy in [None, MIRROR] {
        let spot = spot(copy);
        for full in [all, Members::of(1), all.minus(one)] {
            let mut asking = Asking::default();
            assert!(asking.hedge(&spot, all, one));
            assert!(
                !asking.ask(&spot, all, full).contains(0),
                "{copy:?} {full:?}"
            );
            assert_eq!(asking.ask(&spot, all, Members::NONE), all.minus(one));
        }
        // One that was full when it was to be asked is asked when another is late.
        let mut asking = Asking::default();
        let asked = asking.ask(&spot, all, one);
        assert!(!asked.contains(0) && asking.hedge(&spot, all, Members::of(1)));
        assert!(asking.ask(&spot, all, Members::NONE).contains(0));
    }
}

#[test]
fn what_no_other_has_is_waited_for() {
    for copy in [None, MIRROR] {
        let late = Members::of(0);
        assert!(!Asking::default().hedge(&spot(copy), late, late));
        let mut asking = Asking::default();
        asking.wait_for_all();
        assert!(!asking.hedge(&spot(copy), Members::ALL, late));
        assert_eq!(asking.ask(&spot(copy), Members::ALL, late), Members::ALL);
    }
}

/// Nobody answers in time, and any members may be full: a request is looked up anew a few times,
/// and then waits, as each round would be given up as the one before.
#[test]
fn members_that_are_well_and_slow_are_waited_for_in_the_end() {
    for copy in [None, MIRROR] {
        for usable in all_sets() {
            for full in all_sets() {
                let (spot, mut asking) = (spot(copy), Asking::default());
                let mut rounds = 0;
                loop {
                    let asked = asking.ask(&spot, usable, full);
                    let late = first_way(&spot, asked);
                    if late.is_empty() || !asking.hedge(&spot, usable, late) {
                        break;
                    }
                    rounds += 1;
                    assert!(
                        rounds <= MEMBERS,
                        "{copy:?} {usable:?} {full:?}: {asking:?}"
                    );
                }
            }
        }
    }
}

/// One member is waited for briefly, and then not at all, while two others have what is read; two
/// that are late are none to wait for briefly.
#[test]
fn who_reads_a_segment_waits_for_no_member_that_is_late_while_two_others_have_it() {
    for (usable, late) in all_sets().flat_map(|usable| all_sets().map(move |late| (usable, late))) {
        let mut patience = Patience::new(50);
        let mut waited = Members::NONE;
        for member in usable.iter() {
            let wait = patience.wait(member, usable);
            let others = usable.minus(waited.or(Members::of(member)));
            let is_brief = others.count() >= 2;
            let expected = if is_brief { Wait::Briefly } else { Wait::Long };
            assert_eq!(wait, expected, "{usable:?} {member} {waited:?}");
            if is_brief && late.contains(member) {
                patience.is_late(member);
                waited = waited.or(Members::of(member));
                assert_eq!(patience.wait(member, usable), Wait::Not);
            }
        }
        assert!(waited.count() <= 1);
        assert_eq!(patience.wait_for_all(), !waited.is_empty());
        assert!(!patience.wait_for_all());
        let wait = |member| patience.wait(member, usable);
        assert!(waited.is_empty() || usable.iter().all(|member| wait(member) == Wait::Long));
        let mut patience = Patience::new(0);
        late.iter().for_each(|member| patience.is_late(member));
        let wait = |member| patience.wait(member, usable);
        assert!(usable.iter().all(|member| wait(member) == Wait::Long));
        assert!(!patience.wait_for_all());
    }
}
