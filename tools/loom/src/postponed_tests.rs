// SPDX-License-Identifier: GPL-2.0

//! `Posted` and `Postponed`: no invalidation is posted before the registration of its key.

use crate::{
    bindings::synchronize_rcu,
    postponed::{Posted, Postponed},
    sync::{rcu, Arc},
    Handoff,
};
use loom::{model, sync::Mutex, thread};

const ID: u16 = 7;
const KEY: u32 = 0x8000_1234;

/// What is posted to a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Register(u32),
    Invalidate(u16, u32),
}

/// A connection, and the entry of one request.
struct Connection {
    entry: Handoff<u32>,
    posted: Posted,
    postponed: Postponed,
    queue: Mutex<Vec<Work>>,
}

impl Connection {
    fn new() -> Arc<Self> {
        let this = Self {
            entry: Handoff::new(0),
            posted: Posted::new(),
            postponed: Postponed::new(),
            queue: Mutex::new(Vec::new()),
        };
        // Makes its atomics, before there are threads.
        drop(this.entry.acquire());
        this.posted.note(0);
        this.postponed.grow_old();
        Arc::new(this)
    }

    fn post(&self, work: Work) {
        self.queue.lock().expect("no panic").push(work);
    }

    /// Sends a request, as the kernel's `Connection::send` does.
    fn send(&self, number: u32) {
        let _guard = rcu::read_lock();
        let mut held = self.entry.acquire().expect("it is free");
        *held = number;
        held.arm();
        self.post(Work::Register(KEY));
        self.posted.note(number);
    }

    /// Handles the answer of a server that did not invalidate the key, whenever it comes.
    fn answered(&self) -> bool {
        let Some(held) = self.entry.claim() else {
            return false;
        };
        if self.posted.is(*held) {
            self.post(Work::Invalidate(ID, KEY));
        } else {
            assert!(self.postponed.add(ID, KEY));
            // As the work item does.
            self.postponed.grow_old();
            synchronize_rcu();
            for (id, key) in self.postponed.take() {
                self.post(Work::Invalidate(id, key));
            }
        }
        true
    }
}

#[test]
fn an_invalidation_is_behind_the_registration_of_its_key() {
    model(|| {
        let connection = Connection::new();
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || connection.send(1))
        };
        let is_answered = connection.answered();
        sender.join().expect("no panic");
        let queue = connection.queue.lock().expect("no panic").clone();
        let all = [Work::Register(KEY), Work::Invalidate(ID, KEY)];
        assert_eq!(queue, all[..1 + usize::from(is_answered)]);
    });
}

#[test]
fn a_note_that_comes_late_is_no_note() {
    model(|| {
        let posted = Posted::new();
        posted.note(2);
        posted.note(1);
        assert!(!posted.is(2));
    });
}

#[test]
fn only_what_was_there_before_a_grace_period_is_taken_after_it() {
    model(|| {
        let postponed = Postponed::new();
        let all = 0..Postponed::MAX as u16;
        let (old, new) = (all.clone().take(3), all.skip(3));
        assert!(old.clone().all(|id| postponed.add(id, KEY)));
        postponed.grow_old();
        assert!(new.clone().all(|id| postponed.add(id, KEY)));
        assert!(!postponed.add(ID, KEY));
        let taken: Vec<_> = postponed.take().map(|(id, _)| id).collect();
        assert_eq!(taken, old.collect::<Vec<_>>());
        assert_eq!(postponed.take().next(), None);
        postponed.grow_old();
        assert!(postponed.take().eq(new.map(|id| (id, KEY))));
    });
}
