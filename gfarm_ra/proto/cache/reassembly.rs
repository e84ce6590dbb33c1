// SPDX-License-Identifier: GPL-2.0

//! Tells which fragments have arrived, where they are in memory, and how each comes to its place.
//!
//! A queue pair gives the datagrams that arrive to its receives in the order in which these were
//! posted. Receive i, called *slot* i, is laid over the place of fragment i. So as long as no
//! fragment is lost, repeated or overtaken, each arrives at its place, and nothing is copied. After
//! one of these, the fragments behind it are in slots of others. Their immediates tell which they
//! are, and when no slot can change any more they are moved.
//!
//! A fragment counts once, if it has the length and the tag of the request and one of its numbers.
//! What else arrives uses a slot up, and is of no other effect: the fragment of the slot is
//! possibly lost for it, never replaced.

use super::{
    fragment::{
        FragmentId,
        FragmentLen,
        FRAGMENTS_MAX, //
    },
    pages::{
        PageSet,
        PAGES, //
    }, //
};

// A `u8` numbers all slots, and all fragments.
const _: () = assert!(FRAGMENTS_MAX == 1 << u8::BITS);

/// A set of slots, or of fragments: of numbers of the range that pages have.
type Numbers = PageSet;

/// The content of the memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// The slot is posted: the device may write to it.
    Posted,
    /// The slot has nothing of use.
    Empty,
    /// A fragment.
    Holds(u8),
}

/// A datagram that has used a slot up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// A fragment of the request.
    New,
    /// A fragment that is there already.
    Repeated,
    /// The message is no fragment of the request.
    Foreign,
    /// The slot does not exist, or was used up before: the driver is wrong.
    NoSlot,
}

/// A place in memory that has room for a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The place of the fragment with this number.
    Slot(u8),
    /// A buffer outside the pages.
    Spare,
}

/// A copy of one fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The place of the fragment.
    pub from: Place,
    /// The place to which it is moved; nothing of use is there.
    pub to: Place,
}

/// The fragments of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassembly {
    tag: u16,
    fragment_len: FragmentLen,
    pages: PageSet,
    /// The number of fragments, and of slots; those behind are `Empty`.
    count: usize,
    /// The slots that are `Posted`, and their number.
    posted: Numbers,
    posted_count: usize,
    /// The slots that hold a fragment, and which one each of them holds; 0 before the first.
    holding: Numbers,
    contents: [u8; FRAGMENTS_MAX],
    /// The fragments that have arrived, and the slot of each.
    found: Numbers,
    places: [u8; FRAGMENTS_MAX],
    /// The number of fragments of each page that have arrived, by the page's rank.
    arrived: [u8; PAGES],
    /// The pages of which all have.
    whole: PageSet,
    /// The next step of the search for a fragment to move; behind `2 * count` there is none.
    scan: usize,
    /// All fragments that have arrived are at their places.
    is_in_order: bool,
    /// A slot that became empty by the last move.
    hole: Option<u8>,
    /// The fragment in the spare buffer.
    spare: Option<u8>,
}

impl Reassembly {
    /// Makes one without a request.
    pub const fn idle(fragment_len: FragmentLen) -> Self {
        Self {
            tag: 0,
            fragment_len,
            pages: PageSet::EMPTY,
            count: 0,
            posted: Numbers::EMPTY,
            posted_count: 0,
            holding: Numbers::EMPTY,
            contents: [0; FRAGMENTS_MAX],
            found: Numbers::EMPTY,
            places: [0; FRAGMENTS_MAX],
            arrived: [0; PAGES],
            whole: PageSet::EMPTY,
            scan: 0,
            is_in_order: true,
            hole: None,
            spare: None,
        }
    }

    /// Starts for a request, see [`restart`](Self::restart); `None` if there are too many
    /// fragments.
    pub fn new(tag: u16, fragment_len: FragmentLen, pages: PageSet) -> Option<Self> {
        let mut this = Self::idle(fragment_len);
        this.restart(tag, pages).then_some(this)
    }

    /// Starts for a request with this tag for these pages, with a slot for each fragment posted;
    /// `false` if there are too many. It is large, so it begins anew where it is: a worker of the
    /// kernel has 16 KiB of stack.
    pub fn restart(&mut self, tag: u16, pages: PageSet) -> bool {
        let Some(count) = self.fragment_len.count(pages) else {
            return false;
        };
        (self.tag, self.pages, self.count) = (tag, pages, count);
        (self.posted, self.posted_count) = (Numbers::range(0, count), count);
        (self.holding, self.found) = (Numbers::EMPTY, Numbers::EMPTY);
        self.contents.fill(0);
        self.places.fill(0);
        self.arrived.fill(0);
        (self.whole, self.scan, self.is_in_order) = (PageSet::EMPTY, 0, true);
        (self.hole, self.spare) = (None, None);
        true
    }

    /// Returns the number of slots, and of fragments.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Takes the completion of a slot's receive. `imm` is the datagram's immediate, if it has one,
    /// `len_bytes` the length of what is behind the global header.
    pub fn received(&mut self, slot: u8, imm: Option<u32>, len_bytes: u32) -> Arrival {
        if !self.use_up(slot) {
            return Arrival::NoSlot;
        }
        let Some(fragment) = self.fragment(imm, len_bytes) else {
            return Arrival::Foreign;
        };
        if self.found.contains(fragment) {
            return Arrival::Repeated;
        }
        self.find(fragment, slot);
        self.is_in_order &= slot == fragment;
        self.put(slot, fragment);
        self.note(fragment);
        Arrival::New
    }

    /// Takes note that the device writes to no slot any more: the queue pair was stopped.
    pub fn stopped(&mut self) {
        (self.posted, self.posted_count) = (Numbers::EMPTY, 0);
    }

