// SPDX-License-Identifier: GPL-2.0

//! Lives in which slots of superblocks are damaged, or give errors for a time, and so do places of
//! the log: what is refused is assembled by force, which may be cut off, and the array goes on.

use seglog::{
    fault::Fault,
    layout::SLOTS,
    members::{
        Members,
        MEMBERS, //
    },
};

use crate::{
    assembly::{
        assemble_by,
        read_all,
        shown,
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
    line::Line,
    random::{
        layout_of,
        live_opening,
        Opening,
        Random, //
    },
    search::assemblies,
    setting::{
        Version,
        Versions,
        BLOCKS,
        UNIT_BYTES, //
    },
    world::World,
    Mistake,
};

/// Counts of the arrays, by how they fared.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Arrays that were assembled, and those that were by force.
    pub(crate) assembled: usize,
    pub(crate) forced: usize,
    /// Arrays that were to be assembled by force again, after that was cut off.
    pub(crate) again: usize,
    /// Arrays that were refused, and those that were by force, too, which was to help.
    pub(crate) refused: usize,
    pub(crate) refused_by_force: usize,
    /// Arrays of which blocks were written over by what was given up.
    pub(crate) lost: usize,
}

/// The damage of an array in its assemblies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hurts {
    /// The slots and places that may be hurt at a time.
    pub(crate) at_a_time: usize,
    /// Most assemblies are cut off, many of them when they have told one member.
    pub(crate) often_cut_off: bool,
    /// Nothing but newer slots gives errors, for a time, and an assembly that is cut off has told
    /// a few members: others are told something else then.
    pub(crate) only_told: bool,
}

impl Hurts {
    pub(crate) const USUAL: Self = Self {
        at_a_time: 4,
        often_cut_off: false,
        only_told: false,
    };
    pub(crate) const OFTEN_CUT_OFF: Self = Self {
        often_cut_off: true,
        ..Self::USUAL
    };
    pub(crate) const ONLY_TOLD: Self = Self {
        at_a_time: 3,
        only_told: true,
        ..Self::OFTEN_CUT_OFF
    };

    /// Whether an assembly is not cut off.
    fn is_last(self, random: &mut Random) -> bool {
        (random.below(3) != 0) != self.often_cut_off
    }

    /// Chooses among so many states in which an assembly is cut off.
    fn cut(self, random: &mut Random, states: usize) -> usize {
        let is_early = self.often_cut_off && (self.only_told || random.below(2) == 0);
        random.below(if is_early { states.min(4) } else { states })
    }
}

/// A life, so far.
struct Life<'a> {
    counts: &'a mut Counts,
    with: Hurts,
    line: Line,
    /// States that may be found beside those of the history: what force was about to give. With
    /// each, what it has kept.
    given: Vec<(Versions, usize)>,
}

/// Lives one life in which slots and places are hurt; returns what is wrong.
pub(crate) fn live_by_force(
    seed: u64,
    with: Hurts,
    formatted: Disks,
    counts: &mut Counts,
) -> Result<(), String> {
    let shape = Shape {
        layout: layout_of(seed),
        torn: false,
    };
    let first = shown(&shape, &formatted, 0, &Errors::default());
    let first = first.ok_or("it is not formatted")?;
    let mut life = Life {
        counts,
        with,
        line: Line::new([0; BLOCKS], &first),
        given: Vec::new(),
    };
    live_opening(seed, Mistake::None, formatted, &mut life)
}

/// Result of an assembly, by force or not, and the states in which it may be cut off.
struct Attempt {
    assembled: Assembled,
    states: Vec<Disks>,
    is_forced: bool,
}

/// Assembles an array, by force or not.
fn assemble(
    shape: &Shape,
    of: (&Disks, Members),
    errors: &Errors,
    is_forced: bool,
) -> Result<Attempt, Fault<Unreadable>> {
    let with = (Mistake::None, true, errors.clone());
    let (result, states) = assemble_by(shape, of, with, is_forced);
    result.map(|assembled| Attempt {
        assembled,
        states,
        is_forced,
    })
}

/// Whether the reason to refuse an array says that force helps.
fn is_offered(why: &Fault<Unreadable>) -> bool {
    match why {
        Fault::Unsure(_) | Fault::Superseded { .. } => true,
        Fault::NoQuorum(why) => why.force_helps,
        _ => false,
    }
}

