// SPDX-License-Identifier: GPL-2.0

//! Long lives of larger arrays, by seeds: many assemblies, of which some are cut off, with members
//! that fail, are absent, return, or lose their caches.

use seglog::{
    batch::Kind,
    fault::Fault,
    layout::Layout,
    members::Members, //
};

use crate::{
    assembly::{
        assemble,
        assemble_with,
        superblock_of,
        Assembled,
        Errors,
        Fast,
        Unreadable, //
    },
    disk::{
        Disks,
        Shape, //
    },
    history::History,
    search::{
        assemblies,
        read, //
    },
    setting::{
        layout,
        Op,
        Setting,
        BLOCKS, //
    },
    world::{
        Event,
        World, //
    },
    Mistake,
};

/// The assemblies of a life.
const MOUNTS: usize = 4;
/// The steps of an application between two of them.
const OPS: usize = 24;

/// The layout of a life: of few segments, so that they are written again.
pub(crate) fn layout_of(seed: u64) -> Layout {
    layout(8 + seed as u32 / 3 % 4, 2 + seed as u32 % 3)
}

/// Numbers that look random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.below(2);
        }
        random
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    /// A step; flushes are rare or not.
    fn op(&mut self, flushes: bool) -> Op {
        let (one, other) = (self.below(BLOCKS), self.below(BLOCKS - 1));
        match self.below(9) {
            0 | 1 if flushes => Op::Flush,
            8 => Op::Dump,
            2 => Op::Zero(one),
            3 if one < BLOCKS - 1 => Op::Pair(one),
            3 | 4 => Op::Write(Kind::Mirror, [Some(one), None]),
            5 => Op::Write(Kind::Striped, [Some(one), None]),
            _ => Op::Write(Kind::Striped, [Some(one), Some((one + 1 + other) % BLOCKS)]),
        }
    }
}

/// Counts of the arrays of which two members had lost the newer slot, by how they fared.
#[derive(Debug, Default)]
pub(crate) struct Spoilt {
    pub(crate) assembled: usize,
    /// Arrays of which the log is newer than what is left.
    pub(crate) superseded: usize,
    pub(crate) refused: usize,
}

impl Spoilt {
    /// Damages the newer slots of each two members: all that was flushed is there, or the array is
    /// refused.
    pub(crate) fn check(
        &mut self,
        shape: &Shape,
        disks: &Disks,
        history: &History,
    ) -> Result<(), String> {
        let (all, crc) = (Members::ALL, Fast(Mistake::None));
        for intact in all.iter() {
            let mut spoilt = disks.clone();
            for member in all.minus(Members::of(intact)).iter() {
                if let Some(superblock) = superblock_of(shape, &disks[member], &crc) {
                    spoilt[member].spoil(superblock.slot());
                }
            }
            match assemble(shape, (&spoilt, all), Mistake::None, false).0 {
                Ok(assembled) if history.allows(&assembled.versions) => self.assembled += 1,
                Ok(assembled) => {
                    let found = assembled.versions;
                    let states = &history.states;
                    return Err(format!("{intact} intact: {found:?} and may be {states:?}"));
                }
                Err(Fault::Superseded { .. }) => self.superseded += 1,
                Err(_) => self.refused += 1,
            }
        }
        Ok(())
    }
}

/// Lives one life; returns what is wrong.
pub(crate) fn live(seed: u64, mistake: Mistake, formatted: Disks) -> Result<(), String> {
    live_checked(seed, mistake, formatted, |_, _, _| Ok(()))
}

/// Lives as [`live`] does; up to so many places cannot be read in an assembly, which may be cut
/// off, and can be read in the next one.
pub(crate) fn live_with_errors(seed: u64, bad: usize, formatted: Disks) -> Result<(), String> {
    live_by(seed, (Mistake::None, bad), formatted, |_, _, _| Ok(()))
}

/// Lives as [`live`] does; what is there before each assembly is checked, also one that is cut off.
pub(crate) fn live_checked(
    seed: u64,
    mistake: Mistake,
    formatted: Disks,
    check: impl FnMut(&Shape, &Disks, &History) -> Result<(), String>,
) -> Result<(), String> {
    live_by(seed, (mistake, 0), formatted, check)
}

/// The way in which the array of a life is assembled.
pub(crate) trait Opening {
    /// Assembles the array, also after some assemblies that are cut off; `None` ends the life.
    fn open(
        &mut self,
        random: &mut Random,
        shape: &Shape,
        disks: &mut Disks,
        of: (&History, usize),
    ) -> Result<Option<World>, String>;

    /// Sees what an event has led to.
    fn see(&mut self, _: &World) {}
}

/// Assembles with all, or with two of them; up to so many places give errors.
struct Usual<F> {
    mistake: Mistake,
    bad: usize,
    check: F,
}

impl<F: FnMut(&Shape, &Disks, &History) -> Result<(), String>> Opening for Usual<F> {
    fn open(
        &mut self,
        random: &mut Random,
        shape: &Shape,
        disks: &mut Disks,
        (history, depth): (&History, usize),
    ) -> Result<Option<World>, String> {
        (self.check)(shape, disks, history)?;
        let with = (history, depth, (self.mistake, self.bad));
        open(random, shape, disks, with, &mut self.check)
    }
}

fn live_by(
    seed: u64,
    (mistake, bad): (Mistake, usize),
    formatted: Disks,
    check: impl FnMut(&Shape, &Disks, &History) -> Result<(), String>,
) -> Result<(), String> {
    let mut usual = Usual {
        mistake,
        bad,
        check,
    };
    live_opening(seed, mistake, formatted, &mut usual)
}

