// SPDX-License-Identifier: GPL-2.0

//! The worlds that are searched.

use seglog::members::Members;

use crate::setting::{
    layout,
    mirror,
    striped,
    Op,
    Setting, //
};

/// A world that is searched.
pub(crate) fn world(name: &str) -> Setting {
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
            setting.layout = layout(8, 2);
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
        _ => quiet_world(name),
    }
}

/// One in which IOs end in their order, and little happens at a time.
fn quiet_world(name: &str) -> Setting {
    let with = |mounts: &[&[Op]], units: u32, first: Members| {
        let mut setting = Setting::new(mounts);
        setting.layout = layout(8, units);
        setting.first = Some(first);
        setting.in_order = true;
        setting.cuts = 0;
        setting
    };
    match name {
        "a member returns" => {
            let mut setting = with(&[&[mirror(0)]], 3, Members::ALL.minus(Members::of(2)));
            setting.returns = 1;
            setting.moves = 4;
            setting
        }
        "a member fails in a dump" => {
            let mut setting = with(&[&[Op::Dump]], 2, Members::ALL);
            setting.failures = 1;
            setting.returns = 1;
            setting.moves = 1;
            setting.torn = true;
            setting
        }
        "the old device returns" => {
            let two = Members::ALL.minus(Members::of(2));
            let ops = [striped(0, 1), striped(2, 3), striped(4, 5), Op::Flush];
            let mut setting = with(&[&ops], 2, two);
            setting.failures = 1;
            setting.returns = 2;
            setting.replaces = true;
            setting.moves = 5;
            setting.crashes = 0;
            setting
        }
        "a cache is lost in a dump" => {
            let mut setting = with(&[&[striped(0, 1), Op::Dump], &[]], 2, Members::ALL);
            setting.lost_caches = true;
            setting.crashes = 1;
            setting.returns = 1;
            setting.moves = 4;
            setting
        }
        "collecting" => {
            let mut setting = with(&[&[Op::Pair(0), mirror(1)], &[]], 2, Members::ALL);
            setting.moves = 3;
            setting
        }
        "a segment is read slowly" | "a block is read slowly" => {
            // Block 1 is where it was when the first segment is written again.
            let blocks = (0..20).map(|n| usize::from(n % 8 == 0));
            let ops: Vec<Op> = blocks.flat_map(|b| [mirror(b), Op::Flush]).collect();
            let mut setting = with(&[&ops], 2, Members::ALL);
            setting.frees = true;
            setting.reads = name.starts_with("a block");
            setting.moves = if setting.reads { 0 } else { 2 };
            setting.crashes = 0;
            setting
        }
        _ => panic!("{name}"),
    }
}
