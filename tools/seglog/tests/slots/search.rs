// SPDX-License-Identifier: GPL-2.0

//! Visits the worlds of a family.

use std::collections::{
    BTreeMap,
    HashMap,
    HashSet, //
};

use seglog::{
    batch::Kind,
    fault::Fault,
    members::{
        Members,
        MEMBERS, //
    },
};

use crate::{
    disk::Bad,
    truth::Batch,
    world::{
        Assembled,
        Attempt,
        Then,
        World, //
    },
};

/// Worlds that are visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// Assemblies that go wrong, or go on, one after the other; then one more is checked.
    pub(crate) steps: usize,
    /// Slots that cannot be read in each of them, and in the last one.
    pub(crate) bad: usize,
    pub(crate) bad_at_last: usize,
    /// Whether they may be damaged for good, too.
    pub(crate) damages: bool,
    /// The power fails in the middle of writes, too.
    pub(crate) tears: bool,
    /// A unit of the log cannot be read, too.
    pub(crate) places: bool,
    pub(crate) places_at_last: bool,
    /// A member fails while the array runs, too.
    pub(crate) fails: bool,
    /// Batches are not flushed, or on two members.
    pub(crate) batches: bool,
    /// Whether there are dumps.
    pub(crate) dumps: bool,
    /// Members return, and devices are replaced.
    pub(crate) returns: bool,
    /// Assemblies by force before the last one, at most.
    pub(crate) forces: u32,
    /// Whether assemblies are cut off when they have told one member or two, or go on with a batch:
    /// worlds are sampled before each step from the third on.
    pub(crate) is_narrow: bool,
    /// Number of worlds of the last step of which one is visited.
    pub(crate) sample: u64,
    /// The assemblies that are accepted at least, where all worlds are visited: a change that
    /// refuses more than it must shows here.
    pub(crate) assembled_min: usize,
}

/// Worlds that are refused, and look the same.
struct Refused {
    /// Results that would be right in each of these worlds.
    answers: Vec<Vec<Batch>>,
    why: &'static str,
    example: String,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) worlds: usize,
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
    seen: HashMap<(u64, bool), Refused>,
}

impl Counts {
    /// Returns the views of arrays that are refused, by whether force is used and why: all, and
    /// those where one result is right in each world that looks so. With each one of these.
    pub(crate) fn refusals(&self) -> BTreeMap<(bool, &'static str), (usize, usize, &str)> {
        let mut found = BTreeMap::new();
        for ((_, is_forced), refused) in &self.seen {
            let count = found.entry((*is_forced, refused.why)).or_insert((0, 0, ""));
            count.0 += 1;
            if !refused.answers.is_empty() {
                count.1 += 1;
                let is_shorter = count.2.is_empty() || refused.example.len() < count.2.len();
                if is_shorter {
                    count.2 = &refused.example;
                }
            }
        }
        found
    }
}

const fn name(why: &Fault<()>) -> &'static str {
    match why {
        Fault::NoQuorum(why) if why.force_helps => "NoQuorum, force",
        Fault::NoQuorum(_) => "NoQuorum",
        Fault::Unsure(_) => "Unsure",
        Fault::Superseded { .. } => "Superseded",
        Fault::Unreadable { .. } => "Unreadable",
        Fault::Damaged { .. } => "Damaged",
        Fault::Overrun { .. } => "Overrun",
        Fault::Superblock(..) => "Superblock",
        Fault::Io(..) => "Io",
        _ => "other",
    }
}

/// All sets of at most so many slots of members.
fn bads(present: Members, count: usize) -> impl Iterator<Item = Bad> {
    (0..1 << (2 * MEMBERS)).map(Bad).filter(move |bad| {
        let both = |member| bad.has(member, 0) && bad.has(member, 1);
        let is_there = |member: usize| present.contains(member) || bad.0 >> (2 * member) & 3 == 0;
        let fits = |member| is_there(member) && !both(member);
        bad.0.count_ones() as usize <= count && (0..MEMBERS).all(fits)
    })
}

