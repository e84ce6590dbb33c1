// SPDX-License-Identifier: GPL-2.0

//! An array, what it has promised, and its assembly.

use std::{
    collections::BTreeSet,
    fmt,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
    mem::swap,
    rc::Rc,
};

use seglog::{
    batch::{
        Kind,
        HEAD_BYTES, //
    },
    epoch::Epoch,
    fault::Fault,
    log::Log,
    members::{
        Members,
        MEMBERS, //
    },
    recovery::{
        Opened,
        Recovery, //
    },
    superblock::Start,
    table::Table,
    Checksum, //
};

use crate::{
    disk::{
        layout,
        Bad,
        Crc,
        Disks,
        Member,
        Run,
        BATCHES_MAX,
        UNIT_BYTES, //
    },
    truth::{
        Batch,
        Kept,
        Truth, //
    },
};

/// The assembly of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) present: Members,
    pub(crate) bad: Bad,
    /// A unit that cannot be read.
    pub(crate) place: Option<(usize, u64)>,
    /// A device that was replaced is there instead of the one in its place.
    pub(crate) swaps: bool,
    pub(crate) is_forced: bool,
}

/// Events after an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The power fails when so many writes are done, in the middle of the next one if that is torn.
    CutOff { writes: usize, is_torn: bool },
    /// A batch is written and flushed, if it is.
    Open { writes: Option<Kind> },
    /// One is written, and the power fails before it is flushed.
    Unflushed,
    /// One is flushed; then there is a dump, of whose start so many members are told.
    Dump { told: usize },
    /// A member fails, with a batch on its way that is written to the others; these are told.
    Fails {
        member: usize,
        told: Members,
        goes_on: bool,
    },
    /// The one that is not in sync returns, or a new device in its place; so many are told.
    Returns { is_new: bool, told: usize },
}

/// A step of an array's life.
pub(crate) struct Step {
    pub(crate) before: Option<Rc<Step>>,
    pub(crate) attempt: Attempt,
    pub(crate) then: Then,
    /// Slots that could not be read are damaged for good.
    pub(crate) damages: bool,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.is_forced { " by force" } else { "" };
        let old = if self.swaps {
            " with the old device"
        } else {
            ""
        };
        write!(
            f,
            "{:03b}{by}{old} without slots {:06b}",
            self.present.bits(),
            self.bad.0
        )?;
        match self.place {
            Some((member, at)) => write!(f, " and {member}.{at:#x}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = &self.before {
            write!(f, "{before}")?;
        }
        let for_good = if self.damages { " for good" } else { "" };
        writeln!(f, "  {}{for_good}: {:?}", self.attempt, self.then)
    }
}

/// The words of a table: batches, then segments.
#[derive(Clone)]
pub(crate) struct Words([u64; BATCHES_MAX + 8]);

impl Words {
    /// Returns the batches.
    fn found(&self) -> Vec<Batch> {
        let each = self.0[..BATCHES_MAX].iter().filter(|word| **word != 0);
        each.map(|word| *word as Batch).collect()
    }

    /// A batch, of which this is a data column, is in the log.
    pub(crate) fn note(&mut self, column: &[u8]) {
        let number = number_of(column);
        if number != 0 {
            self.set(u64::from(number) - 1, batch(number).into());
        }
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        self.0[index as usize]
    }

    fn set(&mut self, index: u64, word: u64) {
        self.0[index as usize] = word;
    }
}

pub(crate) const BODY_BYTES: usize = UNIT_BYTES - HEAD_BYTES;

/// The body of a column of the batch with a number: the second one has nothing.
pub(crate) fn body(number: u32, column: usize) -> [u8; BODY_BYTES] {
    let mut body = [0; BODY_BYTES];
    if column != 1 {
        body[..4].copy_from_slice(&number.to_le_bytes());
    }
    body
}

fn number_of(column: &[u8]) -> u32 {
    u32::from_le_bytes(column[HEAD_BYTES..][..4].try_into().unwrap())
}

/// The batch with a number.
pub(crate) fn batch(number: u32) -> Batch {
    Crc.crc32c(&body(number, 0))
}

/// An array.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disks: Disks,
    /// The device of a member that was replaced.
    pub(crate) spare: Option<(usize, Member)>,
    pub(crate) truth: Truth,
    /// Assemblies by force.
    pub(crate) forces: u32,
    pub(crate) steps: Option<Rc<Step>>,
}

/// An assembly that has ended well.
pub(crate) struct Assembled {
    pub(crate) attempt: Attempt,
    pub(crate) found: Vec<Batch>,
    /// The ones of them that the log has, and not the dump alone.
    pub(crate) logged: Vec<Batch>,
    pub(crate) id: u64,
    pub(crate) epoch: Epoch,
    pub(crate) run: Run,
    pub(crate) log: Log,
    pub(crate) words: Words,
    pub(crate) start: Start,
    /// Segments that are in use.
    pub(crate) used: BTreeSet<u32>,
}

