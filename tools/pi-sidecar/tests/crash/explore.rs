// SPDX-License-Identifier: GPL-2.0

//! The search through all orders of events, with a crash in each state.

use std::{
    collections::{
        HashMap,
        HashSet, //
    },
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    },
    rc::Rc,
};

use proto::sidecar::{
    group,
    ring::Ring,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        crash_images,
        Image,
        Kind,
        Shape, //
    },
    recover::{
        recover,
        version,
        Recovered,
        Seen, //
    },
    setting::Setting,
    world::{
        Fault,
        Progress,
        World, //
    }, //
};

/// More states than any scenario has: a store that never comes to rest fails by it.
const STATES_MAX: usize = 300_000;

/// Counts of a search, which show that it came to what it was made for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// States of the store and the device.
    pub(crate) states: usize,
    /// States after a crash, each for one history of the application.
    pub(crate) crashes: usize,
    /// Blocks that were checked.
    pub(crate) blocks: usize,
    /// Blocks that were reported as torn, and are.
    pub(crate) torn: usize,
    /// Repairs from the copy of the superblock.
    pub(crate) repairs: usize,
    /// Devices that were refused because of a fault.
    pub(crate) refused: usize,
    /// Blocks that are errors because of a fault.
    pub(crate) errors: usize,
}

/// The contents and faults that a block may have after a crash, by what the application was told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Allowed {
    seen: Vec<Seen>,
    /// A write of it may be torn.
    may_tear: bool,
    /// A fault permits an error.
    may_err: bool,
    /// A fault permits that the device is refused.
    may_be_refused: bool,
}

