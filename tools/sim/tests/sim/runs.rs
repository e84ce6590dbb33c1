// SPDX-License-Identifier: GPL-2.0

//! Properties of a run: the same for the same seed, clean as the model stands, and eventful.

use std::collections::BTreeSet;

use sim::{
    Kind,
    Options, //
};

use crate::first_failure;

#[test]
fn a_seed_is_the_same_run_each_time_and_the_trace_changes_nothing() {
    for seed in 0..20 {
        let plain = sim::run(seed, Options::default()).unwrap();
        let options = Options {
            trace: true,
            ..Options::default()
        };
        let traced = sim::run(seed, options).unwrap();
        assert_eq!(traced, sim::run(seed, options).unwrap());
        assert!(traced.trace.len() > 50);
        assert_eq!(
            (plain.events, plain.virtual_us, plain.done, plain.failed),
            (traced.events, traced.virtual_us, traced.done, traced.failed)
        );
    }
    let events = |seed| sim::run(seed, Options::default()).unwrap().events;
    assert_ne!(events(1), events(2));
}

#[test]
fn nothing_is_wrong_with_the_model_as_it_stands() {
    let found = first_failure(300, Options::default());
    assert_eq!(found.map(|(seed, o)| (seed, o.violation)), None);
}

#[test]
fn d26_the_hole_that_the_protocol_leaves_is_found() {
    // Decision 0006: a packet of an old path that arrives after all of it was sent again. No driver
    // can close this with a server of protocol 2.0; the simulation must see it.
    let options = Options {
        late_packets: true,
        ..Options::default()
    };
    let (seed, outcome) = first_failure(6000, options).unwrap();
    let kind = outcome.violation.unwrap().kind;
    assert!(matches!(kind, Kind::LostWrite | Kind::ForeignData));
    // And it is the late packet that does it.
    let without = sim::run(seed, Options::default()).unwrap();
    assert_eq!(without.violation, None);
}

#[test]
fn runs_get_to_the_rare_places() {
    let places = [
        "a cache is lost with writes in it",
        "a chunk is used again after its request failed",
        "a stale connection is disconnected",
        "a client learns that a device was closed",
        "a fence message waits for its answer",
        "a flush fails for a lost cache",
        "a frozen client puts something off",
        "a frozen server puts something off",
        "a half-made path is given up",
        "a message waits for the admin lock",
        "a number is in doubt",
        "a lost life ended with its session",
        "a lost life is settled later",
        "a late packet is delivered",
        "a late packet is dropped",
        "a path asks before it is used",
        "a path is removed",
        "a path is tried again later",
        "a path is validated",
        "a path is validated before an outage",
        "a path leads to another server",
        "a reconnect replaces a path",
        "a request is not sent again any more",
        "a request is paused",
        "a request ends on a path that is closed",
        "a request fails over",
        "a request times out",
        "a request goes out in another's chunk",
        "a request tries a second path",
        "a request waits for a held chunk",
        "a request waits for its chunk",
        "a session is back",
        "a session is begun anew",
        "a session is not begun anew in vain",
        "a set-up takes too long",
        "an admin message is unanswered for too long",
        "an answer waits for room",
        "an unmapped device is closed",
        "an info request waits for the old path",
        "attempts are used up",
        "every path refuses a request",
        "refused: address taken",
        "refused: not admin first",
        "refused: path state",
        "refused: unknown session",
        "requests wait in a receive queue",
        "retries are exceeded",
        "the client's heartbeat gives up",
        "the server has forgotten the session",
        "the server's heartbeat gives up",
        "what waits is failed",
    ];
    let mut never: BTreeSet<&str> = places.into();
    for seed in 0..6000 {
        let reached = sim::run(seed, Options::default()).unwrap().reached;
        never.retain(|place| !reached.contains_key(place));
        if never.is_empty() {
            return;
        }
    }
    panic!("never: {never:?}");
}
