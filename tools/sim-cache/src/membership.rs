// SPDX-License-Identifier: GPL-2.0

//! The time that nodes take to find each other, and to notice that one has died.

use proto::gfarm::cache::address::NodeId;

use crate::{
    scenario::{
        Scenario,
        MS,
        S, //
    },
    world::World, //
};

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Membership {
    /// The time until all nodes know all, after they have begun at once knowing one, in
    /// milliseconds.
    pub joined_ms: u64,
    /// The datagrams that a node has sent until then.
    pub joined_datagrams: u64,
    /// The datagrams that a node sends in a second when all is well.
    pub datagrams_per_s: f64,
    /// The part of time and pairs of nodes, in a minute without a fault, in which one of the nodes
    /// takes the other for suspect or dead, in parts of a million.
    pub wrong_ppm: f64,
    /// The time until all have noticed that one node has died, in milliseconds.
    pub noticed_ms: u64,
}

/// The time after which nodes do not agree any more.
const LIMIT_NS: u64 = 120 * S;

impl World {
    /// Runs for some time.
    fn pass(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            let Some((at_ns, event)) = self.agenda.pop() else {
                break;
            };
            if at_ns > end_ns {
                self.agenda.push(at_ns, event);
                break;
            }
            self.now_ns = at_ns;
            self.happen(event);
        }
        self.now_ns = end_ns;
    }

    /// Returns the living nodes that a living node does not take for living, and the other way
    /// round.
    fn wrong_views(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let living = self.nodes.iter().filter(|node| node.alive);
        living.flat_map(|node| {
            let members = node.members.as_ref();
            let others = self.nodes.iter().filter(|other| other.id != node.id);
            let is_wrong = move |id, alive| members.is_some_and(|m| m.is_live(id) != alive);
            let wrong = others.filter(move |other| is_wrong(other.id, other.alive));
            wrong.map(|other| (node.id, other.id))
        })
    }

    fn agree(&mut self) -> Option<u64> {
        let begun_ns = self.now_ns;
        while self.wrong_views().next().is_some() {
            if self.now_ns - begun_ns > LIMIT_NS {
                return None;
            }
            self.pass(20 * MS);
        }
        Some((self.now_ns - begun_ns) / MS)
    }
}

/// Simulates nodes without readers; `None` if they have not agreed after two minutes.
pub fn membership(nodes: usize, loss: f64, seed: u64) -> Option<Membership> {
    let mut world = World::new(Scenario {
        seed,
        loss,
        chunks: 0,
        ..Scenario::storm(nodes)
    });
    world.find_through_one();
    let joined_ms = world.agree()?;
    let joined_datagrams = world.tally.gossip / nodes as u64;
    let (before, mut wrong) = (world.tally.gossip, 0);
    for _ in 0..60 {
        world.pass(S);
        wrong += world.wrong_views().count() as u64;
    }
    let sent = (world.tally.gossip - before) as f64;
    world.agree()?;
    world.nodes[nodes - 1].alive = false;
    let noticed_ms = world.agree()?;
    let pairs = (nodes * (nodes - 1)) as f64;
    Some(Membership {
        joined_ms,
        joined_datagrams,
        datagrams_per_s: sent / nodes as f64 / 60.0,
        wrong_ppm: wrong as f64 / 60.0 / pairs * 1e6,
        noticed_ms,
    })
}
