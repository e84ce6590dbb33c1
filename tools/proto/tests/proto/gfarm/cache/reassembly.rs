// SPDX-License-Identifier: GPL-2.0

//! Fragments that are lost, repeated, overtaken and foreign, against memory in which each fragment
//! can be recognised.

use proptest::prelude::*;
use proto::gfarm::cache::{
    fragment::{
        FragmentId,
        FragmentLen, //
    },
    pages::PageSet,
    reassembly::{
        Arrival,
        Move,
        Place,
        Reassembly, //
    }, //
};

const TAG: u16 = 0x1234;

/// An event of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The fragment with this number arrives.
    Fragment(u16),
    /// One with this number arrives that is of another request.
    OtherTag(u16),
    /// One with this number arrives that is too short or too long.
    OtherLen(u16, i32),
    /// A datagram without an immediate arrives.
    NoImm,
    /// Nothing, until the queue pair is stopped.
    Unused,
}

/// The content of the memory of a fragment: a fragment, or bytes that are none.
type Cell = Option<u16>;

/// A transfer with the memory that it is about.
struct World {
    reassembly: Reassembly,
    len: FragmentLen,
    pages: PageSet,
    /// The places of the fragments, that is the pages.
    cells: Vec<Cell>,
    spare: Cell,
    /// The fragments that arrived first.
    arrived: Vec<bool>,
    moves: usize,
}

impl World {
    fn new(len_bytes: u32, pages: PageSet) -> Self {
        let len = FragmentLen::new(len_bytes).unwrap();
        let reassembly = Reassembly::new(TAG, len, pages).unwrap();
        let count = reassembly.count();
        assert_eq!(count, pages.len() * len.per_page());
        Self {
            reassembly,
            len,
            pages,
            cells: vec![None; count],
            spare: None,
            arrived: vec![false; count],
            moves: 0,
        }
    }

    /// Lets something happen to a slot; the device writes what arrives, before all checks.
    fn take(&mut self, slot: u8, event: Event) {
        let imm = |tag, index| Some(FragmentId { tag, index }.to_imm());
        let len = self.len.bytes();
        let (imm, len_bytes) = match event {
            Event::Fragment(index) => (imm(TAG, index), len),
            Event::OtherTag(index) => (imm(TAG ^ 1, index), len),
            Event::OtherLen(index, more) => (imm(TAG, index), len.wrapping_add_signed(more)),
            Event::NoImm => (None, len),
            Event::Unused => return,
        };
        let fragment = match event {
            Event::Fragment(index) if usize::from(index) < self.cells.len() => Some(index),
            _ => None,
        };
        self.cells[usize::from(slot)] = fragment;
        let expected = match fragment {
            None => Arrival::Foreign,
            Some(index) if self.arrived[usize::from(index)] => Arrival::Repeated,
            Some(_) => Arrival::New,
        };
        if let Some(index) = fragment {
            self.arrived[usize::from(index)] = true;
        }
        let arrival = self.reassembly.received(slot, imm, len_bytes);
        assert_eq!(arrival, expected, "slot {slot}, {event:?}");
        let again = self.reassembly.received(slot, imm, len_bytes);
        assert_eq!(again, Arrival::NoSlot, "slot {slot}, {event:?}");
    }

    fn cell(&mut self, place: Place) -> &mut Cell {
        match place {
            Place::Slot(slot) => &mut self.cells[usize::from(slot)],
            Place::Spare => &mut self.spare,
        }
    }

    /// Ends the transfer, and checks each page.
    fn settle(mut self, sent: PageSet) -> Self {
        if !self.reassembly.is_idle() {
            assert_eq!(self.reassembly.settle(sent), None, "a slot is posted");
            assert_eq!(self.reassembly.next_move(), None);
            self.reassembly.stopped();
        }
        assert!(self.reassembly.is_idle());
        let complete = self.reassembly.settle(sent).unwrap();
        while let Some(Move { from, to }) = self.reassembly.next_move() {
            assert_ne!(from, to);
            let moved = *self.cell(from);
            *self.cell(to) = moved;
            self.moves += 1;
            assert!(self.moves <= 2 * self.cells.len(), "moves without end");
        }
        assert_eq!(self.reassembly.next_move(), None);
        for (rank, page) in self.pages.iter().enumerate() {
            let fragments = self.len.of_page(rank);
            let has_arrived = self.arrived[fragments.clone()].iter().all(|a| *a);
            let is_complete = sent.contains(page) && has_arrived;
            assert_eq!(complete.contains(page), is_complete, "page {page}");
            for fragment in fragments.filter(|_| is_complete) {
                let cell = self.cells[fragment];
                assert_eq!(cell.map(usize::from), Some(fragment), "page {page}");
            }
        }
        assert!(complete.is_subset(self.pages));
        self
    }
}

