// SPDX-License-Identifier: GPL-2.0

//! Words of the record: what is written is read back.

use std::fmt;

use proto::{
    common::record::Words,
    rtrs::{
        availability,
        outage::{
            self,
            FastIoFail, //
        },
        path,
        recovery::{
            record::Operation,
            Event,
            Outcome,
            Pauses,
            TearDown, //
        },
    }, //
};
use replay::Line;

use super::InWords;

fn assert_round_trip<E, O>(events: &[E], operations: &[O])
where
    E: Words + fmt::Debug + PartialEq + Copy,
    O: Words + fmt::Debug + PartialEq + Copy,
{
    for event in events {
        // What follows the event is not read.
        let text = format!("step{} 7 8", InWords(event));
        assert_eq!(Line::<E, O>::parse(&text), Some(Line::Step(*event)));
    }
    for operation in operations {
        let text = format!("did{}", InWords(operation));
        assert_eq!(Line::<E, O>::parse(&text), Some(Line::Did(*operation)));
        assert_eq!(Line::<E, O>::parse(&format!("{text} 0")), None);
        assert_eq!(Line::<E, O>::parse(&format!("{text} x")), None);
    }
}

#[test]
fn events_and_operations_of_a_clients_path_are_read_back() {
    let pauses = Pauses {
        delay_ms_max: 1000,
        attempts_max: -1,
        least_ms: 0,
        random: u32::MAX,
    };
    let run = TearDown::ToLeaveDevice;
    let events = [
        Event::Lost { life: None },
        Event::Lost {
            life: Some(u16::MAX),
        },
        Event::Abandoned,
        Event::DeviceGone { life: Some(0) },
        Event::RetryNow,
        Event::Reconnect,
        Event::Start,
        Event::Established,
        Event::AttemptFailed {
            outcome: Outcome::Other,
            took_ms: 3,
            pauses,
        },
        Event::TornDown {
            run,
            kept: true,
            pauses,
        },
        Event::Undrained,
        Event::Close,
        Event::Remove,
        Event::CloseForGood,
    ];
    let operations = [
        Operation::StartIn { pause_ms: 100 },
        Operation::QueueTearDown,
        Operation::TearDown(None),
        Operation::TearDown(Some(run)),
    ];
    assert_round_trip(&events, &operations);
}

#[test]
fn events_and_operations_of_a_session_are_read_back() {
    use availability::{
        record::Operation,
        Availability,
        Conditions,
        Event, //
    };
    let mut session = Availability::NEW;
    session.step(Event::PathUp);
    let reopening = session.reopening().unwrap();
    let conditions = Conditions {
        now_ms: u64::MAX,
        setting: FastIoFail::After(7),
        is_away: true,
    };
    let setting = FastIoFail::Off;
    let events = [
        Event::Opened(conditions),
        Event::PathUp,
        Event::PathDown(conditions),
        Event::Reopened {
            reopening,
            succeeded: true,
        },
        Event::Outage(outage::Event::PathUp),
        Event::Outage(outage::Event::LastPathDown { now_ms: 1, setting }),
        Event::Outage(outage::Event::DeadlinePassed { now_ms: 2 }),
        Event::Outage(outage::Event::SettingChanged { now_ms: 3, setting }),
        Event::Outage(outage::Event::Closed),
    ];
    let operations = [
        Operation::Admit(session.admission()),
        Operation::Requeue,
        Operation::StartTimer { until_ms: u64::MAX },
        Operation::StopTimer,
        Operation::FailQueued,
        Operation::ReopenIn { pause_ms: 1000 },
        Operation::Reopen(reopening),
    ];
    assert_round_trip(&events, &operations);
}

#[test]
fn events_and_operations_of_a_servers_path_are_read_back() {
    use path::{
        record::Operation,
        ServerEvent, //
    };
    let events = [
        ServerEvent::InfoRequest { complete: true },
        ServerEvent::InfoRequest { complete: false },
        ServerEvent::Request,
        ServerEvent::Close,
        ServerEvent::TornDown,
    ];
    let operations = [
        Operation::QueueTearDown,
        Operation::Respond,
        Operation::TearDown,
        Operation::TearDownIn { pause_ms: 5000 },
        Operation::Release,
        Operation::Drained,
    ];
    assert_round_trip(&events, &operations);
}

#[test]
fn events_and_operations_of_the_admin_lock_are_read_back() {
    use proto::rnbd::admin_lock::{
        record::{
            Event,
            Operation, //
        },
        LockMode, //
    };
    let modes = [LockMode::Open, LockMode::Close, LockMode::Validate];
    let operations = |mode| [Operation::Open(mode), Operation::Use(mode)];
    let events = |mode| [Event::Lock(mode), Event::Retry(mode), Event::GiveUp(mode)];
    assert_round_trip(&modes.map(events).concat(), &modes.map(Operation::Close));
    assert_round_trip(&[Event::Unlock], &modes.map(operations).concat());
    assert_round_trip(&[Event::Unlock], &[Operation::Wake]);
}

/// Reads a value of these numbers.
fn read<T: Words>(words: &[u64]) -> Option<T> {
    T::read(&mut words.iter().copied())
}

#[test]
fn a_number_out_of_range_is_no_value() {
    assert_eq!(read(&[0xff]), Some(0xff_u8));
    assert_eq!(read::<u8>(&[0x100]), None);
    assert_eq!(read(&[u64::MAX]), Some(u64::MAX));
    assert_eq!(read(&[0xffff_ffff]), Some(-1_i32));
    assert_eq!(read::<i32>(&[0x1_0000_0000]), None);
    assert_eq!(read(&[1]), Some(true));
    assert_eq!(read::<bool>(&[2]), None);
    assert_eq!(read(&[0]), Some(None::<u8>));
    assert_eq!(read(&[1, 2]), Some(Some(2_u8)));
    assert_eq!(read::<Option<u8>>(&[1]), None);
    assert_eq!(read::<Event>(&[0]), None);
    assert_eq!(read::<Event>(&[]), None);
}
