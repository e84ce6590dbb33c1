// SPDX-License-Identifier: GPL-2.0

//! The faults of the test device.

use proto::test_device::fault::{BadRule, Fault, Faults, Kind, Place};

#[test]
fn a_fault_meets_the_work_requests_that_its_rule_names() {
    let mut faults = Faults::default();
    faults
        .add("fault=status status=12 on=write nth=3 times=2 qp=17")
        .unwrap();
    let mut ask = |place, qp, kind| faults.ask(place, qp, kind, 0);
    // Others do not count.
    for (place, qp, kind) in [
        (Place::Execution, 17, Kind::Send),
        (Place::Execution, 18, Kind::Write),
        (Place::Post, 17, Kind::Write),
        (Place::Completion, 17, Kind::Write),
    ] {
        assert_eq!(ask(place, qp, kind), None);
    }
    let met: Vec<_> = (0..6)
        .map(|_| ask(Place::Execution, 17, Kind::Write))
        .collect();
    let fault = Some(Fault::Status(12));
    assert_eq!(met, [None, None, fault, fault, None, None]);
    assert_eq!((faults.done(), faults.to_come()), (2, 0));
}

#[test]
fn a_bit_flips_in_a_write_of_the_right_length() {
    let mut faults = Faults::default();
    faults.add("fault=flip bit=9 on=write bytes=4148").unwrap();
    let mut ask = |kind, bytes| faults.ask(Place::Execution, 17, kind, bytes);
    assert_eq!(ask(Kind::Write, 0), None);
    assert_eq!(ask(Kind::Write, 4147), None);
    assert_eq!(ask(Kind::Write, 4148 + (1 << 32)), None);
    assert_eq!(ask(Kind::Send, 4148), None);
    assert_eq!(ask(Kind::Write, 4148), Some(Fault::Flip(9)));
    assert_eq!(ask(Kind::Write, 4148), None);
}

#[test]
fn a_rule_is_one_or_is_refused() {
    for good in [
        "fault=lose",
        "fault=overrun on=send",
        "fault=fatal on=write",
        " fault=post errno=12\ttimes=3 ",
        "nth=2 fault=status status=22 on=register",
        "fault=refuse_error_state errno=5 qp=17",
        "fault=no_flush",
        "fault=flip bit=7 on=write",
        "fault=flip bit=7 on=send",
        "bit=0 on=write bytes=4148 fault=flip times=2",
        "fault=lose on=send bytes=16",
        "fault=answer on=register imm=268435456 shift=17",
    ] {
        assert_eq!(Faults::default().add(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "lose",
        "fault=",
        "fault=none",
        "fault=lose status=12",
        "fault=post",
        "fault=post errno=0",
        "fault=post errno=4096",
        "fault=status status=0",
        "fault=status status=23",
        "fault=lose nth=0",
        "fault=lose times=0",
        "fault=lose on=atomic",
        "fault=lose qp=-1",
        "fault=lose times=4294967296",
        "fault=lose and=more",
        "fault=refuse_error_state",
        "fault=refuse_error_state errno=5 on=write",
        "fault=no_flush errno=5",
        "fault=no_flush nth=1",
        "fault=no_flush times=1",
        "fault=flip on=write",
        "fault=flip bit=1",
        "fault=flip bit=1 on=register",
        "fault=lose bit=1",
        "fault=overrun bytes=1",
        "fault=post errno=12 bytes=1",
        "fault=answer imm=1 shift=17",
        "fault=answer on=write imm=1 shift=17",
        "fault=answer on=register imm=1",
        "fault=answer on=register imm=1 shift=28",
        "fault=lose imm=1",
    ] {
        assert_eq!(Faults::default().add(bad), Err(BadRule), "{bad}");
    }
}

#[test]
fn an_answer_has_the_number_of_its_request() {
    let mut faults = Faults::default();
    let rule = "fault=answer on=register imm=268435456 shift=17";
    faults.add(rule).unwrap();
    let fault = faults.ask(Place::Post, 17, Kind::Register, 0).unwrap();
    let request = 5 << 17 | 0x123;
    assert_eq!(fault.answer(9 << 28 | request), Some(1 << 28 | 5));
}

#[test]
fn rules_that_are_over_make_room() {
    let mut faults = Faults::default();
    for _ in 0..Faults::MAX {
        faults.add("fault=overrun").unwrap();
    }
    assert_eq!(faults.add("fault=lose"), Err(BadRule));
    assert_eq!(
        faults.ask(Place::Completion, 1, Kind::Read, 0),
        Some(Fault::Overrun)
    );
    assert_eq!(faults.add("fault=lose"), Ok(()));
    assert_eq!(faults.to_come() as usize, Faults::MAX);
    faults.clear();
    assert_eq!(faults, Faults::default());
}

#[test]
fn a_reset_is_followed_by_an_error_as_often_as_the_rules_say() {
    let mut faults = Faults::default();
    faults.add("fault=late_error qp=17 nth=2 times=2").unwrap();
    assert!(!faults.is_late_error(18));
    let late: Vec<bool> = (0..4).map(|_| faults.is_late_error(17)).collect();
    assert_eq!(late, [false, true, true, false]);
    assert_eq!((faults.done(), faults.to_come()), (2, 0));
    assert_eq!(faults.add("fault=late_error on=send"), Err(BadRule));
}

#[test]
fn a_fault_of_a_queue_pair_lasts_until_it_is_forgotten() {
    let mut faults = Faults::default();
    faults.add("fault=no_flush qp=17").unwrap();
    faults.add("fault=hold_receives qp=19").unwrap();
    faults
        .add("fault=refuse_error_state errno=5 qp=18")
        .unwrap();
    for _ in 0..2 {
        assert_eq!(faults.lasting(Place::Flush, 17, true), Some(Fault::NoFlush));
        assert_eq!(faults.lasting(Place::Flush, 18, true), None);
        assert_eq!(faults.lasting(Place::ErrorState, 17, true), None);
        assert_eq!(
            faults.lasting(Place::ErrorState, 18, true),
            Some(Fault::Refuse(5))
        );
        assert_eq!(faults.ask(Place::Execution, 17, Kind::Write, 0), None);
    }
    assert_eq!(
        faults.lasting(Place::Poll, 19, true),
        Some(Fault::HoldReceives)
    );
    assert_eq!(faults.lasting(Place::Poll, 17, true), None);
    // One that is not connected has what rules have for it by name.
    assert!(faults.lasting(Place::Flush, 17, false).is_some());
    assert_eq!((faults.done(), faults.to_come()), (0, 3));
    assert!(!faults.is_device_dead());
    // It is the device that fails, and not a queue pair.
    assert_eq!(faults.add("fault=device_fatal qp=17"), Err(BadRule));
    faults.clear();
    faults.add("fault=no_flush").unwrap();
    assert_eq!(faults.lasting(Place::Flush, 17, true), Some(Fault::NoFlush));
    assert_eq!(faults.lasting(Place::Flush, 17, false), None);
    faults.add("fault=device_fatal").unwrap();
    assert!(faults.is_device_dead());
    faults.clear();
    assert!(!faults.is_device_dead());
    assert_eq!(faults.lasting(Place::Flush, 17, true), None);
    // A rule for work requests does not last.
    faults.add("fault=lose").unwrap();
    assert_eq!(faults.lasting(Place::Execution, 17, true), None);
}
