// SPDX-License-Identifier: GPL-2.0

//! Claims, beside a list of all of them: who begins, who waits, and who is refused.

use proptest::prelude::*;
use rioc::proto::{
    claim::{
        Claim,
        Claims,
        Denied,
        Use, //
    },
    slot::NONE,
    span::{
        ObjectId,
        Span, //
    },
};

type Table = Claims<Vec<Claim>, Vec<u32>>;

/// A claim of the list.
#[derive(Clone, Debug)]
struct Known {
    number: u32,
    tag: u32,
    client: u32,
    uses: Vec<Use>,
    is_lease: bool,
    has_begun: bool,
}

impl Known {
    fn excludes(&self, used: &Use) -> bool {
        self.uses.iter().any(|own| {
            own.object == used.object
                && (own.is_write || used.is_write)
                && own.span.overlaps(&used.span)
        })
    }

    fn delays(&self, used: &Use) -> bool {
        self.uses.iter().any(|own| {
            own.object == used.object
                && (own.is_write || used.is_write)
                && own
                    .span
                    .blocks()
                    .any(|block| used.span.blocks().contains(&block))
        })
    }
}

/// Events of a table of claims.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Client, whether it names a lease, what it uses, and what it reads besides.
    Operation(u32, bool, Use, Option<Use>),
    Lease(u32, Use),
    /// The claim of this place in the list ends: by its client, or by an administrator.
    End(usize, bool),
    /// A client is gone.
    EndClient(u32),
}

#[derive(Clone)]
struct World {
    table: Table,
    /// Claims in the order of their arrival.
    all: Vec<Known>,
    tags: u32,
    slots: usize,
}

impl World {
    fn new(slots: usize) -> Self {
        Self {
            table: Claims::new(vec![Claim::FREE; slots], vec![NONE; 2], ([5, 6], 7)),
            all: Vec::new(),
            tags: 0,
            slots,
        }
    }

    /// Returns what must be said to a client about what it uses.
    fn allowed(&self, client: u32, lease: u32, uses: &[Use]) -> Result<(), Denied> {
        if lease != 0 {
            let mut leases = self
                .all
                .iter()
                .filter(|claim| claim.is_lease && claim.has_begun);
            let named = leases.find(|claim| claim.number == lease && claim.client == client);
            let own = named.ok_or(Denied::LeaseGone)?.uses[0];
            let covers = |used: &Use| {
                own.object == used.object
                    && own.span.contains(&used.span)
                    && (own.is_write || !used.is_write)
            };
            if !uses.iter().any(covers) {
                return Err(Denied::LeaseElsewhere);
            }
        }
        let mut others = self.all.iter().filter(|c| c.is_lease && c.client != client);
        if others.any(|claim| uses.iter().any(|used| claim.excludes(used))) {
            return Err(Denied::Leased);
        }
        Ok(())
    }

    /// Whether the claim of this place in the list has to wait for those before it.
    fn must_wait(&self, at: usize) -> bool {
        let claim = &self.all[at];
        let mut before = self.all[..at].iter().filter(|before| !before.is_lease);
        before.any(|before| {
            claim.uses.iter().any(|used| {
                if claim.is_lease {
                    before.client != claim.client && before.excludes(used)
                } else {
                    before.delays(used)
                }
            })
        })
    }

    fn add(&mut self, client: u32, uses: &[Use], is_lease: bool, arrived: (u32, bool)) {
        self.tags += 1;
        self.all.push(Known {
            number: arrived.0,
            tag: self.tags,
            client,
            uses: uses.to_vec(),
            is_lease,
            has_begun: !arrived.1,
        });
        let at = self.all.len() - 1;
        assert_eq!(self.must_wait(at), arrived.1);
        assert!(self.all[..at].iter().all(|other| other.number != arrived.0));
    }

    /// Returns the tag of the next claim.
    fn tag(&self) -> u32 {
        self.tags + 1
    }

    fn used_slots(&self) -> usize {
        self.all.iter().map(|claim| claim.uses.len()).sum()
    }

    fn operation(&mut self, client: u32, lease: u32, used: Use, other: Option<Use>) {
        let uses: Vec<_> = [Some(used), other].into_iter().flatten().collect();
        assert_eq!(
            self.table.check((client, lease), &uses),
            self.allowed(client, lease, &uses)
        );
        let mut expected = self.allowed(client, lease, &uses);
        if expected.is_ok() && self.used_slots() + uses.len() > self.slots {
            expected = Err(Denied::NoClaims);
        }
        let done = self
            .table
            .operation((client, lease, self.tag()), (used, other));
        assert_eq!(done.map(|_| ()), expected);
        if let Ok(arrived) = done {
            self.add(client, &uses, false, (arrived.number, arrived.is_waiting));
        }
    }