/// A search from one state on.
pub(crate) struct Search<'a> {
    shape: &'a mut Shape,
    setting: &'a Setting,
    recovered: HashMap<Image, Rc<Recovered>>,
    /// Pairs of an image and what is allowed that were checked.
    checked: HashSet<(u64, u64)>,
    known: HashSet<u64>,
    /// Also crashes that leave the cache of the device as it is.
    pub(crate) warm: bool,
    /// Ends of replays.
    pub(crate) ends: HashMap<(Image, Vec<Seen>), Ring>,
    pub(crate) figures: Figures,
    /// The first thing that is wrong.
    pub(crate) wrong: Option<String>,
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<'a> Search<'a> {
    pub(crate) fn new(shape: &'a mut Shape, setting: &'a Setting) -> Self {
        Self {
            shape,
            setting,
            recovered: HashMap::new(),
            checked: HashSet::new(),
            known: HashSet::new(),
            warm: false,
            ends: HashMap::new(),
            figures: Figures::default(),
            wrong: None,
        }
    }

    /// Visits all states that can follow `world`.
    pub(crate) fn run(&mut self, world: World) {
        let mut left = vec![world];
        while let Some(world) = left.pop() {
            assert!(self.figures.states < STATES_MAX, "the states do not end");
            if self.wrong.is_some() {
                return;
            }
            if !self.known.insert(hash_of(&world)) {
                continue;
            }
            self.figures.states += 1;
            self.crash(&world);
            for event in world.events(self.setting) {
                left.extend(world.after(self.setting, self.shape, event));
            }
        }
    }

    fn allowed(&self, world: &World) -> Vec<Allowed> {
        let blocks = self.setting.data.iter().zip(&self.setting.base);
        let each = blocks.map(|(block, base)| {
            let mut seen = match (*base, *block < world.layout.data_blocks()) {
                (Seen::Absent, true) => vec![Seen::Zeroes],
                // The superblock may be durable, though its write has not ended.
                (Seen::Absent, false) => vec![Seen::Absent, Seen::Zeroes],
                (base, _) => vec![base],
            };
            let mut may_tear = *base == Seen::Lost;
            for op in self.setting.changes(*block) {
                let is_discard = matches!(self.setting.ops[op], crate::setting::Op::Discard(_));
                match world.progress[op] {
                    Progress::Waiting => continue,
                    // Its outcome is open.
                    Progress::Failed => may_tear |= !is_discard,
                    Progress::Durable => {
                        seen.clear();
                        may_tear = false;
                    }
                    Progress::Submitted(_) | Progress::Acknowledged => may_tear |= !is_discard,
                }
                seen.push(if is_discard {
                    Seen::Zeroes
                } else {
                    Seen::Version(self.setting.version(op))
                });
            }
            let mut allowed = Allowed {
                seen,
                may_tear,
                may_err: false,
                may_be_refused: false,
            };
            if let Some(fault) = world.fault {
                self.permit(world, fault, *block, &mut allowed);
            }
            allowed
        });
        each.collect()
    }

    /// Adds what a fault permits for a block, by the table in `Documentation/protection.md`.
    fn permit(&self, world: &World, fault: Fault, block: u64, allowed: &mut Allowed) {
        let (place, lost) = match fault {
            Fault::Lost(place, op) => (place, op),
            Fault::Changed(place) => (place, None),
            // Known states lose nothing.
            Fault::Failed
            | Fault::FailedUnseen { .. }
            | Fault::Refused { .. }
            | Fault::NoPiBlock { .. } => return,
            Fault::LateMark => {
                allowed.may_be_refused = true;
                let mut ops = self.setting.changes(block);
                if !ops.any(|op| world.progress[op] >= Progress::Acknowledged) {
                    // Nothing of the new space was used, or nobody knows.
                    allowed.seen.push(Seen::Absent);
                }
                return;
            }
        };
        let (layout, slots) = (&self.shape.layout, u64::from(self.shape.layout.slots()));
        let (group, _) = group::place(block);
        match self.shape.kind(place) {
            Kind::Record => {
                allowed.may_be_refused = true;
                // Its tuples are nowhere.
                let mut ops = self.setting.changes(block);
                allowed.may_err = ops.any(|op| {
                    let record = world.records[op];
                    record != 0 && record % slots == place as u64
                });
            }
            Kind::PiBlock => {
                allowed.may_err =
                    layout.pi_block(group).map(|at| self.shape.place(at)) == Some(place);
            }
            Kind::Other => {
                let at = layout.data(block).map(|(at, _)| self.shape.place(at));
                allowed.may_err = at == Some(place);
                let Some(lost) = lost.filter(|_| allowed.may_err) else {
                    return;
                };
                // No record has said yet that it is durable.
                let mut ops = self.setting.changes(block);
                let newest = ops.rfind(|op| world.progress[*op] == Progress::Durable);
                if newest == Some(lost) && world.told >> lost & 1 == 0 {
                    let before = self.setting.changes(block).take_while(|op| *op < lost);
                    let before = before.map(|op| Seen::Version(self.setting.version(op)));
                    allowed.seen.extend(before.chain([Seen::Zeroes]));
                }
            }
        }
    }

    fn crash(&mut self, world: &World) {
        let allowed = self.allowed(world);
        let key = hash_of(&allowed);
        for image in crash_images(self.shape, &world.medium, &world.writes) {
            self.check_from(image, &allowed, key);
        }
        if self.warm {
            let warm = self.recover(&world.medium, &world.writes);
            // What the readers see may be in the cache only, so it counts as it is.
            self.judge(&warm.seen, None, &allowed);
            self.judge(warm.repaired.as_deref().unwrap_or_default(), None, &allowed);
            for image in &warm.images {
                self.check_from(image.clone(), &allowed, key);
            }
        }
    }

    fn recover(&mut self, medium: &Image, writes: &[crate::disk::Write]) -> Recovered {
        let mut done: Vec<_> = writes.to_vec();
        done.retain(|write| write.is_done);
        recover(self.shape, self.setting, (medium, &done))
    }

    /// Checks what a replay makes of an image, and of what crashes in the replay make of it.
    fn check_from(&mut self, image: Image, allowed: &[Allowed], key: u64) {
        let mut left = vec![image];
        while let Some(image) = left.pop() {
            if self.wrong.is_some() || !self.checked.insert((hash_of(&image), key)) {
                continue;
            }
            self.figures.crashes += 1;
            let recovered = match self.recovered.get(&image) {
                Some(recovered) => recovered.clone(),
                None => {
                    let recovered = Rc::new(self.recover(&image, &[]));
                    self.recovered.insert(image.clone(), recovered.clone());
                    recovered
                }
            };
            self.judge(&recovered.seen, Some(&image), allowed);
            self.figures.refused += usize::from(recovered.is_refused);
            let may_be_refused = allowed.iter().any(|allowed| allowed.may_be_refused);
            if recovered.is_refused && !may_be_refused {
                self.wrong = Some(format!("refused, and may be {allowed:?}"));
            }
            let repaired = recovered.repaired.as_deref().unwrap_or_default();
            self.judge(repaired, Some(&image), allowed);
            self.figures.repairs += usize::from(recovered.repaired.is_some());
            let end = (recovered.end.clone(), recovered.seen.clone());
            self.ends.insert(end, recovered.ring);
            left.extend(recovered.images.iter().cloned());
        }
    }

    fn judge(&mut self, seen: &[Seen], image: Option<&Image>, allowed: &[Allowed]) {
        for (number, (seen, allowed)) in seen.iter().zip(allowed).enumerate() {
            self.figures.blocks += 1;
            let is_right = match seen {
                Seen::Lost | Seen::Bad if allowed.may_err => {
                    self.figures.errors += 1;
                    true
                }
                Seen::Lost => {
                    self.figures.torn += 1;
                    let whole = image.and_then(|image| self.version_in(image, number));
                    // Before the first write, and after a discard, any whole content will do.
                    let is_whole = whole.is_some_and(|version| {
                        allowed.seen.contains(&Seen::Version(version))
                            || allowed.seen.contains(&Seen::Zeroes)
                    });
                    (allowed.may_tear || allowed.seen.contains(seen)) && !is_whole
                }
                seen => allowed.seen.contains(seen),
            };
            if !is_right {
                let block = self.setting.data[number];
                self.wrong = Some(format!("block {block} is {seen:?} and may be {allowed:?}"));
            }
        }
    }

    /// The version of the block of data `number` in an image; `None` if it is torn.
    fn version_in(&self, image: &Image, number: usize) -> Option<u32> {
        let (at, _) = self.shape.layout.data(self.setting.data[number])?;
        let place = self.shape.place(at);
        let mut data = [0; BLOCK_BYTES];
        let parts = &image[self.shape.range(place)];
        self.shape.join(place, parts, &mut data);
        let found = version(&data);
        (data == crate::setting::content(found)).then_some(found)
    }

    /// Returns whether nothing is wrong, and says what is.
    pub(crate) fn is_right(&self) -> bool {
        if let Some(wrong) = &self.wrong {
            println!("{wrong}");
        }
        self.wrong.is_none()
    }
}
