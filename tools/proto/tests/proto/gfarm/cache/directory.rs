// SPDX-License-Identifier: GPL-2.0

//! The directory of holders.

mod memory;

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use proptest::prelude::*;
use proto::gfarm::{
    attr::{
        FileId,
        Time, //
    },
    cache::{
        address::{
            Group,
            NodeId, //
        },
        directory::{
            Direction,
            Directory,
            Entry,
            Hint,
            Holder,
            Notice,
            Question,
            DONE_US,
            FANOUT,
            HOLDERS_MAX, //
        },
        excluded::{
            Excluded,
            Reason, //
        },
        pages::PageSet, //
    },
    identity::ContentId,
};

const FILE: ContentId = of(9, 1);

/// A content that was written at a time of its own.
const fn of(inum: u64, gen: u64) -> ContentId {
    ContentId {
        file: FileId { inum, gen },
        mtime: Time { sec: 5, nsec: 6 },
    }
}

fn node(n: u64) -> NodeId {
    NodeId::new(n + 1).unwrap()
}

fn all() -> PageSet {
    PageSet::range(0, 256)
}

struct Owner {
    entries: Vec<Entry>,
    holders: Vec<Option<Holder>>,
    hints: Vec<Option<Hint>>,
}

impl Owner {
    fn new() -> Self {
        Self::of(2)
    }

    fn of(groups: usize) -> Self {
        let (entries, holders, hints) = Directory::GROUP;
        Self {
            entries: vec![Entry::EMPTY; groups * entries],
            holders: vec![None; groups * holders],
            hints: vec![None; groups * hints],
        }
    }

    fn directory(&mut self) -> Directory<'_> {
        Directory::new(&mut self.entries, &mut self.holders, &mut self.hints)
    }

    fn ask(&mut self, question: &Question<'_>, now_us: u64) -> Direction {
        let direction = self.directory().direct(question, now_us, |_| true);
        let given = direction.from.map_or(PageSet::EMPTY, |(_, pages)| pages);
        assert!(given.is_subset(question.pages) && direction.fetch.is_subset(question.pages));
        assert!(given.is_disjoint(direction.fetch));
        assert_ne!(
            direction.from.map(|(node, _)| node),
            Some(question.requester)
        );
        assert!(direction.from.is_none_or(|(_, pages)| !pages.is_empty()));
        direction
    }

    fn whole(&mut self, requester: u64, now_us: u64) -> Option<u64> {
        let direction = self.ask(&question(requester, all(), &Excluded::NONE), now_us);
        match direction.from {
            Some((node, pages)) => {
                assert_eq!(pages, all());
                Some(node.get() - 1)
            }
            None => {
                assert_eq!(direction.fetch, all());
                None
            }
        }
    }

    fn again(&mut self, requester: u64, excluded: &Excluded, now_us: u64) -> Direction {
        let question = Question {
            is_retry: true,
            ..question(requester, all(), excluded)
        };
        self.ask(&question, now_us)
    }

    fn done(&mut self, requester: u64, pages: PageSet) {
        self.told(requester, 0, pages);
    }

    fn told(&mut self, node: u64, chunk: u64, pages: PageSet) {
        self.directory().done(&notice(node, chunk, pages), 0);
    }
}

fn notice(n: u64, chunk: u64, pages: PageSet) -> Notice {
    Notice {
        node: node(n),
        group: Group::new(1).unwrap(),
        file: FILE,
        chunk,
        pages,
    }
}

fn question(requester: u64, pages: PageSet, excluded: &Excluded) -> Question<'_> {
    Question {
        requester: node(requester),
        group: Group::new(1).unwrap(),
        file: FILE,
        chunk: 0,
        pages,
        is_retry: false,
        is_root: true,
        excluded,
    }
}

fn without(nodes: &[(u64, Reason)]) -> Excluded {
    let mut excluded = Excluded::NONE;
    for (n, reason) in nodes {
        excluded.add(node(*n), *reason);
    }
    excluded
}

