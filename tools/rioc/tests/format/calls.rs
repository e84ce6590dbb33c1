// SPDX-License-Identifier: GPL-2.0

//! The structure of `/dev/rioc`: its bytes, each field with what it must not have, and any bytes.

use ferro_proto::errno::Errno;
use rioc::proto::{
    ioctl::{
        Call,
        Refused,
        Request,
        VERSION, //
    },
    message::{
        Malformed,
        Operation, //
    },
    retry::{
        is_a_new_one,
        is_asked_again,
        is_of_no_store,
        is_sent_again,
        is_sent_later, //
    },
    span::{
        ObjectId,
        Span,
        OBJECT_BYTES_MAX, //
    },
    wire, //
};
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

use crate::{
    random::Random,
    vectors::messages, //
};

/// A request of each kind that is right.
fn right(kind: u8) -> Request {
    let mut request = Request {
        version: VERSION,
        kind: kind.into(),
        ..Request::default()
    };
    if !matches!(kind, wire::ATTACH | wire::PING | wire::LIST | wire::RELEASE) {
        request.object = [1, 2];
    }
    if matches!(kind, wire::READ | wire::WRITE | wire::COPY) {
        (request.offset, request.length) = (4096, 8192);
    }
    if matches!(kind, wire::COPY | wire::SNAPSHOT) {
        request.destination = [3, 4];
    }
    if kind == wire::RELEASE {
        request.lease = 7;
    }
    request
}

#[test]
fn a_structure_has_its_bytes() {
    let mut request = right(wire::COPY);
    (request.flags, request.lease, request.buffer) = (1, 5, 0x1122);
    (request.destination_offset, request.size, request.blocks) = (12288, 6, 7);
    (request.boot, request.state, request.io_bytes_max) = (8, 3, 114_688);
    let bytes = request.as_bytes();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!([0, 4, 8, 12].map(word), [1, wire::COPY.into(), 1, 5]);
    assert_eq!([16, 24, 32, 40, 48].map(long), [1, 2, 4096, 8192, 0x1122]);
    assert_eq!([56, 64, 72, 80, 88, 96].map(long), [3, 4, 12288, 6, 7, 8]);
    assert_eq!([104, 108].map(word), [3, 114_688]);
    assert_eq!([112, 120].map(long), [0, 0]);
    assert_eq!(bytes.len(), 128);
}

#[test]
fn each_kind_is_a_call() {
    let (object, destination) = (ObjectId { high: 1, low: 2 }, ObjectId { high: 3, low: 4 });
    let span = Span::new(4096, 8192).unwrap();
    for kind in wire::ATTACH..=wire::RELEASE {
        let call = right(kind).call().unwrap();
        let wanted = match kind {
            wire::ATTACH => Call::Attach(0),
            wire::LIST => Call::List(0, 0),
            wire::READ => Call::Read(object, span),
            wire::WRITE => Call::Write(object, span, false),
            wire::COPY => Call::Copy {
                source: object,
                span,
                destination,
                offset: 0,
                creates: false,
            },
            wire::SNAPSHOT => Call::One(Operation::Snapshot {
                source: object,
                destination,
                is_new: false,
            }),
            wire::FLUSH => Call::One(Operation::Flush {
                object,
                span: Span::ALL,
            }),
            _ => call,
        };
        assert_eq!(call, wanted);
    }
}