/// Returns the setting of a life.
fn setting_of(seed: u64, random: &mut Random) -> Setting {
    let mut setting = Setting::new(&[]);
    setting.layout = layout_of(seed);
    let flushes = random.below(2) == 0;
    for _ in 0..MOUNTS {
        let count = random.below(OPS);
        setting
            .mounts
            .push((0..count).map(|_| random.op(flushes)).collect());
    }
    setting.failures = random.below(4) as u8;
    setting.returns = random.below(4) as u8;
    setting.replaces = random.below(3) == 0;
    setting.moves = if random.below(2) == 0 { 0 } else { u8::MAX };
    setting.lost_caches = random.below(3) == 0;
    setting.frees = true;
    setting.reads = random.below(2) == 0;
    setting.torn = random.below(2) == 0;
    setting
}

/// Lives one life, whose array is assembled in one way.
pub(crate) fn live_opening(
    seed: u64,
    mistake: Mistake,
    formatted: Disks,
    opening: &mut impl Opening,
) -> Result<(), String> {
    let mut random = Random::new(seed);
    let setting = setting_of(seed, &mut random);
    let shape = Shape {
        layout: setting.layout,
        torn: setting.torn,
    };
    let mut disks = formatted;
    let mut history = History::new(0, [0; BLOCKS]);
    for depth in 0..MOUNTS {
        let opened = opening.open(&mut random, &shape, &mut disks, (&history, depth))?;
        let Some(mut world) = opened else {
            return Ok(());
        };
        for _ in 0..random.below(160) {
            let events = world.events(&setting, depth);
            let rare = |event: &Event| event.is_fault();
            let (faults, usual): (Vec<_>, Vec<_>) = events.into_iter().partition(rare);
            let from = if random.below(20) == 0 { faults } else { usual };
            if from.is_empty() {
                continue;
            }
            let event = from[random.below(from.len())];
            // Reads take long.
            let ends_read = matches!(event, Event::Read(_)) && world.is_reading();
            let moves = matches!(event, Event::Collect) && world.is_moving() && setting.reads;
            if (ends_read || moves) && random.below(16) != 0 {
                continue;
            }
            if let Some(next) = world.after((&setting, &shape), depth, event, mistake) {
                world = next;
                opening.see(&world);
                read(&shape, &world, mistake)?;
            }
        }
        if depth + 1 == MOUNTS {
            let world = world.finish((&setting, &shape), depth, mistake)?;
            return read(&shape, &world, mistake);
        }
        let torn = setting.torn;
        disks = world
            .disks
            .map(|disk| disk.crashed(torn, &mut |limit| random.below(limit)));
        history = world.history;
    }
    Ok(())
}

/// Result of an assembly, and the states in which a crash cuts it off.
type Attempt = (Result<Assembled, Fault<Unreadable>>, Vec<Disks>);

/// Assembles the array; some places that it reads may give errors. Returns whether they do.
fn attempt(
    random: &mut Random,
    shape: &Shape,
    (disks, present): (&Disks, Members),
    (mistake, bad): (Mistake, usize),
) -> (bool, Attempt) {
    let whole = assemble(shape, (disks, present), mistake, true);
    let seen = whole.0.as_ref().map(|whole| &whole.errors.seen);
    let seen: Vec<_> = seen.into_iter().flatten().copied().collect();
    if bad == 0 || random.below(4) == 0 || seen.is_empty() {
        return (false, whole);
    }
    let mut errors = Errors::default();
    for _ in 0..=random.below(bad) {
        // The later ones are of the log.
        let from = seen.len() / 2 * (1 - random.below(2));
        errors
            .bad
            .insert(seen[from + random.below(seen.len() - from)]);
    }
    let with = (mistake, true, errors);
    (true, assemble_with(shape, (disks, present), with))
}

/// Assembles the array, after some assemblies that are cut off.
fn open(
    random: &mut Random,
    shape: &Shape,
    disks: &mut Disks,
    (history, depth, with): (&History, usize, (Mistake, usize)),
    check: &mut impl FnMut(&Shape, &Disks, &History) -> Result<(), String>,
) -> Result<Option<World>, String> {
    for _ in 0..8 {
        let is_last = random.below(3) != 0;
        let present = assemblies()[random.below(6).saturating_sub(2)];
        let (is_hurt, (result, mut states)) = attempt(random, shape, (disks, present), with);
        if !is_last && !states.is_empty() {
            let state = states.swap_remove(random.below(states.len()));
            *disks = state.map(|d| d.crashed(shape.torn, &mut |limit| random.below(limit)));
            check(shape, disks, history)?;
            continue;
        }
        match result {
            Ok(assembled) if assembled.is_forced && (present == Members::ALL || !shape.torn) => {
                return Err(format!("{present:?} is forced"));
            }
            Ok(assembled) if history.allows(&assembled.versions) => {
                return Ok(Some(World::new(&assembled, depth)));
            }
            Ok(assembled) => {
                let found = assembled.versions;
                return Err(format!(
                    "{present:?}: {found:?} and may be {:?}",
                    history.states
                ));
            }
            // It can be read the next time.
            Err(_) if is_hurt => {}
            // Without the member that is missing it is refused, and assembled next time.
            Err(Fault::NoQuorum(_)) if present != Members::ALL => {}
            Err(why) => return Err(format!("{present:?}: {why:?}")),
        }
    }
    Ok(None)
}
