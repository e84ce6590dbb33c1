// SPDX-License-Identifier: GPL-2.0

//! Checks of what an assembly has left on members: a mistake shows here before another assembly
//! loses something for it.

use seglog::{
    batch::Head,
    members::{
        Members,
        MEMBERS, //
    },
    table::Dump, //
};

use crate::{
    disk::{
        layout,
        Bad,
        Disks,
        Member, //
    },
    truth::Batch,
    world::{
        Assembled,
        World, //
    },
};

/// The number of incarnations that an assembly leaves out which gives something up.
const GIVEN_UP: u64 = 1 << 16;

/// All pairs of members.
fn pairs(of: Members) -> impl Iterator<Item = Members> {
    let all = (0..MEMBERS).map(|member| Members::ALL.minus(Members::of(member)));
    all.filter(move |pair| pair.is_within(of))
}

impl Disks {
    /// Returns the heads of a batch, and of each member whether it has its column whole.
    fn heads(&self, batch: Batch) -> (Option<Head>, Members) {
        let (mut found, mut whole) = (None, Members::NONE);
        for (member, from) in self.0.iter().enumerate() {
            for (head, is_whole) in from.columns(member) {
                if head.bodies[0] == batch {
                    found = Some(head);
                    if is_whole {
                        whole = whole.or(Members::of(member));
                    }
                }
            }
        }
        (found, whole)
    }

    /// Whether each pair of members has a batch.
    fn have(&self, members: Members, batch: Batch) -> bool {
        let (head, whole) = self.heads(batch);
        let needed = head.map_or(MEMBERS, |head| head.kind.columns_needed());
        pairs(members).all(|pair| whole.and(pair).count() >= needed)
    }

    /// Whether who collects the segment of a batch finds that batch.
    fn can_collect(&self, members: Members, batch: Batch) -> bool {
        let (Some(own), _) = self.heads(batch) else {
            return false;
        };
        let each = members.iter().flat_map(|m| self.0[m].columns(m));
        let mut there = each.map(|(head, _)| head).filter(|head| {
            head.place == own.place && head.segment_sequence == own.segment_sequence
        });
        there.all(|head| head.incarnation <= own.incarnation)
    }
}

impl World {
    /// Checks what an assembly has left on members, before and when it has told them its epoch.
    pub(crate) fn holds(&self, opened: &Assembled) -> Result<(), &'static str> {
        let live = opened.epoch.in_sync();
        self.is_later(opened)?;
        self.is_told_well(opened)?;
        self.is_of_its_own(opened)?;
        let disks = &opened.run.disks;
        for member in live.iter() {
            let shown = disks.shown(member, Bad::default());
            let shown = shown.ok_or("a live member has no superblock")?;
            if shown.epoch != opened.epoch || shown.start != opened.start {
                return Err("a live member shows another epoch, or another start");
            }
        }
        let has = |batch: &Batch| disks.have(live, *batch);
        if !opened.logged().all(has) {
            return Err("two live members have not all that was found");
        }
        match opened.logged().all(|batch| disks.can_collect(live, *batch)) {
            true => Ok(()),
            false => Err("who collects finds another batch"),
        }
    }

    /// Checks that no live member has batches of an incarnation yet, and that it is far later than
    /// what is given up now.
    fn is_later(&self, opened: &Assembled) -> Result<(), &'static str> {
        let own = opened.epoch.incarnation;
        let is_given_up = !self.truth.counts(&opened.found);
        for (member, from) in self.disks.0.iter().enumerate() {
            for (head, _) in from.columns(member) {
                let batch = head.bodies[0];
                let is_lost = self.truth.line.contains(&batch) && !opened.found.contains(&batch);
                if is_given_up && is_lost && head.incarnation + GIVEN_UP > own {
                    return Err("what is given up is not far older");
                }
                let is_live = opened.epoch.in_sync().contains(member);
                let at = layout().at(head.place).map(|at| (member, at));
                if is_live && at != opened.attempt.place && head.incarnation == own {
                    return Err("a live member has batches of this incarnation already");
                }
            }
        }
        Ok(())
    }

    /// Checks that a device is not taken for one that has taken its place and, where something is
    /// given up, that the next dump has not the number of one that members may show again.
    fn is_of_its_own(&self, opened: &Assembled) -> Result<(), &'static str> {
        let bad = opened.attempt.bad;
        let is_whole = |member: &Member| member.damaged() == [false; 2];
        let is_calm = bad == Bad::default() && self.disks.0.iter().all(is_whole);
        let live = opened.epoch.in_sync();
        let known = |by: usize, of: usize| Some(self.disks.shown(by, bad)?.devices[of].id);
        let is_replaced = |member: usize| {
            let mut others = live.minus(Members::of(member)).iter();
            others.all(|other| known(other, member) != known(member, member))
        };
        if is_calm && live.iter().any(is_replaced) {
            return Err("a device counts that was replaced");
        }
        let shown = |member| self.disks.shown(member, bad);
        let known = opened.attempt.present.iter().filter_map(shown);
        let latest = known.map(|shown| shown.epoch.incarnation).max();
        if opened.epoch.incarnation < latest.unwrap_or_default() + GIVEN_UP {
            return Ok(());
        }
        let number = Dump::begin(&opened.log, &opened.start).generation();
        let slots = self
            .disks
            .0
            .iter()
            .flat_map(|member| [0, 1].map(|slot| member.slot(slot, false)));
        match slots
            .flatten()
            .any(|shown| shown.start.generation == number)
        {
            true => Err("the next dump has the number of another one"),
            false => Ok(()),
        }
    }

    /// Checks that who is told an epoch can rely on all that it calls in sync.
    fn is_told_well(&self, opened: &Assembled) -> Result<(), &'static str> {
        let (live, epoch) = (opened.epoch.in_sync(), opened.epoch);
        let hides = |member: &usize| {
            let is_bad = opened.attempt.bad.0 >> (2 * member) & 3 != 0;
            is_bad || self.disks.0[*member].damaged() != [false; 2]
        };
        let mut disks = self.disks.clone();
        let mut told = Members::NONE;
        for write in &opened.run.writes {
            disks.write(write);
            if write.slot().is_none() {
                continue;
            }
            let shown = |member: usize| disks.shown(member, Bad::default());
            let is_told = shown(write.member).is_some_and(|shown| shown.epoch == epoch);
            if !is_told {
                continue;
            }
            let flushed = opened.logged().filter(|b| self.truth.line.contains(b));
            if told.is_empty() && !flushed.into_iter().all(|batch| disks.have(live, *batch)) {
                return Err("two that are called in sync have not all that was flushed");
            }
            told = told.or(Members::of(write.member));
            let is_hidden_first = told.iter().all(|member| hides(&member));
            for member in live.minus(told).iter() {
                let knows = shown(member).is_some_and(|shown| shown.epoch.id == epoch.parent);
                let is_next = is_hidden_first && hides(&member);
                if !knows && !is_next {
                    return Err("one that is called in sync does not know the epoch before");
                }
            }
        }
        Ok(())
    }
}

impl Assembled {
    /// Returns the batches that the log has.
    fn logged(&self) -> impl Iterator<Item = &Batch> {
        self.logged
            .iter()
            .filter(|batch| self.found.contains(batch))
    }
}
