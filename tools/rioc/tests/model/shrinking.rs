// SPDX-License-Identifier: GPL-2.0

//! Objects whose end was being removed when power failed.

use rioc::proto::{
    store::{
        Client,
        Data,
        Op,
        Step,
        Store, //
    },
    ticket::{
        Lane,
        Ticket, //
    },
};

use crate::{
    assembly::assemble,
    disk::Crc,
    requests::Ask,
    rig::{
        claims,
        Rig,
        Tables,
        LANES,
        LIMITS, //
    },
    serving::on_log,
};

/// Makes an object of more ranges than a step removes, and fails when the first step is durable.
fn cut_and_crash() -> Rig<rioc::proto::log::Logged<crate::assembly::Heap>> {
    let mut rig = on_log(400);
    assert_eq!(rig.errno(0, Ask::Write(2, 0, 4096, true), 0), 0);
    for block in 0..100 {
        let copy = Ask::Copy(2, 0, 4096, 1, block * 8192, true);
        assert_eq!(rig.errno(0, copy, 0), 0);
    }
    rig.drain();
    let cut = rig.request(0, Ask::Truncate(1, 0), 0);
    let cut = rig.send(cut).unwrap();
    rig.step(cut);
    for _ in 0..20 {
        rig.settle();
        rig.end_io();
    }
    rig.begun.disk.lose_power(&mut rig.random);
    rig
}

/// Files that must become longer wait until a step of the server has removed the rest: they do not
/// keep the server from that.
#[test]
fn a_write_behind_the_end_of_a_cut_object_ends() {
    let mut rig = cut_and_crash();
    let (index, logged, _) = assemble(&mut rig.begun.disk, true, &mut rig.random).unwrap();
    let claims = claims(&mut rig.random);
    let mut store = Store::<Tables, _>::new(index, claims, logged);
    let lanes = vec![Lane::UNUSED; LANES.into()];
    let mut client = Client::new((1, [7, 1], 0), lanes, LIMITS);
    store
        .attach(&mut client, None, (&mut rig.begun, &Crc))
        .unwrap();
    let mut request = rig.request(1, Ask::Write(1, 4096, 4096, true), 0);
    request.ticket = Ticket::new(0, 1000);
    let (mut op, message) = (Op::new(1), request.message());
    store.arrive(&mut client, &mut op, &message);
    let mut blocks = Box::new([[0; 4096]; 4]);
    let (mut is_ready, mut trims) = (true, 0);
    // Requests that are ready go before what a restart has left.
    for _ in 0..1000 {
        store.settle((&mut rig.begun, &Crc));
        let ended = rig.begun.disk.end_one(&mut rig.random, false, |_| true);
        if let Some(io) = ended {
            store.medium_mut().ended(io, true);
            is_ready = true;
        }
        if is_ready {
            let bytes = &request.bytes;
            let mut data = Data {
                bytes,
                blocks: &mut blocks,
            };
            let of = (&message, &mut data);
            let step = store.step(&mut client, &mut op, of, (&mut rig.begun, &Crc));
            if let Step::Done(done) = step {
                assert_eq!(done.outcome.errno, 0);
                assert!(trims > 0);
                return;
            }
            is_ready = matches!(step, Step::Again | Step::Read(_));
            continue;
        }
        for slot in 0..store.index().slots().count() {
            let is_left = store.index().slots().object(slot);
            if is_left.is_some_and(|object| object.is_shrinking) {
                trims += 1;
                is_ready = store.trim(slot, (&mut rig.begun, &Crc)).is_ok();
            }
        }
    }
    panic!("the object was never trimmed");
}
