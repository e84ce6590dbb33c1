// SPDX-License-Identifier: GPL-2.0

//! The search through all orders of events, with a crash in each state, and all assemblies after
//! it.

use std::collections::HashSet;

use seglog::{
    fault::Fault,
    members::Members, //
};

use crate::{
    assembly::{
        assemble,
        hash_of,
        read_all,
        Fast, //
    },
    disk::{
        crash_images,
        Disks,
        Shape, //
    },
    history::History,
    setting::Setting,
    world::World,
    Mistake,
};

/// More states than any world has: one that never comes to rest fails by it.
const STATES_MAX: usize = 300_000;

/// All members, and each but one.
pub(crate) fn assemblies() -> [Members; 4] {
    let all = Members::ALL;
    [
        all,
        all.minus(Members::of(0)),
        all.minus(Members::of(1)),
        all.minus(Members::of(2)),
    ]
}

/// Counts of what was searched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// States of the log and its members.
    pub(crate) states: usize,
    /// Assemblies after a crash.
    pub(crate) assemblies: usize,
    /// Assemblies that were refused, as too few members were in sync.
    pub(crate) refused: usize,
    /// Assemblies of two members that had to be forced, as a slot of one is torn.
    pub(crate) forced: usize,
}

/// A search.
pub(crate) struct Search<'a> {
    setting: &'a Setting,
    shape: Shape,
    mistake: Mistake,
    known: HashSet<u64>,
    pub(crate) figures: Figures,
    /// The first thing that is wrong.
    pub(crate) wrong: Option<String>,
}

/// State after a crash.
struct Crashed {
    disks: Disks,
    history: History,
    /// The assemblies that were finished before.
    depth: usize,
    /// The assemblies that were cut off since then.
    cuts: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(setting: &'a Setting, mistake: Mistake) -> Self {
        Self {
            setting,
            shape: Shape {
                layout: setting.layout,
                torn: setting.torn,
            },
            mistake,
            known: HashSet::new(),
            figures: Figures::default(),
            wrong: None,
        }
    }

    /// Visits all that can come of an array on these members, which nothing was written to.
    pub(crate) fn run(&mut self, disks: Disks) {
        let mut left = vec![Crashed {
            disks,
            history: History::new(0, [0; crate::setting::BLOCKS]),
            depth: 0,
            cuts: self.setting.cuts,
        }];
        while let Some(crashed) = left.pop() {
            let first = self.setting.first.filter(|_| crashed.depth == 0);
            let all = assemblies().into_iter();
            for present in all.filter(|present| first.is_none_or(|first| first == *present)) {
                self.assemble(&crashed, present, &mut left);
                if self.wrong.is_some() {
                    return;
                }
            }
        }
    }

    /// Adds all that a crash can leave.
    fn crash(&mut self, disks: &Disks, crashed: &Crashed, left: &mut Vec<Crashed>) {
        let history = &crashed.history;
        if !self
            .known
            .insert(hash_of(&(disks, history, crashed.depth, crashed.cuts)))
        {
            return;
        }
        for disks in crash_images(disks, self.shape.torn) {
            let key = hash_of(&(&disks, history, crashed.depth, crashed.cuts, "crashed"));
            if self.known.insert(key) {
                left.push(Crashed {
                    disks,
                    history: history.clone(),
                    ..*crashed
                });
            }
        }
    }

    fn assemble(&mut self, crashed: &Crashed, present: Members, left: &mut Vec<Crashed>) {
        self.figures.assemblies += 1;
        let is_cut = crashed.cuts < self.setting.cuts;
        let input = (&crashed.disks, present);
        let (result, states) = assemble(&self.shape, input, self.mistake, is_cut);
        for disks in states {
            let cut = Crashed {
                disks: disks.clone(),
                history: crashed.history.clone(),
                depth: crashed.depth,
                cuts: crashed.cuts + 1,
            };
            self.crash(&disks, &cut, left);
        }
        let assembled = match result {
            Ok(assembled) => assembled,
            Err(Fault::NoQuorum(_)) if present != Members::ALL => {
                self.figures.refused += 1;
                return;
            }
            Err(why) => return self.complain(format!("{present:?}: {why:?}")),
        };
        if assembled.is_forced && (present == Members::ALL || !self.shape.torn) {
            return self.complain(format!("{present:?} is forced"));
        }
        self.figures.forced += usize::from(assembled.is_forced);
        if !crashed.history.allows(&assembled.versions) {
            let (found, states) = (assembled.versions, &crashed.history.states);
            return self.complain(format!("{present:?}: {found:?} and may be {states:?}"));
        }
        let world = World::new(&assembled, crashed.depth);
        let goes_on = crashed.cuts == 0 || crashed.depth == 0 || self.setting.goes_on_after_cuts;
        let is_usual = !self.setting.in_order || crashed.depth == 0 || present == Members::ALL;
        if crashed.depth < self.setting.mounts.len() && goes_on && is_usual {
            self.application(world, crashed.depth, left);
        }
    }

    fn read(&mut self, world: &World) {
        if let Err(why) = read(&self.shape, world, self.mistake) {
            self.complain(why);
        }
    }

    /// Visits all states of an application.
    fn application(&mut self, world: World, depth: usize, left: &mut Vec<Crashed>) {
        let mut worlds = vec![world];
        while let Some(world) = worlds.pop() {
            if !self.known.insert(hash_of(&(&world, depth))) {
                continue;
            }
            self.figures.states += 1;
            assert!(self.figures.states < STATES_MAX, "the states do not end");
            self.read(&world);
            if self.wrong.is_some() {
                return;
            }
            let crashed = Crashed {
                disks: world.disks.clone(),
                history: world.history.clone(),
                depth: depth + 1,
                cuts: 0,
            };
            if depth < self.setting.crashes {
                self.crash(&world.disks, &crashed, left);
            }
            for event in world.events(self.setting, depth) {
                let with = (self.setting, &self.shape);
                worlds.extend(world.after(with, depth, event, self.mistake));
            }
        }
    }

    fn complain(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

/// Each read gives what was acknowledged, from all members that live and without any one of them if
/// all do. What is in a cache that was lost is not there.
pub(crate) fn read(shape: &Shape, world: &World, mistake: Mistake) -> Result<(), String> {
    if let Some(why) = &world.misread {
        return Err(why.clone());
    }
    let Some(expected) = world.acknowledged() else {
        return Ok(());
    };
    let live = world.live();
    let ways = if live == Members::ALL {
        assemblies().to_vec()
    } else {
        vec![live]
    };
    for usable in ways.into_iter().filter(|_| !world.has_lost_cache()) {
        let found = read_all(shape, &world.disks, &world.table, usable, &Fast(mistake));
        if found.as_ref() != Ok(&expected) {
            return Err(format!(
                "{usable:?} read {found:?}, acknowledged is {expected:?}"
            ));
        }
    }
    Ok(())
}