#[test]
fn one_of_many_fetches_and_the_others_make_a_tree() {
    let mut owner = Owner::new();
    let (mut depth, mut children) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..128 {
        match owner.whole(n, n) {
            None => {
                assert_eq!(n, 0, "only the first one fetches");
                depth.insert(n, 0);
            }
            Some(parent) => {
                depth.insert(n, depth[&parent] + 1);
                *children.entry(parent).or_insert(0) += 1;
            }
        }
    }
    let (deepest, most) = (depth.values().max(), children.values().max());
    assert_eq!(most, Some(&u32::from(FANOUT)));
    assert!(*deepest.unwrap() <= 10, "{deepest:?} levels of 128 nodes");
}

#[test]
fn holders_that_are_done_serve_in_turn() {
    let mut owner = Owner::new();
    let mut served = BTreeMap::new();
    for n in 0..200 {
        if let Some(holder) = owner.whole(n, n) {
            *served.entry(holder).or_insert(0) += 1;
        }
        owner.done(n, all());
    }
    let most = served.values().max().unwrap();
    assert!(*most <= 9, "{most} of 199 requests at one of {HOLDERS_MAX}");
}

#[test]
fn no_node_serves_more_at_a_time_than_the_fan_out() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    for n in 1..=u64::from(FANOUT) {
        assert_eq!(owner.whole(n, n), Some(0));
    }
    assert_ne!(owner.whole(50, 50), Some(0));
    // One is done: there is room again.
    owner.done(1, all());
    let next = [owner.whole(51, 51), owner.whole(52, 52)];
    assert!(next.contains(&Some(0)) || next.contains(&Some(1)));
}

/// The owner names a holder of the requester's group before others with the same pages, however
/// much it has to do.
#[test]
fn a_holder_that_is_near_is_asked_first() {
    let (mut owner, none) = (Owner::new(), Excluded::NONE);
    let mut ask = |requester, group| {
        let question = Question {
            group: Group::new(group).unwrap(),
            ..question(requester, all(), &none)
        };
        let from = owner.ask(&question, requester).from;
        from.map(|(node, _)| node.get() - 1)
    };
    assert_eq!(ask(0, 1), None);
    assert_eq!(ask(1, 2), Some(0), "the first of its group");
    assert_eq!(ask(2, 3), Some(0));
    // Node 1 is deeper, and node 0 is full by then.
    assert_eq!(ask(3, 2), Some(1));
    assert_eq!(ask(4, 1), Some(0), "the only one of its group");
    let (fourth, fifth) = (ask(5, 2), ask(6, 2));
    assert_eq!((fourth, fifth), (Some(1), Some(3)));
    // Who has no one near is served by who is the nearest to a file server, as without groups.
    assert_eq!(ask(7, 4), Some(2));
}

#[test]
fn what_is_not_there_is_asked_elsewhere() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    assert_eq!(owner.whole(1, 1), Some(0));
    let nothing = owner.again(1, &without(&[(0, Reason::NotHere)]), 2);
    assert_eq!((nothing.from, nothing.fetch), (None, all()));
    // Nobody else is sent to it.
    assert_eq!(owner.whole(2, 3), Some(1));
}

#[test]
fn a_silent_holder_is_left_to_others() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    assert_eq!(owner.whole(1, 1), Some(0));
    assert_eq!(owner.whole(2, 2), Some(0));
    // The one that fetches has died: its first child fetches, the second goes to the first.
    let silent = without(&[(0, Reason::NoAnswer)]);
    assert_eq!(owner.again(1, &silent, 9).fetch, all());
    assert_eq!(owner.again(2, &silent, 9).from, Some((node(1), all())));
    // Nobody knows that it is dead until the members do.
    let question = question(3, all(), &Excluded::NONE);
    let live = |of| of != node(0);
    let direction = owner.directory().direct(&question, 10, live);
    assert_eq!(direction.from, Some((node(1), all())));
}

