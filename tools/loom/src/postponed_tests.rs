// SPDX-License-Identifier: GPL-2.0

//! Answers that are put aside: no invalidation is posted before the registration of its key, and
//! none is left out.

use crate::{
    bindings::synchronize_rcu,
    postponed::{look, put_aside, Aside, HasSending, Posted, Sending},
    sync::{rcu, Arc},
    Handoff, Held,
};
use loom::{model, sync::Mutex, thread};

/// A work request of the send queue, with the key that it registers or invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Register(u32),
    Invalidate(u32),
}

impl HasSending for Sending {
    fn sending(&mut self) -> &mut Sending {
        self
    }
}

/// A connection, and the entry of one request. The number of a sending stands for its key.
struct Connection {
    entry: Handoff<Sending>,
    posted: Posted,
    queue: Mutex<Vec<Work>>,
}

impl Connection {
    fn new() -> Arc<Self> {
        let this = Self {
            entry: Handoff::new(Sending::NONE),
            posted: Posted::new(),
            queue: Mutex::new(Vec::new()),
        };
        // Makes its atomics, before there are threads.
        drop(this.entry.acquire());
        this.posted.note(0);
        Arc::new(this)
    }

    fn post(&self, work: Work) {
        self.queue.lock().expect("no panic").push(work);
    }

    /// Arms the entry for a request; returns its number.
    fn arm(&self) -> u32 {
        let mut held = self.entry.acquire().expect("it is free");
        held.next();
        let number = held.number();
        held.arm();
        number
    }

    /// Sends a request, as the kernel's `Connection::send` does.
    fn send(&self) {
        let _guard = rcu::read_lock();
        let number = self.arm();
        self.post(Work::Register(number));
        self.posted.note(number);
    }

    fn invalidate(&self, held: &Held<'_, Sending>) {
        self.post(Work::Invalidate(held.number()));
    }

    /// Handles the answer of a server that did not invalidate the key, whenever it comes. The
    /// request ends at once: its key is invalid.
    fn answered(&self) -> bool {
        let Some((held, _)) = self.entry.claim_signaled() else {
            return false;
        };
        if self.posted.has(&held) {
            self.invalidate(&held);
            return true;
        }
        put_aside(held);
        self.take_up();
        true
    }

    /// Invalidates the key, if that is left to do, as the work item of the driver does.
    fn take_up(&self) {
        loop {
            match look(&self.entry, &self.posted) {
                Aside::None => return,
                Aside::Waits => synchronize_rcu(),
                Aside::Posted(held) => self.invalidate(&held),
            }
        }
    }

    fn queue(&self) -> Vec<Work> {
        self.queue.lock().expect("no panic").clone()
    }
}

#[test]
fn an_invalidation_is_behind_the_registration_of_its_key() {
    model(|| {
        let connection = Connection::new();
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || connection.send())
        };
        let is_answered = connection.answered();
        sender.join().expect("no panic");
        let all = [Work::Register(1), Work::Invalidate(1)];
        assert_eq!(connection.queue(), all[..1 + usize::from(is_answered)]);
    });
}

/// A request in an entry whose last sender is still at work: a request without data, which ended
/// by an early answer.
#[test]
fn the_note_of_another_sender_is_none_for_this_request() {
    model(|| {
        let connection = Connection::new();
        let late = {
            let connection = connection.clone();
            thread::spawn(move || connection.posted.note(0))
        };
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || connection.send())
        };
        let is_answered = connection.answered();
        late.join().expect("no panic");
        sender.join().expect("no panic");
        let all = [Work::Register(1), Work::Invalidate(1)];
        assert_eq!(connection.queue(), all[..1 + usize::from(is_answered)]);
    });
}

#[test]
fn a_note_that_comes_late_is_no_note() {
    model(|| {
        let (posted, mut sending) = (Posted::new(), Sending::NONE);
        sending.next();
        posted.note(sending.number());
        assert!(posted.has(&sending));
        posted.note(0);
        assert!(!posted.has(&sending));
    });
}

/// The teardown takes an answer that was put aside, and knows that there is one.
#[test]
fn an_answer_that_is_aside_is_not_lost_with_the_path() {
    model(|| {
        let connection = Connection::new();
        connection.arm();
        assert!(matches!(
            look(&connection.entry, &connection.posted),
            Aside::None
        ));
        let (held, _) = connection.entry.claim_signaled().expect("it is armed");
        put_aside(held);
        assert!(connection.entry.is_armed());
        assert!(connection.entry.claim_signaled().is_none());
        assert!(connection.entry.signal().is_none());
        let (_held, answered) = connection.entry.claim_waiting().expect("it is aside");
        assert!(answered);
    });
}

/// The grace period of one request is none for the next one in the same entry.
#[test]
fn each_answer_waits_for_a_grace_period_of_its_own() {
    model(|| {
        let connection = Connection::new();
        for _ in 0..2 {
            connection.arm();
            let (held, _) = connection.entry.claim_signaled().expect("it is armed");
            put_aside(held);
            let find = || look(&connection.entry, &connection.posted);
            assert!(matches!(find(), Aside::Waits));
            assert!(matches!(find(), Aside::Posted(_)));
        }
    });
}

#[test]
fn an_answer_that_was_early_does_not_wait_where_the_note_is_seen() {
    model(|| {
        let connection = Connection::new();
        let number = connection.arm();
        let (held, _) = connection.entry.claim_signaled().expect("it is armed");
        put_aside(held);
        connection.posted.note(number);
        let found = look(&connection.entry, &connection.posted);
        assert!(matches!(found, Aside::Posted(_)));
    });
}
