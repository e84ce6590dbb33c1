// SPDX-License-Identifier: GPL-2.0

//! A simulation of arrays: the code of the driver that decides, over members of which IOs end in
//! any order, which fail, return, are replaced, and lose power.
//!
//! `SEEDS=A..B` runs other lives than those of the test.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod history;
mod media;
mod member;
mod random;
mod world;

use world::{
    End,
    Extent,
    Life,
    Newest,
    Tally, //
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Members fail and return.
    pub(crate) fails: bool,
    /// Power fails.
    pub(crate) crashes: bool,
    /// Sectors of so many members cannot be read, until they are written again.
    pub(crate) spoilt: usize,
    /// Both come one after the other.
    pub(crate) storm: bool,
    /// Nothing is compressed, and all blocks are written first.
    pub(crate) is_raw: bool,
    /// The disk promises more than there is room for, and zeroes are written often.
    pub(crate) overcommits: bool,
    /// Blocks that are written, of those there are, in percent.
    pub(crate) percent: u64,
    pub(crate) steps: u32,
}

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("SEEDS").ok();
    let parsed = given.as_deref().and_then(|given| {
        let (from, to) = given.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(0..40)
}

fn run(setting: Setting) {
    for seed in seeds() {
        let done = Life::new(seed, setting).run();
        assert!(done.acknowledged > 0, "seed {seed}: nothing was written");
    }
}

#[test]
fn what_is_written_is_read_in_any_order_of_ends() {
    run(Setting {
        percent: 30,
        steps: 2500,
        ..Setting::default()
    });
}

#[test]
fn what_is_flushed_outlives_a_power_failure() {
    run(Setting {
        crashes: true,
        percent: 30,
        steps: 2500,
        ..Setting::default()
    });
}

#[test]
fn members_fail_and_return_and_nothing_is_lost() {
    run(Setting {
        fails: true,
        crashes: true,
        percent: 30,
        steps: 4000,
        ..Setting::default()
    });
}

/// Bad sectors of one member keep nothing from being read, nor the array from being assembled,
/// while the two others are in sync.
#[test]
fn bad_sectors_of_one_member_are_survived() {
    for seed in seeds().take(10) {
        let setting = Setting {
            crashes: true,
            spoilt: 1,
            percent: 30,
            steps: 2500,
            ..Setting::default()
        };
        Life::new(seed, setting).run();
    }
}

/// Reads are told what cannot be read with one of the others missing, and where two have bad
/// sectors, and nothing else is read instead.
#[test]
fn bad_sectors_beside_a_member_that_fails_are_told() {
    for spoilt in [1, 2] {
        let mut unreadable = 0;
        for seed in seeds().take(6) {
            let setting = Setting {
                fails: true,
                crashes: true,
                spoilt,
                percent: 30,
                steps: 3000,
                ..Setting::default()
            };
            unreadable += Life::new(seed, setting).run().unreadable;
        }
        assert!(unreadable > 0);
    }
}

#[test]
fn a_storm_of_failures_is_survived() {
    run(Setting {
        fails: true,
        crashes: true,
        storm: true,
        percent: 100,
        steps: 3000,
        ..Setting::default()
    });
}

#[test]
fn a_full_disk_is_written_again_and_again() {
    run(Setting {
        crashes: true,
        is_raw: true,
        percent: 100,
        steps: 8000,
        ..Setting::default()
    });
}

#[test]
fn a_disk_that_promised_too_much_refuses_what_needs_room_only() {
    run(Setting {
        fails: true,
        crashes: true,
        is_raw: true,
        overcommits: true,
        percent: 100,
        steps: 1500,
        ..Setting::default()
    });
}

#[test]
fn a_full_disk_survives_its_members() {
    run(Setting {
        fails: true,
        crashes: true,
        percent: 100,
        steps: 5000,
        ..Setting::default()
    });
}

#[test]
fn a_segment_that_cannot_be_read_stops_nothing_else() {
    let setting = Setting {
        is_raw: true,
        percent: 100,
        steps: 1500,
        ..Setting::default()
    };
    for seed in seeds().take(1) {
        Life::new(seed, setting).run_with_damage();
    }
}

#[test]
fn what_two_members_have_lost_at_different_places_is_repaired() {
    let setting = Setting {
        is_raw: true,
        percent: 60,
        ..Setting::default()
    };
    for (seed, are_errors) in seeds().zip([false, true, false, true]) {
        Life::new(seed, setting).run_with_two_damages(are_errors);
    }
}

#[test]
fn a_member_that_goes_on_to_lie_is_repaired_so_often() {
    let setting = Setting {
        is_raw: true,
        percent: 30,
        ..Setting::default()
    };
    Life::new(seeds().start, setting).run_with_a_liar();
}

#[test]
fn a_segment_is_repaired_once_and_when_the_log_has_left_it() {
    let setting = Setting {
        is_raw: true,
        percent: 30,
        ..Setting::default()
    };
    for seed in seeds().take(4) {
        Life::new(seed, setting).run_with_damage_seen_again();
    }
}

#[test]
fn a_collector_waits_for_no_member_that_is_late() {
    let setting = Setting {
        is_raw: true,
        percent: 30,
        ..Setting::default()
    };
    Life::new(seeds().start, setting).run_with_a_late_member();
}

#[test]
fn a_stop_does_not_wait_for_a_segment_with_bad_sectors() {
    let setting = Setting {
        is_raw: true,
        percent: 30,
        ..Setting::default()
    };
    Life::new(seeds().start, setting).run_with_a_stop();
}

#[test]
fn segments_are_not_looked_through_for_each_batch() {
    let setting = Setting {
        percent: 30,
        ..Setting::default()
    };
    for seed in seeds().take(4) {
        Life::new(seed, setting).run_with_looks();
    }
}

#[test]
fn segments_are_not_looked_through_for_nothing() {
    let setting = Setting {
        is_raw: true,
        overcommits: true,
        percent: 80,
        ..Setting::default()
    };
    for seed in seeds().take(2) {
        Life::new(seed, setting).run_with_nothing_to_gain();
    }
}

#[test]
fn writers_leave_room_for_who_collects() {
    let setting = Setting {
        is_raw: true,
        percent: 60,
        ..Setting::default()
    };
    for seed in seeds().take(4) {
        Life::new(seed, setting).run_with_writers();
    }
}

#[test]
fn who_collects_leaves_room_for_writers() {
    let setting = Setting {
        is_raw: true,
        percent: 60,
        ..Setting::default()
    };
    for seed in seeds().take(4) {
        Life::new(seed, setting).run_with_who_collects();
    }
}

#[test]
fn a_member_that_has_lost_its_cache_gives_nothing_of_an_earlier_use() {
    let setting = Setting {
        is_raw: true,
        percent: 100,
        steps: 3000,
        ..Setting::default()
    };
    for seed in seeds().take(1) {
        Life::new(seed, setting).run_with_lost_caches();
    }
}

#[test]
fn a_member_that_is_taken_away_returns_when_it_may() {
    let setting = Setting {
        percent: 30,
        ..Setting::default()
    };
    for is_new in [false, true] {
        Life::new(seeds().start, setting).run_with_a_member_taken_away(is_new);
    }
}

#[test]
fn a_copy_is_not_repaired_into_what_one_member_has() {
    let setting = Setting {
        percent: 10,
        ..Setting::default()
    };
    for seed in seeds().take(1) {
        Life::new(seed, setting).run_degraded_with_a_liar();
    }
}

const DAMAGED: Setting = Setting {
    fails: false,
    crashes: false,
    spoilt: 0,
    storm: false,
    is_raw: true,
    overcommits: false,
    percent: 60,
    steps: 1500,
};

fn damaged(end: End, extent: Extent) -> Tally {
    let tally = Life::new(seeds().start, DAMAGED).run_with_damages(end, extent);
    let shown: Vec<_> = tally.wrong.iter().take(8).collect();
    assert!(shown.is_empty(), "{end:?} {extent:?}: {shown:#?}");
    assert!(tally.assemblies > 500 && tally.refused > 0 && tally.errors > 0);
    tally
}

#[test]
fn damage_after_a_stop_is_mended_or_told() {
    for end in [End::Stopped, End::DegradedAndStopped] {
        assert_eq!(damaged(end, Extent::One).cut, 0);
    }
}

#[test]
fn damage_after_a_power_failure_is_mended_or_told() {
    // The last batch, of which no other one says that it was flushed, may be taken for a torn one.
    assert!(damaged(End::Crashed, Extent::One).cut > 0);
    assert!(damaged(End::Degraded, Extent::One).cut > 0);
}

#[test]
fn damage_of_the_superblock_that_knows_of_a_failure_is_told() {
    damaged(End::DegradedLately, Extent::One);
}

/// All three members are there, two of which have lost what the third one, which is stale, never
/// knew.
#[test]
fn damage_of_two_newer_superblocks_is_told() {
    let refused = [Newest::Failure, Newest::Assembly].map(|newest| {
        let mut refused = 0;
        for seed in seeds().take(4) {
            let tally = Life::new(seed, DAMAGED).run_with_slots(newest);
            let shown: Vec<_> = tally.wrong.iter().take(8).collect();
            assert!(shown.is_empty(), "{newest:?} {seed}: {shown:#?}");
            refused += tally.refused;
        }
        refused > 0
    });
    // The log says who has failed, and is followed.
    assert_eq!(refused, [false, true]);
}

#[test]
fn damage_many_segments_before_the_end_of_the_log_is_told() {
    assert!(damaged(End::CrashedLater, Extent::One).cut > 0);
}

/// Bits of a superblock, or of a head, mean something else where its CRC is not checked.
#[test]
fn a_bit_of_a_superblock_or_of_a_head_is_mended_or_told() {
    for end in [End::Crashed, End::Lone] {
        let life = Life::new(seeds().start, DAMAGED);
        let tally = life.run_with_bits(end);
        let shown: Vec<_> = tally.wrong.iter().take(8).collect();
        assert!(shown.is_empty(), "{end:?}: {shown:#?}");
        assert!(tally.assemblies > 500 && tally.refused > 0);
    }
}

#[test]
fn damage_of_two_members_is_told() {
    assert!(damaged(End::Crashed, Extent::Two).cut > 0);
}

/// The others have what one member does not give; where too few are left it is told.
#[test]
fn a_sector_that_cannot_be_read_is_mended_or_told() {
    for end in [End::Crashed, End::Degraded] {
        assert_eq!(damaged(end, Extent::Unreadable).cut, 0);
    }
}

#[test]
fn sectors_of_two_members_that_cannot_be_read_are_told() {
    assert_eq!(damaged(End::Crashed, Extent::TwoUnreadable).cut, 0);
}

/// A write that is something else may look like one that was torn, as it does beside members that
/// can be read.
#[test]
fn a_sector_that_cannot_be_read_beside_damage_is_told() {
    damaged(End::Crashed, Extent::Mixed);
}