    fn lease(&mut self, client: u32, used: Use) {
        let mut leases = self.all.iter().filter(|claim| claim.is_lease);
        let expected = if leases.any(|claim| claim.excludes(&used)) {
            Err(Denied::Leased)
        } else if self.used_slots() == self.slots {
            Err(Denied::NoClaims)
        } else {
            Ok(())
        };
        let done = self.table.lease((client, self.tag()), &used);
        assert_eq!(done.map(|_| ()), expected);
        if let Ok(arrived) = done {
            assert!(arrived.number != 0);
            self.add(client, &[used], true, (arrived.number, arrived.is_waiting));
        }
    }

    fn end(&mut self, at: usize, by_client: bool) {
        let ended = self.all.remove(at);
        if ended.is_lease {
            if by_client {
                let other = self.table.release(ended.client + 1, ended.number);
                assert_eq!(other, Err(Denied::LeaseGone));
                let done = self.table.release(ended.client, ended.number);
                // One that waits is not known to its client.
                let expected = ended.has_begun.then_some(()).ok_or(Denied::LeaseGone);
                assert_eq!(done, expected);
                if done.is_err() {
                    self.all.insert(at, ended);
                    return;
                }
            } else {
                let mut told = Vec::new();
                let had = self.table.revoke(ended.number, |tag| told.push(tag));
                assert_eq!(had, Some(ended.client));
                assert_eq!(
                    told,
                    Vec::from_iter((!ended.has_begun).then_some(ended.tag))
                );
            }
            assert_eq!(self.table.revoke(ended.number, |_| ()), None);
            return;
        }
        assert_eq!(self.table.revoke(ended.number, |_| ()), None);
        let mut begun = Vec::new();
        self.table.end(ended.number, |tag| begun.push(tag));
        for at in 0..self.all.len() {
            let begins = !self.all[at].has_begun && !self.must_wait(at);
            let claim = &mut self.all[at];
            assert_eq!(begun.contains(&claim.tag), begins, "{claim:?}");
            claim.has_begun |= begins;
            begun.retain(|tag| *tag != claim.tag);
        }
        assert!(begun.is_empty());
        self.table.end(ended.number, |_| panic!("ended twice"));
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Operation(client, has_lease, used, other) => {
                let mut leases = self.all.iter().filter(|c| c.is_lease && c.client == client);
                let own = leases.next().map_or(77, |claim| claim.number);
                self.operation(client, if has_lease { own } else { 0 }, used, other);
            }
            Event::Lease(client, used) => self.lease(client, used),
            Event::End(at, by_client) if !self.all.is_empty() => {
                self.end(at % self.all.len(), by_client);
            }
            Event::End(..) => (),
            Event::EndClient(client) => {
                let (mut from, mut told) = (Some(0), Vec::new());
                while let Some(slot) = from {
                    from = self.table.end_client(client, slot, |tag| told.push(tag));
                }
                let mut waiting: Vec<_> = self
                    .all
                    .iter()
                    .filter(|claim| claim.is_lease && claim.client == client && !claim.has_begun)
                    .map(|claim| claim.tag)
                    .collect();
                told.sort_unstable();
                waiting.sort_unstable();
                assert_eq!(told, waiting);
                self.all
                    .retain(|claim| !claim.is_lease || claim.client != client);
            }
        }
        self.check();
    }

    /// Checks that of two claims that exclude each other never both have begun.
    fn check(&self) {
        for (at, claim) in self.all.iter().enumerate() {
            assert_eq!(claim.has_begun, !self.must_wait(at));
            for other in self.all[..at]
                .iter()
                .filter(|o| o.has_begun && claim.has_begun)
            {
                for used in &claim.uses {
                    let is_apart = match (claim.is_lease, other.is_lease) {
                        (false, false) => !other.delays(used),
                        (true, true) => !other.excludes(used),
                        _ => claim.client == other.client || !other.excludes(used),
                    };
                    assert!(is_apart, "{claim:?} {other:?}");
                }
            }
        }
        let slots = (0..self.slots as u32).filter(|slot| self.table.get(*slot).is_some());
        assert_eq!(slots.count(), self.used_slots());
    }

    /// Ends everything: nothing waits for ever.
    fn finish(mut self) {
        while let Some(at) = self.all.iter().position(|claim| claim.has_begun) {
            self.end(at, true);
            self.check();
        }
        assert!(self.all.is_empty(), "{:?}", self.all);
    }
}

