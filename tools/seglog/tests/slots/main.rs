// SPDX-License-Identifier: GPL-2.0

//! Small worlds, all of them: what becomes of an array whose assemblies are cut off, by force or
//! not, while slots of its superblocks cannot be read, or are damaged.
//!
//! Each assembly that is accepted must find all that was flushed; one by force what a member that
//! is there can know of. What is refused is counted by whether a loss was possible.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod disk;
mod held;
mod known;
mod life;
mod search;
mod truth;
mod world;

use std::{
    env,
    time::Instant, //
};

use search::{
    search,
    Family, //
};

/// Each step may go without one slot, which may be damaged for good, and is cut off anywhere.
const SLOTS: Family = Family {
    name: "slots",
    steps: 2,
    bad: 1,
    bad_at_last: 2,
    damages: true,
    tears: true,
    places: false,
    places_at_last: false,
    fails: false,
    batches: false,
    dumps: false,
    returns: false,
    forces: u32::MAX,
    is_narrow: false,
    sample: 1,
    assembled_min: 0,
};

/// Visits a family: some of the worlds of its last step, or all in a long run.
fn visit(with: Family) {
    let begun = Instant::now();
    let is_long = env::var_os("SEGLOG_WORLDS").is_some();
    let is_whole = is_long && !with.is_narrow;
    let sample = if is_whole { 1 } else { with.sample };
    let counts = search(Family { sample, ..with }).unwrap_or_else(|why| panic!("{why}"));
    let Family { assembled_min, .. } = with;
    assert!(
        counts.accepted >= assembled_min,
        "{} are assembled, and {assembled_min} were: more are refused",
        counts.accepted
    );
    println!(
        "{}: {} worlds, {} assembled, {} refused in {:.1} s",
        with.name,
        counts.worlds,
        counts.accepted,
        counts.refused,
        begun.elapsed().as_secs_f32()
    );
    for ((is_forced, why), (all, loose, example)) in counts.refusals() {
        let by = if is_forced { " by force" } else { "" };
        println!("  {why}{by}: {all} views, {loose} of which might be assembled");
        if is_long {
            print!("{example}");
        }
    }
}

#[test]
fn slots_hide_what_members_were_told() {
    visit(Family {
        assembled_min: 157_865,
        ..SLOTS
    });
}

#[test]
fn members_fail_while_the_array_runs() {
    visit(Family {
        name: "failures",
        damages: false,
        fails: true,
        sample: 2,
        ..SLOTS
    });
}

#[test]
fn places_of_the_log_cannot_be_read() {
    visit(Family {
        name: "places",
        steps: 1,
        bad_at_last: 2,
        fails: true,
        batches: true,
        places: true,
        places_at_last: true,
        assembled_min: 22_497,
        ..SLOTS
    });
}

#[test]
fn dumps_begin_the_log_anew() {
    visit(Family {
        name: "dumps",
        damages: false,
        tears: false,
        dumps: true,
        assembled_min: 140_303,
        ..SLOTS
    });
}

#[test]
fn devices_are_replaced() {
    visit(Family {
        name: "devices",
        damages: false,
        tears: false,
        returns: true,
        sample: 6,
        ..SLOTS
    });
}

/// A minute of one core.
#[test]
#[ignore = "it is for long runs"]
fn long_places() {
    visit(Family {
        name: "places, one after the other",
        bad_at_last: 1,
        damages: false,
        batches: true,
        places: true,
        places_at_last: true,
        ..SLOTS
    });
}

/// Some minutes of one core.
#[test]
#[ignore = "it is for long runs"]
fn long_slots() {
    visit(Family {
        name: "slots, one after the other",
        steps: 3,
        bad_at_last: 1,
        damages: false,
        ..SLOTS
    });
}

/// Some minutes of one core.
#[test]
#[ignore = "it is for long runs"]
fn long_told() {
    for sample in [3, 2] {
        visit(Family {
            name: "told, one after the other",
            steps: 4,
            bad_at_last: 1,
            damages: false,
            tears: false,
            is_narrow: true,
            sample,
            ..SLOTS
        });
    }
}
