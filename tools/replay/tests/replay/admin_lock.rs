// SPDX-License-Identifier: GPL-2.0

//! The lock of a session.

use proto::rnbd::admin_lock::{
    record::{
        Event,
        Operation, //
    },
    LockMode,
    LockState, //
};

use super::{
    assert_agrees,
    assert_each_counts,
    assert_words_count,
    is_refused,
    Told,
    Traced, //
};

const KIND: &str = "rnbd_client: turns";
const ALL: [LockMode; 3] = [LockMode::Open, LockMode::Close, LockMode::Validate];

fn end(lock: &mut Traced<LockState>) {
    ends(lock, Event::Unlock);
}

fn ends(lock: &mut Traced<LockState>, event: Event) {
    if lock.step(event) {
        lock.did(Operation::Wake);
    }
}

/// Records what the threads of `rnbd_client` do with the lock, by chance.
fn record(chance: &mut fastrand::Rng) -> Vec<Told<Operation>> {
    let mut lock = Traced::new(LockState::NONE);
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let mode = ALL[chance.usize(..3)];
        match held.last() {
            Some(mode) if chance.bool() => lock.did(match mode {
                LockMode::Open if chance.bool() => Operation::Use(*mode),
                LockMode::Validate if chance.bool() => Operation::Close(*mode),
                LockMode::Open | LockMode::Validate => Operation::Open(*mode),
                LockMode::Close => Operation::Close(*mode),
            }),
            Some(_) if chance.bool() => {
                held.pop();
                end(&mut lock);
            }
            _ if waiting.is_empty() || chance.bool() => match lock.step(Event::Lock(mode)) {
                true => held.push(mode),
                false => waiting.push(mode),
            },
            _ => {
                let mode = waiting.swap_remove(chance.usize(..waiting.len()));
                match chance.u8(..4) == 0 {
                    true => ends(&mut lock, Event::GiveUp(mode)),
                    false if lock.step(Event::Retry(mode)) => held.push(mode),
                    false => waiting.push(mode),
                }
            }
        }
    }
    held.iter().for_each(|_| end(&mut lock));
    waiting
        .iter()
        .for_each(|mode| ends(&mut lock, Event::GiveUp(*mode)));
    lock.record
}

#[test]
fn a_driver_that_does_what_was_decided_agrees() {
    let mut chance = fastrand::Rng::with_seed(1);
    for _ in 0..1_000 {
        assert_agrees(KIND, &record(&mut chance));
    }
}

#[test]
fn threads_that_are_not_woken_are_found() {
    let mut chance = fastrand::Rng::with_seed(2);
    let is_wake = |operation: &Operation| *operation == Operation::Wake;
    for _ in 0..50 {
        assert_each_counts(KIND, &record(&mut chance), is_wake, is_wake);
    }
}

#[test]
fn a_step_with_another_word_is_found() {
    let mut chance = fastrand::Rng::with_seed(3);
    let record = record(&mut chance);
    for at in 0..record.len() {
        assert_words_count(KIND, &record, at);
    }
}

#[test]
fn a_message_out_of_turn_is_found() {
    let under_lock = |operation: fn(LockMode) -> Operation, held: LockMode| {
        let mut lock = Traced::new(LockState::NONE);
        lock.step(Event::Lock(held));
        lock.did(operation(held));
        end(&mut lock);
        lock.record
    };
    for held in ALL {
        let fits = [
            held != LockMode::Close,
            held == LockMode::Open,
            held != LockMode::Open, //
        ];
        let operations = [Operation::Open, Operation::Use, Operation::Close];
        for (operation, fits) in operations.into_iter().zip(fits) {
            let mut record = under_lock(operation, held);
            assert_ne!(is_refused(KIND, &record), fits, "{record:?}");
            // After its end.
            record.remove(1);
            record.push(Told::Did(operation(held)));
            assert!(is_refused(KIND, &record), "{record:?}");
        }
    }
}

#[test]
fn a_turn_without_begin_or_end_is_found() {
    let mut lock = Traced::new(LockState::NONE);
    lock.step(Event::Lock(LockMode::Validate));
    assert!(is_refused(KIND, &lock.record), "it has no end");
    end(&mut lock);
    assert_agrees(KIND, &lock.record);
    end(&mut lock);
    assert!(is_refused(KIND, &lock.record), "it has no begin");
}

#[test]
fn a_thread_that_does_not_wait_neither_asks_again_nor_gives_up() {
    let (open, validate) = (LockMode::Open, LockMode::Validate);
    let record = |events: &[Event]| {
        let mut lock = Traced::new(LockState::NONE);
        lock.step(Event::Lock(open));
        lock.step(Event::Lock(validate));
        end(&mut lock);
        events.iter().for_each(|event| ends(&mut lock, *event));
        lock.record
    };
    assert!(is_refused(KIND, &record(&[])), "one waits without end");
    assert_agrees(KIND, &record(&[Event::GiveUp(validate)]));
    for wrong in [Event::Retry(open), Event::GiveUp(open)] {
        let record = record(&[wrong, Event::GiveUp(validate)]);
        assert!(is_refused(KIND, &record), "{wrong:?}");
    }
}
