// SPDX-License-Identifier: GPL-2.0

//! Counters: the events that each one counts, and its name for the administrator.

use std::collections::HashSet;

use proto::gfarm::cache::{
    counter::Counter,
    members::Ignored,
    reply::{
        Answer,
        Refusal, //
    },
    responder::{
        Discarded,
        Refused, //
    },
    wire::Rejected, //
};

const MANUAL: &str = include_str!("../../../../../../Documentation/gfarm.md");

#[test]
fn each_counter_has_a_name_of_its_own_and_a_line_in_the_manual() {
    let mut names = HashSet::new();
    for (number, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(*counter as usize, number);
        let name = counter.name();
        assert!(names.insert(name), "{name} is there twice");
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.chars().all(is_word), "{name}");
        assert!(
            MANUAL.contains(&format!("`{name}`")),
            "{name} is not explained"
        );
    }
    assert_eq!(names.len(), Counter::COUNT);
}

#[test]
fn each_reason_to_drop_a_datagram_is_counted_apart() {
    let refused = [
        Rejected::Length,
        Rejected::Magic,
        Rejected::Version,
        Rejected::Kind,
        Rejected::Code,
        Rejected::From,
    ]
    .map(Refused::Rejected)
    .into_iter();
    let refused = refused.chain([Refused::QueuePair, Refused::Receiver]);
    let discarded = [
        Discarded::Sender,
        Discarded::Address,
        Discarded::Repeated,
        Discarded::Body,
    ];
    let ignored = [Ignored::Full, Ignored::Unasked];
    let counters = refused.map(Counter::from);
    let counters = counters.chain(discarded.map(Counter::from));
    let counters: Vec<_> = counters.chain(ignored.map(Counter::from)).collect();
    let different: HashSet<_> = counters.iter().copied().collect();
    assert_eq!(different.len(), counters.len());
    assert!(counters
        .iter()
        .all(|counter| counter.name().starts_with("dropped_")));
    assert_eq!(Counter::from(Ignored::Repeated), Counter::DroppedRepeated);
    assert_eq!(Counter::from(Ignored::Source), Counter::DroppedAddress);
    assert_eq!(Counter::from(Ignored::Own), Counter::DroppedSender);
}

#[test]
fn only_what_no_node_sends_is_worth_a_line_in_the_log() {
    let strangers = Counter::ALL
        .iter()
        .filter(|counter| counter.is_of_strangers());
    let names: Vec<_> = strangers.map(|counter| counter.name()).collect();
    let wanted = [
        "length",
        "magic",
        "version",
        "kind",
        "code",
        "from",
        "queue_pair",
    ];
    assert_eq!(names, wanted.map(|why| format!("dropped_{why}")));
}

#[test]
fn answers_are_counted_by_what_they_say() {
    let wait = Answer::Wait {
        wait_ms: 1,
        depth: 0,
    };
    for (answer, told, said) in [
        (Answer::Miss, Counter::ToldMiss, Counter::SaidMiss),
        (wait, Counter::ToldWait, Counter::SaidWait),
        (
            Answer::Busy { wait_ms: 1 },
            Counter::ToldBusy,
            Counter::SaidBusy,
        ),
        (
            Answer::Refused(Refusal::Invalid),
            Counter::ToldRefused,
            Counter::SaidInvalid,
        ),
        (
            Answer::Refused(Refusal::FragmentLen),
            Counter::ToldRefused,
            Counter::SaidFragment,
        ),
        (
            Answer::Refused(Refusal::Leaving),
            Counter::ToldRefused,
            Counter::SaidLeaving,
        ),
    ] {
        assert_eq!(
            (Counter::told(&answer), Counter::said(&answer)),
            (told, said)
        );
    }
}
