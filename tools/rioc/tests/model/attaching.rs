// SPDX-License-Identifier: GPL-2.0

//! Clients that attach, and are forgotten.

use ferro_proto::errno::Errno;
use rioc::proto::{
    store::Client,
    ticket::Lane, //
};

use crate::{
    disk::Crc,
    requests::Ask,
    rig::{
        CLIENTS,
        LANES,
        LIMITS, //
    },
    serving::{
        on_log,
        WRITE, //
    },
};

/// Makes a client of this name, which does not depend on its number.
fn client(name: u64) -> Client<Vec<Lane>> {
    let lanes = vec![Lane::UNUSED; LANES.into()];
    Client::new((0, [7, name], name), lanes, LIMITS)
}

/// What is forgotten of a client makes room for another one.
#[test]
fn a_client_that_is_gone_is_forgotten() {
    let mut rig = on_log(CLIENTS * usize::from(LANES) + 4);
    assert_eq!(rig.errno(0, WRITE, 0), 0);
    let used = rig.store.index().slots().free_count();
    let done = rig.store.forget([7, 0], (&mut rig.begun, &Crc));
    assert_eq!(done, Ok(()));
    assert_eq!(
        rig.store.index().slots().free_count(),
        used + u32::from(LANES)
    );
    assert_eq!(rig.store.index().usage().objects, 1);
    // The others are as they were.
    for client in 1..CLIENTS {
        assert_eq!(rig.errno(client, Ask::Write(1, 0, 4096, true), 0), 0);
    }
}

/// A client that was away sends again what was not answered if its incarnation is the same: it is
/// after a crash, and is not after it was forgotten.
#[test]
fn a_client_that_was_forgotten_has_another_incarnation() {
    let mut rig = on_log(100);
    let before: Vec<_> = rig.clients.iter().map(Client::incarnation).collect();
    let mut names = before.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CLIENTS);
    assert_eq!(rig.errno(0, WRITE, 0), 0);
    let mut again = client(0);
    rig.store.attach(&mut again).unwrap();
    assert_eq!(again.incarnation(), before[0]);
    rig.crash();
    assert_eq!(rig.clients[0].incarnation(), before[0]);
    // It is forgotten, comes again, and all of that is durable.
    rig.store.forget([7, 0], (&mut rig.begun, &Crc)).unwrap();
    rig.clients[0] = client(0);
    rig.store.attach(&mut rig.clients[0]).unwrap();
    let second = rig.clients[0].incarnation();
    assert!(!before.contains(&second));
    assert_eq!(rig.errno(0, Ask::Truncate(1, 5), 0), 0);
    rig.crash();
    assert_eq!(rig.clients[0].incarnation(), second);
}

/// A client that does not get slots for all of its lanes gets none.
#[test]
fn an_attach_that_fails_takes_no_slots() {
    let mut rig = on_log(CLIENTS * usize::from(LANES) + 3);
    assert_eq!(rig.store.index().slots().free_count(), 3);
    for name in 100..102 {
        assert_eq!(rig.store.attach(&mut client(name)), Err(Errno::ENOSPC));
    }
    assert_eq!(rig.store.index().slots().free_count(), 3);
    assert_eq!(rig.errno(0, Ask::Create(5, false), 0), 0);
}

/// Of a client that has changed nothing a log keeps nothing: the number of its incarnation may have
/// the place in the order of one of another life, and is another one.
#[test]
fn incarnations_of_lives_without_operations_differ() {
    let mut numbers = std::collections::BTreeSet::new();
    for life in 0..50 {
        let mut rig = on_log(100);
        let lanes = vec![Lane::UNUSED; LANES.into()];
        let mut new = Client::new((0, [8, 8], life * 0x1_0001_0001), lanes, LIMITS);
        rig.store.attach(&mut new).unwrap();
        assert!(numbers.insert(new.incarnation()));
    }
}
