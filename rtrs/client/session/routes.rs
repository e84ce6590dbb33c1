// SPDX-License-Identifier: GPL-2.0

//! The routes of a session: the connected paths, of which a request takes one without a look at the
//! others.
//!
//! They are what senders go by, and not what is true: a path whose connections are gone may be
//! among them for a moment, and one that is connected may not be yet. A sender that finds a path
//! without connections goes on as if it had failed, and that looks at all paths of the session.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU8,
    Ordering::Relaxed, //
};
use rtrs_core::proto::{
    policy::{
        self,
        Policy, //
    },
    PATHS_MAX, //
};

use crate::client::{
    io::request::Attempt,
    path::Path,
    session::{
        paths::Paths,
        Session, //
    }, //
};

/// The paths among which a request chooses, each by its index in the list of all.
pub(crate) struct Routes {
    /// The number of places that are valid.
    count: AtomicU32,
    /// Whether the choice depends on the requests in flight.
    compares: AtomicBool,
    places: [AtomicU8; PATHS_MAX],
}

impl Routes {
    /// Returns those of a session without a path.
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            compares: AtomicBool::new(false),
            places: [const { AtomicU8::new(0) }; PATHS_MAX],
        }
    }

    /// Finds the routes among `all`.
    pub(super) fn refresh(&self, policy: Policy, all: &[Arc<Path>]) {
        let guard = rcu::read_lock();
        let mut count = 0u32;
        let routes = policy.routes(all.iter().map(|path| path.load(&guard)));
        for (index, place) in routes.zip(&self.places) {
            // CAST: Below `PATHS_MAX`.
            place.store(index as u8, Relaxed);
            count = count.wrapping_add(1);
        }
        self.count.store(count, Relaxed);
        self.compares.store(policy.counts_requests(), Relaxed);
    }
}

impl Paths {
    /// Returns the path at a place among the routes.
    #[inline(always)]
    fn at(&self, place: u32) -> Option<&Arc<Path>> {
        // The remainder spares a comparison.
        let index = self.routes.places.get(place as usize % PATHS_MAX)?;
        self.all.get(usize::from(index.load(Relaxed)))
    }

    fn inflight(&self, place: u32, guard: &rcu::Guard) -> u32 {
        let connections = self.at(place).and_then(|path| path.connections.read(guard));
        connections.map_or(u32::MAX, |connections| connections.requests.counted())
    }
}

impl Session {
    /// Chooses the path for the first try of a request. If none is connected, it is any one.
    #[inline(always)]
    pub(super) fn route<'a>(
        &self,
        paths: &'a Paths,
        guard: &rcu::Guard,
    ) -> (Option<&'a Arc<Path>>, Attempt) {
        let routes = &paths.routes;
        if routes.compares.load(Relaxed) {
            let attempt = Attempt {
                is_counted: true,
                ..Attempt::FIRST
            };
            return (self.lesser_route(paths, guard), attempt);
        }
        let last = &self.turns.this_cpu().last;
        // CAST: It was one.
        let place = policy::next(last.get() as u32, routes.count.load(Relaxed));
        last.set(place.into());
        (paths.at(place), Attempt::FIRST)
    }

    #[inline(never)]
    fn lesser_route<'a>(&self, paths: &'a Paths, guard: &rcu::Guard) -> Option<&'a Arc<Path>> {
        let turns = self.turns.this_cpu();
        let (place, compared) = policy::lesser(
            // CAST: They were places.
            turns.last.get() as u32,
            turns.compared.get() as u32,
            paths.routes.count.load(Relaxed),
            |place| paths.inflight(place, guard),
        );
        turns.last.set(place.into());
        turns.compared.set(compared.into());
        paths.at(place)
    }

    /// Finds the routes anew: a path has got connections, or lost them, or has answered a
    /// heartbeat, or the list of paths or the policy has changed. Any context.
    #[cold]
    pub(crate) fn refresh_routes(&self) {
        // Who comes last has seen all that was changed before; the list as well.
        let _alone = self.routing.lock();
        let guard = rcu::read_lock();
        if let Some(paths) = self.paths.read(&guard) {
            paths.routes.refresh(self.policy(), &paths.all);
        }
    }
}