#[test]
fn a_busy_holder_is_no_reason_to_fetch() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    assert_eq!(owner.whole(1, 1), Some(0));
    let later = owner.again(1, &without(&[(0, Reason::Busy)]), 2);
    assert_eq!((later.from, later.fetch), (None, PageSet::EMPTY));
}

#[test]
fn parts_of_a_chunk_come_from_who_has_most_of_them() {
    let mut owner = Owner::new();
    let none = Excluded::NONE;
    let low = PageSet::range(0, 16);
    assert_eq!(owner.ask(&question(0, low, &none), 0).fetch, low);
    let high = PageSet::range(100, 50);
    assert_eq!(owner.ask(&question(1, high, &none), 1).fetch, high);
    let direction = owner.ask(&question(2, all(), &none), 2);
    assert_eq!(direction.from, Some((node(1), high)));
    let rest = all().difference(low).difference(high);
    assert_eq!(direction.fetch, rest);
    owner.done(0, low);
    // What is in neither set, it asks for again; the reads of one node do not replace each other.
    let question = Question {
        is_retry: true,
        ..question(2, low, &none)
    };
    assert_eq!(owner.ask(&question, 3).from, Some((node(0), low)));
    owner.done(2, all());
    assert_eq!(owner.whole(3, 4), Some(2));
}

#[test]
fn the_last_copy_of_a_page_stays_known() {
    let mut owner = Owner::new();
    let none = Excluded::NONE;
    let rare = PageSet::range(7, 1);
    owner.ask(&question(0, rare, &none), 0);
    owner.done(0, rare);
    let common = PageSet::range(50, 10);
    for n in 1..500 {
        owner.ask(&question(n, common, &none), n);
        owner.done(n, common);
    }
    let direction = owner.ask(&question(900, rare, &none), 900);
    assert_eq!(direction.from, Some((node(0), rare)));
}

#[test]
fn generations_have_nothing_in_common() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    let none = Excluded::NONE;
    for (gen, chunk) in [(2, 0), (0, 0), (1, 1)] {
        let question = Question {
            file: of(9, gen),
            chunk,
            ..question(1, all(), &none)
        };
        assert_eq!(owner.ask(&question, 1).from, None, "{gen} {chunk}");
    }
    assert_eq!(owner.whole(2, 2), Some(0));
}

#[test]
fn without_memory_each_node_fetches() {
    let mut owner = Owner::of(0);
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    assert_eq!(owner.whole(1, 0), None);
}

#[test]
fn a_node_that_lost_the_pages_is_sent_to_any_holder() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    assert_eq!(owner.whole(1, 1), Some(0));
    owner.done(1, all());
    // Node 0 has evicted them, and reads again.
    assert_eq!(owner.whole(0, 2), Some(1));
}

#[test]
fn a_node_that_lost_the_pages_does_not_wait_for_whom_it_is_to_serve() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    owner.done(0, all());
    // Node 1 is on its way to node 0, which has evicted the pages meanwhile.
    assert_eq!(owner.whole(1, 1), Some(0));
    assert_eq!(owner.whole(0, 2), None);
    // Nor if something has failed since.
    assert_eq!(owner.again(0, &Excluded::NONE, 3).from, None);
}

#[test]
fn an_answer_that_is_lost_is_given_once_more() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    assert_eq!(owner.whole(1, 1), Some(0));
    let told = |direction: Direction| direction.from.map(|(node, _)| node.get() - 1);
    // Node 1 was not told, and node 0 is still reading: there is no second copy.
    assert_eq!(told(owner.again(1, &Excluded::NONE, 30_000)), Some(0));
    // Nor is there one for a node whose question was lost, if no place was taken from a reader.
    let direction = owner.again(2, &Excluded::NONE, 60_000);
    assert!(told(direction).is_some() && direction.fetch.is_empty());
    // Who fetches is told so again, and waits for none of those that wait for it.
    let direction = owner.again(0, &Excluded::NONE, 90_000);
    assert_eq!((told(direction), direction.fetch), (None, all()));
}

