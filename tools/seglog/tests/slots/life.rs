// SPDX-License-Identifier: GPL-2.0

//! Life of an array from an assembly on.

use std::{
    collections::BTreeSet,
    rc::Rc, //
};

use seglog::{
    batch::Kind,
    epoch::Epoch,
    log::Log,
    members::{
        column_of,
        Members,
        MEMBERS, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        write_page,
        Dump,
        Step as DumpStep, //
    },
    Checksum, //
};

use crate::{
    disk::{
        layout,
        Bad,
        Crc,
        Disks,
        TAG,
        UNIT_BYTES, //
    },
    world::{
        batch,
        body,
        Assembled,
        Step,
        Then,
        Words,
        World, //
    },
};

/// An array that is open.
struct Life {
    world: World,
    log: Log,
    id: u64,
    words: Words,
    used: BTreeSet<u32>,
    start: Start,
}

impl World {
    /// Returns the array with one step more.
    fn after(&self, assembled: &Assembled, then: Then, (disks, damages): (Disks, bool)) -> Self {
        let mut truth = self.truth.clone();
        let is_told = |id: &u64| disks.0.iter().any(|m| m.ids().any(|of| of == *id));
        // An assembly by force may tell two epochs.
        let ids = [assembled.id ^ (1 << 63), assembled.id];
        let told = ids.into_iter().filter(is_told);
        if let Then::CutOff { .. } = then {
            truth.cut_off(&assembled.found, assembled.attempt.is_forced, told);
        } else {
            truth.open(&assembled.found, told);
        }
        let step = Step {
            before: self.steps.clone(),
            attempt: assembled.attempt,
            then,
            damages,
        };
        Self {
            disks,
            spare: self.spare.clone(),
            forces: self.forces + u32::from(assembled.attempt.is_forced),
            truth,
            steps: Some(Rc::new(step)),
        }
    }

    /// Returns it as the power has failed in the assembly. What is torn of the log is all that was
    /// not flushed.
    pub(crate) fn cut_off(
        &self,
        assembled: &Assembled,
        (writes, is_torn): (usize, bool),
        damages: bool,
    ) -> Option<Self> {
        let mut disks = self.disks.clone();
        if damages {
            disks.damage(assembled.attempt.bad);
        }
        let run = &assembled.run;
        let done = &run.writes[..writes];
        done.iter().for_each(|write| disks.write(write));
        if is_torn {
            let torn = run.writes.get(writes)?;
            // What could not be read would look as if it had been torn before it was flushed.
            let place = assembled.attempt.place;
            if place.is_some_and(|place| torn.is_of(place)) {
                return None;
            }
            let flushed = run.flushes.iter().rfind(|flush| **flush <= writes);
            let since = done[*flushed.unwrap_or(&0)..].iter();
            let of_log = since.filter(|write| write.slot().is_none() && torn.slot().is_none());
            of_log.chain([torn]).for_each(|write| disks.tear(write));
        }
        let then = Then::CutOff { writes, is_torn };
        Some(self.after(assembled, then, (disks, damages)).forget())
    }

    /// Returns it as it has gone on.
    pub(crate) fn go_on(&self, assembled: &Assembled, then: Then, damages: bool) -> Option<Self> {
        let mut disks = assembled.run.disks.clone();
        if damages {
            disks.damage(assembled.run.bad);
        }
        let mut life = Life {
            world: self.after(assembled, then, (disks, damages)),
            log: assembled.log.clone(),
            id: assembled.id,
            words: assembled.words.clone(),
            used: assembled.used.clone(),
            start: assembled.start,
        };
        match then {
            Then::CutOff { .. } => return None,
            Then::Open { writes } => writes.map_or(Some(()), |kind| life.write(kind))?,
            Then::Unflushed => {
                let number = life.begin(Kind::Striped, Members::ALL)?;
                life.world.truth.maybe = Some(batch(number));
            }
            Then::Dump { told } => {
                life.write(Kind::Striped)?;
                life.dump(told)?;
            }
            Then::Fails {
                member,
                told,
                goes_on,
            } => life.fails(member, (told, goes_on))?,
            Then::Returns { is_new, told } => life.returns(is_new, told)?,
        }
        Some(life.world.forget())
    }
}

impl Life {
    /// Members write their superblocks.
    fn tell(&mut self, told: Members, next: impl Fn(&Superblock) -> Superblock) {
        for member in told.iter() {
            if let Some(shown) = self.world.disks.shown(member, Bad::default()) {
                self.world.disks.give(&next(&shown));
            }
        }
    }

    fn tell_epoch(&mut self, told: Members, epoch: impl Fn(&Epoch) -> Epoch) {
        self.tell(told, |shown| shown.with_epoch(epoch(&shown.epoch)));
    }

