// SPDX-License-Identifier: GPL-2.0

//! The fence's two looks: of two requests that come into a chunk on two paths at the same time, at
//! least one finds the other. `rtrs/server/path/fence.rs` and the receiver are repeated here, step
//! by step; the word of the chunk, the cells of its contexts and the decision are the driver's own.

use crate::{
    bindings::synchronize_rcu,
    carriers::ChunkCarriers,
    prelude::{KBox, GFP_KERNEL},
    sync::{rcu, Arc},
    BoxCell, Watched,
};
use loom::{
    model,
    model::Builder,
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};
use rtrs_core::proto::fence::{look, Carriers, Look};

/// A path: the context of its chunk, and its state.
struct Side {
    free: BoxCell<()>,
    has_peers: AtomicBool,
    is_up: AtomicBool,
}

impl Side {
    fn new(has_peers: bool) -> Self {
        let free = BoxCell::empty();
        // Makes its atomics, before there are threads.
        let Ok(context) = KBox::new((), GFP_KERNEL);
        assert!(free.put(context).is_ok());
        Self {
            free,
            has_peers: AtomicBool::new(has_peers),
            is_up: AtomicBool::new(true),
        }
    }
}

/// A session with two paths, of which the second one may enter late.
struct Session {
    sides: [Side; 2],
    carriers: ChunkCarriers,
    /// Whether the list of the members has the second path.
    is_complete: AtomicBool,
    /// The memory of the chunk, and whether a request uses it.
    chunk: Watched,
    is_in_use: AtomicBool,
    /// Whether a request of the second path was answered that had waited for the first one.
    is_fenced: AtomicBool,
}

/// The context of a request, and whether its path has counted it.
struct Taken {
    context: KBox<()>,
    is_counted: bool,
}

impl Session {
    fn new(is_complete: bool) -> Arc<Self> {
        let this = Self {
            sides: [Side::new(is_complete), Side::new(true)],
            carriers: ChunkCarriers::new(),
            is_complete: AtomicBool::new(is_complete),
            chunk: Watched::new(),
            is_in_use: AtomicBool::new(false),
            is_fenced: AtomicBool::new(false),
        };
        this.carriers.trust();
        Arc::new(this)
    }

    /// Takes the context of a request on a path, and counts it.
    fn take(&self, path: usize) -> Option<(Taken, Option<Carriers>)> {
        let side = &self.sides[path];
        let context = side.free.take()?;
        let is_counted = side.has_peers.load(Relaxed);
        let before = is_counted.then(|| self.carriers.add());
        let taken = Taken {
            context,
            is_counted,
        };
        Some((taken, before))
    }

    /// Does what `fence::is_contested` does.
    fn is_contested(&self, path: usize) -> bool {
        let other = &self.sides[1 - path];
        // The second path is in each list that its requests read: there is nothing to wait for.
        let guard = (path == 0).then(rcu::read_lock);
        if guard.is_some() && !self.is_complete.load(SeqCst) {
            self.carriers.trust();
            return false;
        }
        if other.free.is_empty() {
            other.is_up.store(false, SeqCst);
            return true;
        }
        self.carriers.trust();
        false
    }

    fn decide(&self, path: usize, carriers: Option<Carriers>) -> Look {
        let is_up = || self.sides[path].is_up.load(SeqCst);
        look(carriers, is_up, || self.is_contested(path))
    }

    /// Serves a request. What it does with the chunk takes time, and orders nothing.
    fn serve(&self) {
        let is_in_use = self.is_in_use.swap(true, Relaxed);
        assert!(!is_in_use, "two requests use the chunk");
        self.chunk.change();
        self.is_in_use.swap(false, Relaxed);
    }

    fn release(&self, path: usize, taken: Taken) {
        if taken.is_counted {
            self.carriers.take_off();
        }
        assert!(self.sides[path].free.put(taken.context).is_ok());
    }

    /// Does a request, unless it is discarded, or waits for the other path.
    fn request(&self, path: usize) {
        let Some((taken, carriers)) = self.take(path) else {
            return;
        };
        if self.decide(path, carriers) == Look::Serve {
            self.serve();
        }
        self.release(path, taken);
    }

    /// Does a request of the second path, which is looked at again after it was deferred.
    fn patient(&self) {
        let Some((taken, carriers)) = self.take(1) else {
            return;
        };
        match self.decide(1, carriers) {
            Look::Serve => self.chunk.change(),
            Look::Discard => {}
            Look::Defer => {
                thread::yield_now();
                if self.decide(1, Some(Carriers::UNKNOWN)) == Look::Serve {
                    self.serve();
                    self.is_fenced.store(true, SeqCst);
                }
            }
        }
        self.release(1, taken);
    }

    /// Does what `fence::enter` does, for the second path.
    fn enter(&self) {
        self.sides[0].has_peers.store(true, SeqCst);
        self.carriers.doubt();
        self.is_complete.store(true, SeqCst);
        synchronize_rcu();
    }
}

#[test]
fn two_requests_do_not_use_a_chunk_at_the_same_time() {
    model(|| {
        let session = Session::new(true);
        let first = session.clone();
        let first = thread::spawn(move || first.request(0));
        session.request(1);
        first.join().expect("no panic");
    });
}

#[test]
fn a_request_that_did_not_count_is_found_by_the_doubt() {
    // All orders take half a minute, those of four switches where a thread could go on a second.
    let mut few = Builder::new();
    few.preemption_bound = Some(4);
    few.check(|| {
        let session = Session::new(false);
        let first = session.clone();
        let first = thread::spawn(move || first.request(0));
        session.enter();
        session.request(1);
        first.join().expect("no panic");
    });
}

#[test]
fn a_request_is_not_served_when_its_later_copy_was_answered() {
    model(|| {
        let session = Session::new(true);
        let (held, _) = session.take(0).expect("it is free");
        let first = session.clone();
        let first = thread::spawn(move || {
            first.release(0, held);
            // A copy that comes late, in the same chunk.
            let Some((taken, carriers)) = first.take(0) else {
                return;
            };
            if first.decide(0, carriers) == Look::Serve {
                first.serve();
                assert!(!first.is_fenced.load(SeqCst), "the path was closed before");
            }
            first.release(0, taken);
        });
        session.patient();
        first.join().expect("no panic");
    });
}
