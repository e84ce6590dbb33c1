// SPDX-License-Identifier: GPL-2.0

//! Knows what each unit of the disk may hold, by what was issued, acknowledged, flushed and read so
//! far.
//!
//! A unit is a few sectors that are written together or not at all by this program. It has one
//! counter of generations, and at most one write in flight (a writer claims it). A write raises
//! `issued` before it is sent and `acknowledged` after it has succeeded. So, for each sector and
//! read:
//!
//! - what is read is the sector of this place and run, whole;
//! - its generation is at most what was issued when the read had ended;
//! - and at least what had been acknowledged, or seen in the same sector by another read, before
//!   the read began.
//!
//! A write that failed raises nothing: its generation may appear at any time, also late, until a
//! newer one of the unit has been acknowledged or read. From then on it must not appear any more.
//!
//! With [`Floor::Flushed`] the disk may lose, at any time, what was acknowledged and not flushed
//! (its server has lost a volatile cache). The least generation is then the one that a successful
//! flush has covered: it had been acknowledged before the flush was issued. After a flush that
//! failed, what had been acknowledged before may be lost, in spite of later flushes: only writes
//! that come after can be covered again.

use std::sync::atomic::{
    AtomicBool,
    AtomicU64,
    Ordering::{
        Acquire,
        Relaxed,
        Release, //
    }, //
};

use crate::{
    report::{
        Fault,
        Kind, //
    },
    sector::{
        Stamp,
        Unreadable,
        SECTOR_SIZE, //
    }, //
};

/// The event from which on a write must not be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// Its acknowledgement.
    Acknowledged,
    /// The end of a flush that was issued after its acknowledgement.
    Flushed,
}

/// The knowledge about one unit, which all threads share.
#[derive(Default)]
struct Unit {
    claimed: AtomicBool,
    issued: AtomicU64,
    acknowledged: AtomicU64,
    flushed: AtomicU64,
    /// Acknowledged generations up to this one no flush can cover any more: one has failed.
    doubtful: AtomicU64,
    /// An older generation was read than was acknowledged or read before.
    receded: AtomicBool,
}

/// The generations that a sector may hold, as known before a read.
#[derive(Clone, Copy)]
struct Known {
    /// The oldest that is no fault.
    least: u64,
    /// The newest that was acknowledged.
    acknowledged: u64,
    /// The newest that was read from this sector.
    seen: u64,
}

/// A range of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Its first unit.
    pub(crate) first: usize,
    /// Their number.
    pub(crate) units: usize,
}

/// The knowledge about each sector of a range before it was read: a write that ends during the read
/// must not count against it.
pub(crate) struct Before(Vec<Known>);

/// The judgement of the sectors that a read has brought.
pub(crate) enum Verdict {
    /// Every sector holds what it may hold.
    Good,
    /// A sector is neither old nor new, while a write to it has not been acknowledged.
    Unsettled(Fault),
    /// A sector holds what it must not hold.
    Bad(Fault),
}

/// Generations of all units at one moment: what a flush covers.
pub(crate) struct Snapshot(Vec<u64>);

/// The history of a disk.
pub(crate) struct Ledger {
    run: u64,
    unit_size: usize,
    floor: Floor,
    units: Vec<Unit>,
    seen: Vec<AtomicU64>,
}