#[test]
fn a_notice_that_is_lost_is_made_up_for_by_time() {
    let mut owner = Owner::new();
    assert_eq!(owner.whole(0, 0), None);
    for n in 1..=u64::from(FANOUT) {
        assert_eq!(owner.whole(n, 0), Some(0));
    }
    let mut later = |from_us: u64| {
        let asked = (10..30).map(|n| owner.whole(from_us + n, from_us + n));
        asked.filter(|holder| *holder == Some(0)).count()
    };
    assert_eq!(later(1), 0);
    assert!(later(DONE_US + 1) > 0);
}

/// An event at the owner of a chunk.
#[derive(Clone, Debug)]
enum Event {
    Ask(u64),
    Again(u64, Reason),
    /// The answer to it was lost.
    Untold(u64),
    /// Its question was lost, and it asks once more.
    Unheard(u64),
    Done(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let reason = prop_oneof![
        Just(Reason::NoAnswer),
        Just(Reason::NotHere),
        Just(Reason::Busy)
    ];
    let event = prop_oneof![
        4 => (0u64..40).prop_map(Event::Ask),
        2 => ((0u64..40), reason).prop_map(|(n, reason)| Event::Again(n, reason)),
        1 => (0u64..40).prop_map(Event::Untold),
        1 => (0u64..40).prop_map(Event::Unheard),
        1 => (0u64..40).prop_map(Event::Done),
    ];
    proptest::collection::vec(event, 1..200)
}

/// A node that has the pages, and all that wait for it, and so on.
fn served_by(n: u64, waits: &BTreeMap<u64, Option<u64>>) -> BTreeSet<u64> {
    let mut over = BTreeSet::from([n]);
    loop {
        let is_next = |on: &Option<u64>| on.is_some_and(|on| over.contains(&on));
        let next = waits
            .iter()
            .filter(|(n, on)| is_next(on) && !over.contains(n));
        let next: Vec<u64> = next.map(|(n, _)| *n).collect();
        if next.is_empty() {
            return over;
        }
        over.extend(next);
    }
}

proptest! {
    /// Nodes that wait for one another never wait in a circle, as long as each tells the owner what
    /// happens to it.
    #[test]
    fn no_node_waits_in_a_circle(events in events()) {
        let mut owner = Owner::new();
        let mut waits: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        // Those that ask again do so after the time in which a wave is taken to be a new one.
        for (now_us, event) in (0u64..).step_by(6_000).zip(events) {
            let is_awaited = |n| waits.values().any(|on| *on == Some(n));
            let (n, direction) = match event {
                // Those that were sent to it while it had the pages have their answer.
                Event::Ask(n) if !waits.contains_key(&n) && !is_awaited(n) => {
                    (n, owner.ask(&question(n, all(), &Excluded::NONE), now_us))
                }
                Event::Again(n, reason) if matches!(waits.get(&n), Some(Some(_))) => {
                    let holder = waits[&n].unwrap();
                    (n, owner.again(n, &without(&[(holder, reason)]), now_us))
                }
                Event::Untold(n) if waits.contains_key(&n) => {
                    (n, owner.again(n, &Excluded::NONE, now_us))
                }
                Event::Unheard(n) if !waits.contains_key(&n) && !is_awaited(n) => {
                    (n, owner.again(n, &Excluded::NONE, now_us))
                }
                Event::Done(n) if matches!(waits.get(&n), Some(None)) => {
                    for n in served_by(n, &waits) {
                        waits.remove(&n);
                        owner.done(n, all());
                    }
                    continue;
                }
                _ => continue,
            };
            // Who is to ask later waits for nobody meanwhile.
            waits.insert(n, direction.from.map(|(node, _)| node.get() - 1));
            let mut at = n;
            for _ in 0..waits.len() + 1 {
                match waits.get(&at) {
                    Some(Some(on)) => at = *on,
                    _ => break,
                }
                prop_assert_ne!(at, n, "a circle");
            }
        }
    }
}
