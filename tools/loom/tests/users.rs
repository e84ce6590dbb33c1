// SPDX-License-Identifier: GPL-2.0

//! `Users`: no use goes on when a close returns.

use lock_free::{cpu, sync::Arc, Users, Watched};
use loom::{model, thread};

/// A thing with its users: the thing is changed when no use goes on.
struct Shared {
    users: Users,
    used: Watched,
}

impl Shared {
    fn new() -> Arc<Self> {
        let users = Users::new().expect("there is memory");
        // Makes its atomics, before there are threads.
        drop(users.enter());
        Arc::new(Self {
            users,
            used: Watched::new(),
        })
    }

    /// Uses it, if that is permitted.
    fn visit(&self) {
        if let Some(_user) = self.users.enter() {
            // The interrupt may come in the middle.
            cpu::look();
            self.used.read();
        }
    }

    /// Closes it, and changes it then.
    fn close(&self) {
        self.users.close();
        self.used.change();
        assert!(self.users.enter().is_none());
    }
}

fn visitor(shared: &Arc<Shared>, number: usize) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    cpu::use_for_a_thread(number);
    thread::spawn(move || cpu::on(number, || shared.visit()))
}

#[test]
fn no_use_goes_on_when_a_close_returns() {
    model(|| {
        let shared = Shared::new();
        let visitor = visitor(&shared, 1);
        shared.close();
        visitor.join().expect("no panic");
    });
}
