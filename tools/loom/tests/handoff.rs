// SPDX-License-Identifier: GPL-2.0

//! `Handoff`: whoever holds the cell is alone, and sees what the holder before has done; of those
//! that may end a
//! request exactly one does.

use lock_free::{Handoff, Watched};
use loom::{
    model,
    model::Builder,
    sync::Arc,
    thread, //
};

/// An armed cell whose value was changed before.
fn armed() -> Arc<Handoff<Watched>> {
    let cell = Arc::new(Handoff::new(Watched::new()));
    let held = cell.acquire().expect("it is free");
    held.change();
    held.arm();
    cell
}

#[test]
fn one_of_two_claims_gets_what_was_armed() {
    model(|| {
        let cell = armed();
        let claim = |cell: &Handoff<Watched>| cell.claim().map(|held| held.change()).is_some();
        let other = {
            let cell = cell.clone();
            thread::spawn(move || claim(&cell))
        };
        let here = claim(&cell);
        assert!(here ^ other.join().expect("no panic"));
        assert!(cell.is_free());
    });
}

#[test]
fn a_claim_sees_what_the_submitter_has_written() {
    model(|| {
        let cell = Arc::new(Handoff::new(Watched::new()));
        assert!(cell.is_free());
        let submitter = {
            let cell = cell.clone();
            thread::spawn(move || {
                let held = cell.acquire().expect("it is free");
                held.change();
                held.arm();
            })
        };
        if let Some(held) = cell.claim() {
            held.change();
        }
        submitter.join().expect("no panic");
    });
}

#[test]
fn who_acquires_it_sees_what_the_last_holder_has_written() {
    model(|| {
        let cell = armed();
        let last = {
            let cell = cell.clone();
            thread::spawn(move || cell.claim().expect("it is armed").change())
        };
        if let Some(held) = cell.acquire() {
            held.change();
        }
        last.join().expect("no panic");
        assert!(cell.is_free());
    });
}

/// The answer comes from one completion queue, the end of the invalidation or of the send from
/// another, and the teardown from anywhere: whatever their order, one of them ends the request. Of
/// answer and event it is the second one, and sees what the first has done.
#[test]
fn one_of_answer_event_and_teardown_ends_the_request() {
    // Three threads: with each preemption more there are ten times as many orders.
    let mut bounded = Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let cell = armed();
        let invalidated = Arc::new(Watched::new());
        let answer = {
            let (cell, invalidated) = (cell.clone(), invalidated.clone());
            thread::spawn(move || {
                let (held, signaled) = cell.claim_signaled()?;
                held.change();
                let held = if signaled { held } else { held.await_signal()? };
                held.change();
                invalidated.read();
                Some(())
            })
        };
        let event = {
            let (cell, invalidated) = (cell.clone(), invalidated.clone());
            thread::spawn(move || {
                invalidated.change();
                cell.signal().map(|held| held.change())
            })
        };
        let torn = cell.claim().map(|held| held.change());
        let ends = [answer, event].map(|thread| thread.join().expect("no panic"));
        // Left to the teardown: the answer has not come, or waits for the event.
        let left = cell.claim().map(drop);
        let ends = [torn, ends[0], ends[1], left];
        assert_eq!(ends.into_iter().flatten().count(), 1);
    });
}

/// The event comes while the submitter, or who claimed the cell, still has it: that one keeps it,
/// and hears of it.
#[test]
fn an_event_leaves_a_held_cell_to_its_holder() {
    model(|| {
        let cell = Arc::new(Handoff::new(Watched::new()));
        let held = cell.acquire().expect("it is free");
        let event = {
            let cell = cell.clone();
            thread::spawn(move || cell.signal().map(|held| held.change()))
        };
        let next = {
            let cell = cell.clone();
            thread::spawn(move || cell.acquire().map(|held| held.change()))
        };
        held.change();
        let here = held.await_signal().map(|held| held.change());
        let there = event.join().expect("no panic");
        let _ = next.join().expect("no panic");
        // Whoever was second has ended the use of the cell.
        assert!(here.is_some() ^ there.is_some());
    });
}

/// A second answer to a request that has one.
#[test]
fn a_cell_that_waits_for_its_event_is_not_claimed_by_another_answer() {
    model(|| {
        let cell = armed();
        let (held, signaled) = cell.claim_signaled().expect("it is armed");
        assert!(!signaled && held.await_signal().is_none());
        assert!(cell.claim_signaled().is_none());
        assert!(cell.signal().is_some());
    });
}

/// The holder looks for the event without an exchange: it sees what was done before, and the event
/// gives the cell to nobody else.
#[test]
fn a_holder_sees_what_was_done_before_the_event_that_it_finds() {
    model(|| {
        let cell = armed();
        let sent = Arc::new(Watched::new());
        let (held, signaled) = cell.claim_signaled().expect("it is armed");
        assert!(!signaled);
        let event = {
            let (cell, sent) = (cell.clone(), sent.clone());
            thread::spawn(move || {
                sent.change();
                cell.signal().map(|held| held.change())
            })
        };
        while !held.was_signaled() {
            thread::yield_now();
        }
        sent.read();
        held.change();
        drop(held);
        assert!(event.join().expect("no panic").is_none() && cell.is_free());
    });
}
