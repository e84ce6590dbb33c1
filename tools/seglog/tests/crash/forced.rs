// SPDX-License-Identifier: GPL-2.0

//! Lives in which slots of superblocks are damaged, or give errors for a time, and so do places of
//! the log: what is refused is assembled by force, which may be cut off, and the array goes on.

use std::collections::HashSet;

use seglog::{
    fault::Fault,
    layout::SLOTS,
    members::Members, //
};

use crate::{
    assembly::{
        assemble_by,
        read_all,
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
    random::{
        live_opening,
        Opening,
        Random, //
    },
    search::assemblies,
    setting::Versions,
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
    /// Arrays of which blocks were gone with what was given up.
    pub(crate) lost: usize,
}

/// A life, so far.
struct Life<'a> {
    counts: &'a mut Counts,
    /// The slots and places that may be hurt at a time.
    hurts: usize,
    /// The states that the array has had.
    ever: HashSet<Versions>,
    /// States that may be found beside those of the history: what force was about to give.
    given: Vec<Versions>,
}

/// Lives one life with up to so many slots and places hurt in each assembly; returns what is wrong.
pub(crate) fn live_by_force(
    seed: u64,
    hurts: usize,
    formatted: Disks,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut life = Life {
        counts,
        hurts,
        ever: HashSet::new(),
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
    hurts: usize,
) -> Errors {
    let (mut errors, crc) = (Errors::default(), Fast(Mistake::None));
    if random.below(4) == 0 {
        return errors;
    }
    let whole = assemble(shape, (disks, present), &errors, true);
    let seen = whole.iter().flat_map(|whole| &whole.assembled.errors.seen);
    let seen: Vec<_> = seen.copied().collect();
    let members: Vec<_> = present.iter().collect();
    for _ in 0..=random.below(hurts) {
        let member = members[random.below(members.len())];
        let what = random.below(4);
        if what == 0 && !seen.is_empty() {
            let from = seen.len() / 2 * random.below(2);
            errors
                .bad
                .insert(seen[from + random.below(seen.len() - from)]);
            continue;
        }
        let newer = superblock_of(shape, &disks[member], &crc).map_or(0, |shown| shown.slot());
        let slot = (newer + u8::from(random.below(4) == 0)) % SLOTS;
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

    /// Checks what was found: by force a state that the array has had, else one that may be.
    fn check(&mut self, shape: &Shape, attempt: &Attempt, history: &History) -> Result<(), String> {
        let assembled = &attempt.assembled;
        let found = &assembled.versions;
        let is_right = match attempt.is_forced {
            true => self.ever.contains(found),
            false => history.allows(found) || self.given.contains(found),
        };
        if !is_right {
            let (states, given) = (&history.states, &self.given);
            return Err(format!("may be {states:?}, {given:?}"));
        }
        check_members(shape, assembled)?;
        check_again(shape, assembled)
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
        self.ever.extend(&history.states);
        self.given.clear();
        for _ in 0..8 {
            let is_last = random.below(3) != 0;
            let present = assemblies()[random.below(6).saturating_sub(2)];
            let before = disks.clone();
            let errors = hurt(random, shape, (&mut *disks, present), self.hurts);
            let Some(mut attempt) = self.attempt(shape, (disks, present), &errors) else {
                continue;
            };
            let (found, is_forced) = (attempt.assembled.versions, attempt.is_forced);
            let id = attempt.assembled.opened.epoch.id;
            let bad = &errors.bad;
            let said = |why| format!("{present:?} {is_forced} without {bad:?}: {found:?}: {why}");
            // They were written again since then: what is left is no state.
            if is_forced && found.contains(&u16::MAX) {
                self.counts.lost += 1;
                *disks = before;
                continue;
            }
            self.check(shape, &attempt, history).map_err(said)?;
            if is_last || attempt.states.is_empty() {
                self.counts.assembled += 1;
                self.counts.forced += usize::from(is_forced);
                return Ok(Some(World::new(&attempt.assembled, depth)));
            }
            let state = random.below(attempt.states.len());
            let state = attempt.states.swap_remove(state);
            *disks = state.map(|d| d.crashed(shape.torn, &mut |limit| random.below(limit)));
            if is_forced {
                self.given.push(found);
                if is_told(shape, disks, id) {
                    self.check_cut_off(shape, (disks, present)).map_err(said)?;
                }
            }
        }
        Ok(None)
    }

    fn see(&mut self, world: &World) {
        self.ever.insert(world.history.newest());
    }
}
