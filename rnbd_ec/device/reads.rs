// SPDX-License-Identifier: GPL-2.0

//! Reads: a piece for each record that a request needs, by the ways that there are to it.

mod answers;
mod late;

use self::answers::kind_of;
use block_ext::{
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    ratelimit::RateLimit,
    sync::atomic::Ordering::Relaxed, //
};
use seglog::{
    layout::Layout,
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    reading::record_bytes,
    source::{
        self,
        span,
        Source, //
    },
};

use super::{
    core::{
        Core,
        Event, //
    },
    engine::{
        blocks,
        Engine, //
    },
    stats::Stat,
    submit::Operation,
    tags::{
        Tags,
        DEPTH, //
    },
};
use crate::proto::{
    array::{
        Found,
        Looked, //
    },
    asking::Asking,
    codec::plain_bytes,
    geometry::UNIT_BYTES, //
};

/// The pieces in flight at a time.
const PIECES: usize = 96;
/// The most of these that may be on their way to a member: one that hangs does not take them all.
const PARTS_MAX: u32 = 32;
const _: () = assert!(PARTS_MAX as usize * MEMBERS <= PIECES);
/// Most times that a request is looked up anew, as what it reads has moved.
const ROUNDS_MAX: u8 = 8;

static LOG_LIMIT: RateLimit = RateLimit::new(5000, 10);

/// A request that is read.
#[derive(Clone, Copy, Default)]
struct Reading {
    /// The blocks that were looked up.
    next: u32,
    /// Pieces that have not ended.
    pieces: u32,
    /// Whether it is in the queue of those that wait for a piece: it is there once, and is looked
    /// up when it leaves.
    is_waiting: bool,
    rounds: u8,
    /// Whether it is looked up again when all pieces have ended: a record has moved, or a member is
    /// slow or has failed.
    is_moved: bool,
    /// Members that are slow: the others are read if that is possible.
    asking: Asking,
    has_failed: bool,
}

/// A piece of a request: blocks of one record.
#[derive(Clone, Copy)]
struct Piece {
    tag: usize,
    found: Found,
    /// First block of the request that it reads.
    at: u32,
    /// The ways that were tried, this one included.
    tried: usize,
    /// Whether it is rebuilt first, as `recover_every_n` asks for it.
    is_triggered: bool,
    /// The members whose parts have not ended, and whether one has failed.
    pending: Members,
    has_failed: bool,
    /// A member has failed that was to answer: its request is looked up again, and what comes of
    /// this is not used.
    is_given_up: bool,
    way: Source,
    begun_ms: u64,
}

/// The reads of an array.
pub(super) struct Reads {
    readings: KVec<Reading>,
    pieces: KVec<Option<Piece>>,
    /// Pages that members are read to: for each piece two.
    pages: KVec<[Arc<PageBlock>; DATA_COLUMNS]>,
    /// Requests that wait for a piece.
    waiting: Tags,
    /// A record, what rebuilds it, and its blocks.
    record: KVec<u8>,
    other: KVec<u8>,
    plain: KVec<u8>,
    /// Records that were read, for `recover_every_n`.
    count: u32,
    /// The parts of pieces that members have not answered.
    parts: [u32; MEMBERS],
}

impl Reads {
    /// Allocates all memory. Sleeps.
    pub(super) fn new(layout: &Layout) -> Result<Self> {
        let bytes = record_bytes(layout);
        let order = PageBlock::order_for(bytes);
        let page = || -> Result<_> { Ok(Arc::new(PageBlock::new(order)?, GFP_KERNEL)?) };
        let mut pieces = KVec::with_capacity(PIECES, GFP_KERNEL)?;
        let mut pages = KVec::with_capacity(PIECES, GFP_KERNEL)?;
        for _ in 0..PIECES {
            pieces.push(None, GFP_KERNEL)?;
            pages.push([page()?, page()?], GFP_KERNEL)?;
        }
        Ok(Self {
            readings: KVec::from_elem(Reading::default(), DEPTH, GFP_KERNEL)?,
            pieces,
            pages,
            waiting: Tags::NONE,
            record: KVec::from_elem(0, bytes, GFP_KERNEL)?,
            other: KVec::from_elem(0, bytes, GFP_KERNEL)?,
            plain: KVec::from_elem(0, UNIT_BYTES, GFP_KERNEL)?,
            count: 0,
            parts: [0; MEMBERS],
        })
    }

    /// Whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.pieces.iter().all(Option::is_none)
    }

    /// Returns how many reads a member has not answered.
    pub(super) fn parts(&self, member: usize) -> u32 {
        self.parts.get(member).copied().unwrap_or_default()
    }

    /// Whether all members of a way have room for one more read.
    fn has_room(&self, way: Source) -> bool {
        members_of(way)
            .iter()
            .all(|member| self.parts(member) < PARTS_MAX)
    }

    fn reading(&mut self, tag: usize) -> Option<&mut Reading> {
        self.readings.get_mut(tag)
    }

    /// Notes that so many blocks more of a request were looked up.
    fn advance(&mut self, tag: usize, blocks: u32) {
        if let Some(reading) = self.readings.get_mut(tag) {
            reading.next = reading.next.saturating_add(blocks);
        }
    }

    /// A request waits for a piece. Until it is looked up again it is not ended.
    fn wait(&mut self, tag: usize) {
        if let Some(reading) = self.readings.get_mut(tag) {
            if !reading.is_waiting {
                reading.is_waiting = true;
                self.waiting.push(tag);
            }
        }
    }
}

