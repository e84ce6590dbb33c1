// SPDX-License-Identifier: GPL-2.0

//! Leases of a store, which requests of others meet.

use rioc::proto::{
    medium::Ram,
    store::Arrived,
    ticket::Outcome, //
};

use crate::{
    disk::Crc,
    requests::Ask,
    rig::{
        Rig,
        CLIENTS, //
    },
    serving::{
        in_memory,
        on_log,
        Heap,
        EBUSY,
        EDQUOT,
        ENOENT,
        ESTALE,
        WRITE, //
    },
    world::id,
};

#[test]
fn a_lease_excludes_others_until_it_ends() {
    let mut rig = in_memory(100, 100, 1);
    let first = rig.ask(0, Ask::Lease(1, 0, 8192, true), 0);
    assert_eq!(first.errno, 0);
    for client in 1..CLIENTS {
        assert_eq!(rig.errno(client, WRITE, 0), EBUSY);
        assert_eq!(rig.errno(client, Ask::Delete(1), 0), EBUSY);
        assert_eq!(rig.errno(client, Ask::Lease(1, 4096, 1, false), 0), EBUSY);
    }
    assert_eq!(rig.errno(0, WRITE, first.lease), 0);
    assert_eq!(rig.errno(1, Ask::Release, first.lease), ESTALE);
    assert_eq!(rig.errno(0, Ask::Release, first.lease), 0);
    assert_eq!(rig.errno(0, WRITE, first.lease), ESTALE);
    assert_eq!(rig.errno(1, WRITE, 0), 0);
}

/// An administrator ends a lease while an operation under it is in flight: the next lease is
/// answered when that has ended, and nothing is written under the one before any more.
#[test]
fn a_lease_that_was_taken_away_writes_nothing() {
    let mut rig = on_log(100);
    let first = rig.ask(0, Ask::Lease(1, 0, 8192, true), 0);
    let write = rig.request(0, WRITE, first.lease);
    let write = rig.send(write).unwrap();
    assert_eq!(rig.store.revoke(first.lease, &mut rig.begun), Some(0));
    rig.clients[0].lease_ended();
    assert_eq!(rig.clients[0].account().state().2, 0);
    let lease = rig.request(1, Ask::Lease(1, 0, 8192, true), 0);
    let lease = rig.send(lease).unwrap();
    rig.step(lease);
    assert!(rig.answer().is_empty());
    assert_eq!(rig.errno(0, WRITE, first.lease), ESTALE);
    assert_eq!(rig.errno(0, WRITE, 0), EBUSY);
    assert_eq!(rig.answer_of(write).errno, 0);
    assert_ne!(rig.answer_of(lease).lease, first.lease);
}

/// The lease of before a restart is not that which another program of the same machine has taken
/// since.
#[test]
fn a_lease_of_a_life_before_is_none() {
    let mut rig = on_log(100);
    let before = rig.ask(0, Ask::Lease(1, 0, 8192, true), 0);
    rig.crash();
    let now = rig.ask(0, Ask::Lease(1, 0, 8192, true), 0);
    assert_ne!(now.lease, before.lease);
    assert_eq!(rig.errno(0, WRITE, before.lease), ESTALE);
    assert_eq!(rig.errno(0, Ask::Release, before.lease), ESTALE);
    assert_eq!(rig.errno(1, Ask::Lease(1, 0, 8192, true), 0), EBUSY);
    assert_eq!(rig.errno(0, WRITE, now.lease), 0);
}

