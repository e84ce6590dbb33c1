// SPDX-License-Identifier: GPL-2.0

//! `BoxCell`, `SetOnce`, `RcuArc` and `GraceArc`: nothing is used before it is whole, after it is
//! freed, or by two that change it.

use lock_free::{
    prelude::{KBox, GFP_KERNEL},
    sync::{rcu, Arc},
    BoxCell, GraceArc, RcuArc, SetOnce, Watched,
};
use loom::{model, thread};

fn changed() -> Watched {
    let value = Watched::new();
    value.change();
    value
}

fn boxed<T>(value: T) -> KBox<T> {
    KBox::new(value, GFP_KERNEL).expect("there is memory")
}

#[test]
fn a_box_is_taken_once_and_whole() {
    model(|| {
        let cell = Arc::new(BoxCell::empty());
        assert!(cell.is_empty());
        let takers = [(); 2].map(|()| {
            let cell = cell.clone();
            thread::spawn(move || {
                cell.take()
                    .map(|value: KBox<Watched>| value.change())
                    .is_some()
            })
        });
        assert!(cell.put(boxed(changed())).is_ok());
        let taken = takers.map(|taker| taker.join().expect("no panic"));
        assert!(taken != [true, true] && cell.is_empty() == (taken != [false, false]));
    });
}

#[test]
fn a_full_cell_takes_no_second_box() {
    model(|| {
        let cell = Arc::new(BoxCell::empty());
        assert!(cell.is_empty());
        let other = {
            let cell = cell.clone();
            thread::spawn(move || {
                cell.put(boxed(changed()))
                    .map_err(|value| value.change())
                    .is_ok()
            })
        };
        let here = cell
            .put(boxed(changed()))
            .map_err(|value| value.change())
            .is_ok();
        assert!(here ^ other.join().expect("no panic"));
        assert!(cell.take().is_some() && cell.is_empty());
    });
}

#[test]
fn a_value_is_set_once_and_read_whole() {
    model(|| {
        let value = Arc::new(SetOnce::new());
        assert!(SetOnce::as_ref(&value).is_none());
        let other = {
            let value = value.clone();
            thread::spawn(move || value.populate(changed()))
        };
        let here = value.populate(changed());
        if let Some(set) = SetOnce::as_ref(&value) {
            set.read();
        }
        assert!(here ^ other.join().expect("no panic"));
        assert!(SetOnce::as_ref(&value).is_some());
    });
}

#[test]
fn a_reader_keeps_what_it_reads_while_it_is_replaced() {
    model(|| {
        let shared = Arc::new(RcuArc::new(Some(Arc::new(changed()))));
        assert!(shared.get().is_some());
        let readers = [true, false].map(|counted| {
            let shared = shared.clone();
            thread::spawn(move || {
                if counted {
                    let value = shared.get();
                    value.expect("there is always one").read();
                } else {
                    let guard = rcu::read_lock();
                    shared.read(&guard).expect("there is always one").read();
                }
            })
        });
        drop(shared.replace(Some(Arc::new(changed()))));
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}

/// The thread that answers a request gives its context away, and the reference in it; a teardown
/// takes that one, and drops it and its own.
#[test]
fn a_reader_keeps_what_it_has_given_away_the_reference_to() {
    model(|| {
        let own = GraceArc::new(changed()).expect("there is memory");
        let chunk = Arc::new(BoxCell::empty());
        assert!(chunk.is_empty());
        let answer = {
            let (chunk, reference) = (chunk.clone(), boxed(own.clone()));
            thread::spawn(move || {
                let guard = rcu::read_lock();
                let value = reference.under(&guard);
                assert!(chunk.put(reference).is_ok());
                value.read();
            })
        };
        drop(chunk.take());
        drop(own);
        answer.join().expect("no panic");
    });
}

#[test]
fn the_last_reference_is_known_as_such_by_one() {
    model(|| {
        let own = GraceArc::new(changed()).expect("there is memory");
        let other = own.clone();
        let other = thread::spawn(move || {
            other.read();
            drop(other);
        });
        own.read();
        drop(own);
        other.join().expect("no panic");
    });
}
