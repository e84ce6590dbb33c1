// SPDX-License-Identifier: GPL-2.0

//! Members that lose what they have, and do not say so.

use rnbd_ec::proto::{
    array::{
        Looked,
        NotNow,
        Repair, //
    },
    budget::REPAIRS_MAX,
};
use seglog::{
    members::{
        member_of,
        Members, //
    },
    record::Spot,
    source, //
};

use super::{
    Crc,
    Life, //
};
use crate::member::SECTOR;

impl Life {
    /// A segment is lost on all members: nothing in it can be read again, and the disk, full, is
    /// written nevertheless. A member that fails then, and returns, is in sync again.
    pub(crate) fn run_with_damage(mut self) {
        self.fill();
        let lost = self.random.below(8) as u32;
        let at = self.array.layout().segment(lost);
        let zeroes = vec![0; self.array.layout().segment_bytes() as usize];
        for member in &mut self.members {
            member.write(at, &zeroes, true);
        }
        for step in 0..self.setting.steps {
            self.step = step;
            self.write();
            self.settle();
            self.drain();
        }
        self.array.fail(1);
        self.settle();
        self.drain();
        self.heal();
    }

    /// Damages, in each batch of some segments, something of two members, at different places: each
    /// block is read, and the segments are repaired, as no record has lost both ways to it.
    pub(crate) fn run_with_two_damages(mut self, are_errors: bool) {
        self.fill();
        let layout = *self.array.layout();
        let mut damages = 0;
        for first in (0..self.blocks() - 15).step_by(16) {
            let spots = [0, 4, 8, 12].map(|n| self.spot_of(first + n));
            let pairs = spots
                .iter()
                .flat_map(|one| spots.iter().map(move |other| (one, other)));
            let is_apart = |(one, other): &(&Spot, &Spot)| {
                (one.column, other.column) == (0, 1)
                    && one.segment == other.segment
                    && one.offset + one.bytes as u64 <= other.offset
            };
            let pair = pairs.filter(|(one, _)| one.segment < 3).find(is_apart);
            for spot in pair.iter().flat_map(|(one, other)| [one, other]) {
                damages += 1;
                let middle = source::at(spot, &layout) + spot.bytes as u64 / 2;
                let at = middle / SECTOR as u64 * SECTOR as u64;
                let member = &mut self.members[member_of(spot.segment, spot.column)];
                if are_errors {
                    member.spoil(at);
                } else {
                    member.write(at, &[0xa5; SECTOR], true);
                }
            }
        }
        assert!(damages > 8, "{}: {damages} damages", self.label());
        let mut now_ms = 0;
        let mut moved = |life: &mut Self| {
            now_ms += 60_000;
            let mut each = 0..life.blocks();
            each.any(|block| {
                let is_damaged = life.spot_of(block).segment < 3;
                is_damaged && life.repair(block, now_ms) == Repair::Begun
            })
        };
        while moved(&mut self) {
            for _ in 0..60 {
                self.collect();
                self.settle();
                self.end_any();
            }
            self.drain();
        }
        for block in 0..self.blocks() {
            let (found, current) = (
                self.read_now(block),
                self.history.blocks[block as usize].current,
            );
            assert_eq!(found, Ok(current), "{}: block {block}", self.label());
        }
        self.check_redundancy();
    }

    /// A member goes on to give something else, always: what is read is written again, so many
    /// segments a minute at most.
    pub(crate) fn run_with_a_liar(mut self) {
        self.fill();
        for minute in 1..4 {
            let (mut begun, mut told) = (0, 0);
            for n in 0..20 * self.blocks() {
                match self.repair(n % self.blocks(), minute * 60_000 + n % 1000) {
                    Repair::Begun => begun += 1,
                    Repair::PutOff(exhausted) => told += u32::from(exhausted.is_new),
                    Repair::Nothing => {}
                }
                self.collect();
                self.settle();
                self.end_any();
            }
            assert_eq!((begun, told), (REPAIRS_MAX, 1), "{}", self.label());
        }
    }

    /// A segment is repaired once, however often its damage is seen meanwhile; and so is the one
    /// that is still written, when the log has left it.
    pub(crate) fn run_with_damage_seen_again(mut self) {
        self.fill();
        let first = self.spot_of(0).segment;
        assert_eq!(self.repair(0, 0), Repair::Begun);
        assert_eq!(self.repair(0, 0), Repair::Nothing, "it waits");
        self.collect();
        assert_eq!(self.is_repairing(), Some(true));
        assert_eq!(self.repair(0, 0), Repair::Nothing, "it is collected");
        self.end_collecting();
        assert_ne!(self.spot_of(0).segment, first, "block 0 is where it was");
        self.drain();
        self.write_at(1, 1, false);
        self.settle();
        self.drain();
        let last = self.spot_of(1).segment;
        assert_eq!(self.repair(1, 0), Repair::Begun);
        // What is written fills it, so that nothing is gained by collecting it.
        for start in (16..self.blocks()).step_by(16) {
            self.write_at(start, 16, false);
            self.settle();
            self.drain();
            if self.spot_of(start).segment != last {
                break;
            }
        }
        self.collect();
        self.end_collecting();
        assert_ne!(self.spot_of(1).segment, last, "block 1 is where it was");
    }

