// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache of many nodes, simulated: one scenario, one run, the same each time.
//!
//! Who owns a chunk, who is sent to whom, and who is a member is decided by the code of the kernel
//! (`gfarm_ra/proto/cache`, through the crate `proto`). What is modelled is around it: requests and
//! what a node does about them, machines with a link in and out, datagrams that are late or lost,
//! receives that run out, page caches, readers, and file servers with a bandwidth that they share.

#![forbid(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "a model that breaks its own rules stops, on the host"
)]

mod agenda;
mod faults;
mod figures;
mod membership;
mod message;
mod node;
mod requester;
mod responder;
mod scenario;
pub mod tables;
mod tree;
mod world;

pub use figures::Outcome;
pub use membership::{
    membership,
    Membership, //
};
pub use scenario::{
    Mutation,
    Pattern,
    Scenario,
    Source,
    Waiting,
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