impl Assembled {
    /// Returns a segment that may be written.
    pub(crate) fn free(used: &BTreeSet<u32>) -> u32 {
        let mut all = 0..layout().parts().segments;
        all.find(|segment| !used.contains(segment)).unwrap_or(0)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let mut truth = Truth::default();
        truth.tell(5, &[]);
        Self {
            disks: Disks::new(),
            spare: None,
            truth,
            forces: 0,
            steps: None,
        }
    }

    /// The device that was replaced takes the place of the other one.
    pub(crate) fn swapped(&self) -> Self {
        let mut world = self.clone();
        if let Some((member, spare)) = &mut world.spare {
            swap(spare, &mut world.disks.0[*member]);
        }
        world
    }

    /// Assembles it. What was written is in the result; the array is as it was.
    pub(crate) fn assemble(&self, attempt: Attempt) -> Result<Assembled, Fault<()>> {
        let mut run = Run {
            disks: self.disks.clone(),
            bad: attempt.bad,
            place: attempt.place,
            writes: Vec::new(),
            flushes: Vec::new(),
        };
        let mut memory = [[0; 4 * UNIT_BYTES]; MEMBERS];
        let columns = memory.each_mut().map(|column| column.as_mut_slice());
        let with = (attempt.present, attempt.is_forced);
        let mut recovery = Recovery::examine(&mut run, with, columns, &Crc)?;
        let mut words = Words([0; BATCHES_MAX + 8]);
        recovery.walk_by(&mut words, |words, _, column| {
            words.note(column);
            Ok(())
        })?;
        let mut logged = Vec::new();
        let start = recovery.start().cursor;
        let mut used = BTreeSet::from([start.segment, start.next, recovery.opens_at().next]);
        recovery.follow(|head, _| {
            used.extend([head.place.segment, head.next]);
            logged.push(head.bodies[0]);
        })?;
        let id = self.truth.unused_id();
        recovery.commit(id)?;
        let opened = recovery.open(id, Assembled::free(&used))?;
        let Opened {
            log, start, epoch, ..
        } = opened;
        used.extend([log.cursor().segment, log.cursor().next]);
        Ok(Assembled {
            attempt,
            found: words.found(),
            logged,
            id,
            epoch,
            run,
            log,
            words,
            start,
            used,
        })
    }

    /// Whether an array must be assembled: all members are there, and can be read. By force it may
    /// have to be, after one that was cut off.
    pub(crate) fn must_assemble(&self, attempt: Attempt) -> bool {
        let is_whole = |member: &Member| member.damaged() == [false; 2];
        let is_calm = attempt.bad == Bad::default() && attempt.place.is_none() && !attempt.swaps;
        let is_there = attempt.present == Members::ALL && self.disks.0.iter().all(is_whole);
        is_calm && is_there
    }

    /// Returns what force keeps.
    pub(crate) fn kept(&self, attempt: Attempt) -> Kept<'_> {
        let shown = |member| self.disks.shown(member, attempt.bad);
        let shown: Vec<_> = attempt.present.iter().filter_map(shown).collect();
        self.truth.kept(&shown)
    }

    /// Whether members have a batch whole.
    pub(crate) fn can_read(&self, present: Members, batch: Batch) -> bool {
        let has = |member: &usize| self.disks.has(*member, batch);
        present.iter().filter(has).count() >= 2
    }

    /// Forgets epochs that no slot has.
    pub(crate) fn forget(mut self) -> Self {
        let ids: BTreeSet<u64> = self.ids().into_iter().flatten().collect();
        self.truth.epochs.retain(|id, _| ids.contains(id));
        self
    }

    /// Returns the epochs in the slots of each device.
    fn ids(&self) -> [Vec<u64>; MEMBERS + 1] {
        let spare = self.spare.iter().flat_map(|(_, member)| member.ids());
        let of = |member: usize| self.disks.0[member].ids().collect();
        [of(0), of(1), of(2), spare.collect()]
    }

    /// Returns a number that tells it from others, but for how it came to be and which numbers its
    /// epochs have.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let seen = |disks: &Disks| disks.seen(Members::ALL, Bad::default(), None);
        seen(&self.disks).hash(&mut hasher);
        if self.spare.is_some() {
            seen(&self.swapped().disks).hash(&mut hasher);
        }
        for member in &self.disks.0 {
            member.damaged().hash(&mut hasher);
        }
        let (truth, ids) = (&self.truth, self.ids());
        let mut known: Vec<_> = truth.epochs.iter().collect();
        known.sort_by_key(|(_, known)| known.order);
        for (id, known) in known {
            let of = |ids: &Vec<u64>| ids.iter().position(|of| of == id);
            (ids.each_ref().map(of), &known.kept).hash(&mut hasher);
        }
        (&truth.line, truth.maybe, &truth.given).hash(&mut hasher);
        (&truth.dumps, truth.told).hash(&mut hasher);
        hasher.finish()
    }
}