impl Ledger {
    /// A disk to which nothing was written.
    pub(crate) fn new(run: u64, unit_size: usize, count: usize, floor: Floor) -> Self {
        let sectors = count * unit_size / SECTOR_SIZE;
        Self {
            run,
            unit_size,
            floor,
            units: (0..count).map(|_| Unit::default()).collect(),
            seen: (0..sectors).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the number of units.
    pub(crate) fn count(&self) -> usize {
        self.units.len()
    }

    /// Bytes in a unit.
    pub(crate) fn unit_size(&self) -> usize {
        self.unit_size
    }

    /// Sectors in a unit.
    fn sectors(&self) -> usize {
        self.unit_size / SECTOR_SIZE
    }

    fn units_of(&self, range: Range) -> &[Unit] {
        self.units
            .get(range.first..range.first + range.units)
            .unwrap_or_default()
    }

    fn seen_of(&self, range: Range) -> &[AtomicU64] {
        let (first, count) = (range.first * self.sectors(), range.units * self.sectors());
        self.seen.get(first..first + count).unwrap_or_default()
    }

    /// Units that have gone back to an older generation, as [`Floor::Flushed`] allows.
    pub(crate) fn receded(&self) -> usize {
        self.units
            .iter()
            .filter(|unit| unit.receded.load(Relaxed))
            .count()
    }

    /// Makes the caller the only writer of a range, unless another one has a part of it.
    pub(crate) fn claim(&self, range: Range) -> Option<Claim<'_>> {
        let mut claim = Claim {
            ledger: self,
            range: Range { units: 0, ..range },
        };
        for unit in self.units_of(range) {
            if unit.claimed.swap(true, Acquire) {
                return None; // and the drop gives back what was taken
            }
            claim.range.units += 1;
        }
        Some(claim)
    }

    /// Takes down what the sectors of a range may hold. Called before a read of them is issued.
    pub(crate) fn before(&self, range: Range) -> Before {
        let units = self.units_of(range).iter();
        let seen = self.seen_of(range).chunks_exact(self.sectors());
        let known = |(unit, seen): (&Unit, &[AtomicU64])| -> Vec<Known> {
            let acknowledged = unit.acknowledged.load(Acquire);
            let flushed = unit.flushed.load(Acquire);
            let each = seen.iter().map(|seen| seen.load(Acquire));
            each.map(|seen| Known {
                least: match self.floor {
                    Floor::Acknowledged => acknowledged.max(seen),
                    Floor::Flushed => flushed,
                },
                acknowledged,
                seen,
            })
            .collect()
        };
        Before(units.zip(seen).flat_map(known).collect())
    }

    /// Judges what a read has brought, and remembers it. Called after the read has ended.
    pub(crate) fn judge(&self, range: Range, before: &Before, bytes: &[u8]) -> Verdict {
        let units = self.units_of(range).iter().enumerate();
        let known = before.0.chunks_exact(self.sectors());
        let seen = self.seen_of(range).chunks_exact(self.sectors());
        let mut unsettled = None;
        for (((at, unit), known), (seen, bytes)) in units
            .zip(known)
            .zip(seen.zip(bytes.chunks_exact(self.unit_size)))
        {
            match self.judge_unit(range.first + at, unit, known, seen, bytes) {
                Verdict::Good => (),
                Verdict::Unsettled(fault) => unsettled = Some(fault),
                bad @ Verdict::Bad(_) => return bad,
            }
        }
        unsettled.map_or(Verdict::Good, Verdict::Unsettled)
    }

    fn judge_unit(
        &self,
        number: usize,
        unit: &Unit,
        known: &[Known],
        seen: &[AtomicU64],
        bytes: &[u8],
    ) -> Verdict {
        let most = unit.issued.load(Acquire);
        let first = (number * self.sectors()) as u64;
        let fault = |kind, sector, found, least| Fault {
            kind,
            unit: number,
            sector,
            found,
            least,
            most,
        };
        let mut old: Option<Fault> = None;
        let mut fresh = false;
        let mut unsettled = None;
        for (((sector, bytes), known), seen) in (first..)
            .zip(bytes.chunks_exact(SECTOR_SIZE))
            .zip(known)
            .zip(seen)
        {
            let stamp = match Stamp::read(bytes) {
                Ok(stamp) => stamp,
                Err(Unreadable::NoMagic) => {
                    return Verdict::Bad(fault(Kind::Foreign, sector, None, known.least));
                }
                Err(Unreadable::BadChecksum) if most > known.acknowledged => {
                    unsettled = Some(fault(Kind::Torn, sector, None, known.least));
                    continue;
                }
                Err(Unreadable::BadChecksum) => {
                    return Verdict::Bad(fault(Kind::Torn, sector, None, known.least));
                }
            };
            let found = |kind| fault(kind, sector, Some(stamp), known.least);
            if stamp.run != self.run || stamp.sector == sector && stamp.generation > most {
                return Verdict::Bad(found(Kind::Foreign));
            } else if stamp.sector != sector {
                return Verdict::Bad(found(Kind::Swapped));
            } else if stamp.generation < known.least {
                let kind = if known.seen > stamp.generation {
                    Kind::Late
                } else {
                    Kind::Lost
                };
                old.get_or_insert_with(|| found(kind));
                continue;
            }
            if stamp.generation < known.acknowledged.max(known.seen) {
                unit.receded.store(true, Relaxed);
            }
            fresh = true;
            seen.fetch_max(stamp.generation, Release);
        }
        match (old, fresh) {
            (Some(old), true) => Verdict::Bad(Fault {
                kind: Kind::Torn,
                ..old
            }),
            (Some(old), false) => Verdict::Bad(old),
            (None, _) => unsettled.map_or(Verdict::Good, Verdict::Unsettled),
        }
    }

    /// Takes down the acknowledged writes, which a flush covers if it succeeds. Called before it is
    /// issued.
    pub(crate) fn before_flush(&self) -> Snapshot {
        Snapshot(
            self.units
                .iter()
                .map(|unit| unit.acknowledged.load(Acquire))
                .collect(),
        )
    }

    /// A flush has succeeded.
    pub(crate) fn flushed(&self, snapshot: &Snapshot) {
        for (unit, &acknowledged) in self.units.iter().zip(&snapshot.0) {
            if acknowledged > unit.doubtful.load(Acquire) {
                unit.flushed.fetch_max(acknowledged, Release);
            }
        }
    }

    /// A flush has failed.
    pub(crate) fn flush_failed(&self) {
        for unit in &self.units {
            unit.doubtful
                .store(unit.acknowledged.load(Acquire), Release);
        }
    }

    /// The ledger as text, for another run of the program.
    pub(crate) fn save(&self) -> String {
        let head = format!(
            "history {} {} {}\n",
            self.run,
            self.unit_size,
            self.units.len()
        );
        let line = |unit: &Unit| {
            let [issued, acknowledged, flushed, doubtful] = [
                &unit.issued,
                &unit.acknowledged,
                &unit.flushed,
                &unit.doubtful,
            ]
            .map(|counter| counter.load(Acquire));
            format!("{issued} {acknowledged} {flushed} {doubtful}\n")
        };
        head + &self.units.iter().map(line).collect::<String>()
    }

    /// Reads what `save` has written.
    pub(crate) fn load(text: &str, floor: Floor) -> Option<Self> {
        let numbers = |line: &str| -> Option<Vec<u64>> {
            line.split(' ').map(|word| word.parse().ok()).collect()
        };
        let mut lines = text.lines();
        let head = numbers(lines.next()?.strip_prefix("history ")?)?;
        let &[run, unit_size, count] = head.as_slice() else {
            return None;
        };
        let ledger = Self::new(
            run,
            usize::try_from(unit_size).ok()?,
            usize::try_from(count).ok()?,
            floor,
        );
        for unit in &ledger.units {
            let line = numbers(lines.next()?)?;
            let &[issued, acknowledged, flushed, doubtful] = line.as_slice() else {
                return None;
            };
            unit.issued.store(issued, Relaxed);
            unit.acknowledged.store(acknowledged, Relaxed);
            unit.flushed.store(flushed, Relaxed);
            unit.doubtful.store(doubtful, Relaxed);
        }
        Some(ledger)
    }
}

/// The right to write to a range; given back when dropped.
pub(crate) struct Claim<'a> {
    ledger: &'a Ledger,
    range: Range,
}

impl Claim<'_> {
    /// Issues the next generation of each unit, and makes the data of the write.
    pub(crate) fn issue(&self, writer: u64, bytes: &mut [u8]) {
        let ledger = self.ledger;
        let mut sector = (self.range.first * ledger.sectors()) as u64;
        for (unit, bytes) in ledger
            .units_of(self.range)
            .iter()
            .zip(bytes.chunks_exact_mut(ledger.unit_size))
        {
            let generation = unit.issued.fetch_add(1, Release) + 1;
            for bytes in bytes.chunks_exact_mut(SECTOR_SIZE) {
                Stamp {
                    run: ledger.run,
                    sector,
                    writer,
                    generation,
                }
                .write(bytes);
                sector += 1;
            }
        }
    }

    /// The write has succeeded.
    pub(crate) fn acknowledge(&self) {
        for unit in self.ledger.units_of(self.range) {
            unit.acknowledged.store(unit.issued.load(Relaxed), Release);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        for unit in self.ledger.units_of(self.range) {
            unit.claimed.store(false, Release);
        }
    }
}
