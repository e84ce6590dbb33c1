// SPDX-License-Identifier: GPL-2.0

//! The memory of the directory: entries that grow and make room, and hints.

use proto::gfarm::cache::{
    directory::{
        groups,
        len_bytes,
        Directory,
        Hint,
        Question,
        HOLDERS_MAX,
        WAYS, //
    },
    excluded::{
        Excluded,
        Reason, //
    },
    pages::PageSet, //
};

use super::{
    all,
    node,
    question,
    without,
    Owner, //
};

impl Owner {
    /// Asks for a whole chunk; returns who is named.
    fn chunk(&mut self, chunk: u64, requester: u64, now_us: u64) -> Option<u64> {
        let question = Question {
            chunk,
            ..question(requester, all(), &Excluded::NONE)
        };
        let direction = self.ask(&question, now_us);
        direction.from.map(|(node, _)| node.get() - 1)
    }

    fn hints(&self) -> usize {
        self.hints.iter().flatten().count()
    }
}

#[test]
fn the_chunk_that_was_used_least_lately_makes_room() {
    let mut owner = Owner::of(1);
    for chunk in 0..WAYS as u64 {
        assert_eq!(owner.chunk(chunk, 0, chunk), None);
    }
    assert_eq!(owner.chunk(0, 1, 100), Some(0));
    assert_eq!(owner.chunk(99, 0, 101), None);
    assert_eq!(owner.chunk(0, 2, 102), Some(0), "was used lately");
    // Node 0 has not told that it has the pages: nothing is left of the entry.
    assert_eq!(owner.chunk(1, 2, 103), None, "was replaced");
    assert_eq!(owner.directory().chunks(), WAYS);
}

/// More chunks than entries: of each a node is known that has it.
#[test]
fn an_entry_that_makes_room_leaves_a_hint() {
    let mut owner = Owner::of(1);
    let (entries, _, hints) = Directory::GROUP;
    let chunks = (entries + hints) as u64;
    for chunk in 0..chunks {
        assert_eq!(owner.chunk(chunk, chunk % 5, chunk), None);
        owner.told(chunk % 5, chunk, all());
    }
    assert_eq!((owner.directory().chunks(), owner.hints()), (WAYS, hints));
    // In any order, twice: what is made of a hint leaves one again.
    for (round, step) in [(0u64, 31), (1, 17)] {
        for n in 0..chunks {
            let (chunk, reader) = (n * step % chunks, 10 + round);
            let now_us = 1_000 * (n + 1) + 1_000_000 * round;
            let holder = owner.chunk(chunk, reader, now_us);
            assert!(holder.is_some_and(|n| n == chunk % 5 || n == 10), "{chunk}");
            owner.told(reader, chunk, all());
        }
    }
}

/// A hint of which the node has dropped the pages costs a question.
#[test]
fn a_hint_that_is_wrong_is_forgotten() {
    let mut owner = Owner::of(1);
    owner.done(0, PageSet::range(16, 16));
    owner.done(1, PageSet::range(18, 1));
    let read = PageSet::range(16, 4);
    let none = Excluded::NONE;
    let direction = owner.ask(&question(2, read, &none), 1);
    let (named, _) = direction.from.unwrap();
    let excluded = without(&[(named.get() - 1, Reason::NotHere)]);
    let again = owner.ask(&question(2, read, &excluded), 2);
    let (other, _) = again.from.unwrap();
    assert_ne!(named, other);
    let excluded = without(&[(0, Reason::NotHere), (1, Reason::NotHere)]);
    assert_eq!(owner.ask(&question(2, read, &excluded), 3).fetch, read);
    // What was never told of is not asked for.
    let far = PageSet::range(64, 16);
    assert_eq!(owner.ask(&question(3, far, &none), 4).fetch, far);
}

/// An owner learns from `Have`, with an entry and without.
#[test]
fn what_is_not_known_is_learned_from_who_has_it() {
    let mut owner = Owner::new();
    owner.done(7, all());
    assert_eq!(owner.whole(1, 1), Some(7), "without an entry");
    let none = Excluded::NONE;
    let low = PageSet::range(0, 16);
    let mut owner = Owner::new();
    owner.ask(&question(0, low, &none), 0);
    let high = PageSet::range(16, 16);
    owner.done(3, high);
    assert_eq!(
        owner.ask(&question(1, high, &none), 1).from,
        Some((node(3), high))
    );
}

