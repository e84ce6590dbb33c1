// SPDX-License-Identifier: GPL-2.0

//! `LentBox`: its value goes when all loans have ended.

use lock_free::{
    cpu,
    sync::{rcu, Arc},
    LentBox, Loans, RcuArc, Watched,
};
use loom::{model, thread};

fn lent_box() -> LentBox<Watched> {
    let lent = LentBox::new(Watched::new()).expect("there is memory");
    lent.lend().change();
    lent
}

/// A request finds the device while it is closed; it ends on another CPU.
#[test]
fn a_value_goes_when_the_loan_has_ended() {
    model(|| {
        let table = Arc::new(RcuArc::new(Some(Arc::new(lent_box()))));
        assert!(table.get().is_some());
        let request = {
            let table = table.clone();
            thread::spawn(move || {
                let loan = cpu::on(1, || {
                    let guard = rcu::read_lock();
                    table.read(&guard).map(LentBox::lend)
                });
                cpu::on(2, || {
                    if let Some(loan) = loan {
                        loan.read();
                    }
                });
            })
        };
        drop(table.replace(None));
        request.join().expect("no panic");
    });
}

#[test]
fn a_drop_waits_for_each_loan() {
    model(|| {
        let lent = lent_box();
        let loans = [1, 2].map(|number| {
            let loan = lent.lend();
            thread::spawn(move || {
                cpu::on(number, || {
                    loan.read();
                    drop(loan);
                })
            })
        });
        drop(lent);
        for loan in loans {
            loan.join().expect("no panic");
        }
    });
}

/// Requests that wait for their disk are put by, and taken by another thread while the device is
/// closed.
#[test]
fn a_drop_waits_for_loans_that_were_put_by() {
    model(|| {
        let lent = lent_box();
        let mut loans = Loans::new();
        for _ in 0..3 {
            assert!(loans.put(lent.lend()).is_ok());
        }
        let other = lent_box();
        assert!(loans.put(other.lend()).is_err(), "of another box");
        drop(other);
        let worker = thread::spawn(move || {
            cpu::on(1, || {
                for _ in 0..2 {
                    loans.take().expect("it was put").read();
                }
                // One is left.
                drop(loans);
            })
        });
        drop(lent);
        worker.join().expect("no panic");
    });
}

#[test]
fn as_many_loans_are_taken_as_were_put() {
    model(|| {
        let lent = lent_box();
        let mut loans = Loans::default();
        assert!(loans.is_empty() && loans.take().is_none());
        for count in [1, 2] {
            for _ in 0..count {
                assert!(loans.put(lent.lend()).is_ok());
            }
            for _ in 0..count {
                assert!(!loans.is_empty() && loans.take().is_some());
            }
            assert!(loans.is_empty() && loans.take().is_none());
        }
    });
}