/// Calls `f` with each permutation of `0..count`.
fn orders(count: usize, f: &mut impl FnMut(&[u8])) {
    fn rest(order: &mut Vec<u8>, at: usize, f: &mut impl FnMut(&[u8])) {
        if at == order.len() {
            return f(order);
        }
        for other in at..order.len() {
            order.swap(at, other);
            rest(order, at + 1, f);
            order.swap(at, other);
        }
    }
    rest(&mut (0..count as u8).collect(), 0, f);
}

/// All subsets of the pages.
fn subsets(pages: PageSet) -> impl Iterator<Item = PageSet> {
    (0u32..1 << pages.len()).map(move |bits| {
        let mut set = PageSet::EMPTY;
        for (rank, page) in pages.iter().enumerate() {
            if bits >> rank & 1 != 0 {
                set.insert(page);
            }
        }
        set
    })
}

/// Every world: each slot gets each fragment, one behind the last, a foreign one, a short one, none
/// at all, in each order of the slots or in theirs; and each set of pages is said to be sent.
fn every_world(len_bytes: u32, pages: PageSet, is_any_order: bool) -> usize {
    let mut worlds = 0;
    let count = World::new(len_bytes, pages).cells.len();
    let mut kinds: Vec<Event> = (0..=count as u16).map(Event::Fragment).collect();
    kinds.extend([Event::OtherTag(0), Event::OtherLen(0, -1), Event::Unused]);
    let mut run = |order: &[u8]| {
        for number in 0..kinds.len().pow(count as u32) {
            let mut world = World::new(len_bytes, pages);
            let mut number = number;
            for slot in order {
                world.take(*slot, kinds[number % kinds.len()]);
                number /= kinds.len();
            }
            for sent in subsets(pages) {
                let same = World {
                    reassembly: world.reassembly.clone(),
                    cells: world.cells.clone(),
                    arrived: world.arrived.clone(),
                    ..World::new(len_bytes, pages)
                };
                same.settle(sent);
                worlds += 1;
            }
        }
    };
    if is_any_order {
        orders(count, &mut run);
    } else {
        run(&(0..count as u8).collect::<Vec<_>>());
    }
    worlds
}

#[test]
fn no_page_is_complete_that_does_not_hold_its_bytes() {
    let gaps = |pages: &[u8]| {
        let mut set = PageSet::EMPTY;
        pages.iter().for_each(|page| set.insert(*page));
        set
    };
    assert_eq!(every_world(4096, gaps(&[7]), true), 5 * 2);
    assert_eq!(every_world(4096, gaps(&[0, 255]), true), 2 * 36 * 4);
    assert_eq!(every_world(4096, gaps(&[3, 64, 65]), true), 6 * 343 * 8);
    assert_eq!(every_world(4096, gaps(&[0, 1, 2, 3]), false), 4096 * 16);
    assert_eq!(every_world(2048, gaps(&[9]), true), 2 * 36 * 2);
    assert_eq!(every_world(2048, gaps(&[9, 200]), true), 24 * 4096 * 4);
    assert_eq!(every_world(1024, gaps(&[100]), true), 24 * 4096 * 2);
}

#[test]
fn five_fragments_in_every_order_with_every_loss_and_repetition() {
    let pages = PageSet::range(10, 5);
    let mut arrivals = 0;
    for number in 0..6usize.pow(5) {
        let mut world = World::new(4096, pages);
        let mut number = number;
        for slot in 0..5 {
            let fragment = (number % 6) as u16;
            number /= 6;
            if fragment < 5 {
                world.take(slot, Event::Fragment(fragment));
            } else {
                world.take(slot, Event::Unused);
            }
        }
        let world = world.settle(pages);
        let complete = world.arrived.iter().filter(|a| **a).count();
        assert!(world.moves <= complete + complete / 2, "no needless copies");
        arrivals += 1;
    }
    assert_eq!(arrivals, 7776);
}