/// Damages slots for good; returns places that give errors for a time.
fn hurt(
    random: &mut Random,
    shape: &Shape,
    (disks, present): (&mut Disks, Members),
    with: Hurts,
) -> Errors {
    let (mut errors, crc) = (Errors::default(), Fast(Mistake::None));
    if random.below(4) == 0 {
        return errors;
    }
    let whole = (!with.only_told).then(|| assemble(shape, (disks, present), &errors, true));
    let seen = whole
        .iter()
        .flatten()
        .flat_map(|whole| &whole.assembled.errors.seen);
    let seen: Vec<_> = seen.copied().collect();
    let members: Vec<_> = present.iter().collect();
    for _ in 0..=random.below(with.at_a_time) {
        let member = members[random.below(members.len())];
        let what = if with.only_told { 2 } else { random.below(4) };
        if what == 0 && !seen.is_empty() {
            let from = seen.len() / 2 * random.below(2);
            errors
                .bad
                .insert(seen[from + random.below(seen.len() - from)]);
            continue;
        }
        let newer = superblock_of(shape, &disks[member], &crc).map_or(0, |shown| shown.slot());
        let slot = (newer + u8::from(!with.only_told && random.below(4) == 0)) % SLOTS;
        let mut spoilt = disks[member].clone();
        spoilt.spoil(slot);
        // A member without any is to be replaced, and one that looks as if it had been written once
        // hides nothing.
        let left = superblock_of(shape, &spoilt, &crc);
        if left.is_none_or(|left| left.writes == 0) {
            continue;
        }
        if what == 1 {
            disks[member] = spoilt;
        } else {
            errors.bad.insert((member, slot.into()));
        }
    }
    errors
}

/// Checks that all that live have all, and each two of them if three do.
fn check_members(shape: &Shape, assembled: &Assembled) -> Result<(), String> {
    let live = assembled.opened.log.live();
    let crc = Fast(Mistake::None);
    for members in assemblies().into_iter().filter(|m| m.is_within(live)) {
        let found = read_all(shape, &assembled.disks, &assembled.table, members, &crc);
        if found.as_ref() != Ok(&assembled.versions) {
            return Err(format!("{members:?} have {found:?}"));
        }
    }
    Ok(())
}