/// An object becomes longer over bytes of which another client has a writer's lease only if that
/// one lets it.
#[test]
fn a_lease_keeps_the_size_of_its_bytes() {
    let mut rig = in_memory(100, 100, 1);
    let truncate = |size| Ask::Truncate(1, size);
    assert_eq!(rig.errno(0, Ask::Write(1, 0, 4096, true), 0), 0);
    let lease = rig.ask(0, Ask::Lease(1, 4096, 4096, true), 0).lease;
    assert_eq!(rig.errno(1, truncate(8192), 0), EBUSY);
    assert_eq!(rig.errno(1, truncate(4096), 0), EBUSY);
    assert_eq!(rig.errno(1, Ask::Truncate(9, 8192), 0), ENOENT);
    assert_eq!(rig.errno(0, truncate(8192), 0), 0);
    assert_eq!(rig.errno(1, truncate(8193), 0), 0);
    assert_eq!(rig.errno(0, Ask::Release, lease), 0);
    // The object becomes shorter before it becomes longer, under a lease.
    assert_eq!(rig.errno(0, Ask::Lease(1, 0, 4096, true), 0), 0);
    let first = rig.request(0, truncate(0), 0);
    let first = rig.send(first).unwrap();
    let second = rig.request(1, truncate(8192), 0);
    let second = rig.send(second).unwrap();
    assert_eq!(rig.answer_of(first).errno, 0);
    assert_eq!(rig.answer_of(second).errno, EBUSY);
    assert_eq!(rig.store.index().stat(id(1)).unwrap().size, 0);
}

/// The number of a lease can be guessed before it is told. What ends the lease leaves no request
/// without an answer.
#[test]
fn a_lease_that_ends_while_it_waits_is_answered() {
    for case in 0..3 {
        let mut rig = in_memory(100, 100, 1);
        let write = rig.request(1, WRITE, 0);
        let write = rig.send(write).unwrap();
        let lease = rig.request(0, Ask::Lease(1, 0, 8192, true), 0);
        let lease = rig.send(lease).unwrap();
        let waiting = (0..64).find_map(|slot| {
            let (number, claim) = rig.store.claims().get(slot)?;
            claim.is_waiting.then_some(number)
        });
        let waiting = waiting.unwrap();
        match case {
            0 => assert_eq!(rig.errno(0, Ask::Release, waiting), ESTALE),
            1 => {
                assert_eq!(rig.store.revoke(waiting, &mut rig.begun), Some(0));
                rig.clients[0].lease_ended();
            }
            _ => {
                assert_eq!(rig.store.end_leases(0, 0, &mut rig.begun), None);
                rig.clients[0].lease_ended();
            }
        }
        rig.note_begun();
        if case > 0 {
            let ended = rig.answer_of(lease);
            assert_eq!((ended.errno, ended.lease), (ESTALE, 0));
        }
        assert_eq!(rig.answer_of(write).errno, 0);
        if case == 0 {
            assert_eq!(rig.answer_of(lease).lease, waiting);
        }
        let leases = rig.clients[0].account().state().2;
        assert_eq!(leases, u32::from(case == 0));
    }
}

/// A client dies: its leases end, and what it has in flight ends before others get them.
#[test]
fn the_leases_of_a_client_end_with_it() {
    let mut rig = in_memory(100, 100, 1);
    for object in 0..2 {
        assert_eq!(rig.errno(0, Ask::Lease(object, 0, 1, true), 0), 0);
    }
    assert_eq!(rig.errno(0, Ask::Lease(3, 0, 1, true), 0), EDQUOT);
    let waiting = rig.request(0, Ask::Write(1, 0, 4096, true), 0);
    let waiting = rig.send(waiting).unwrap();
    assert_eq!(rig.store.end_leases(0, 0, &mut rig.begun), None);
    let lease = rig.request(1, Ask::Lease(1, 0, 1, true), 0);
    let lease = rig.send(lease).unwrap();
    rig.step(lease);
    assert!(rig.answer().is_empty());
    rig.give_up(waiting);
    assert_eq!(rig.answer_of(lease).errno, 0);
    assert_eq!(rig.clients[0].account().state().0, 0);
}

