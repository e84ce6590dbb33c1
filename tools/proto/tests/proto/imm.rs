// SPDX-License-Identifier: GPL-2.0

//! The immediate's kinds.

use proto::common::errno::Errno;
use proto::rtrs::imm::{
    Imm,
    Response,
    UnknownImm, //
};

#[test]
fn every_response_survives_the_wire() {
    for errno in 0..=511u16 {
        for msg_id in (0..65536u32).step_by(257).chain([65534, 65535]) {
            for invalidated in [false, true] {
                let response = Response {
                    msg_id,
                    errno,
                    invalidated,
                };
                let raw = Imm::Response(response).encode();
                assert_eq!(raw >> 28, 1 + u32::from(invalidated));
                assert_eq!(Imm::decode(raw), Ok(Imm::Response(response)));
            }
        }
    }
}

#[test]
fn every_request_survives_the_wire() {
    for payload in (0..1u32 << 28).step_by(65521).chain([(1 << 28) - 1]) {
        let request = Imm::Request { payload };
        assert_eq!(request.encode(), payload);
        assert_eq!(Imm::decode(payload), Ok(request));
    }
}

#[test]
fn kinds_that_nobody_sends_are_refused() {
    for kind in [3, 4, 5, 6, 7, 12, 13, 14, 15u32] {
        for payload in [0, 1, (1 << 28) - 1] {
            let raw = (kind << 28) | payload;
            assert_eq!(Imm::decode(raw), Err(UnknownImm(raw)));
        }
    }
}

#[test]
fn an_error_too_large_for_its_field_stays_an_error() {
    // C cuts 512 down to 0, which says that all went well.
    for errno in 1..=1024 {
        let response = Response::new(7, Errno::new(-errno), false);
        assert_ne!(response.errno, 0);
        let Ok(Imm::Response(read)) = Imm::decode(Imm::Response(response).encode()) else {
            panic!("no response");
        };
        let expected = if errno <= 511 { errno } else { 5 };
        assert_eq!(i32::from(read.errno), expected);
    }
}

#[test]
fn error_numbers_have_either_sign_and_no_error_has_none() {
    assert_eq!(Errno::new(-22), Some(Errno::EINVAL));
    assert_eq!(Errno::new(22), Some(Errno::EINVAL));
    for raw in [0, 32768, i32::MIN, i32::MAX] {
        assert_eq!(Errno::new(raw), None);
    }
    assert_eq!(Errno::EINVAL.to_raw(), -22);
}

#[test]
fn what_either_side_looks_for_first_it_finds_and_nothing_else() {
    for kind in 0..16 {
        for payload in [0, 1, 0xffff, 0x7_ffff, 0x8_0000, (1 << 28) - 1] {
            let raw = (kind << 28) | payload;
            let (succeeded, requested) = match Imm::decode(raw) {
                Ok(Imm::Response(Response {
                    msg_id,
                    errno: 0,
                    invalidated: false,
                })) => (Some(msg_id), None),
                Ok(Imm::Request { payload }) => (None, Some(payload)),
                _ => (None, None),
            };
            let id = Response::succeeded(raw);
            assert_eq!((id < 1 << 19).then_some(id), succeeded);
            assert_eq!(Imm::request(raw), requested);
        }
    }
}
