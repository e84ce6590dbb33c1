// SPDX-License-Identifier: GPL-2.0

//! Proofs that the key of a request is invalid, by a message that invalidates a key: all runs of a
//! client with one region, whose completions are handled at any time, against a server that sends
//! what its adapter and the client's let it send.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use proto::rtrs::invalidation::{Keys, Mark, Message};

/// The receives of a connection.
const RECEIVES: u32 = 2;

/// The rule by which a message is believed.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The driver's rule.
    Ticks,
    /// The last message is about the key, and its completion was handled after the request was
    /// sent.
    Counted,
    /// The response says so.
    Response,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Completion {
    /// A message that has invalidated this key.
    Invalidated(u8),
    /// A response that says that the key is invalid.
    Response,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Connection {
    queue: Vec<Completion>,
    shown: u64,
    last: Message,
    mark: Mark,
    /// Messages so far, for [`Rule::Counted`].
    count: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Request {
    connection: usize,
    asked: bool,
    since: u64,
    sent_at: u64,
    count: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World<const HALF: u8> {
    clock: u64,
    keys: Keys<HALF>,
    variant: u8,
    /// The key under which the adapter lets the server write.
    registered: Option<u8>,
    request: Option<Request>,
    connections: [Connection; 2],
    sent: u32,
    /// Requests that ended because a message was believed.
    believed: bool,
}

/// A step; the numbers are connections.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Invalidate(usize),
    Respond(usize),
    Handle(usize),
}

fn steps() -> impl Iterator<Item = Step> {
    (0..2).flat_map(|n| {
        [
            Step::Send(n),
            Step::Invalidate(n),
            Step::Respond(n),
            Step::Handle(n),
        ]
    })
}

/// The server can write into memory that was given back.
struct Stolen;

impl<const HALF: u8> World<HALF> {
    fn new() -> Self {
        let connection = Connection {
            queue: Vec::new(),
            shown: 0,
            last: Message::NONE,
            mark: Mark::NONE,
            count: 0,
        };
        Self {
            clock: 0,
            keys: Keys::NEW,
            variant: 0,
            registered: None,
            request: None,
            connections: [connection.clone(), connection],
            sent: 0,
            believed: false,
        }
    }

    /// Returns the world after a step, `None` if the step is not possible or ends the path.
    fn step(&self, step: Step, rule: Rule) -> Result<Option<Self>, Stolen> {
        let mut next = self.clone();
        next.believed = false;
        let possible = match step {
            Step::Send(n) => next.send(n),
            Step::Invalidate(n) => match next.registered {
                Some(key) => next.arrive(n, Completion::Invalidated(key)),
                None => false,
            },
            Step::Respond(n) => next.arrive(n, Completion::Response),
            Step::Handle(n) => next.handle(n, rule)?,
        };
        Ok(possible.then_some(next))
    }

    fn send(&mut self, n: usize) -> bool {
        if self.request.is_some() {
            return false;
        }
        let clock = &mut self.clock;
        let (variant, asked) = self.keys.next(self.variant, self.connections[n].shown, || {
            *clock += 1;
            *clock
        });
        self.variant = variant;
        self.registered = Some(variant);
        self.sent += 1;
        self.request = Some(Request {
            connection: n,
            asked,
            since: self.keys.since(),
            sent_at: self.clock,
            count: self.connections[n].count,
        });
        true
    }

    /// A message comes; it needs a posted receive.
    fn arrive(&mut self, n: usize, completion: Completion) -> bool {
        let queue = &mut self.connections[n].queue;
        if queue.len() as u32 == RECEIVES {
            return false;
        }
        queue.push(completion);
        if let Completion::Invalidated(_) = completion {
            self.registered = None;
        }
        true
    }

    fn handle(&mut self, n: usize, rule: Rule) -> Result<bool, Stolen> {
        let connection = &mut self.connections[n];
        if connection.queue.is_empty() {
            return Ok(false);
        }
        match connection.queue.remove(0) {
            Completion::Invalidated(key) => {
                connection.last = Message::new(key.into(), connection.shown);
                connection.count += 1;
            }
            Completion::Response => {
                let Some(request) = self.request.take().filter(|r| r.connection == n) else {
                    return Ok(false); // an answer that nobody waits for ends the path
                };
                let key = self.variant.into();
                let believed = match rule {
                    Rule::Ticks => request.asked && connection.last.proves(key, request.since),
                    Rule::Counted => {
                        connection.last.proves(key, 0) && connection.count != request.count
                    }
                    Rule::Response => true,
                };
                if believed {
                    connection.shown = connection.shown.max(request.sent_at);
                    self.believed = true;
                    if self.registered.is_some() {
                        return Err(Stolen);
                    }
                }
                self.registered = None; // or the client has invalidated it
            }
        }
        let (mark, shown) = connection.mark.posted(self.clock, RECEIVES);
        connection.mark = mark;
        connection.shown = connection.shown.max(shown.unwrap_or(0));
        Ok(true)
    }
}

/// Visits all worlds of at most so many requests; returns how many, or that memory was stolen.
fn explore<const HALF: u8>(rule: Rule, requests: u32) -> Result<usize, Stolen> {
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    let mut open = vec![World::<HALF>::new()];
    while let Some(world) = open.pop() {
        for step in steps() {
            let next = world.step(step, rule)?;
            let is_within = |next: &World<HALF>| next.sent <= requests;
            open.extend(
                next.filter(is_within)
                    .filter(|next| seen.insert(hasher.hash_one(next))),
            );
        }
    }
    Ok(seen.len())
}

#[test]
fn no_message_of_an_earlier_registration_is_believed() {
    for visited in [explore::<1>(Rule::Ticks, 4), explore::<2>(Rule::Ticks, 5)] {
        assert!(visited.unwrap_or(0) > 10_000);
    }
}

#[test]
fn the_model_sees_what_other_rules_let_in() {
    assert!(explore::<1>(Rule::Counted, 3).is_err());
    assert!(explore::<2>(Rule::Counted, 5).is_err());
    assert!(explore::<2>(Rule::Response, 1).is_err());
}

/// An honest server's answer to a request on connection `n`; returns whether it was asked to
/// invalidate the key. What it was asked for is believed.
fn serve<const HALF: u8>(world: &mut World<HALF>, n: usize) -> bool {
    let go = |world: &mut World<HALF>, step| {
        *world = world
            .step(step, Rule::Ticks)
            .ok()
            .flatten()
            .unwrap_or_else(|| panic!("the step is possible"));
    };
    go(world, Step::Send(n));
    let asked = world.request.as_ref().is_some_and(|r| r.asked);
    if asked {
        go(world, Step::Invalidate(n));
        go(world, Step::Handle(n));
    }
    go(world, Step::Respond(n));
    go(world, Step::Handle(n));
    assert_eq!(world.believed, asked);
    asked
}

#[test]
fn an_honest_server_is_asked_and_believed() {
    // One request at a time, over one connection or both.
    for connections in [1, 2] {
        let mut world = World::<128>::new();
        for i in 0..2000 {
            assert!(serve(&mut world, i % connections));
        }
    }
}

#[test]
fn a_connection_that_was_idle_catches_up() {
    let mut world = World::<128>::new();
    for _ in 0..1000 {
        serve(&mut world, 0);
    }
    let unasked = (0..1000).take_while(|_| !serve(&mut world, 1)).count();
    assert!(
        (1..=2 * 128 + 2 * RECEIVES as usize).contains(&unasked),
        "{unasked}"
    );
    for _ in 0..1000 {
        assert!(serve(&mut world, 1));
    }
    // A connection that is used now and then does not keep the others from it.
    for n in 0..5000 {
        let is_rare = n % 700 == 0;
        assert!(serve(&mut world, usize::from(!is_rare)) || is_rare);
    }
}

#[test]
fn keys_of_a_half_are_used_again_until_the_connection_has_caught_up() {
    let mut keys = Keys::<2>::NEW;
    let mut variant = 1;
    let mut clock = 0;
    let mut use_next = |shown| {
        let (next, asked) = keys.next(variant, shown, || {
            clock += 1;
            clock
        });
        variant = next;
        (next, asked, keys.since())
    };
    assert_eq!(use_next(0), (2, true, 0));
    assert_eq!(use_next(0), (3, true, 0));
    assert_eq!(use_next(0), (2, false, u64::MAX));
    assert_eq!(use_next(9), (3, false, u64::MAX));
    assert_eq!(use_next(0), (2, false, u64::MAX));
    assert_eq!(use_next(0), (3, false, u64::MAX));
    assert_eq!(use_next(1), (0, true, 1));
    assert_eq!(use_next(0), (1, false, 1));
    assert_eq!(use_next(2), (2, true, 2));
}

#[test]
fn a_message_about_another_key_proves_nothing() {
    assert!(Message::new(7, 3).proves(7, 3));
    assert!(!Message::new(7, 2).proves(7, 3));
    assert!(!Message::new(6, 3).proves(7, 3));
    // Nor does the absence of one about any key.
    assert!(!Message::NONE.proves(0, 0) && !Message::NONE.proves(u32::MAX, 0));
    let message = Message::new(u32::MAX, u64::MAX);
    assert_eq!(Message::from_words(message.to_words()), message);
}

#[test]
fn a_mark_counts_all_receives() {
    let (mut mark, shown) = Mark::NONE.posted(5, 3);
    assert_eq!(shown, None);
    for (now, expected) in [
        (6, None),
        (7, None),
        (8, Some(5)),
        (9, None),
        (10, None),
        (11, Some(8)),
    ] {
        let (next, shown) = Mark::from_words(mark.to_words()).posted(now, 3);
        assert_eq!(shown, expected);
        mark = next;
    }
}