    /// Begins a batch, which arrives on some members; returns its number.
    fn begin(&mut self, kind: Kind, arrives: Members) -> Option<u32> {
        self.world.truth.written += 1;
        let number = self.world.truth.written;
        let segment = self.log.segment(1);
        let used = self.log.mirror(segment, 0);
        let of = |column: usize| match kind {
            Kind::Striped => body(number, column),
            Kind::Mirror => body(number, 0),
        };
        let bodies = [0, 1, 2].map(|column| Crc.crc32c(&of(column)));
        let free = Some(Assembled::free(&self.used));
        let begun = self.log.begin((kind, used, 1), bodies, free, &Crc).ok()?;
        let (head, _) = begun.head.bytes(TAG, &Crc);
        for member in begun.head.used.and(arrives).iter() {
            let column = column_of(begun.head.place.segment, member);
            let bytes = [&head[..], &of(column)].concat();
            self.world.disks.put(member, begun.at, &bytes);
            self.log.written(begun.head.sequence, member);
        }
        self.words.note(&[&head[..], &body(number, 0)].concat());
        self.used
            .extend([self.log.cursor().segment, self.log.cursor().next]);
        Some(number)
    }

    /// Writes and flushes a batch.
    fn write(&mut self, kind: Kind) -> Option<()> {
        let number = self.begin(kind, Members::ALL)?;
        self.flush(number)
    }

    fn flush(&mut self, number: u32) -> Option<()> {
        self.log.acknowledge()?;
        for member in self.log.flush()?.iter() {
            self.log.flushed(member);
        }
        self.log.end_flush()?;
        self.world.truth.flushed(batch(number), self.id);
        Some(())
    }

    /// Writes a dump; so many members are told where it has begun the log anew.
    fn dump(&mut self, told: usize) -> Option<()> {
        let layout = layout();
        let mut dump = Dump::begin(&self.log, &self.start);
        let number = dump.generation();
        let written = self.log.written_members();
        let start = loop {
            match dump.step(&layout) {
                DumpStep::Page(page) => {
                    let mut bytes = [0; UNIT_BYTES];
                    let with = (&layout, TAG);
                    write_page(&mut bytes, (page, number), &self.words, with, &Crc);
                    let at = layout.page(dump.area(), page);
                    for member in layout.page_members(page).and(written).iter() {
                        self.world.disks.put(member, at, &bytes);
                    }
                }
                DumpStep::Flush => {}
                DumpStep::Superblocks(start) => break start,
                DumpStep::Done => return None,
            }
        };
        let first: Members = written.iter().take(told).collect();
        self.tell(first, |shown| shown.with_start(start));
        let truth = &mut self.world.truth;
        truth.dumps.insert(number, truth.line.clone());
        if first == written {
            truth.told = number;
            self.start = start;
            let (cursor, now) = (start.cursor, self.log.cursor());
            self.used = BTreeSet::from([cursor.segment, cursor.next, now.segment, now.next]);
        }
        Some(())
    }

    /// A member fails when all but that one have a batch.
    fn fails(&mut self, member: usize, (told, goes_on): (Members, bool)) -> Option<()> {
        let failed = Members::of(member);
        if self.log.live() != Members::ALL {
            return None;
        }
        let others = Members::ALL.minus(failed);
        let late = self.begin(Kind::Striped, others)?;
        self.log.fail(member);
        let next = self.world.truth.unused_id();
        let kept = self.world.truth.line.clone();
        self.tell_epoch(told, |epoch| epoch.without(next, failed));
        self.world.truth.tell(next, &kept);
        self.id = next;
        if told != others {
            self.world.truth.maybe = Some(batch(late));
            return Some(());
        }
        self.log.epoch_is_durable(failed);
        self.flush(late)?;
        if goes_on {
            self.write(Kind::Striped)?;
        }
        Some(())
    }

    /// The member that is not in sync returns, or a new device in its place, and a dump has all.
    fn returns(&mut self, is_new: bool, told: usize) -> Option<()> {
        let live = self.log.live();
        let member = Members::ALL.minus(live).iter().next()?;
        let other = self
            .world
            .disks
            .shown(live.iter().next()?, Bad::default())?;
        let mut own = self.world.disks.shown(member, Bad::default())?;
        if is_new {
            let id = 100 + u64::from(self.world.truth.written);
            own = other.replacement(member, id);
            let old = std::mem::take(&mut self.world.disks.0[member]);
            self.world.spare = Some((member, old));
            self.world.disks.give(&own);
        }
        let next_use = self.log.cursor().segment_sequence + 1;
        let devices = other.devices_with(&own, next_use);
        let epoch = other.epoch;
        for told in [live, Members::of(member)] {
            self.tell(told, |shown| shown.with_devices(devices, epoch));
        }
        self.log.take_back(member);
        self.write(Kind::Striped)?;
        self.dump(MEMBERS)?;
        self.log.join(member);
        let next = self.world.truth.unused_id();
        let first: Members = (0..MEMBERS).take(told).collect();
        self.tell_epoch(first, |epoch| epoch.with(next, member));
        let kept = self.world.truth.line.clone();
        self.world.truth.tell(next, &kept);
        if told == MEMBERS {
            self.id = next;
            self.write(Kind::Striped)?;
        }
        Some(())
    }
}