#[test]
fn without_loss_nothing_is_copied() {
    for len in [256, 512, 1024, 2048, 4096] {
        let pages = PageSet::range(0, FragmentLen::new(len).unwrap().pages_max());
        let mut world = World::new(len, pages);
        for slot in 0..=255 {
            assert_eq!(world.reassembly.settle(pages), None, "a slot is posted");
            assert_eq!(world.reassembly.next_move(), None);
            world.take(slot, Event::Fragment(slot.into()));
        }
        assert_eq!(world.reassembly.whole(), pages);
        assert_eq!(world.settle(pages).moves, 0);
    }
}

#[test]
fn the_loss_of_each_fragment_costs_its_page_only() {
    for len in [1024, 4096] {
        let per_page = FragmentLen::new(len).unwrap().per_page();
        let pages = PageSet::range(0, 256 / per_page);
        for lost in 0..=255u16 {
            let mut world = World::new(len, pages);
            let arriving = (0..=255).filter(|fragment| *fragment != lost);
            for (slot, fragment) in (0..255).zip(arriving) {
                world.take(slot, Event::Fragment(fragment));
            }
            let hole = lost as usize / per_page;
            let whole = pages.difference(PageSet::range(hole as u8, 1));
            assert_eq!(world.reassembly.whole(), whole);
            // Each fragment behind the lost one, but for those of its page, moves by one place.
            let behind = 255 - lost as usize;
            let of_page = (hole + 1) * per_page - 1 - lost as usize;
            assert_eq!(world.settle(pages).moves, behind - of_page);
        }
    }
}

#[test]
fn what_was_not_sent_is_not_complete() {
    let pages = PageSet::range(0, 4);
    for sent in subsets(pages) {
        let mut world = World::new(4096, pages);
        for slot in 0..4 {
            world.take(slot, Event::Fragment(3 - u16::from(slot)));
        }
        world.settle(sent);
    }
}

#[test]
fn a_slot_that_is_not_there_changes_nothing() {
    let mut world = World::new(4096, PageSet::range(0, 2));
    let before = world.reassembly.clone();
    assert_eq!(
        world.reassembly.received(2, Some(0x1234_0000), 4096),
        Arrival::NoSlot
    );
    assert_eq!(world.reassembly, before);
}

#[test]
fn too_many_fragments_have_no_reassembly() {
    let len = FragmentLen::new(2048).unwrap();
    assert!(Reassembly::new(TAG, len, PageSet::range(0, 128)).is_some());
    assert!(Reassembly::new(TAG, len, PageSet::range(0, 129)).is_none());
}

/// A datagram that tends to be of use.
fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0u16..40).prop_map(Event::Fragment),
        1 => any::<u16>().prop_map(Event::Fragment),
        1 => (0u16..40).prop_map(Event::OtherTag),
        1 => (0u16..40, prop_oneof![Just(-1), Just(1), Just(i32::MAX)])
            .prop_map(|(index, more)| Event::OtherLen(index, more)),
        1 => Just(Event::NoImm),
        1 => Just(Event::Unused),
    ]
}

proptest! {
    #[test]
    fn pages_hold_their_bytes_after_any_arrivals(
        pages in prop::collection::btree_set(any::<u8>(), 1..=8),
        log in 10u32..=12,
        events in prop::collection::vec((any::<prop::sample::Index>(), event()), 32),
        sent: [u64; 4],
    ) {
        let mut set = PageSet::EMPTY;
        pages.iter().for_each(|page| set.insert(*page));
        let mut world = World::new(1 << log, set);
        let mut free: Vec<u8> = (0..world.cells.len() as u8).collect();
        for (slot, event) in events {
            if !free.is_empty() {
                let slot = free.remove(slot.index(free.len()));
                world.take(slot, event);
            }
        }
        world.settle(PageSet::from_words(sent));
    }
}
