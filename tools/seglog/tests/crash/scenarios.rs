// SPDX-License-Identifier: GPL-2.0

//! The worlds that are searched.

use std::{
    env,
    ops::Range,
    time::Instant, //
};

use seglog::{
    layout::Layout,
    superblock::Superblock,
    ArrayTag, //
};

use crate::{
    assembly::Fast,
    disk::{
        Disk,
        Disks,
        Shape, //
    },
    random::{
        layout_of,
        live, //
    },
    search::Search,
    setting::{
        layout,
        mirror,
        striped,
        Op,
        Setting, //
    },
    Mistake,
};

/// The members of a new array.
fn formatted(layout: Layout) -> Disks {
    let shape = Shape {
        layout,
        torn: false,
    };
    [0, 1, 2].map(|member| {
        let mut disk = Disk::new(&shape);
        let superblock = Superblock::new(([7; 16], ArrayTag(99)), member, layout, 1);
        let bytes = superblock.bytes(&Fast(Mistake::None));
        disk.begin(&shape, Layout::slot(superblock.slot()), &bytes, 1);
        disk.end(1, true);
        disk
    })
}

/// Searches a world; returns what is wrong.
fn search(name: &str, setting: &Setting, mistake: Mistake) -> Option<String> {
    let began = Instant::now();
    let mut search = Search::new(setting, mistake);
    search.run(formatted(setting.layout));
    let seconds = began.elapsed().as_secs_f32();
    println!(
        "{name}: {mistake:?}: {:?} in {seconds:.1} s",
        search.figures
    );
    search.wrong
}

/// A world that is searched.
fn world(name: &str) -> Setting {
    let short: &[Op] = &[mirror(0), Op::Flush];
    match name {
        "a window of two" => Setting::new(&[&[mirror(0), striped(0, 1)], &[]]),
        "torn writes" => {
            let mut setting = Setting::new(&[short, &[]]);
            setting.torn = true;
            setting
        }
        "three assemblies" => Setting::new(&[&[mirror(0)], short, &[]]),
        "a discard" => Setting::new(&[&[mirror(0), Op::Zero(0), Op::Flush], &[]]),
        "a dump" => {
            let mut setting = Setting::new(&[&[Op::Dump, mirror(0)], &[]]);
            setting.layout = layout(5, 2);
            setting
        }
        "a member fails" => {
            let mut setting = Setting::new(&[&[striped(0, 1), Op::Flush], &[]]);
            setting.failures = 1;
            setting
        }
        "a cache is lost" => {
            let mut setting = Setting::new(&[&[mirror(0), Op::Flush, striped(0, 1)], &[]]);
            setting.lost_caches = true;
            setting
        }
        _ => panic!("{name}"),
    }
}

#[test]
fn nothing_is_lost() {
    let names = [
        "a window of two",
        "torn writes",
        "three assemblies",
        "a discard",
        "a dump",
        "a member fails",
        "a cache is lost",
    ];
    for name in names {
        assert_eq!(search(name, &world(name), Mistake::None), None, "{name}");
    }
}

/// Lives lives, until something is wrong.
fn lives(seeds: Range<u64>, mistake: Mistake) -> Option<String> {
    for seed in seeds {
        let disks = formatted(layout_of(seed));
        if let Err(why) = live(seed, mistake, disks) {
            return Some(format!("seed {seed}: {why}"));
        }
    }
    None
}

#[test]
fn nothing_is_lost_in_long_lives() {
    let began = Instant::now();
    // A long run sets them.
    let first = env::var("SEGLOG_FIRST").map_or(0, |n| n.parse().unwrap());
    let count = env::var("SEGLOG_LIVES").map_or(5_000, |count| count.parse().unwrap());
    assert_eq!(lives(first..first + count, Mistake::None), None);
    println!("{count} lives in {:.1} s", began.elapsed().as_secs_f32());
}

#[test]
fn mistakes_are_found() {
    let all = [
        (Mistake::AcknowledgedByOne, "a window of two"),
        (Mistake::EpochNotWaitedFor, "a member fails"),
        (Mistake::FailureIgnored, "a member fails"),
        (Mistake::HighestEpoch, "a window of two"),
        (Mistake::StaleMemberUsed, "a window of two"),
        (Mistake::SuperblockWithoutFua, "a member fails"),
        (Mistake::OneSlot, "torn writes"),
        (Mistake::CompletionLeftOut, "a window of two"),
        (Mistake::CommitFlushLeftOut, "a window of two"),
        (Mistake::OpenFlushLeftOut, "a window of two"),
        (Mistake::FlushNotWaitedFor, "torn writes"),
        (Mistake::FlushCoversInFlight, "torn writes"),
        (Mistake::OneMemberNotFlushed, "torn writes"),
        (Mistake::LostCacheIgnored, "a cache is lost"),
        (Mistake::BodyCrcLeftOut, "torn writes"),
        (Mistake::ParityLeftOut, "a window of two"),
    ];
    for (mistake, name) in all {
        let found = search(name, &world(name), mistake);
        println!("    {found:?}");
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}

#[test]
fn mistakes_of_dumps_are_found_in_long_lives() {
    for mistake in [
        Mistake::DumpFlushLeftOut,
        Mistake::DumpStartTooNew,
        Mistake::OneArea,
        Mistake::ReusedBeforeFlush,
        Mistake::ReusedBeforeDump,
        Mistake::ReusedWhileRead,
    ] {
        let found = lives(0..2_000, mistake);
        println!("    {mistake:?}: {found:?}");
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
