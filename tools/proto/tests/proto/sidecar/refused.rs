// SPDX-License-Identifier: GPL-2.0

//! IO that is not begun, as the lease has ended, says nothing of the device.

use proto::sidecar::{
    group,
    queue::{
        Kind,
        Request, //
    },
    store::{
        Action,
        ArrayStore,
        Rest, //
    },
    tuple::Verdict,
};

use super::order::{
    open,
    request,
    seal,
    Pages,
    WRITE, //
};

const FUA: Kind = Kind::Write { fua: true };

/// Carries out what the store wants; the IO with the number `refused` is not begun, and the device
/// is not to be used from then on. Returns whether there was one, and how requests have ended.
fn carry_out(
    store: &mut ArrayStore<4, 4>,
    pages: &mut Pages,
    left: &mut Option<usize>,
) -> Vec<bool> {
    let mut answers = Vec::new();
    for _ in 0..100 {
        let Some(action) = store.poll() else {
            return answers;
        };
        if let Action::Answer { is_ok, .. } = action {
            answers.push(is_ok);
            continue;
        }
        let is_refused = *left == Some(0);
        *left = left.and_then(|left| left.checked_sub(1));
        match action {
            Action::ReadPiBlock { slot, group } => {
                group::format(&mut pages.0[slot], group, &seal(), group::Blank::Unknown);
                store.pi_block_read(slot, !is_refused);
            }
            Action::WriteRecord { .. } if is_refused => store.record_refused(),
            Action::WriteRecord { .. } => store.record_written(true),
            Action::Data { ticket, .. } if is_refused => store.data_refused(ticket, pages),
            Action::Data { ticket, .. } => store.data_done(ticket, true, pages),
            Action::WriteBack { slot, .. } if is_refused => store.write_back_refused(slot),
            Action::WriteBack { slot, .. } => store.written_back(slot, true),
            Action::Flush if is_refused => store.flush_refused(),
            Action::Flush => store.flushed(true),
            Action::ReadBack(_) | Action::Answer { .. } => panic!("{action:?}"),
        }
        if is_refused {
            store.permit(false);
        }
    }
    panic!("it is begun again and again");
}

fn requests() -> [Request; 5] {
    [
        request(FUA, 0, 1),
        request(WRITE, 0, 1),
        request(Kind::Discard, 300, 4),
        request(Kind::Read, 0, 1),
        request(Kind::Flush, 0, 0),
    ]
}

/// Each IO of a few requests in turn: what is asked for meanwhile is an error, and later all goes
/// on, as with a device that was never refused.
#[test]
fn what_was_not_begun_ends_no_writes() {
    let mut refused = 0;
    loop {
        let (mut store, mut pages) = open();
        let mut left = Some(refused);
        for request in requests() {
            store.submit(request).unwrap();
            carry_out(&mut store, &mut pages, &mut left);
        }
        store.rest(Rest::Drain);
        carry_out(&mut store, &mut pages, &mut left);
        assert!(!store.has_failed(), "the IO {refused}");
        if left.is_some() {
            assert!(store.is_clean());
            break;
        }
        // Closed like this, it has a journal that the next opening replays.
        for kind in [WRITE, Kind::Flush, Kind::Discard] {
            let blocks = u16::from(kind != Kind::Flush);
            store.submit(request(kind, 0, blocks)).unwrap();
            let answers = carry_out(&mut store, &mut pages, &mut None);
            assert_eq!(answers, [false], "{kind:?} while it is not to be used");
        }
        store.permit(true);
        store.rest(Rest::None);
        for request in requests() {
            store.submit(request).unwrap();
            let answers = carry_out(&mut store, &mut pages, &mut None);
            assert_eq!(answers, [true], "after the IO {refused}: {request:?}");
        }
        store.rest(Rest::Drain);
        carry_out(&mut store, &mut pages, &mut None);
        assert!(store.is_clean(), "after the IO {refused}");
        refused += 1;
    }
    println!("{refused} IOs");
    assert!(refused > 10);
}