fn used(object: u64, offset: u64, bytes: u64, is_write: bool) -> Use {
    Use {
        object: ObjectId {
            high: 0,
            low: object,
        },
        span: Span::new(offset, bytes).unwrap(),
        is_write,
    }
}

fn go_on(world: &World, events: &[Event], depth: usize) -> u64 {
    let counts = events.iter().map(|event| {
        let mut next = world.clone();
        next.apply(event);
        let more = if depth > 1 {
            go_on(&next, events, depth - 1)
        } else {
            0
        };
        next.finish();
        more + 1
    });
    counts.sum()
}

#[test]
fn every_sequence_of_five_events_is_in_order() {
    let (first, second) = (used(0, 0, 100, true), used(0, 4000, 200, true));
    let read = used(0, 4095, 1, false);
    let events = [
        Event::Operation(0, false, first, None),
        Event::Operation(1, false, first, None),
        Event::Operation(0, true, second, None),
        Event::Operation(1, false, second, Some(used(0, 0, 1, false))),
        Event::Lease(0, first),
        Event::Lease(
            1,
            Use {
                is_write: false,
                ..second
            },
        ),
        Event::Lease(0, read),
        Event::End(0, true),
        Event::End(1, false),
        Event::EndClient(0),
    ];
    let count = go_on(&World::new(4), &events, 5);
    println!("{count} sequences");
    assert!(count > 100_000);
}

fn uses() -> impl Strategy<Value = Use> {
    (0..3u64, 0..6u64, 1..5u64, any::<bool>()).prop_map(|(object, offset, length, is_write)| {
        used(object, offset * 2048, length * 1024, is_write)
    })
}

fn events() -> impl Strategy<Value = Event> {
    let operation = (0..4u32, any::<bool>(), uses(), prop::option::of(uses()));
    prop_oneof![
        6 => operation.prop_map(|(client, lease, used, other)| {
            Event::Operation(client, lease, used, other)
        }),
        3 => (0..4u32, uses()).prop_map(|(client, used)| Event::Lease(client, used)),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, who)| Event::End(at, who)),
        1 => (0..4u32).prop_map(Event::EndClient),
    ]
}

proptest! {
    #[test]
    fn claims_are_in_order(events in prop::collection::vec(events(), 1..200), slots in 2..60usize) {
        let mut world = World::new(slots);
        events.iter().for_each(|event| world.apply(event));
        world.finish();
    }
}

#[test]
fn the_leases_of_a_client_end_in_steps() {
    let mut world = World::new(10_000);
    for object in 0..9_000 {
        let client = (object % 2) as u32;
        world
            .table
            .lease((client, 0), &used(object, 0, 4096, true))
            .unwrap();
    }
    let next = world
        .table
        .end_client(0, 0, |_| ())
        .expect("more than a step");
    let next = world
        .table
        .end_client(0, next, |_| ())
        .expect("more than a step");
    assert_eq!(world.table.end_client(0, next, |_| ()), None);
    let left = (0..10_000).filter_map(|slot| world.table.get(slot));
    assert!(left.clone().all(|(_, claim)| claim.client == 1));
    assert_eq!(left.count(), 4_500);
}

/// The number of a lease that has ended is none, whatever came after it: other leases in its
/// memory, and operations.
#[test]
fn the_number_of_a_lease_that_has_ended_is_none() {
    let mut world = World::new(1);
    let mut all = std::collections::BTreeSet::new();
    for round in 0..40_000u64 {
        let lease = world.table.lease((0, 0), &used(0, 0, 4096, true)).unwrap();
        assert!(lease.number != 0 && all.insert(lease.number));
        world.table.release(0, lease.number).unwrap();
        for _ in 0..round % 7 {
            let other = world
                .table
                .operation((0, 0, 0), (used(0, 0, 1, true), None));
            assert_eq!(
                world.table.check((0, lease.number), &[used(0, 0, 1, true)]),
                Err(Denied::LeaseGone)
            );
            world.table.end(other.unwrap().number, |_| ());
        }
        let before = world.table.release(0, lease.number);
        assert_eq!(before, Err(Denied::LeaseGone));
    }
}

/// Operations alone bring back no number of a lease.
#[test]
fn operations_do_not_bring_back_the_number_of_a_lease() {
    let mut world = World::new(1);
    let first = world.table.lease((0, 0), &used(0, 0, 1, true)).unwrap();
    world.table.release(0, first.number).unwrap();
    for _ in 0..300_000 {
        let operation = world
            .table
            .operation((0, 0, 0), (used(0, 0, 1, true), None));
        world.table.end(operation.unwrap().number, |_| ());
        let second = world.table.clone().lease((0, 0), &used(0, 0, 1, true));
        assert_ne!(second.unwrap().number, first.number);
    }
}
