// SPDX-License-Identifier: GPL-2.0

//! Rest of a device, and what a record says then.

use proto::sidecar::{
    group,
    idle::Idle,
    queue::Kind,
    record::Head,
    store::{
        Action,
        ArrayStore,
        Rest, //
    }, //
};

use super::order::{
    open,
    request,
    seal,
    Pages,
    WRITE, //
};

/// Carries out what the store wants until it wants nothing; returns that.
fn carry_out(store: &mut ArrayStore<4, 4>, pages: &mut Pages) -> Vec<Action> {
    let mut all = Vec::new();
    while let Some(action) = store.poll() {
        match action {
            Action::ReadPiBlock { slot, group } => {
                group::format(&mut pages.0[slot], group, &seal(), group::Blank::Zeroes(0));
                store.pi_block_read(slot, true);
            }
            Action::WriteRecord { .. } => store.record_written(true),
            Action::Data { ticket, .. } => store.data_done(ticket, true, pages),
            Action::WriteBack { slot, .. } => store.written_back(slot, true),
            Action::Flush => store.flushed(true),
            Action::ReadBack(_) | Action::Answer { .. } => {}
        }
        all.push(action);
    }
    all
}

/// A mark that names the flush, some ticks later an empty journal; then the clock may stand still.
/// A request that changes the device begins this anew.
#[test]
fn a_device_at_rest_writes_a_mark_and_then_empties_its_journal() {
    let (mut store, mut pages) = open();
    let mut idle = Idle::default();
    assert!(!store.gains_by_rest());
    for request in [request(WRITE, 0, 1), request(Kind::Flush, 0, 0)] {
        store.submit(request).unwrap();
        idle.worked();
        carry_out(&mut store, &mut pages);
    }
    let mark = |sequence, tail| Action::WriteRecord {
        head: Head {
            sequence,
            tail,
            flushed: sequence,
            device_blocks: 2000,
        },
        fua: true,
    };
    let mut tick = |idle: &mut Idle| {
        assert!(store.gains_by_rest());
        idle.tick();
        store.rest(idle.rest());
        carry_out(&mut store, &mut pages)
    };
    assert_eq!(tick(&mut idle), []);
    assert_eq!(tick(&mut idle), [mark(3, 2)]);
    (0..4).for_each(|_| assert_eq!(tick(&mut idle), []));
    idle.worked();
    (0..6).for_each(|_| assert_eq!(tick(&mut idle), []));
    let last = tick(&mut idle);
    assert!(matches!(last[0], Action::WriteBack { .. }), "{last:?}");
    assert_eq!(last[1..], [Action::Flush, mark(4, 4)]);
    assert!(store.is_clean() && !store.gains_by_rest());
}

/// Only while its record is needed: what was flushed later is told, also if one failed long before.
#[test]
fn a_write_that_has_failed_holds_back_what_was_flushed_until_it_is_settled() {
    let (mut store, mut pages) = open();
    let fail = |store: &mut ArrayStore<4, 4>, pages: &mut Pages, block| {
        pages.1 = block;
        store.submit(request(WRITE, block, 1)).unwrap();
        loop {
            match store.poll().unwrap() {
                Action::ReadPiBlock { slot, .. } => store.pi_block_read(slot, true),
                Action::WriteRecord { head, .. } => {
                    store.record_written(true);
                    if block == 9 {
                        return head.flushed;
                    }
                }
                Action::Data { ticket, .. } => store.data_done(ticket, false, pages),
                Action::ReadBack(ticket) => store.settle(ticket, |_| None, pages),
                Action::Flush => store.flushed(true),
                Action::Answer { .. } => return 0,
                other => panic!("{other:?}"),
            }
        }
    };
    fail(&mut store, &mut pages, 1);
    store.rest(Rest::Drain);
    carry_out(&mut store, &mut pages);
    assert!(store.is_clean());
    store.rest(Rest::None);
    // Records 2 and 3 are settled, 4 is the next one.
    fail(&mut store, &mut pages, 2);
    assert_eq!(fail(&mut store, &mut pages, 9), 4);
}