/// Checks that what was found is found again, when all can be read.
fn check_again(shape: &Shape, before: &Assembled) -> Result<(), String> {
    let live = before.opened.log.live();
    for present in assemblies() {
        match assemble(shape, (&before.disks, present), &Errors::default(), false) {
            Ok(again) if again.assembled.versions != before.versions => {
                let found = again.assembled.versions;
                return Err(format!("then {present:?}: {found:?}"));
            }
            Err(why) if live.is_within(present) => {
                return Err(format!("then {present:?}: {why:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns what members have where an assembly writes its first batch.
fn first_units(shape: &Shape, assembled: &Assembled, disks: &Disks) -> [Vec<u8>; MEMBERS] {
    let at = shape.layout.at(assembled.opened.first.place);
    let at = at.unwrap_or_default();
    [0, 1, 2].map(|member: usize| {
        let mut bytes = vec![0; UNIT_BYTES as usize];
        disks[member].read(shape, at, &mut bytes);
        bytes
    })
}

/// Whether a member was told an epoch.
fn is_told(shape: &Shape, disks: &Disks, id: u64) -> bool {
    let crc = Fast(Mistake::None);
    let shown = |disk| superblock_of(shape, disk, &crc);
    let mut shown = disks.iter().filter_map(shown);
    shown.any(|shown| shown.epoch.id == id)
}

impl Life<'_> {
    /// Assembles an array, by force if that is said to help.
    fn attempt(
        &mut self,
        shape: &Shape,
        of: (&Disks, Members),
        errors: &Errors,
    ) -> Option<Attempt> {
        let why = match assemble(shape, of, errors, false) {
            Ok(attempt) => return Some(attempt),
            Err(why) => why,
        };
        if !is_offered(&why) {
            self.counts.refused += 1;
            return None;
        }
        let forced = assemble(shape, of, errors, true).ok();
        self.counts.refused_by_force += usize::from(forced.is_none());
        forced
    }

    /// Returns the place in the line from which on force keeps what was flushed.
    fn kept(&self, shape: &Shape, (disks, present): (&Disks, Members), errors: &Errors) -> usize {
        let shown = present
            .iter()
            .filter_map(|m| shown(shape, disks, m, errors));
        self.line.kept(&shown.collect::<Vec<_>>())
    }

    /// Checks what was found: by force a state that the members which are there can know of, else
    /// one that may be; returns what it has kept, at least. What is given up may have been written
    /// over what was there before: such blocks are lost, or have what they had later.
    fn check(
        &self,
        attempt: &Attempt,
        (history, kept): (&History, usize),
    ) -> Result<usize, String> {
        let found = &attempt.assembled.versions;
        let given = self.given.iter().find(|(given, _)| given == found);
        let since = self.line.since(kept);
        let is_later = |(block, version): (usize, &Version)| {
            *version == Version::MAX || since.iter().any(|state| state[block] == *version)
        };
        match (attempt.is_forced, given) {
            (true, _) if found.iter().enumerate().all(is_later) => Ok(kept),
            (false, _) if history.allows(found) => Ok(self.line.flushed()),
            (_, Some((_, kept))) => Ok(*kept),
            (true, None) => Err(format!("force keeps {since:?}")),
            (false, None) => Err(format!("may be {:?}, {:?}", history.states, self.given)),
        }
    }

    /// Checks that an assembly by force that was cut off, of which a member knows, can be done
    /// again when all can be read.
    fn check_cut_off(&mut self, shape: &Shape, of: (&Disks, Members)) -> Result<(), String> {
        let none = Errors::default();
        let Err(why) = assemble(shape, of, &none, false) else {
            return Ok(());
        };
        self.counts.again += 1;
        match assemble(shape, of, &none, true) {
            Ok(_) => Ok(()),
            Err(by_force) => Err(format!("cut off: {why:?}, by force {by_force:?}")),
        }
    }
}

impl Opening for Life<'_> {
    fn open(
        &mut self,
        random: &mut Random,
        shape: &Shape,
        disks: &mut Disks,
        (history, depth): (&History, usize),
    ) -> Result<Option<World>, String> {
        self.given.clear();
        for _ in 0..8 {
            let is_last = self.with.is_last(random);
            let present = assemblies()[random.below(6).saturating_sub(2)];
            let before = disks.clone();
            let errors = hurt(random, shape, (&mut *disks, present), self.with);
            let Some(mut attempt) = self.attempt(shape, (disks, present), &errors) else {
                continue;
            };
            let (found, is_forced) = (attempt.assembled.versions, attempt.is_forced);
            let id = attempt.assembled.opened.epoch.id;
            let bad = &errors.bad;
            let said = |why| format!("{present:?} {is_forced} without {bad:?}: {found:?}: {why}");
            let kept = self.kept(shape, (disks, present), &errors);
            let kept = self.check(&attempt, (history, kept)).map_err(said)?;
            // They were written over since then: what is left is no state.
            let is_given = self.given.iter().any(|(given, _)| *given == found);
            if is_forced && !is_given && !self.line.since(kept).contains(&found) {
                self.counts.lost += 1;
                *disks = before;
                continue;
            }
            check_members(shape, &attempt.assembled).map_err(said)?;
            check_again(shape, &attempt.assembled).map_err(said)?;
            if is_last || attempt.states.is_empty() {
                self.counts.assembled += 1;
                self.counts.forced += usize::from(is_forced);
                let world = World::new(&attempt.assembled, depth);
                if is_forced {
                    self.line.go_back(&found, kept);
                }
                self.line.open(&world);
                return Ok(Some(world));
            }
            self.line.cut_off(id, kept);
            let state = self.with.cut(random, attempt.states.len());
            let state = attempt.states.swap_remove(state);
            let there = first_units(shape, &attempt.assembled, disks);
            *disks = state.map(|d| d.crashed(shape.torn, &mut |limit| random.below(limit)));
            if is_forced {
                if first_units(shape, &attempt.assembled, disks) != there {
                    self.line.go_back(&found, kept);
                }
                self.given.push((found, kept));
                // Of two that are shown again one may know more than the other was told.
                let is_one = bad
                    .iter()
                    .filter(|(_, place)| *place < usize::from(SLOTS))
                    .count()
                    < 2;
                if is_one && is_told(shape, disks, id) {
                    self.check_cut_off(shape, (disks, present)).map_err(said)?;
                }
            }
        }
        Ok(None)
    }

    fn see(&mut self, world: &World) {
        self.line.see(world);
    }
}