/// Returns the members that a way reads.
fn members_of(way: Source) -> Members {
    match way {
        Source::Member(member) => Members::of(member),
        Source::Rebuild(members) => members.into_iter().collect(),
    }
}

/// Returns the ways to a piece, in the order in which they are tried.
fn nth_way(piece: &Piece) -> Option<Source> {
    let mut ways = source::sources(&piece.found.spot, piece.found.usable);
    if piece.is_triggered {
        // The last one rebuilds it; then the others.
        let count = ways.count();
        let place = match piece.tried {
            0 => count.checked_sub(1)?,
            tried => tried
                .checked_sub(1)
                .filter(|place| place.saturating_add(1) < count)?,
        };
        let mut ways = source::sources(&piece.found.spot, piece.found.usable);
        return ways.nth(place);
    }
    ways.nth(piece.tried)
}

impl Engine {
    /// Begins a read.
    pub(super) fn begin_read(&mut self, core: &Arc<Core>, tag: usize) {
        let Some(request) = self.requests.get(tag) else {
            return;
        };
        if let Err(error) = request.map_sg() {
            self.requests.end(tag, Err(error));
            return;
        }
        if let Some(reading) = self.reads.reading(tag) {
            *reading = Reading::default();
        }
        self.look_up(core, tag);
    }

    /// Goes on with the reads that wait for a piece.
    pub(super) fn go_on_with_reads(&mut self, core: &Arc<Core>) {
        for tag in self.reads.waiting.take_all() {
            if let Some(reading) = self.reads.reading(tag) {
                reading.is_waiting = false;
            }
            self.look_up(core, tag);
        }
    }

    /// Begins the pieces of a request, as many as there is room for, and ends it if all have ended.
    fn look_up(&mut self, core: &Arc<Core>, tag: usize) {
        let Some(request) = self.requests.get(tag) else {
            return;
        };
        let (first, count) = blocks(request);
        loop {
            let Some(reading) = self.reads.reading(tag).copied() else {
                return;
            };
            let left = count.saturating_sub(reading.next);
            if left == 0 || reading.is_moved || reading.has_failed {
                break;
            }
            let Some(free) = self.reads.pieces.iter().position(Option::is_none) else {
                return self.reads.wait(tag);
            };
            let index = first.saturating_add(reading.next.into());
            let done = match self.array.begin_read(index, left) {
                Looked::Zeroes(zeroes) => self.fill(tag, reading.next, zeroes),
                Looked::Found(found) => {
                    let found = self.reads.choose(tag, found);
                    let first = source::sources(&found.spot, found.usable).next();
                    if first.is_some_and(|way| !self.reads.has_room(way)) {
                        self.array.end_read(&found);
                        return self.reads.wait(tag);
                    }
                    // Before it begins: if it ended at once, the request might be looked up anew.
                    self.reads.advance(tag, found.count);
                    self.begin_piece(core, free, (tag, reading.next), found);
                    continue;
                }
                Looked::Malformed => self.lose(core, tag, index),
            };
            self.reads.advance(tag, done);
        }
        self.end_read(core, tag);
    }

    /// Fills blocks of a request with zeroes; returns how many.
    fn fill(&mut self, tag: usize, at: u32, count: u32) -> u32 {
        self.reads.plain.fill(0);
        let unit = (UNIT_BYTES / plain_bytes(1)) as u32;
        let mut done = 0;
        while done < count {
            let now = unit.min(count.saturating_sub(done));
            let from = self.reads.plain.get(..plain_bytes(now)).unwrap_or_default();
            if let Some(request) = self.requests.get(tag) {
                let to = plain_bytes(at.saturating_add(done));
                let _ = request.sg_mut().copy_in(to, from);
            }
            done = done.saturating_add(now);
        }
        count
    }

