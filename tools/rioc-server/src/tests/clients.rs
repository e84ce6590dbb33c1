// SPDX-License-Identifier: GPL-2.0

//! Clients that come, go, and send anything.

use std::collections::BTreeMap;

use super::{
    super::{
        engine::Place,
        memory::CLIENTS_MAX, //
    },
    random::Random,
    rig::{
        id,
        in_memory,
        on_log,
        sums,
        OnLog,
        DEVICE_BYTES, //
    }, //
};
use crate::{
    bdev::BlockDevice,
    collections,
    proto::{
        message::{
            Direction,
            Message,
            Operation as Asked,
            Sums, //
        },
        span::Span,
        ticket::Ticket, //
    }, //
};

/// A client that others have taken the place of has another incarnation when it comes back: it does
/// not send again what may have been carried out.
#[test]
fn a_client_that_was_forgotten_is_another_one() {
    let device = BlockDevice::of_zeroes(DEVICE_BYTES, false).unwrap();
    let (mut server, mut random) = (on_log(&device, true).unwrap(), Random::new(1));
    let (client, incarnation) = server.attach(1).unwrap();
    server.engine.detach(client);
    assert_eq!(server.attach(1).unwrap(), (client, incarnation));
    server.engine.detach(client);
    for name in 0..CLIENTS_MAX as u64 {
        let (other, _) = server.attach(100 + name).unwrap();
        server.engine.detach(other);
        server.settle(&mut random);
    }
    let (_, another) = server.attach(1).unwrap();
    assert_ne!(another, incarnation);
}

/// A client attaches while all requests of the store wait: nothing is allocated meanwhile, which
/// would wait for memory.
#[test]
fn the_lock_is_held_without_waiting_for_memory() {
    let device = BlockDevice::of_zeroes(DEVICE_BYTES, false).unwrap();
    let (mut logged, mut memory) = (on_log(&device, true).unwrap(), in_memory(100));
    for name in 0..3 + CLIENTS_MAX as u64 {
        let places = [c"one", c"other"].map(|session| Place::new(session).unwrap());
        let [one, other] = places;
        let before = collections::allocated();
        let attached = [
            logged.engine.attach([9, name], one).unwrap(),
            memory.engine.attach([9, name], other).unwrap(),
        ];
        assert_eq!(collections::allocated(), before);
        let [(client, _), (other, _)] = attached;
        logged.engine.detach(client);
        memory.engine.detach(other);
        logged.settle(&mut Random::new(1));
    }
}

/// Makes any operation that a client may send.
fn any<'s>(random: &mut Random, span: Span, sums: &'s Sums<'s>) -> Asked<'s> {
    let (object, other) = (id(random.below(3) as u64), id(random.below(3) as u64));
    let is = random.below(2) == 0;
    match random.below(14) {
        0 => Asked::Ping,
        1 => Asked::Stat { object },
        2 => Asked::List {
            cursor: random.below(2000) as u32,
            count_max: random.below(200) as u32 + 1,
        },
        3 => Asked::Read { object, span },
        4 => Asked::Truncate {
            object,
            size: random.below(90_000) as u64,
        },
        5 => Asked::Delete { object },
        6 => Asked::Create { object, is_new: is },
        7 => Asked::Copy {
            source: object,
            span,
            destination: other,
            offset: span.offset() % 4096 + random.below(9) as u64 * 4096,
            creates: true,
        },
        8 => Asked::Snapshot {
            source: object,
            destination: other,
            is_new: is,
        },
        9 => Asked::Flush {
            object,
            span: Span::ALL,
        },
        10 => Asked::Lease {
            object,
            span: if is { Span::ALL } else { span },
            is_writer: random.below(2) == 0,
        },
        11 => Asked::Release,
        _ => Asked::Write {
            object,
            span,
            creates: random.below(4) > 0,
            sums: *sums,
        },
    }
}

/// Sends a message: any operation, ticket and lease, and some bits flipped.
fn send_any(server: &mut OnLog, random: &mut Random, of: (u32, u16)) -> u64 {
    let claims = (0..64).filter_map(|number| server.engine.store.claims().get(number));
    let leases: Vec<u32> = claims.filter(|c| !c.1.is_waiting).map(|c| c.0).collect();
    let lease = match leases.is_empty() || random.below(3) > 0 {
        true => 1,
        false => leases[random.below(leases.len())],
    };
    let at = random.below(60_000) as u64;
    let span = Span::new(at, random.below(20_000) as u64 + 1).unwrap();
    let bytes = vec![7; span.bytes() as usize];
    let mut sums = sums(&span, &bytes);
    if random.below(20) == 0 {
        sums[0] = (sums[0].get() ^ 1).into();
    }
    let sums = Sums::new(&sums);
    let operation = any(random, span, &sums);
    let lane = [0, 1, 2, 63, 64, 70][random.below(6)];
    let ticket = Ticket::new(lane, random.below(40) as u64 + 1);
    let has_lease = match operation {
        Asked::Release => true,
        Asked::Read { .. } | Asked::Write { .. } | Asked::Truncate { .. } => random.below(3) == 0,
        _ => false,
    };
    let message = Message {
        lease: if has_lease { lease } else { 0 },
        ticket: operation.is_change().then_some(ticket).flatten(),
        incarnation: server.incarnation(of.0),
        operation,
    };
    let mut raw = [0; 1024];
    let len = message.write(&mut raw).unwrap();
    let mut user = raw[..len].to_vec();
    if random.below(30) == 0 {
        user[random.below(len)] ^= 1 << random.below(8);
    }
    let is_read = matches!(operation.direction(), Direction::Read);
    let data: &[u8] = if is_read { &[] } else { &bytes };
    server.send_bytes(of, user, (is_read, operation.data_bytes()), data)
}

/// Each request is answered once, and the store becomes idle: nothing of its clients is left.
#[test]
fn whatever_clients_send_is_answered_once() {
    for seed in 0..40 {
        let mut random = Random::new(seed * 2 + 1);
        let device = BlockDevice::of_zeroes(DEVICE_BYTES, seed % 2 == 0).unwrap();
        let mut server = on_log(&device, true).unwrap();
        let clients = [0, 1, 2].map(|name| server.attach(name).unwrap().0);
        let mut sent: BTreeMap<u64, (u32, u16)> = BTreeMap::new();
        for _ in 0..random.below(1500) {
            let of = (clients[random.below(3)], random.below(12) as u16);
            if random.below(3) == 0 && !sent.values().any(|other| *other == of) {
                sent.insert(send_any(&mut server, &mut random, of), of);
            }
            match random.below(5) {
                0 => drop(server.end_io(&mut random)),
                1 => drop(server.collect()),
                _ => drop(server.go_on(random.below(3))),
            }
            for answer in server.take_answers() {
                assert!(sent.remove(&answer.number).is_some(), "life {seed}: twice");
            }
        }
        server.settle(&mut random);
        for answer in server.take_answers() {
            assert!(sent.remove(&answer.number).is_some(), "life {seed}: twice");
        }
        assert!(sent.is_empty(), "life {seed}: {sent:?} are not answered");
        for client in clients {
            server.engine.detach(client);
        }
        let claims = (0..4096).filter_map(|number| server.engine.store.claims().get(number));
        assert_eq!(claims.count(), 0, "life {seed}");
    }
}
