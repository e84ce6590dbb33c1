// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache of many nodes, simulated: one scenario, one run, the same each time.
//!
//! What a node does is decided by the code of the kernel (`gfarm_ra/proto/cache`, through the crate
//! `proto`): requests and their attempts, timers, fragments and where they go, keys and credits,
//! owners, members, the bytes of messages. What is modelled is around it: machines with a link in
//! and out, datagrams that are late, lost, changed or come twice, receives that run out, page
//! caches, readers, and file servers with a bandwidth that they share.

#![forbid(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "a model that breaks its own rules stops, on the host"
)]

mod agenda;
mod driver;
mod faults;
mod figures;
mod lane;
mod membership;
mod message;
mod network;
mod node;
mod requester;
mod responder;
mod scenario;
pub mod tables;
mod tree;
mod workers;
mod world;

pub use figures::Outcome;
pub use membership::{
    membership,
    Membership, //
};
pub use scenario::{
    Askers,
    Mutation,
    Pattern,
    Scenario,
    Source,
    MS,
    S,
    US, //
};
pub use tree::{
    tree,
    Tree, //
};

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut world = world::World::new(*scenario);
    world.run();
    Outcome::of(world)
}
