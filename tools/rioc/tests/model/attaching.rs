// SPDX-License-Identifier: GPL-2.0

//! Clients that attach, and are forgotten.

use ferro_proto::errno::Errno;
use rioc::proto::{
    medium::Medium,
    store::{
        Client,
        Store, //
    },
    ticket::Lane, //
};

use crate::{
    assembly::assemble,
    disk::Crc,
    requests::Ask,
    rig::{
        claims,
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

/// Forgotten clients make room for another one, which has more lanes.
#[test]
fn a_client_that_is_gone_makes_room() {
    let mut rig = on_log(CLIENTS * usize::from(LANES) + 16);
    assert_eq!(rig.errno(0, WRITE, 0), 0);
    let free = rig.store.index().slots().free_count();
    let lanes = vec![Lane::UNUSED; usize::from(LANES) + 1];
    let mut new = Client::new((0, [7, 100], 0), lanes, LIMITS);
    let with = (&mut rig.begun, &Crc);
    assert_eq!(rig.store.attach(&mut new, Some([7, 0]), with), Ok(()));
    assert_eq!(rig.store.index().slots().free_count(), free - 1);
    assert_eq!(rig.store.index().usage().objects, 1);
    // The others are as they were.
    for client in 1..CLIENTS {
        assert_eq!(rig.errno(client, Ask::Write(1, 0, 4096, true), 0), 0);
    }
    // Before: 0, 1 and 2; the one that was forgotten is not there.
    let (first, incarnation) = rig.store.client_after(0).unwrap();
    let (second, incarnation) = rig.store.client_after(incarnation).unwrap();
    let (third, incarnation) = rig.store.client_after(incarnation).unwrap();
    assert_eq!([first, second, third], [[7, 1], [7, 2], [7, 100]]);
    assert_eq!(rig.store.client_after(incarnation), None);
}

/// A client that does not get slots for all of its lanes gets none, and none is forgotten for it.
#[test]
fn an_attach_that_fails_changes_nothing() {
    let mut rig = on_log(CLIENTS * usize::from(LANES) + 3);
    assert_eq!(rig.errno(0, Ask::Create(5, false), 0), 0);
    assert_eq!(rig.store.index().slots().free_count(), 2);
    for name in 100..102 {
        let lanes = vec![Lane::UNUSED; usize::from(LANES) + 3];
        let mut new = Client::new((0, [7, name], name), lanes, LIMITS);
        let gone = [None, Some([7, 0]), Some([7, 55])];
        for gone in gone {
            let with = (&mut rig.begun, &Crc);
            let attached = rig.store.attach(&mut new, gone, with);
            assert_eq!(attached, Err(Errno::ENOSPC));
        }
    }
    assert_eq!(rig.store.index().slots().free_count(), 2);
    assert_eq!(rig.errno(0, Ask::Create(5, false), 0), 0);
    rig.crash();
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
    rig.crash();
    assert_eq!(rig.clients[0].incarnation(), before[0]);
    // It is forgotten, comes again, and all of that is durable.
    for (place, name, gone) in [(1, 9, 0), (0, 0, 1)] {
        rig.clients[place] = client(name);
        let new = &mut rig.clients[place];
        let with = (&mut rig.begun, &Crc);
        rig.store.attach(new, Some([7, gone]), with).unwrap();
    }
    let second = rig.clients[0].incarnation();
    assert!(!before.contains(&second));
    assert_eq!(rig.errno(0, Ask::Truncate(1, 5), 0), 0);
    rig.crash();
    assert_eq!(rig.clients[0].incarnation(), second);
}

/// Logs keep nothing of a client that has changed nothing: the number of its incarnation may have
/// the place in the order of one of another life, and is another one.
#[test]
fn incarnations_of_lives_without_operations_differ() {
    let mut numbers = std::collections::BTreeSet::new();
    for life in 0..50 {
        let mut rig = on_log(100);
        let lanes = vec![Lane::UNUSED; LANES.into()];
        let mut new = Client::new((0, [8, 8], life * 0x1_0001_0001), lanes, LIMITS);
        let with = (&mut rig.begun, &Crc);
        rig.store.attach(&mut new, None, with).unwrap();
        assert!(numbers.insert(new.incarnation()));
    }
}

/// Machines come with new names after each crash, and the names of before are forgotten in their
/// order when others need the place: slots are not used up.
#[test]
fn clients_of_lives_before_are_forgotten_in_order() {
    let mut rig = on_log(400);
    let free = rig.store.index().slots().free_count();
    for life in 1..20u64 {
        rig.drain();
        rig.begun.disk.lose_power(&mut rig.random);
        let (index, logged, _) = assemble(&mut rig.begun.disk, true, &mut rig.random).unwrap();
        rig.store = Store::new(index, claims(&mut rig.random), logged);
        // A place for each that is known, as its server has.
        let (mut places, mut after) = (std::collections::VecDeque::new(), 0);
        while let Some((name, next)) = rig.store.client_after(after) {
            let mut known = client(name[1]);
            let with = (&mut rig.begun, &Crc);
            rig.store.attach(&mut known, None, with).unwrap();
            let identity = rig.store.medium().identity().unwrap();
            assert_eq!(known.incarnation(), next ^ identity);
            places.push_back(name);
            after = next;
        }
        let before: Vec<_> = (0..CLIENTS as u64).map(|n| (life - 1) * 100 + n).collect();
        assert!(life == 1 || places.iter().map(|name| name[1]).eq(before));
        for number in 0..CLIENTS {
            let gone = if places.len() < CLIENTS {
                None
            } else {
                places.pop_front()
            };
            let name = life * 100 + number as u64;
            places.push_back([7, name]);
            let lanes = vec![Lane::UNUSED; LANES.into()];
            rig.clients[number] = Client::new((number as u32, [7, name], life), lanes, LIMITS);
            let new = &mut rig.clients[number];
            let with = (&mut rig.begun, &Crc);
            rig.store.attach(new, gone, with).unwrap();
        }
        for number in (0..CLIENTS).cycle().take(CLIENTS * usize::from(LANES)) {
            assert_eq!(rig.errno(number, Ask::Create(1, false), 0), 0);
            assert_eq!(rig.errno(number, Ask::Delete(1), 0), 0);
            rig.drain();
        }
        assert_eq!(rig.store.index().slots().free_count(), free);
    }
}
