// SPDX-License-Identifier: GPL-2.0

//! The growth of a device: the order of its steps, what each writes, and what is refused.

use proptest::prelude::*;
use proto::sidecar::{
    command::Command,
    group,
    growth::{
        plan,
        Growth,
        Refusal,
        Report,
        State,
        Step,
        PI_BLOCKS_MAX, //
    },
    layout::{
        Layout,
        Misfit,
        SEGMENTS_MAX,
        SUPERBLOCK, //
    },
    superblock::{
        Superblock,
        Version, //
    },
    Block,
    BLOCK_BYTES, //
};

use super::Sum;

const UUID: [u8; 16] = *b"a device of size";

fn superblock(device_blocks: u64) -> Superblock {
    Superblock {
        uuid: UUID,
        version: Version::default(),
        layout: Layout::new(device_blocks, 4).unwrap(),
    }
}

/// The steps up to the end, all of which succeed.
fn steps(growth: &mut Growth) -> (Vec<Step>, Option<Superblock>) {
    let (mut steps, mut last) = (Vec::new(), None);
    while let Some(step) = growth.next_step() {
        assert_eq!(growth.next_step(), None, "one step at a time");
        assert_eq!(growth.step(), Some(step));
        assert_eq!(last, None, "the superblock is the last one");
        last = growth.ended(true);
        steps.push(step);
    }
    (steps, last)
}

proptest! {
    /// Each new PI block is written once, before the flush, the copy, and the superblock.
    #[test]
    fn the_superblock_is_the_last(before in 600u64..3000, gained in 1u64..9000) {
        let old = superblock(before);
        let mut growth = Growth::new();
        match growth.start(&old, before + gained) {
            Err(refusal) => {
                let needed = old.layout.grown_blocks_min();
                prop_assert_eq!(refusal, Refusal::TooSmall { found: before + gained, needed });
                prop_assert!(before + gained < needed);
            }
            Ok(()) => {
                let layout = old.layout.grown(before + gained).unwrap();
                prop_assert_eq!(growth.layout(), Some(&layout));
                let (steps, grown) = steps(&mut growth);
                let (pi_blocks, rest) = steps.split_at(steps.len() - 3);
                prop_assert_eq!(rest, [Step::Flush, Step::Copy, Step::Superblock]);
                let mut next = old.layout.groups();
                for step in pi_blocks {
                    let Step::PiBlocks { first, count } = *step else { panic!("{step:?}") };
                    prop_assert_eq!(first, next);
                    prop_assert!((1..=PI_BLOCKS_MAX).contains(&count));
                    // They are contiguous on the device.
                    next += u64::from(count);
                    let [from, to] = [first, next - 1].map(|group| layout.pi_block(group).unwrap());
                    prop_assert_eq!(to - from, u64::from(count) - 1);
                    prop_assert_eq!(growth.place(*step), Some(from));
                }
                prop_assert_eq!(next, layout.groups());
                prop_assert_eq!(grown, Some(Superblock { layout, ..old }));
                prop_assert_eq!(growth.state(), State::Finished);
            }
        }
    }
}

#[test]
fn what_is_written_is_what_the_new_layout_says() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    growth.start(&old, 9000).unwrap();
    let seal = old.seal(&Sum);
    let mut grown = old;
    grown.layout = old.layout.grown(9000).unwrap();
    while let Some(step) = growth.next_step() {
        let (mut block, mut expected): (Block, Block) = ([7; BLOCK_BYTES], [0; BLOCK_BYTES]);
        for index in 0..step.blocks() {
            growth.fill(step, index, &mut block, &seal, &Sum);
            match step {
                Step::PiBlocks { first, .. } => {
                    group::format(
                        &mut expected,
                        first + u64::from(index),
                        &seal,
                        group::Blank::Unknown,
                    );
                }
                Step::Copy => grown.write(&mut expected, 8999, &Sum),
                Step::Superblock => grown.write(&mut expected, 0, &Sum),
                Step::Flush => panic!("a flush writes nothing"),
            }
            assert!(block == expected, "{step:?}, block {index}");
        }
        let (place, is_fua, blocks) = match step {
            Step::PiBlocks { first, count } => (grown.layout.pi_block(first), false, count),
            Step::Flush => (None, false, 0),
            Step::Copy => (Some(8999), true, 1),
            Step::Superblock => (Some(0), true, 1),
        };
        assert_eq!(growth.place(step), place);
        assert_eq!((step.is_fua(), step.blocks()), (is_fua, blocks));
        growth.ended(true);
    }
}