    #[cold]
    fn lose(&mut self, core: &Arc<Core>, tag: usize, index: u64) -> u32 {
        core.stats.add(Stat::LostReads, 1);
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "{}: block {index} cannot be read: no member that is there has it as it was \
                 written\n",
                core.name()
            );
        }
        if let Some(reading) = self.reads.reading(tag) {
            reading.has_failed = true;
        }
        1
    }

    fn begin_piece(
        &mut self,
        core: &Arc<Core>,
        number: usize,
        (tag, at): (usize, u32),
        found: Found,
    ) {
        Core::note_read(core);
        let every_n = core.recover_every_n.load(Relaxed);
        self.reads.count = self.reads.count.wrapping_add(1);
        let is_nth = self.reads.count.checked_rem(every_n) == Some(0);
        let is_triggered = is_nth && found.spot.copy.is_none();
        if let Some(reading) = self.reads.reading(tag) {
            reading.pieces = reading.pieces.saturating_add(1);
        }
        let piece = Piece {
            tag,
            found,
            at,
            tried: 0,
            is_triggered,
            pending: Members::NONE,
            has_failed: false,
            is_given_up: false,
            way: Source::Member(0),
            begun_ms: core.now_ms(),
        };
        self.try_next_way(core, number, piece);
    }

    /// Reads a piece by the next way, or ends it if there is none.
    fn try_next_way(&mut self, core: &Arc<Core>, number: usize, mut piece: Piece) {
        if !self.array.may_still_ask(&piece.found) {
            if let Some(reading) = self.reads.reading(piece.tag) {
                reading.is_moved = true;
            }
            return self.end_piece(core, number, &piece);
        }
        let Some(way) = nth_way(&piece) else {
            if self.array.is_current(&piece.found) {
                self.lose(core, piece.tag, piece.found.index);
            } else if let Some(reading) = self.reads.reading(piece.tag) {
                // It was written again, or those that are slow were not asked.
                reading.is_moved = true;
                reading.asking.wait_for_all();
            }
            self.end_piece(core, number, &piece);
            return;
        };
        piece.tried = piece.tried.saturating_add(1);
        piece.way = way;
        piece.has_failed = false;
        let members = match way {
            Source::Member(member) => [Some(member), None],
            Source::Rebuild([one, other]) => [Some(one), Some(other)],
        };
        piece.pending = members_of(way);
        if let Some(place) = self.reads.pieces.get_mut(number) {
            *place = Some(piece);
        }
        let layout = self.array.layout();
        let (start, _, len) = span(&piece.found.spot, layout);
        let Some(pages) = self.reads.pages.get(number) else {
            return;
        };
        for (member, pages) in members.into_iter().zip(pages) {
            let Some(member) = member else { continue };
            if let Some(parts) = self.reads.parts.get_mut(member) {
                *parts = parts.saturating_add(1);
            }
            let event = Event::Piece {
                piece: number,
                member,
            };
            let what = Operation {
                op: Op::Read,
                flags: Flags::SYNC,
                at: start,
                data: Some((pages.clone(), len)),
            };
            self.means.submit((member, event), what);
        }
    }

    /// A part of a piece was read.
    pub(super) fn piece_read(
        &mut self,
        core: &Arc<Core>,
        (number, member): (usize, usize),
        is_well: bool,
    ) {
        if let Some(parts) = self.reads.parts.get_mut(member) {
            *parts = parts.saturating_sub(1);
        }
        let Some(place) = self.reads.pieces.get_mut(number) else {
            return;
        };
        let Some(piece) = place else { return };
        piece.has_failed |= !is_well;
        piece.pending = piece.pending.minus(Members::of(member));
        if !piece.pending.is_empty() {
            return;
        }
        if piece.is_given_up {
            *place = None;
            return;
        }
        let piece = *piece;
        if !piece.has_failed && self.deliver(number, &piece).is_some() {
            core.stats.add(kind_of(&piece), 1);
            if piece.tried > 1 {
                self.repair(core, &piece.found);
            }
            self.end_piece(core, number, &piece);
            return;
        }
        if !piece.has_failed {
            core.stats.add(Stat::WrongReads, 1);
            if LOG_LIMIT.allow().is_some() {
                pr_warn!(
                    "{}: block {}: {:?} gave something else than was written, the others are \
                     asked\n",
                    core.name(),
                    piece.found.index,
                    piece.way
                );
            }
        }
        self.try_next_way(core, number, piece);
    }

    fn end_piece(&mut self, core: &Arc<Core>, number: usize, piece: &Piece) {
        self.array.end_read(&piece.found);
        if let Some(place) = self.reads.pieces.get_mut(number) {
            *place = None;
        }
        if let Some(reading) = self.reads.reading(piece.tag) {
            reading.pieces = reading.pieces.saturating_sub(1);
        }
        self.end_read(core, piece.tag);
    }

    /// Ends a read of which all pieces have ended, or looks it up again.
    fn end_read(&mut self, core: &Arc<Core>, tag: usize) {
        let Some(request) = self.requests.get(tag) else {
            return;
        };
        let (_, count) = blocks(request);
        let Some(reading) = self.reads.reading(tag) else {
            return;
        };
        if reading.pieces > 0 || reading.is_waiting {
            return;
        }
        let is_in_vain = reading.is_moved && reading.rounds > ROUNDS_MAX;
        if reading.has_failed || is_in_vain {
            return self.requests.end(tag, Err(EIO));
        }
        if reading.is_moved {
            *reading = Reading {
                rounds: reading.rounds.saturating_add(1),
                asking: reading.asking,
                ..Reading::default()
            };
            self.reads.wait(tag);
            return Core::kick(core);
        }
        if reading.next >= count {
            self.requests.end(tag, Ok(()));
        }
    }
}
