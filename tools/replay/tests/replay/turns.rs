// SPDX-License-Identifier: GPL-2.0

//! The turns of a session.

use proto::rnbd::turns::{
    record::{
        Event,
        Operation, //
    },
    Turn,
    Turns, //
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
const ALL: [Turn; 3] = [Turn::Open, Turn::Close, Turn::Survey];

fn end(turns: &mut Traced<Turns>) {
    if turns.step(Event::End) {
        turns.did(Operation::Wake);
    }
}

/// What the threads of `rnbd_client` do.
fn record(chance: &mut fastrand::Rng) -> Vec<Told<Operation>> {
    let mut turns = Traced::new(Turns::NONE);
    let mut held = Vec::new();
    for _ in 0..60 {
        let turn = ALL[chance.usize(..3)];
        match held.last() {
            Some(turn) if chance.bool() => turns.did(match turn {
                Turn::Open if chance.bool() => Operation::Use(*turn),
                Turn::Survey if chance.bool() => Operation::Close(*turn),
                Turn::Open | Turn::Survey => Operation::Open(*turn),
                Turn::Close => Operation::Close(*turn),
            }),
            Some(_) if chance.bool() => {
                held.pop();
                end(&mut turns);
            }
            _ if turns.step(Event::Take(turn)) => held.push(turn),
            _ => {}
        }
    }
    held.iter().for_each(|_| end(&mut turns));
    turns.record
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
    let in_turn = |operation: fn(Turn) -> Operation, held: Turn| {
        let mut turns = Traced::new(Turns::NONE);
        turns.step(Event::Take(held));
        turns.did(operation(held));
        end(&mut turns);
        turns.record
    };
    for held in ALL {
        let fits = [
            held != Turn::Close,
            held == Turn::Open,
            held != Turn::Open, //
        ];
        let operations = [Operation::Open, Operation::Use, Operation::Close];
        for (operation, fits) in operations.into_iter().zip(fits) {
            let mut record = in_turn(operation, held);
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
    let mut turns = Traced::new(Turns::NONE);
    turns.step(Event::Take(Turn::Survey));
    assert!(is_refused(KIND, &turns.record), "it has no end");
    end(&mut turns);
    assert_agrees(KIND, &turns.record);
    end(&mut turns);
    assert!(is_refused(KIND, &turns.record), "it has no begin");
}