#[test]
fn a_step_that_fails_ends_it_and_it_can_begin_anew() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    growth.start(&old, 2048).unwrap();
    let (all, _) = steps(&mut growth);
    assert_eq!(all.len(), 4);
    for failing in 0..all.len() {
        growth.start(&old, 2048).unwrap();
        for step in &all[..failing] {
            assert_eq!(growth.next_step(), Some(*step));
            assert_eq!(growth.ended(true), None);
        }
        assert_eq!(growth.next_step(), Some(all[failing]));
        assert_eq!(growth.ended(false), None);
        assert_eq!((growth.state(), growth.next_step()), (State::Failed, None));
    }
    // The device takes no writes any more: after the step that is on the way.
    growth.start(&old, 2048).unwrap();
    growth.next_step().unwrap();
    assert!(growth.fail() && !growth.fail());
    assert_eq!(growth.ended(true), None);
    assert_eq!((growth.state(), growth.next_step()), (State::Failed, None));
    growth.start(&old, 2048).unwrap();
    assert!(steps(&mut growth).1.is_some());
    assert!(!growth.fail());
    assert_eq!(growth.state(), State::Finished, "it is over");
}

/// A superblock that may be there describes tuples, which the growth to another size would write
/// over: a crash in it would leave the one with those of the other.
#[test]
fn a_device_that_may_have_grown_does_not_grow_to_another_size() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    growth.start(&old, 2048).unwrap();
    while growth.next_step().unwrap() != Step::Superblock {
        growth.ended(true);
    }
    growth.ended(false);
    assert_eq!(growth.start(&old, 4096), Err(Refusal::Unknown));
    let why = "it may have grown to another size";
    assert!(report(&growth, &old.layout, 4096).contains(why));
    // The same one is written once more, and then it is known.
    growth.start(&old, 2048).unwrap();
    assert_eq!(growth.start(&old, 4096), Err(Refusal::Running));
    let grown = steps(&mut growth).1.unwrap();
    growth.start(&grown, 4096).unwrap();
    // They do have places in common.
    let [one, other] = [80_000, 80_300].map(|blocks| old.layout.grown(blocks).unwrap());
    let mut groups = old.layout.groups()..one.groups();
    let other = |group| (0..group).any(|lower| other.pi_block(lower) == one.pi_block(group));
    assert!(groups.any(other));
    let may_remain = |step: Step| step.remainder().contains("then it may have grown");
    assert!(may_remain(Step::Superblock) && !may_remain(Step::Copy));
}

#[test]
fn it_is_stopped_until_its_last_write_is_on_the_way() {
    let old = superblock(1024);
    let mut growth = Growth::default();
    assert!(!growth.stop(), "none runs");
    for taken in 0..4 {
        growth.start(&old, 2048).unwrap();
        assert_eq!(growth.start(&old, 2048), Err(Refusal::Running));
        for _ in 0..taken {
            growth.next_step().unwrap();
            assert_eq!(growth.ended(true), None);
        }
        growth.next_step().unwrap();
        assert_eq!(growth.stop(), taken < 3, "step {taken}");
        assert_eq!(growth.start(&old, 2048), Err(Refusal::Running));
        assert_eq!(growth.ended(true).is_some(), taken == 3);
        let state = if taken < 3 {
            State::Stopped
        } else {
            State::Finished
        };
        assert_eq!((growth.state(), growth.next_step()), (state, None));
    }
    // Between two steps.
    growth.start(&old, 2048).unwrap();
    assert!(growth.stop() && !growth.stop());
    assert_eq!(growth.next_step(), None);
}

#[test]
fn what_cannot_grow_is_refused() {
    let old = superblock(1024).layout;
    let refusal = |layout: &Layout, blocks| plan(layout, blocks).unwrap_err();
    assert_eq!(refusal(&old, 1024), Refusal::NotGrown(1024));
    let (expected, found) = (1024, 1023);
    assert_eq!(refusal(&old, 1023), Refusal::Shrunk { expected, found });
    let (found, needed) = (1281, 1282);
    assert_eq!(refusal(&old, 1281), Refusal::TooSmall { found, needed });
    assert_eq!(plan(&old, 1282).unwrap().groups(), old.groups() + 1);
    let too_large = refusal(&old, (1 << 48) + 1);
    assert_eq!(too_large, Refusal::Layout(Misfit::TooLarge));
    let mut layout = old;
    for _ in 1..SEGMENTS_MAX {
        layout = plan(&layout, layout.grown_blocks_min()).unwrap();
    }
    let often = refusal(&layout, layout.grown_blocks_min());
    assert_eq!(often, Refusal::Layout(Misfit::TooManySegments));
    let errors = [
        Refusal::Running,
        Refusal::Unknown,
        refusal(&old, 1024),
        refusal(&old, 1281),
        refusal(&old, 1023),
        often,
        too_large,
    ];
    let errors = errors.map(|refusal| refusal.errno().get());
    assert_eq!(errors, [16, 16, 28, 28, 117, 27, 27]);
}

/// The lines after `state`, and what to do next.
fn report(growth: &Growth, layout: &Layout, device_blocks: u64) -> String {
    let report = Report {
        growth,
        layout,
        device_blocks,
    };
    report.to_string()
}