    /// Returns the pages of which all fragments have arrived. They are not at their places yet, and
    /// no page is complete before the peer has said that it has sent it.
    pub const fn whole(&self) -> PageSet {
        self.whole
    }

    /// Returns whether all slots have been used up: the device writes to none.
    pub const fn is_idle(&self) -> bool {
        self.posted_count == 0
    }

    /// Ends the transfer: returns which of the pages that the peer has sent are complete, once all
    /// moves of [`next_move`](Self::next_move) are done. Returns `None` while a slot is posted.
    pub fn settle(&mut self, sent: PageSet) -> Option<PageSet> {
        if !self.is_idle() {
            return None;
        }
        let complete = self.whole.intersection(sent);
        self.forget(complete);
        self.whole = complete;
        Some(complete)
    }

    /// Returns the next copy to make, after [`settle`](Self::settle). It takes effect before the
    /// next one.
    pub fn next_move(&mut self) -> Option<Move> {
        if !self.is_idle() || self.is_in_order {
            return None;
        }
        loop {
            if let Some(fill) = self.hole.take().and_then(|hole| self.fill(hole)) {
                return Some(fill);
            }
            if let Some(save) = self.search()? {
                return Some(save);
            }
        }
    }

    fn use_up(&mut self, slot: u8) -> bool {
        let is_posted = self.posted.contains(slot);
        if is_posted {
            self.posted.remove(slot);
            self.posted_count = self.posted_count.saturating_sub(1);
        }
        is_posted
    }

    fn slot(&self, slot: u8) -> Slot {
        if self.posted.contains(slot) {
            return Slot::Posted;
        }
        let content = self.contents.get(usize::from(slot)).copied();
        match content.filter(|_| self.holding.contains(slot)) {
            Some(fragment) => Slot::Holds(fragment),
            None => Slot::Empty,
        }
    }

    /// Notes that a slot, which is not posted, holds a fragment.
    fn put(&mut self, slot: u8, fragment: u8) {
        if let Some(content) = self.contents.get_mut(usize::from(slot)) {
            *content = fragment;
            self.holding.insert(slot);
        }
    }

    /// Notes where a fragment is.
    fn find(&mut self, fragment: u8, slot: u8) {
        if let Some(place) = self.places.get_mut(usize::from(fragment)) {
            *place = slot;
            self.found.insert(fragment);
        }
    }

    /// Returns the slot of a fragment that has arrived.
    fn place(&self, fragment: u8) -> Option<u8> {
        let place = self.places.get(usize::from(fragment)).copied();
        place.filter(|_| self.found.contains(fragment))
    }

    /// Returns the number of the fragment that a datagram is.
    fn fragment(&self, imm: Option<u32>, len_bytes: u32) -> Option<u8> {
        let id = FragmentId::from_imm(imm?);
        let is_ours = id.tag == self.tag
            && usize::from(id.index) < self.count
            && len_bytes == self.fragment_len.bytes();
        is_ours.then_some(id.index)?.try_into().ok()
    }

    /// Counts a new fragment.
    fn note(&mut self, fragment: u8) {
        let per_page = self.fragment_len.per_page();
        let rank = usize::from(fragment).checked_div(per_page).unwrap_or(0);
        let Some(arrived) = self.arrived.get_mut(rank) else {
            return;
        };
        *arrived = arrived.saturating_add(1);
        if usize::from(*arrived) == per_page {
            if let Some(page) = self.pages.nth(rank) {
                self.whole.insert(page);
            }
        }
    }

    /// Forgets the fragments of all pages but these.
    fn forget(&mut self, but: PageSet) {
        for (rank, page) in (0..PAGES).zip(self.pages.iter()) {
            if but.contains(page) {
                continue;
            }
            for fragment in self.fragment_len.of_page(rank) {
                let fragment = u8::try_from(fragment).ok();
                let place = fragment.and_then(|fragment| Some((fragment, self.place(fragment)?)));
                if let Some((fragment, slot)) = place {
                    self.found.remove(fragment);
                    self.holding.remove(slot);
                }
            }
        }
    }

    /// Moves the fragment of an empty slot there, if there is one: its own slot is the next hole.
    fn fill(&mut self, hole: u8) -> Option<Move> {
        let to = Place::Slot(hole);
        if self.spare == Some(hole) {
            self.spare = None;
            self.put(hole, hole);
            let from = Place::Spare;
            return Some(Move { from, to });
        }
        let slot = self.place(hole).filter(|slot| *slot != hole)?;
        self.find(hole, hole);
        self.put(hole, hole);
        self.holding.remove(slot);
        self.hole = Some(slot);
        let from = Place::Slot(slot);
        Some(Move { from, to })
    }

    /// Takes the next step of the search. First all slots are looked at that are empty: fragments
    /// move towards them. What is at a wrong place then is part of a circle of such, which a move
    /// to the spare buffer opens. Returns `None` when there is no further step.
    fn search(&mut self) -> Option<Option<Move>> {
        let is_first = self.scan < self.count;
        let slot = if is_first {
            self.scan
        } else {
            self.scan.wrapping_sub(self.count)
        };
        if slot >= self.count {
            return None;
        }
        self.scan = self.scan.wrapping_add(1);
        let slot = u8::try_from(slot).ok()?;
        match self.slot(slot) {
            Slot::Empty if is_first => self.hole = Some(slot),
            Slot::Holds(fragment) if !is_first && fragment != slot => {
                self.spare = Some(fragment);
                self.holding.remove(slot);
                self.hole = Some(slot);
                let from = Place::Slot(slot);
                let to = Place::Spare;
                return Some(Some(Move { from, to }));
            }
            _ => {}
        }
        Some(None)
    }
}
