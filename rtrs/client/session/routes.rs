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
    path::{
        connections::Connections,
        Path, //
    },
    session::{
        paths::Paths,
        Session, //
    }, //
};

/// Flag of [`Routes::count`]: the choice depends on the requests in flight.
const COMPARES: u32 = 1 << 31;

/// The paths among which a request chooses, each by its index in the list of all.
pub(crate) struct Routes {
    /// The number of places that are valid, and [`COMPARES`].
    count: AtomicU32,
    places: [AtomicU8; PATHS_MAX],
}

impl Routes {
    /// Returns those of a session without a path.
    pub(super) const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
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
        let flag = match policy.counts_requests() {
            true => COMPARES,
            false => 0,
        };
        self.count.store(count | flag, Relaxed);
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

    /// Returns the connections of that path, as long as it has some.
    #[inline(always)]
    fn connections_at<'a>(&'a self, place: u32, guard: &'a rcu::Guard) -> Option<&'a Connections> {
        self.at(place)?.connections.read(guard)
    }
}

impl Session {
    /// Chooses the path for the first try of a request, and returns its connections; `None` if it
    /// has lost them since it was a route, or none is one.
    #[inline(always)]
    pub(super) fn route<'a>(
        &self,
        paths: &'a Paths,
        guard: &'a rcu::Guard,
    ) -> (Option<&'a Connections>, Attempt) {
        let last = &self.turns.this_cpu().last;
        // CAST: It was one.
        let (place, count) = (last.get() as u32, paths.routes.count.load(Relaxed));
        if count & COMPARES != 0 {
            let count = count & !COMPARES;
            let attempt = Attempt {
                is_counted: true,
                ..Attempt::FIRST
            };
            return match paths.connections_at(place, guard) {
                Some(it) if policy::stays(place, count, || it.requests.counted()) => {
                    (Some(it), attempt)
                }
                _ => (self.lesser_route(paths, guard), attempt),
            };
        }
        let place = policy::next(place, count);
        last.set(place.into());
        (paths.connections_at(place, guard), Attempt::FIRST)
    }

    #[inline(never)]
    fn lesser_route<'a>(&self, paths: &'a Paths, guard: &'a rcu::Guard) -> Option<&'a Connections> {
        let turns = self.turns.this_cpu();
        let inflight = |place| {
            let connections = paths.connections_at(place, guard);
            connections.map_or(u32::MAX, |connections| connections.requests.counted())
        };
        let (place, compared) = policy::lesser(
            // CAST: They were places.
            turns.last.get() as u32,
            turns.compared.get() as u32,
            paths.routes.count.load(Relaxed) & !COMPARES,
            inflight,
        );
        turns.last.set(place.into());
        turns.compared.set(compared.into());
        paths.connections_at(place, guard)
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