#[test]
fn the_file_says_how_it_stands_and_what_to_do_next() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    assert_eq!(
        report(&growth, &old.layout, 1024),
        "state idle\nblocks 512\ndevice_blocks 1024\ndevice_has 1024\ntuple_blocks 0\nwritten 0\n\
         next nothing: it has 1024 blocks of 4096 bytes, as before: enlarge the device first\n"
    );
    let ends = |text: &str, end: &str| assert!(text.ends_with(end), "{text}");
    let next = "next echo start > grow, for 7936 blocks more\n";
    ends(&report(&growth, &old.layout, 9000), next);
    growth.start(&old, 9000).unwrap();
    growth.next_step().unwrap();
    growth.ended(true);
    ends(
        &report(&growth, &old.layout, 9000),
        "tuple_blocks 31\nwritten 16\nnext wait, or: echo stop > grow\n",
    );
    growth.stop();
    let text = report(&growth, &old.layout, 9000);
    assert!(text.starts_with("state stopped\nblocks 512\ndevice_blocks 1024\ndevice_has 9000\n"));
    ends(&text, next);
    growth.start(&old, 9000).unwrap();
    growth.next_step().unwrap();
    growth.ended(false);
    let text = report(&growth, &old.layout, 9000);
    assert!(text.starts_with("state failed\n"), "{text}");
    ends(&text, next);
    growth.start(&old, 9000).unwrap();
    let (_, grown) = steps(&mut growth);
    let layout = grown.unwrap().layout;
    let text = report(&growth, &layout, 9000);
    assert!(text.starts_with("state finished\nblocks 8448\n"), "{text}");
    ends(
        &text,
        "written 31\nnext at each client: echo 67584 > /sys/block/rnbd<N>/rnbd/resize\n",
    );
    ends(
        &report(&growth, &layout, 20000),
        "next echo start > grow, for 10496 blocks more\n",
    );
    for (blocks, why) in [
        (8999, "give it back what it had\n"),
        (9001, "and needs 9474 to take 1 MiB of data more\n"),
    ] {
        ends(&report(&growth, &layout, blocks), why);
    }
}

/// The mark of use is written with the superblock while a growth writes that, in any order of the
/// two and of the reading before: the last one has the new superblock. What was read is none.
#[test]
fn a_mark_that_is_written_in_the_last_step_has_the_new_superblock() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    growth.start(&old, 9000).unwrap();
    let mut last = None;
    while growth.step() != Some(Step::Superblock) {
        assert_eq!(growth.ending(), None, "before {last:?} has ended");
        growth.ended(true);
        last = growth.next_step();
    }
    let new = *growth.ending().unwrap();
    assert_eq!(new.layout, *growth.layout().unwrap());
    let (mut before, mut written) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    old.write(&mut before, SUPERBLOCK, &Sum);
    growth.fill(Step::Superblock, 0, &mut written, &new.seal(&Sum), &Sum);
    let parse = |block: &Block| Superblock::parse(block, SUPERBLOCK, 9000, &Sum);
    for (ending, is_new) in [(growth.ending(), true), (None, false)] {
        let mut is_right = true;
        for order in ["crw", "rcw", "rwc"] {
            let (mut disk, mut read) = (before, before);
            for step in order.chars() {
                match step {
                    'c' => disk = written,
                    'r' => read = disk,
                    _ => {
                        assert!(Superblock::write_back(&mut read, ending, &Sum));
                        disk = read;
                    }
                }
            }
            is_right &= parse(&disk) == Ok(new);
        }
        assert_eq!(is_right, is_new);
    }
    assert_eq!(growth.ended(true), Some(new));
    assert_eq!(growth.ending(), None);
    // A bad reading does not stay either.
    let mut bad = [7; BLOCK_BYTES];
    assert!(!Superblock::write_back(&mut bad, None, &Sum));
    assert!(Superblock::write_back(&mut bad, Some(&new), &Sum));
    assert_eq!(parse(&bad), Ok(new));
}

/// A mark of use that was begun before the last step has the old superblock beside it.
#[test]
fn the_superblock_is_not_begun_while_a_mark_is_on_its_way() {
    let old = superblock(1024);
    let mut growth = Growth::new();
    assert_eq!(growth.mark_begun(), None);
    growth.start(&old, 9000).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = growth.next_step() {
        steps.push(step);
        growth.ended(true);
    }
    assert_eq!(steps.last(), Some(&Step::Copy));
    assert_eq!(growth.state(), State::Running);
    growth.mark_ended();
    assert_eq!(growth.next_step(), Some(Step::Superblock));
    // One that is begun meanwhile has the new one, and is not waited for.
    assert_eq!(growth.mark_begun(), growth.ending().copied());
    let grown = growth.ended(true);
    assert!(grown.is_some());
    growth.mark_ended();
    // A growth is stopped while a mark is on its way, too.
    let mut growth = Growth::new();
    growth.start(&old, 9000).unwrap();
    assert_eq!(growth.mark_begun(), None);
    assert!(growth.stop());
}

#[test]
fn commands_are_words() {
    assert_eq!(Command::parse(b"start\n"), Ok(Command::Start));
    assert_eq!(Command::parse(b" stop "), Ok(Command::Stop));
    for word in ["", "1", "Start", "start stop", "pause", "grow"] {
        assert!(Command::parse(word.as_bytes()).is_err(), "{word}");
    }
}
