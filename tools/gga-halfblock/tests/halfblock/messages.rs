// SPDX-License-Identifier: GPL-2.0

//! Control messages, IO messages and the life cycle.

use gga_halfblock::control::{self, Body, Connection, Message, Refusal, Role};
use gga_halfblock::io_message::{IoMessage, Kind, Limits};
use gga_halfblock::states::{LifeCycle, State};
use proptest::prelude::*;

use crate::{bytes, few};

fn connection(role: Role) -> Connection {
    Connection {
        context: 3,
        role,
        details: vec![0xaa, 0xbb],
    }
}

/// Each message with its bytes from the type on, without number and command.
fn vectors() -> Vec<(Body, &'static str, &'static str)> {
    let refusal = Refusal::new(17, "no");
    let init = Body::InitRequest {
        transactions: 64,
        cores: 2,
        memory: vec![1, 2, 3],
    };
    let size = Body::QueryResponse {
        total_bytes: 0x1_0000_0002,
        block_bytes: 4096,
    };
    vec![
        (Body::Error(refusal), "00000000", "00000011 00000002 6e6f"),
        (Body::QueryRequest, "00000001", ""),
        (size, "00000002", "0000000100000002 00001000"),
        (init, "00000003", "00000040 00000002 00000003 010203"),
        (Body::InitResponse, "00000004", ""),
        (
            Body::ConnectRequest(connection(Role::Data)),
            "00000005",
            "00000003 00000000 00000002 aabb",
        ),
        (
            Body::ConnectResponse(connection(Role::Control)),
            "00000006",
            "00000003 00000001 00000002 aabb",
        ),
        (Body::StartRequest, "00000007", ""),
        (Body::StartResponse, "00000008", ""),
        (Body::StopRequest, "00000009", ""),
        (Body::StopResponse, "0000000a", ""),
        (Body::ShutdownRequest, "0000000b", ""),
        (Body::ShutdownResponse, "0000000c", ""),
    ]
}

fn message(body: Body) -> Message {
    Message {
        id: 0x0102_0304,
        correlation: 0x0a0b_0c0d,
        body,
    }
}

/// A frame of these bytes, with the right length before them.
fn frame(rest: &[u8]) -> Vec<u8> {
    [&(rest.len() as u32).to_be_bytes(), rest].concat()
}

fn error_of(frame: &[u8]) -> String {
    Message::decode(frame).unwrap_err().to_string()
}

#[test]
fn each_control_message_has_its_bytes() {
    for (number, (body, kind, payload)) in (0..).zip(vectors()) {
        assert_eq!(body.number(), number);
        let rest = bytes(&format!("{kind} 01020304 0a0b0c0d {payload}"));
        let vector = frame(&rest);
        let message = message(body);
        assert_eq!(message.encode(), vector);
        // What comes behind it is the next one.
        let two = [&vector[..], &[7, 7]].concat();
        assert_eq!(Message::decode(&two), Ok((message, &[7, 7][..])));
    }
}

#[test]
fn each_length_of_a_control_message_is_checked() {
    for (body, ..) in vectors() {
        let whole = message(body).encode();
        for len in 0..whole.len() {
            assert!(error_of(&whole[..len]).starts_with("what is left of the message is "));
            // The same, but with a length that says so.
            if len >= 4 {
                assert!(Message::decode(&frame(&whole[4..len])).is_err());
            }
        }
        let longer = frame(&[&whole[4..], &[0; 3]].concat());
        assert_eq!(error_of(&longer), "what is behind the last field is 3: 0");
    }
    for (length, is_read) in [
        (11, false),
        (12, true),
        (1_048_572, true),
        (1_048_573, false),
    ] {
        let mut frame = vec![0; 1 << 20];
        frame[..4].copy_from_slice(&u32::to_be_bytes(length));
        frame[7] = 1;
        let is_too_long = error_of_or_none(&frame).contains("the length of a message is ");
        assert_ne!(is_too_long, is_read, "{length}");
    }
    let wrong = |vector: &str| error_of(&frame(&bytes(vector)));
    let type_13 = wrong("0000000d 00000001 00000001");
    assert_eq!(type_13, "the type of the message is 13: 0 to 12");
    let role_2 = wrong("00000005 00000001 00000001 00000000 00000002 00000000");
    assert_eq!(role_2, "the role is 2: 0 or 1");
    let blob = wrong("00000003 00000001 00000001 00000001 00000001 ffffffff 00");
    assert_eq!(
        blob,
        "what is left of the message is 1: its memory is not in it"
    );
    let text = wrong("00000000 00000001 00000001 00000001 00000002 41");
    assert_eq!(
        text,
        "what is left of the message is 1: its text is not in it"
    );
}

fn error_of_or_none(frame: &[u8]) -> String {
    Message::decode(frame).map_or_else(|defect| defect.to_string(), |_| String::new())
}

#[test]
fn a_request_that_cannot_be_read_is_answered_with_an_error() {
    let answer = control::answer(&[0; 3], |_, _| Ok(Body::StartResponse));
    let (answer, _) = Message::decode(&answer).unwrap();
    assert_eq!((answer.id, answer.correlation), (0, 0));
    assert!(matches!(answer.body, Body::Error(Refusal { code: 6, .. })));
}

const REQUEST: IoMessage = IoMessage {
    kind: Kind::Write,
    user_data: 0x0102_0304_0506_0708,
    result: 0x1112_1314,
    io_bytes: 0x2122_2324,
    requester_offset: 0x3132_3334_3536_3738,
    storage_offset: 0x4142_4344_4546_4748,
};