    /// Whether the segment that is collected is one that is repaired.
    fn is_repairing(&self) -> Option<bool> {
        let collecting = self.collecting.as_ref()?;
        Some(collecting.victim.is_repaired())
    }

    /// Goes on until the segment that is collected has been.
    fn end_collecting(&mut self) {
        while self.collecting.is_some() {
            self.collect();
            self.settle();
            self.end_any();
        }
        self.drain();
    }

    pub(super) fn spot_of(&mut self, block: u64) -> Spot {
        let Looked::Found(found) = self.array.begin_read(block, 1) else {
            panic!("{}: block {block}", self.label());
        };
        self.array.end_read(&found);
        found.spot
    }

    /// A member did not give a block.
    pub(super) fn repair(&mut self, block: u64, now_ms: u64) -> Repair {
        let Looked::Found(found) = self.array.begin_read(block, 1) else {
            panic!("{}: block {block}", self.label());
        };
        let repair = self.array.repair(&found, now_ms);
        self.array.end_read(&found);
        repair
    }

    /// One block is written again and again, so that a segment has it at the same places in each of
    /// its uses. Members lose their caches, and no flush has told so yet.
    pub(crate) fn run_with_lost_caches(mut self) {
        for step in 0..self.setting.steps {
            self.step = step;
            self.write_at(0, 1, false);
            self.settle();
            self.drain();
            let member = self.random.below(3) as usize;
            let mut cache = Default::default();
            self.members[member].exchange_cache(&mut cache);
            let found = self.read_now(0);
            let current = self.history.blocks[0].current;
            assert_eq!(found, Ok(current), "{}", self.label());
            self.members[member].exchange_cache(&mut cache);
        }
    }

    /// A member is taken away by hand: no other one can be, and neither it, nor what is new in its
    /// place, returns before it may.
    pub(crate) fn run_with_a_member_taken_away(mut self, is_new: bool) {
        self.fill();
        let silent = NotNow::Silent(2, 1001);
        assert_eq!(self.array.take_away(1, [0, 0, 1001]), Err(silent));
        assert_eq!(self.array.live(), Members::ALL);
        let Looked::Found(found) = self.array.begin_read(0, 1) else {
            panic!("{}: block 0", self.label());
        };
        assert!(self.array.may_still_ask(&found));
        assert_eq!(self.array.take_away(1, [1000, 9999, 1000]), Ok(()));
        // It is away already: no epoch is needed.
        assert_eq!(self.array.take_away(1, [0, 0, 1001]), Ok(()));
        assert_eq!(self.array.take_away(0, [0; 3]), Err(NotNow::Stopped));
        assert!(!self.array.may_still_ask(&found), "member 1 is away");
        self.array.end_read(&found);
        self.settle();
        self.drain();
        assert_eq!(self.array.live(), Members::ALL.minus(Members::of(1)));
        self.write_at(0, 1, false);
        self.settle();
        self.drain();
        self.prepare_return(1, is_new);
        let own = self.superblock(1);
        let taken = self.act(|array, acting| array.take_back((own, 0), acting, &Crc));
        assert_eq!(taken, Err(NotNow::KeptOut));
        let taken = self.act(|array, acting| array.take_back((own, 1), acting, &Crc));
        assert_eq!(taken, Err(NotNow::Ios(1)), "a read from before");
        assert_eq!(self.array.replacement(1, (7, 1)), Err(NotNow::Ios(1)));
        let taken = self.act(|array, acting| array.take_new((own, 1), acting, &Crc));
        assert_eq!(taken, Err(NotNow::Ios(1)));
        assert_eq!(self.array.kept_out(), Some(1), "not done: it is kept out");
        if is_new {
            let taken = self.act(|array, acting| array.take_new((own, 0), acting, &Crc));
            assert_eq!(taken, Ok(()));
            assert_eq!(self.array.kept_out(), None);
        }
        self.array.release();
        self.heal();
        assert_eq!(self.array.kept_out(), None);
        self.check_redundancy();
    }

    /// A member is missing, and another one does not give what was written: what the third one has
    /// a copy of is not moved to where the other one alone has it.
    pub(crate) fn run_degraded_with_a_liar(mut self) {
        self.array.fail(1);
        self.settle();
        self.drain();
        for block in 0..self.blocks() {
            self.write_at(block, 1, false);
            self.settle();
            self.drain();
        }
        for _ in 0..2000 {
            self.collect();
            self.settle();
            self.end_any();
        }
        let before = self.without(0);
        for block in 0..self.blocks() {
            if let Looked::Found(found) = self.array.begin_read(block, 1) {
                if found.spot.copy.is_some() {
                    self.array.repair(&found, u64::from(self.step) * 1000);
                }
                self.array.end_read(&found);
            }
            for _ in 0..40 {
                self.collect();
                self.settle();
                self.end_any();
            }
            self.drain();
        }
        assert!(before > 0, "no copies");
        assert_eq!(self.without(0), before, "{}", self.label());
    }

    /// Returns the blocks that can be read without a member.
    fn without(&mut self, member: usize) -> usize {
        let mut count = 0;
        for block in 0..self.blocks() {
            if let Looked::Found(found) = self.array.begin_read(block, 1) {
                let usable = found.usable.minus(Members::of(member));
                count += usize::from(source::sources(&found.spot, usable).next().is_some());
                self.array.end_read(&found);
            }
        }
        count
    }
}