/// Sends what a client asks for by chance; it also names leases of others, and some that wait.
fn send_some(rig: &mut Rig<Ram<Heap>>, client: usize) {
    let numbers: Vec<u32> = (0..64)
        .filter_map(|slot| rig.store.claims().get(slot))
        .map(|(number, _)| number)
        .chain([0])
        .collect();
    let some = numbers[rig.random.below(numbers.len())];
    let (object, from) = (rig.random.below(3) as u64, rig.random.below(9000) as u64);
    let (ask, lease) = match rig.random.below(8) {
        0 => (Ask::Lease(object, from, 5000, from % 2 == 0), 0),
        1 if some != 0 => (Ask::Release, some),
        2 => (crate::crash::ask(&mut rig.random, 3), some),
        _ => (crate::crash::ask(&mut rig.random, 3), 0),
    };
    let has_none = matches!(ask, Ask::Create(..) | Ask::Flush(_));
    let request = rig.request(client, ask, if has_none { 0 } else { lease });
    let _ = rig.send(request);
}

/// Requests that have arrived are answered in the end, whatever clients ask for, and nothing is
/// left of them in their accounts.
#[test]
fn all_that_has_arrived_is_answered() {
    for seed in 0..300u64 {
        let mut rig = in_memory(300, [60, 1000][seed as usize % 2], seed + 77);
        if seed % 3 == 0 {
            rig.store.evict_objects();
        }
        for round in 0..520 {
            let client = rig.random.below(CLIENTS);
            if round < 120 && rig.is_idle(client) {
                send_some(&mut rig, client);
            }
            if round >= 120 || rig.random.below(3) > 0 {
                rig.step_some(round >= 120);
            }
            rig.answer();
            if round % 100 == 50 {
                let leases = rig.clients[client].account().state().2;
                let from = rig.store.end_leases(client as u32, 0, &mut rig.begun);
                assert_eq!(from, None);
                (0..leases).for_each(|_| rig.clients[client].lease_ended());
                rig.note_begun();
            }
            let _ = rig.store.reap((&mut rig.begun, &Crc));
        }
        assert_eq!(rig.in_flight(), 0, "seed {seed}");
        for client in &rig.clients {
            let (operations, bytes, _) = client.account().state();
            assert_eq!((operations, bytes), (0, 0), "seed {seed}");
        }
    }
}

/// A lease for writing lets no other client make the object, but the one that has it.
#[test]
fn a_lease_excludes_those_who_make_the_object() {
    let mut rig = in_memory(100, 100, 1);
    let held = rig.ask(0, Ask::Lease(1, 0, 8192, true), 0);
    assert_eq!(rig.errno(1, Ask::Create(1, false), 0), EBUSY);
    assert_eq!(rig.errno(1, Ask::Create(1, false), held.lease), ESTALE);
    assert_eq!(rig.errno(0, Ask::Create(1, true), 0), 0);
    assert_eq!(rig.errno(1, Ask::Create(2, true), 0), 0);
    assert_eq!(rig.errno(0, Ask::Release, held.lease), 0);
    assert_eq!(rig.errno(1, WRITE, 0), 0);
}

/// The answer of a lease is lost with the last path: the lease ends with that, and the copy that
/// the client sends when it is back is not answered with its number.
#[test]
fn a_lease_that_has_ended_is_not_given_to_a_copy() {
    let mut rig = in_memory(100, 100, 1);
    let request = rig.request(0, Ask::Lease(1, 0, 8192, true), 0);
    let tag = rig.send(request.clone()).unwrap();
    let first = rig.answer_of(tag);
    assert_eq!(first.errno, 0);
    assert_eq!(
        rig.send(request.clone()).unwrap_err(),
        Arrived::Answer(first)
    );
    assert_eq!(rig.store.end_leases(0, 0, &mut rig.begun), None);
    rig.clients[0].lease_ended();
    assert_eq!(rig.errno(1, Ask::Lease(1, 0, 8192, true), 0), 0);
    let ended = Outcome {
        errno: ESTALE,
        lease: 0,
    };
    assert_eq!(rig.send(request).unwrap_err(), Arrived::Answer(ended));
}