#[test]
fn an_io_message_has_its_bytes() {
    let vector = bytes(
        "00000002 00000000 0102030405060708 11121314 21222324 3132333435363738 4142434445464748
         000000000000000000000000000000000000000000000000",
    );
    assert_eq!(REQUEST.encode().to_vec(), vector);
    let mut wire: [u8; 64] = vector.try_into().unwrap();
    // What is between the fields is not read.
    wire[4..8].fill(0xff);
    wire[40..].fill(0xff);
    assert_eq!(IoMessage::decode(&wire), Ok(REQUEST));
    let answer = IoMessage::answered(&wire, |request| {
        assert_eq!(request, Ok(REQUEST));
        5
    });
    assert_eq!(answer, REQUEST.answer(5).encode());
    assert_eq!(answer[..4], [0; 4]);
    wire[3] = 3;
    let defect = IoMessage::decode(&wire).unwrap_err();
    assert_eq!(defect.to_string(), "the type is 3: 0, 1 or 2");
    let answer = IoMessage::answered(&wire, |request| u32::from(request.is_err()));
    assert_eq!(answer, REQUEST.answer(1).encode());
}

const LIMITS: Limits = Limits {
    transactions: 4,
    block_bytes: 512,
    storage_bytes: 300 * 512,
    memory_bytes: 256 * 512,
};

#[test]
fn each_number_of_an_io_message_is_checked() {
    let good = IoMessage {
        kind: Kind::Read,
        user_data: 3,
        result: 0,
        io_bytes: 255 * 512,
        requester_offset: 512,
        storage_offset: 45 * 512,
    };
    let field = |message: IoMessage| message.check(&LIMITS).map_err(|defect| defect.field());
    assert_eq!(field(good), Ok(()));
    assert_eq!(field(good.answer(0)), Err("the type"));
    for user_data in [4, u64::MAX] {
        assert_eq!(
            field(IoMessage { user_data, ..good }),
            Err("the transaction")
        );
    }
    for io_bytes in [0, 1, 511, 513, 256 * 512, u32::MAX, 1 << 31] {
        assert_eq!(
            field(IoMessage { io_bytes, ..good }),
            Err("the length of the data")
        );
    }
    for storage_offset in [
        1,
        45 * 512 + 1,
        46 * 512,
        300 * 512,
        u64::MAX,
        u64::MAX - 511,
    ] {
        let message = IoMessage {
            storage_offset,
            ..good
        };
        assert_eq!(field(message), Err("the storage's offset"));
    }
    for requester_offset in [513, 256 * 512, u64::MAX, u64::MAX - 255 * 512] {
        let message = IoMessage {
            requester_offset,
            ..good
        };
        assert_eq!(field(message), Err("the memory's offset"));
    }
    let limits = Limits {
        block_bytes: 0,
        ..LIMITS
    };
    assert!(good.check(&limits).is_err());
}

/// Each request in each state: those in the right order, and no other.
#[test]
fn the_life_has_one_order() {
    let init = Body::InitRequest {
        transactions: 1,
        cores: 1,
        memory: Vec::new(),
    };
    let connect = Body::ConnectRequest(connection(Role::Data));
    let order = [
        (Body::QueryRequest, State::Queried),
        (init, State::Initialised),
        (connect.clone(), State::Initialised),
        (connect, State::Initialised),
        (Body::StartRequest, State::Running),
        (Body::StopRequest, State::Stopped),
        (Body::ShutdownRequest, State::ShutDown),
    ];
    let mut life = LifeCycle::NEW;
    for (request, state) in &order {
        for (other, ..) in vectors() {
            if other.number() != request.number() {
                let defect = life.after(&other).unwrap_err();
                assert_eq!(defect.field(), "the type of the message");
            }
        }
        life = life.after(request).unwrap();
        assert_eq!(life.state(), *state);
    }
    assert!(vectors().iter().all(|(any, ..)| life.after(any).is_err()));
}

#[test]
fn connections_of_all_cores_are_made_before_the_start() {
    let init = Body::InitRequest {
        transactions: 1,
        cores: u32::MAX,
        memory: Vec::new(),
    };
    let queried = LifeCycle::NEW.after(&Body::QueryRequest).unwrap();
    let life = queried.after(&init).unwrap();
    assert!(life.after(&Body::StartRequest).is_err());
    assert!(life
        .with_connections_made()
        .after(&Body::StartRequest)
        .is_ok());
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn any_frame_is_an_error_or_a_message(
        kind in 0..16_u8,
        payload in prop::collection::vec(any::<u8>(), 8..60),
    ) {
        let frame = frame(&[&[0, 0, 0, kind], &payload[..]].concat());
        if let Ok((message, rest)) = Message::decode(&frame) {
            prop_assert!(rest.is_empty());
            let is_text = matches!(message.body, Body::Error(_));
            prop_assert!(is_text || message.encode() == frame);
        }
    }

    #[test]
    fn what_was_checked_is_within(
        kind in 0..3_u32,
        numbers in any::<(u8, u64, u64)>(),
        blocks in 0..300_u32,
    ) {
        let (user_data, requester_offset, storage_offset) = numbers;
        let message = IoMessage {
            kind: [Kind::Result, Kind::Read, Kind::Write][kind as usize],
            user_data: user_data.into(),
            result: 0,
            io_bytes: blocks * 512,
            requester_offset: requester_offset % (512 << 9),
            storage_offset: (storage_offset % 300) * 512,
        };
        prop_assert_eq!(IoMessage::decode(&message.encode()), Ok(message));
        if message.check(&LIMITS).is_ok() {
            prop_assert!(kind != 0 && user_data < 4 && (1..=255).contains(&blocks));
            prop_assert!(message.requester_offset + u64::from(message.io_bytes) <= 256 * 512);
            prop_assert!(message.storage_offset + u64::from(message.io_bytes) <= 300 * 512);
        }
    }
}
