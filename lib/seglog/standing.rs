// SPDX-License-Identifier: GPL-2.0

//! The epoch that an assembly stands on, and the members that are in sync by it.

use core::ops::Range;

use super::{
    devices::Devices,
    epoch::{
        choose_again,
        Choice,
        Epoch,
        NoQuorum,
        GIVEN_UP_MAX, //
    },
    fault::Fault,
    members::Members,
    recovery::Recovery,
    superblock::Superblock,
    table::Table,
    Checksum, //
};

impl<D: Devices, C: Checksum> Recovery<'_, D, C> {
    /// Whether [`Self::walk`] may find that others are in sync than the superblocks say.
    pub fn asks_log(&self) -> bool {
        self.chain.may_be_hidden
    }

    /// Begins with a choice: its members say where the log starts, and which devices they know.
    pub(crate) fn stand_on(&mut self, choice: Choice) {
        self.choice = choice;
        self.chain.in_sync = choice.in_sync;
        self.chain.trusted = self.trusted(&choice);
        self.chain.incarnation = choice.epoch.incarnation;
        self.chain.left_out = match choice.behind.is_empty() {
            true => self.left_out(),
            false => 0..0,
        };
        self.chain.later = None;
        let in_sync = |s: &&Superblock| choice.in_sync.contains(s.member);
        let all = self.superblocks.iter().flatten().filter(in_sync);
        let starts = all.clone().map(|s| s.start);
        if let Some(start) = starts.max_by_key(|start| start.generation) {
            self.start = start;
        }
        // Of two that name different devices one was written before the other one was taken back.
        self.known = [0, 1, 2].map(|member: usize| {
            let devices = all.clone().filter_map(|s| s.devices.get(member).copied());
            devices
                .max_by_key(|device| device.since)
                .unwrap_or_default()
        });
    }

    /// Returns the members in sync that cannot have failed by an epoch that slots hide, which was
    /// told to two at least; nor by one that another one was told over when they hid it.
    fn trusted(&self, choice: &Choice) -> Members {
        let is_child = |epoch: &&Epoch| choice.is_forked && epoch.parent == choice.epoch.id;
        let children = self.held.iter().flatten().filter(is_child);
        let children = children.map(|epoch| epoch.failed);
        let failed = children.fold(Members::NONE, Members::or);
        let suspects = if self.hiding.count() < 2 {
            failed
        } else if choice.in_sync.is_within(self.hiding) {
            choice.in_sync
        } else {
            choice.in_sync.minus(self.hiding)
        };
        choice.in_sync.minus(suspects)
    }

    /// Returns the incarnation of the epoch that the chosen one has come from, if a slot shows it:
    /// who is told an epoch has its parent in the other one.
    pub(crate) fn come_from(&self) -> Option<u64> {
        let parent = self.choice.epoch.parent;
        let mut shown = self.held.iter().chain(&self.before).flatten();
        let shown = shown.find(|epoch| epoch.id == parent);
        shown.map(|epoch| epoch.incarnation)
    }

    /// Returns the incarnations that the chosen epoch has left out, if it is of force, and a slot
    /// shows its parent: the log has those up to that one's.
    pub(crate) fn left_out(&self) -> Range<u64> {
        let from = self.come_from().unwrap_or(u64::MAX);
        let last = self.choice.epoch.incarnation.saturating_sub(GIVEN_UP_MAX);
        from.saturating_add(1)..last.saturating_add(1)
    }

    /// Returns a reason that tells what to do: what a member has that is there, and not in sync, is
    /// of an epoch that does not count beside the one that is chosen.
    pub(crate) fn named(&self, why: Fault<D::Error>) -> Fault<D::Error> {
        let others = self.present().minus(self.choice.in_sync);
        match why {
            Fault::Unreadable { member, .. } if others.contains(member) => self.excluded(),
            why => why,
        }
    }

    /// Returns the members that are there.
    fn present(&self) -> Members {
        let there = self.superblocks.iter().flatten();
        there.map(|there| there.member).collect()
    }

    /// Returns the reason that members hold epochs which exclude each other.
    pub(crate) fn excluded(&self) -> Fault<D::Error> {
        Fault::NoQuorum(NoQuorum {
            present: self.present(),
            force_helps: false,
        })
    }

    /// Whether the log was not followed for a batch that was written with a member that is missing,
    /// and without one that is in sync, though no slot hides an epoch that says so. When force was
    /// cut off before it had told a member the epoch that it began with, over the one of this
    /// batch: that was given up.
    pub(crate) fn is_told_by_force(&self, why: &Fault<D::Error>) -> bool {
        let is_known = self.is_forced && self.hiding.is_empty() && !self.chain.gives_up;
        let Fault::Unreadable { member, .. } = *why else {
            return false;
        };
        is_known && !self.choice.in_sync.contains(member)
    }

    /// Ends the log before what was written without one of the members: that is given up.
    pub(crate) fn give_up(&mut self) {
        self.chain.gives_up = true;
        self.gives_up = true;
    }

    /// Begins with another choice, as the log has a batch that only some members were written with.
    pub(crate) fn stand_on_others(
        &mut self,
        (sequence, lived): (u64, Members),
        table: &mut impl Table,
    ) -> Result<(), Fault<D::Error>> {
        let of = (self.hiding, self.chain.layout.members_needed());
        match choose_again(&self.held, of, (&self.choice, lived)) {
            Some(choice) => self.stand_on(choice),
            None if self.is_forced => self.give_up(),
            None => return Err(Fault::Superseded { sequence }),
        }
        self.forget(table);
        Ok(())
    }

    /// Forgets what was found: the log is followed anew.
    pub(crate) fn forget(&self, table: &mut impl Table) {
        for index in 0..self.chain.layout.words() {
            table.set(index, 0);
        }
    }
}