/// Ways to assemble an array without so many slots.
fn attempts(world: &World, bad: usize, places: bool) -> Vec<Attempt> {
    let present = [0b111u8, 0b011, 0b101, 0b110].map(|bits| Members::from_bits(bits).unwrap());
    let units = if places {
        world.disks.units()
    } else {
        Default::default()
    };
    let mut found = Vec::new();
    for present in present {
        for bad in bads(present, bad) {
            let of = |member| units.iter().map(move |at| Some((member, *at)));
            for place in present.iter().flat_map(of).chain([None]) {
                found.extend([false, true].map(|is_forced| Attempt {
                    present,
                    bad,
                    place,
                    swaps: false,
                    is_forced,
                }));
            }
        }
    }
    if let Some((member, _)) = world.spare {
        let swapped = |attempt: &Attempt| Attempt {
            swaps: true,
            ..*attempt
        };
        let with = found
            .iter()
            .filter(|attempt| attempt.present.contains(member));
        let with: Vec<_> = with.map(swapped).collect();
        found.extend(with);
    }
    found
}

/// Returns ways to go on from an assembly that has ended well.
fn thens(with: Family, opened: &Assembled) -> Vec<Then> {
    let mut found = vec![Then::Open {
        writes: Some(Kind::Striped),
    }];
    if !with.is_narrow {
        found.push(Then::Open { writes: None });
    }
    if with.batches {
        let writes = Some(Kind::Mirror);
        found.extend([Then::Open { writes }, Then::Unflushed]);
    }
    let live = opened.log.live();
    if with.dumps {
        found.extend((0..=live.count()).map(|told| Then::Dump { told }));
    }
    if with.returns && live != Members::ALL {
        let new = [false, true].into_iter();
        found.extend(
            new.flat_map(|is_new| (0..=MEMBERS).map(move |told| Then::Returns { is_new, told })),
        );
    }
    for member in (0..MEMBERS).filter(|_| with.fails && live == Members::ALL) {
        let others = Members::ALL.minus(Members::of(member));
        let told = others.iter().map(Members::of).chain([others]);
        for (told, goes_on) in told.flat_map(|told| [(told, false), (told, true)]) {
            if told == others || !goes_on {
                found.push(Then::Fails {
                    member,
                    told,
                    goes_on,
                });
            }
        }
    }
    found
}

/// Whether a reason says what helps, which does: force, or naming two.
fn helps(world: &World, attempt: Attempt, why: &Fault<()>) -> bool {
    let by_force = |present| {
        let forced = Attempt {
            present,
            is_forced: true,
            ..attempt
        };
        world.assemble(forced).is_ok()
    };
    let is_helped = match why {
        Fault::NoQuorum(why) if !why.force_helps && why.present == Members::ALL => {
            let each = (0..MEMBERS).map(|member| Members::ALL.minus(Members::of(member)));
            each.into_iter().any(by_force)
        }
        Fault::NoQuorum(why) if !why.force_helps => false,
        Fault::NoQuorum(_) | Fault::Unsure(_) | Fault::Superseded { .. } => {
            by_force(attempt.present)
        }
        _ => false,
    };
    is_helped || attempt.is_forced
}

struct Search {
    with: Family,
    counts: Counts,
    known: HashSet<u64>,
    next: Vec<World>,
}

impl Search {
    fn add(&mut self, world: Option<World>) {
        if let Some(world) = world.filter(|world| self.known.insert(world.key())) {
            self.next.push(world);
        }
    }

    /// Adds what becomes of an array that was assembled.
    fn follow(&mut self, world: &World, opened: &Assembled) {
        let may_damage = self.with.damages && opened.attempt.bad != Bad::default();
        for damages in [false, true].into_iter().take(1 + usize::from(may_damage)) {
            let (all, is_narrow) = (0..=opened.run.writes.len(), self.with.is_narrow);
            for writes in all.filter(|writes| !is_narrow || [1, 2].contains(writes)) {
                for is_torn in [false, true]
                    .into_iter()
                    .take(1 + usize::from(self.with.tears))
                {
                    self.add(world.cut_off(opened, (writes, is_torn), damages));
                }
            }
            for then in thens(self.with, opened) {
                self.add(world.go_on(opened, then, damages));
            }
        }
    }