/// A record names data that were not begun: until it is settled no record says that they are there.
#[test]
fn data_that_were_not_begun_are_not_told_to_be_durable() {
    let (mut store, mut pages) = open();
    store.submit(request(FUA, 0, 1)).unwrap();
    // The PI block, its record, its data.
    carry_out(&mut store, &mut pages, &mut Some(2));
    store.permit(true);
    store.submit(request(FUA, 1, 1)).unwrap();
    let Some(Action::WriteRecord { head, .. }) = store.poll() else {
        panic!("no record");
    };
    assert_eq!((head.sequence, head.flushed), (3, 2));
}

/// A write has failed, and it cannot be seen what it has left: that is not lost. Nothing is begun
/// for its block, and what is asked for that is an error, until it can be read back.
#[test]
fn what_cannot_be_read_back_for_now_is_not_lost() {
    for (is_late, crc, verdict) in [
        (false, 7, Verdict::Good),
        (true, 7, Verdict::Good),
        (true, 8, Verdict::Unwritten),
    ] {
        let (mut store, mut pages) = open();
        let ticket = store.submit(request(WRITE, 0, 1)).unwrap();
        while store.poll() != Some(Action::Data { ticket, fua: false }) {
            store.pi_block_read(0, true);
            store.record_written(true);
        }
        store.data_done(ticket, false, &mut pages);
        if is_late {
            assert_eq!(store.poll(), Some(Action::ReadBack(ticket)));
            store.read_back_refused(ticket);
        }
        store.permit(false);
        assert_eq!(store.unseen().iter().collect::<Vec<_>>(), [ticket]);
        for kind in [WRITE, Kind::Read] {
            store.submit(request(kind, 0, 1)).unwrap();
            let answers = carry_out(&mut store, &mut pages, &mut None);
            assert_eq!(answers, [false], "{kind:?}");
        }
        store.permit(true);
        assert_eq!(store.poll(), Some(Action::ReadBack(ticket)));
        assert!(store.unseen().is_empty());
        store.settle(ticket, |_| Some(crc), &mut pages);
        let answers = carry_out(&mut store, &mut pages, &mut None);
        assert_eq!(answers, [false]);
        let tuple = group::tuple(&pages.0[0], 0);
        assert_eq!(seal().check(&tuple, 0, 7), verdict);
    }
}

/// The reader has memory for one request at a time.
#[test]
fn writes_that_have_failed_are_read_back_one_after_the_other() {
    let (mut store, mut pages) = open();
    let tickets = [0, 1].map(|block| store.submit(request(WRITE, block, 1)).unwrap());
    store.poll();
    store.pi_block_read(0, true);
    while store.poll().is_some() {}
    store.record_written(true);
    while store.poll().is_some() {}
    for ticket in tickets {
        store.data_done(ticket, false, &mut pages);
    }
    for ticket in tickets {
        assert_eq!(store.poll(), Some(Action::ReadBack(ticket)));
        assert_eq!(store.poll(), None);
        store.settle(ticket, |_| Some(7), &mut pages);
        let is_ok = false;
        assert_eq!(store.poll(), Some(Action::Answer { ticket, is_ok }));
    }
}

/// A flush that was not begun covers nothing: a block that was fresh waits for the next one.
#[test]
fn a_flush_that_was_not_begun_covers_nothing() {
    let (mut store, mut pages) = open();
    store.submit(request(WRITE, 0, 1)).unwrap();
    carry_out(&mut store, &mut pages, &mut None);
    store.submit(request(Kind::Flush, 0, 0)).unwrap();
    carry_out(&mut store, &mut pages, &mut Some(0));
    store.permit(true);
    store.submit(request(WRITE, 0, 1)).unwrap();
    assert_eq!(store.poll(), Some(Action::Flush));
    store.flushed(true);
    let Some(Action::WriteRecord { head, .. }) = store.poll() else {
        panic!("no record");
    };
    assert_eq!((head.sequence, head.flushed), (3, 3));
}