#[test]
fn each_field_is_checked() {
    let with = |kind: u8, change: fn(&mut Request)| {
        let mut request = right(kind);
        change(&mut request);
        request.call().map(|_| ())
    };
    for kind in wire::ATTACH..=wire::RELEASE {
        let other = with(kind, |request| request.version = 2);
        assert_eq!(other, Err(Refused::Version(2)));
        let reserved = with(kind, |request| request.reserved[1] = 1);
        assert_eq!(reserved, Err(Refused::Reserved));
        let flags = with(kind, |request| request.flags = 1 << 15);
        assert_eq!(flags, Err(Malformed::Flags(1 << 15).into()));
        let wide = with(kind, |request| request.flags = 1 << 16);
        assert!(wide.is_err());
        let has_buffer = matches!(kind, wire::ATTACH | wire::LIST | wire::READ | wire::WRITE);
        let buffer = with(kind, |request| request.buffer = 1);
        assert_eq!(buffer.is_ok(), has_buffer);
        let is_copy = matches!(kind, wire::COPY | wire::SNAPSHOT);
        let destination = with(kind, |request| request.destination = [0, 1]);
        assert_eq!(destination.is_ok(), is_copy);
        let moved = with(kind, |request| request.destination_offset = 4096);
        assert_eq!(moved.is_ok(), kind == wire::COPY);
    }
    let far = |kind| with(kind, |request| request.offset = OBJECT_BYTES_MAX);
    for kind in [wire::READ, wire::WRITE, wire::COPY] {
        assert_eq!(far(kind).unwrap_err().errno(), Errno::EFBIG);
    }
    let copy = with(wire::COPY, |request| request.destination_offset = u64::MAX);
    assert_eq!(copy.unwrap_err().errno(), Errno::EFBIG);
    let none = with(wire::PING, |request| request.kind = 15);
    assert_eq!(none, Err(Malformed::Kind(15).into()));
    assert_eq!(
        with(wire::PING, |request| request.kind = 0x102)
            .unwrap_err()
            .errno(),
        Errno::EOPNOTSUPP
    );
    assert_eq!(
        Refused::Version(2).to_string(),
        "version 2, not 1" // what a program of another version is told
    );
}

#[test]
fn any_bytes_are_refused_or_a_call() {
    let mut random = Random::new(39);
    for round in 0..1_000_000u32 {
        let mut request = right(random.below(14) as u8 + 1);
        let bytes = request.as_mut_bytes();
        for _ in 0..1 + round % 3 {
            bytes[random.below(128)] = random.below(256) as u8;
        }
        let read = Request::read_from_bytes(request.as_bytes()).unwrap();
        if let Ok(Call::Copy { span, offset, .. }) = read.call() {
            assert!(span.moved_to(offset).is_some());
        }
    }
}

#[test]
fn an_operation_knows_its_direction_and_whether_it_changes_something() {
    for (message, direction, _) in messages() {
        assert_eq!(message.operation.direction(), direction);
        assert_eq!(message.operation.is_change(), message.ticket.is_some());
    }
}

#[test]
fn what_was_not_carried_out_is_sent_again() {
    assert!(is_sent_later(Errno::ECONNABORTED) && is_sent_later(Errno::EALREADY));
    assert!(is_sent_later(Errno::EBUSY) && !is_sent_later(Errno::EMSGSIZE));
    assert!(is_sent_again(Errno::EAGAIN) && is_sent_again(Errno::ENOTCONN));
    assert!(is_a_new_one(Errno::EAGAIN) && !is_a_new_one(Errno::ENOTCONN));
    // A lease of another client, and a store that is full, are answers.
    assert!(!is_sent_again(Errno::EBUSY) && !is_sent_again(Errno::ENOSPC));
}

/// RTRS may have sent it over two paths: one copy was carried out, and another one came to the
/// store when it was deleted. The log knows the number.
#[test]
fn what_came_to_a_store_that_was_deleted_keeps_its_number() {
    assert!(is_of_no_store(Errno::ENODEV) && !is_of_no_store(Errno::ENOENT));
    assert!(!is_a_new_one(Errno::ENODEV) && !is_sent_again(Errno::ENODEV));
}

#[test]
fn a_server_that_could_not_say_which_store_is_asked_again() {
    for errno in [Errno::ECONNABORTED, Errno::EAGAIN, Errno::ENOMEM] {
        assert!(is_asked_again(errno));
    }
    for errno in [Errno::ENOENT, Errno::EIO, Errno::EPROTONOSUPPORT] {
        assert!(!is_asked_again(errno));
    }
}
