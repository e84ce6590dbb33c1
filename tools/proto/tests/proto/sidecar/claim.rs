// SPDX-License-Identifier: GPL-2.0

//! Two servers that share a disk: in every order of their steps, however late each of them is, one
//! has it at a time.
//!
//! Time passes in ticks. In each of them any number of steps is taken; reads and writes of marks,
//! and what a server makes of them, may be late without a limit. Servers stop, close the device,
//! meet errors of the disk, and in a lease read what is not there. What is limited: a server that
//! closes the device writes at most [`IN_FLIGHT`](server::IN_FLIGHT) ticks later, as all IO is that
//! is in flight at the end of a lease.

mod advance;
mod names;
mod permission;
mod server;

use std::{
    collections::{
        HashMap,
        HashSet, //
    },
    hash::{
        Hash,
        Hasher, //
    },
};

use proto::sidecar::claim::mark::Found;

use self::{
    names::{
        Fast,
        Names, //
    },
    server::{
        Mistake,
        Server, //
    },
};

/// The mark of a server that is none of the two.
const STALE: Found = Found::Marked {
    opening: 9,
    stamp: 0,
};

/// A state of all, by the numbers of the mark on the disk and of the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct World {
    sector: u32,
    servers: [u32; 2],
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, second] = self.servers.map(u64::from);
        // No number is that large.
        state.write_u64(u64::from(self.sector) << 56 ^ first << 28 ^ second);
    }
}

/// The result of a step of a server.
#[derive(Clone, Copy)]
struct After {
    server: u32,
    sector: u32,
    /// The server has the device from now on.
    relieves: bool,
}

/// Counts of a search: states, and in how many of them each of the servers had the device.
#[derive(Debug, Default)]
struct Figures {
    states: usize,
    uses: [usize; 2],
}

/// All states that can be reached. What a server does next depends on itself, the mark on the disk
/// and the next mark alone, so it is computed once for each of these.
struct Model {
    mistake: Mistake,
    servers: Names<Server>,
    marks: Names<Found>,
    steps: HashMap<(u32, u32, u32), Vec<After>, Fast>,
    ticks: HashMap<u32, Option<u32>, Fast>,
}

impl Model {
    fn new(mistake: Mistake) -> Self {
        Self {
            mistake,
            servers: Names::new(),
            marks: Names::new(),
            steps: HashMap::default(),
            ticks: HashMap::default(),
        }
    }

    /// The number of a mark that is nowhere yet.
    fn fresh(&mut self, world: World, at: usize) -> u32 {
        let servers = world.servers.map(|server| self.servers.get(server));
        let sector = self.marks.get(world.sector);
        let opening = servers[at].opening;
        let is_used = |mark| *sector == mark || servers.iter().any(|server| server.knows(mark));
        let mut all = (0..).map(|stamp| Found::Marked { opening, stamp });
        self.marks.number(all.find(|mark| !is_used(*mark)).unwrap())
    }

    /// Adds all states to which a step of server `at` leads, but for those of time.
    fn steps(&mut self, world: World, at: usize, all: &mut Vec<World>) {
        let key = (world.servers[at], world.sector, self.fresh(world, at));
        let (servers, marks) = (&mut self.servers, &mut self.marks);
        let next = self.steps.entry(key).or_insert_with(|| {
            let here = [key.1, key.2].map(|mark| *marks.get(mark));
            let next = servers.get(key.0).steps(here, self.mistake).into_iter();
            next.map(|(server, sector, relieves)| After {
                server: servers.number(server),
                sector: marks.number(sector),
                relieves,
            })
            .collect()
        });
        for after in next {
            let mut servers = world.servers;
            servers[at] = after.server;
            if after.relieves {
                let relieved = self.servers.get(servers[1 - at]).relieved();
                servers[1 - at] = self.servers.number(relieved);
            }
            let sector = after.sector;
            all.push(World { sector, servers });
        }
    }

    /// A tick passes for a server; `None` if what is limited would last longer.
    fn tick(&mut self, server: u32) -> Option<u32> {
        if let Some(known) = self.ticks.get(&server) {
            return *known;
        }
        let ticked = (*self.servers.get(server)).tick(self.mistake);
        let ticked = ticked.map(|ticked| self.servers.number(ticked));
        self.ticks.insert(server, ticked);
        ticked
    }

    /// Notes who uses the device; what is wrong.
    fn check(&mut self, world: &mut World, figures: &mut Figures) -> Option<&'static str> {
        let servers = world.servers.map(|server| self.servers.get(server));
        let uses = servers.map(|server| server.uses(self.mistake));
        let wrong = |at: usize| match uses[at] {
            true if !servers[at].is_latest => Some("another one has had it meanwhile"),
            true if servers[1 - at].may_write() => Some("the other one's IO may come"),
            _ => None,
        };
        let wrong = match uses {
            [true, true] => Some("both use it"),
            _ => wrong(0).or_else(|| wrong(1)),
        };

        let all = world.servers.iter_mut().zip(&mut figures.uses).zip(uses);
        for ((server, count), _) in all.filter(|(_, uses)| *uses) {
            let used = self.servers.get(*server).used();
            *server = self.servers.number(used);
            *count += 1;
        }
        wrong
    }

    /// Visits every state that can be reached from any of these marks on; what is wrong.
    fn explore(&mut self, sectors: &[Found]) -> Result<Figures, &'static str> {
        let (mut known, mut left) = (HashSet::<World, Fast>::default(), Vec::new());
        let servers = [1, 2].map(|opening| self.servers.number(Server::new(opening)));
        for sector in sectors {
            let sector = self.marks.number(*sector);
            left.push(World { sector, servers });
        }
        let mut figures = Figures::default();
        while let Some(mut world) = left.pop() {
            let mut seen = Figures::default();
            let wrong = self.check(&mut world, &mut seen);
            if !known.insert(world) {
                continue;
            }
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            figures.states += 1;
            for at in 0..2 {
                figures.uses[at] += seen.uses[at];
                self.steps(world, at, &mut left);
            }
            let ticked = world.servers.map(|server| self.tick(server));
            if let [Some(first), Some(second)] = ticked {
                let servers = [first, second];
                left.push(World { servers, ..world });
            }
        }
        Ok(figures)
    }
}

#[test]
fn one_server_has_the_device_at_a_time() {
    let figures = Model::new(Mistake::None).explore(&[Found::Free, STALE]);
    let figures = figures.unwrap();
    println!("{figures:?}");
    assert!(figures.uses.iter().all(|states| *states > 1000));
}

/// The model is worth something.
#[test]
fn mistakes_are_found() {
    for mistake in [
        Mistake::LeaseNotKept,
        Mistake::NotSettled,
        Mistake::LateNotNoticed,
        Mistake::StaleTooEarly,
    ] {
        let wrong = Model::new(mistake).explore(&[Found::Free]).err();
        println!("{mistake:?}: {wrong:?}");
        assert!(wrong.is_some(), "{mistake:?} is not found");
    }
}