    fn refuse(&mut self, world: &World, attempt: Attempt, why: &Fault<()>) {
        self.counts.refused += 1;
        let kept = attempt.is_forced.then(|| world.kept(attempt));
        let mut answers = world.truth.answers(kept.as_ref());
        let seen = world
            .disks
            .seen(attempt.present, attempt.bad, attempt.place);
        match self.counts.seen.get_mut(&(seen, attempt.is_forced)) {
            Some(before) => before.answers.retain(|answer| answers.contains(answer)),
            None => {
                let can_read = |batch: &Batch| world.can_read(attempt.present, *batch);
                answers.retain(|answer| answer.iter().all(can_read));
                let steps = world.steps.as_ref().map(ToString::to_string);
                let refused = Refused {
                    answers,
                    why: name(why),
                    example: format!("{}  {attempt}: {why:?}", steps.unwrap_or_default()),
                };
                self.counts.seen.insert((seen, attempt.is_forced), refused);
            }
        }
    }

    /// Assembles a world in each way.
    fn visit(&mut self, world: &World, is_last: bool) -> Result<(), String> {
        self.counts.worlds += 1;
        let Family { bad, places, .. } = self.with;
        let (bad, places) = if is_last {
            (self.with.bad_at_last, self.with.places_at_last)
        } else {
            (bad, places)
        };
        let usual = world;
        let swapped = world.spare.as_ref().map(|_| world.swapped());
        for attempt in attempts(world, bad, places) {
            if !is_last && attempt.is_forced && world.forces >= self.with.forces {
                continue;
            }
            let swapped = swapped.as_ref().filter(|_| attempt.swaps);
            let world = swapped.unwrap_or(usual);
            match world.assemble(attempt) {
                Ok(opened) => {
                    self.counts.accepted += 1;
                    let kept = attempt.is_forced.then(|| world.kept(attempt));
                    if !world.truth.allows(&opened.found, kept.as_ref()) {
                        let steps = world.steps.as_ref().map(ToString::to_string);
                        return Err(format!(
                            "\n{}  {attempt}\nfound {:x?}, {kept:x?}, {:x?}",
                            steps.unwrap_or_default(),
                            opened.found,
                            world.truth
                        ));
                    }
                    if let Err(why) = world.holds(&opened) {
                        let steps = world.steps.as_ref().map(ToString::to_string);
                        let steps = steps.unwrap_or_default();
                        return Err(format!("\n{steps}  {attempt}\n{why}"));
                    }
                    if !is_last {
                        self.follow(world, &opened);
                    }
                }
                Err(why) => {
                    if world.must_assemble(attempt) && !helps(world, attempt, &why) {
                        let steps = world.steps.as_ref().map(ToString::to_string);
                        let steps = steps.unwrap_or_default();
                        return Err(format!("\n{steps}  {attempt}\nis refused: {why:?}"));
                    }
                    self.refuse(world, attempt, &why);
                }
            }
        }
        Ok(())
    }
}

/// Returns an array of which all members have a batch.
pub(crate) fn begun() -> Option<World> {
    let first = Attempt {
        present: Members::ALL,
        bad: Bad::default(),
        place: None,
        swaps: false,
        is_forced: false,
    };
    let new = World::new();
    let opened = new.assemble(first).ok()?;
    let writes = Some(Kind::Striped);
    new.go_on(&opened, Then::Open { writes }, false)
}

/// Visits all worlds of a family.
pub(crate) fn search(with: Family) -> Result<Counts, String> {
    let mut search = Search {
        with,
        counts: Counts::default(),
        known: HashSet::new(),
        next: Vec::new(),
    };
    let mut worlds: Vec<World> = begun().into_iter().collect();
    for step in 0..=with.steps {
        for world in &worlds {
            search.visit(world, step == with.steps)?;
        }
        worlds = std::mem::take(&mut search.next);
        if step + 1 == with.steps || with.is_narrow && step > 0 {
            worlds.retain(|world| world.key() % with.sample == 0);
        }
    }
    Ok(search.counts)
}
