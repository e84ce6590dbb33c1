// SPDX-License-Identifier: GPL-2.0

//! The time for which a server keeps an OPEN whose device is silent.

use proto::rnbd::{
    access::AccessMode,
    answer_time::AnswerTime,
    message::{
        Direction,
        Message, //
    },
    wire::Open, //
};
use zerocopy::IntoBytes;

#[test]
fn the_byte_is_in_seconds_and_zero_says_nothing() {
    assert_eq!(AnswerTime::from_wire(0), None);
    assert_eq!(AnswerTime::to_wire(None), 0);
    for seconds in 1..=255 {
        let answer_time = AnswerTime::from_wire(seconds);
        assert_eq!(AnswerTime::to_wire(answer_time), seconds);
        let answer_time = answer_time.unwrap();
        let over_ms = u64::from(seconds) * 1000;
        assert!(answer_time.is_over(over_ms) && answer_time.is_over(u64::MAX));
        assert!(!answer_time.is_over(over_ms - 1) && !answer_time.is_over(0));
    }
}

#[test]
fn a_client_says_a_second_less_than_it_waits() {
    for (timeout_ms, seconds) in [
        (0, 0),
        (1999, 0),
        (2000, 1),
        (60_000, 59),
        (256_000, 255),
        (u32::MAX, 255),
    ] {
        assert_eq!(AnswerTime::to_wire(AnswerTime::within(timeout_ms)), seconds);
    }
}

#[test]
fn an_open_says_it_behind_the_name() {
    for seconds in [0, 1, 255] {
        let open = Open::new(&[b'x'; 254], AccessMode::ReadWrite, None).unwrap();
        let open = open.with_answer_time(AnswerTime::from_wire(seconds));
        let bytes = open.as_bytes();
        assert_eq!(bytes[260..], [0, seconds, 0, 0]);
        match Message::parse(bytes, 56, Direction::Read, 2) {
            Ok(Message::Open { answer_time, .. }) => assert_eq!(answer_time, seconds),
            other => panic!("{other:?}"),
        }
    }
}