/// One that tells of what it has not, as fast as it can, pushes out no entry, and no more than its
/// share of the hints of others.
#[test]
fn who_tells_of_all_chunks_pushes_out_few_others() {
    let mut owner = Owner::of(1);
    let (entries, _, hints) = Directory::GROUP;
    // An entry with holders of its own pages each, and others, and hints of seven nodes.
    for n in 0..4 {
        let part = PageSet::range(n as u8 * 16, 16);
        owner.ask(&question(n, part, &Excluded::NONE), n);
        owner.done(n, part);
    }
    for chunk in 1..entries as u64 {
        assert_eq!(owner.chunk(chunk, 1, chunk), None);
        owner.told(1, chunk, all());
    }
    let count = hints as u64 - 8;
    for chunk in 100..100 + count {
        owner.told(chunk % 7, chunk, all());
    }
    for round in 0..1_000 {
        owner.told(66, 1_000 + round, all());
        owner.told(66, round % entries as u64, PageSet::range(0, 1));
    }
    let known = |hint: &&Hint| hint.is_of(node(66));
    let own = owner.hints.iter().flatten().filter(known).count();
    assert!(own <= hints / 8 + 1, "{own} of {hints} hints");
    for n in 0..4 {
        let part = PageSet::range(n as u8 * 16, 16);
        let direction = owner.ask(&question(50, part, &Excluded::NONE), 60);
        assert_eq!(direction.from, Some((node(n), part)));
    }
    for chunk in 1..entries as u64 {
        assert_eq!(owner.chunk(chunk, 51, 61), Some(1), "{chunk}");
    }
    let there = (100..100 + count).filter(|chunk| {
        let holder = owner.chunk(*chunk, 52, 62);
        holder == Some(chunk % 7)
    });
    assert!(there.count() as u64 >= count - 1);
}

/// Nodes with more than their share make room before others.
#[test]
fn a_node_keeps_its_share_of_hints_whatever_others_tell() {
    let mut owner = Owner::of(1);
    let hints = Directory::GROUP.2 as u64;
    for chunk in 0..hints {
        owner.told(66, chunk, all());
    }
    for chunk in 0..hints / 8 {
        owner.told(1, 1_000 + chunk, all());
        owner.told(66, 2_000 + chunk, all());
    }
    for chunk in 0..1_000 {
        owner.told(66, 3_000 + chunk, all());
    }
    for chunk in 0..hints / 8 {
        assert_eq!(owner.chunk(1_000 + chunk, 2, chunk), Some(1));
    }
}

/// A chunk that all read has many holders, of places that others do not need.
#[test]
fn an_entry_grows_and_gives_back() {
    let mut owner = Owner::of(1);
    let count = |owner: &Owner| owner.holders.iter().flatten().count();
    for n in 0..40 {
        owner.whole(n, n);
        owner.done(n, all());
    }
    assert_eq!(count(&owner), HOLDERS_MAX);
    for chunk in 1..WAYS as u64 {
        for n in 0..6 {
            owner.chunk(chunk, n, 100 + n);
            owner.told(n, chunk, all());
        }
    }
    assert_eq!(count(&owner), Directory::GROUP.1);
    // None has lost its own to others: each is known at four nodes, one of which has made room for
    // the one that asks.
    for chunk in 0..WAYS as u64 {
        let mut named = Excluded::NONE;
        for _ in 0..3 {
            let question = Question {
                chunk,
                is_retry: true,
                ..question(90, all(), &named)
            };
            let (holder, _) = owner.ask(&question, 200).from.unwrap();
            named.add(holder, Reason::NoAnswer);
        }
    }
}

#[test]
fn its_memory_is_a_share_unless_it_is_set() {
    for (given_mib, memory_mib, mib) in [
        (0, 1 << 10, 1),
        (0, 16 << 10, 8),
        (0, 512 << 10, 256),
        (0, 4 << 20, 256),
        (3, 512 << 10, 3),
    ] {
        assert_eq!(len_bytes(given_mib, memory_mib << 20), mib << 20);
    }
    assert_eq!((groups(0), groups(1 << 20)), (1, 227));
}
