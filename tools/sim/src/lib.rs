// SPDX-License-Identifier: GPL-2.0

//! Client and server of RTRS with several paths, simulated: one seed, one run, the same each time.
//!
//! The drivers' decisions are the drivers' own code (`rtrs/proto`, through the crate `proto`); what
//! is modelled is the glue around it, and each file here names the driver's files that it stands
//! for. A run has two phases: faults happen, without a violation of the invariants; then faults
//! stop, and all parts have to recover.

#![forbid(unsafe_code)]
#![expect(
    clippy::indexing_slicing,
    reason = "a model that breaks its own rules stops, on the host"
)]

mod answers;
mod app;
mod check;
mod client;
mod client_chunks;
mod client_io;
mod client_path;
mod device;
mod disk;
mod event;
mod faults;
mod fence;
mod message;
mod network;
mod server;
mod server_io;
mod session;
mod settings;
mod tasks;
mod trace;
mod unmap;
mod world;

use std::collections::BTreeMap;

use proto::rtrs::{
    geometry::Geometry,
    HDR_SIZE_MAX, //
};

pub use check::{
    Kind,
    Violation, //
};
pub use settings::{
    Mutation,
    Options, //
};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first violation.
    pub violation: Option<Violation>,
    /// The timeline, if it was asked for.
    pub trace: Vec<String>,
    /// Events that happened.
    pub events: u64,
    /// Virtual time that passed, in microseconds.
    pub virtual_us: u64,
    /// Requests that ended well.
    pub done: u64,
    /// The number of times that rare places of the model were reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// Requests that ended with an error, as `fast_io_fail_tmo` says.
    pub failed: u64,
}

/// Runs one seed.
///
/// # Errors
///
/// Never in practice: if the settings that a seed draws make no session.
pub fn run(seed: u64, options: Options) -> anyhow::Result<Outcome> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let settings = settings::Settings::draw(&mut rng, options);
    let geometry = Geometry::new(settings.queue_depth.into(), HDR_SIZE_MAX * 2)
        .map_err(|e| anyhow::anyhow!("seed {seed} draws no session: {e:?}"))?;
    let mut world = world::World::new(rng, settings, geometry);
    world.run();
    Ok(Outcome {
        violation: world.check.violation,
        trace: world.trace.lines,
        reached: world.trace.reached,
        events: world.events,
        virtual_us: world.now_us,
        done: world.app.done,
        failed: world.app.failed,
    })
}
