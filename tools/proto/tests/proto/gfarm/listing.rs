// SPDX-License-Identifier: GPL-2.0

//! Directories that end, and some that do not.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use proptest::prelude::*;
use proto::gfarm::{
    attr::EntryName,
    listing::{
        Endless,
        Next,
        Onward,
        Progress,
        ENTRIES_MAX, //
    },
    name::Name,
};

/// An answer with these entries.
fn answer(progress: &mut Progress, at: u64, names: &[&str]) -> Result<bool, Endless> {
    progress.begin();
    for name in names {
        progress.entry(match *name {
            "." => EntryName::Current,
            ".." => EntryName::Parent,
            name => EntryName::Name(Name::new(name.as_bytes()).unwrap()),
        });
    }
    let count = names.len() as u32;
    progress.end(at + u64::from(count), count)
}

#[test]
fn a_directory_ends_with_an_answer_without_entries() {
    let mut progress = Progress::NEW;
    for at in 0..1000 {
        let name = format!("name{at}");
        assert_eq!(answer(&mut progress, at, &[&name]), Ok(false));
    }
    assert_eq!(answer(&mut progress, 1000, &[]), Ok(true));
}

#[test]
fn the_dots_may_come_alone() {
    let mut progress = Progress::NEW;
    for (at, name) in [".", "..", "a"].into_iter().enumerate() {
        assert_eq!(answer(&mut progress, at as u64, &[name]), Ok(false));
    }
    assert_eq!(answer(&mut progress, 3, &[]), Ok(true));
    let mut progress = Progress::NEW;
    assert_eq!(answer(&mut progress, 0, &[".", ".."]), Ok(false));
    assert_eq!(answer(&mut progress, 2, &[]), Ok(true));
}

#[test]
fn the_same_again_and_again_is_no_directory() {
    for names in [&["."][..], &[".", "..", ".", ".."], &["a", "b"]] {
        let mut progress = Progress::NEW;
        let mut answers = (0..100).map(|at| answer(&mut progress, at, names));
        let asked = answers.position(|answer| answer == Err(Endless::Idle));
        assert!(asked.is_some_and(|asked| asked <= 4), "{asked:?}");
    }
}

#[test]
fn an_answer_that_begins_like_the_last_one_is_forgiven() {
    let mut progress = Progress::NEW;
    for at in 0..100 {
        // Another name at each fourth answer.
        let name = format!("name{}", at / 4);
        assert_eq!(answer(&mut progress, at, &[&name, "z"]), Ok(false), "{at}");
    }
    // A name that begins like another one is another one.
    for at in 100..200 {
        let name = "x".repeat(1 + at as usize % 3);
        assert_eq!(answer(&mut progress, at, &[&name]), Ok(false));
    }
}

#[test]
fn no_directory_is_longer_than_a_server_s_memory() {
    assert!(Progress::may_ask(ENTRIES_MAX) && !Progress::may_ask(ENTRIES_MAX + 1));
    let mut progress = Progress::NEW;
    assert_eq!(answer(&mut progress, ENTRIES_MAX - 1, &["a"]), Ok(false));
    assert_eq!(answer(&mut progress, ENTRIES_MAX, &[]), Ok(true));
    let long = answer(&mut progress, ENTRIES_MAX, &["b"]);
    assert_eq!(long, Err(Endless::Long));
    assert!(Endless::Long.to_string().contains("268435456"));
}

/// The maximum number of entries of an answer.
const PART: u32 = 8;

/// Reads a directory to its end, which changes before each answer: how often each name was read.
/// With `by_index` the reader goes on at a position.
fn read(
    names: &mut BTreeSet<Vec<u8>>,
    by_index: bool,
    mut change: impl FnMut(&mut BTreeSet<Vec<u8>>),
) -> BTreeMap<Vec<u8>, u32> {
    let (mut seen, mut last, mut index) = (BTreeMap::new(), None, 0);
    loop {
        let mut onward = Onward::new(last.filter(|_| !by_index), index);
        let mut part = Vec::new();
        loop {
            change(names);
            let at = onward.position();
            for name in names.iter().skip(at as usize).take(PART as usize) {
                if onward.entry(EntryName::Name(Name::new(name).unwrap())) {
                    part.push(name.clone());
                }
            }
            if let Next::Read(read) = onward.end(at, PART) {
                last = read;
                break;
            }
            assert!(part.is_empty());
        }
        if part.is_empty() {
            return seen;
        }
        index += part.len() as u64;
        for name in part {
            *seen.entry(name).or_insert(0) += 1;
        }
    }
}

fn numbered(number: usize) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

/// Names of which each third stays; the others come and go, some before each answer.
fn read_changing(changes: &[usize], by_index: bool) -> Vec<(usize, u32)> {
    let count = 300;
    let mut names = (0..count).map(numbered).collect();
    // Fewer than an answer has, of which half are asked for again.
    let mut changes = changes.chunks(PART as usize / 2 - 1).cycle();
    let seen = read(&mut names, by_index, |names| {
        for number in changes.next().unwrap() {
            let name = numbered(number - number % 3 + 1 + number % 2);
            if !names.remove(&name) {
                names.insert(name);
            }
        }
    });
    let often = |number| seen.get(&numbered(number)).copied().unwrap_or(0);
    (0..count).map(|number| (number, often(number))).collect()
}

proptest! {
    #[test]
    fn a_name_that_stays_is_read_once_whatever_comes_and_goes(
        changes in prop::collection::vec(0..300usize, 1..400),
    ) {
        for (number, often) in read_changing(&changes, false) {
            prop_assert!(often == 1 || number % 3 != 0 && often == 0, "{number}: {often} times");
        }
    }
}

#[test]
fn by_positions_names_are_missed_and_come_twice() {
    let all: Vec<_> = (0..300).collect();
    let seen = read_changing(&all, true);
    let stays = seen.iter().filter(|(number, _)| number % 3 == 0);
    assert!(stays.clone().any(|(_, often)| *often != 1));
}

#[test]
fn an_entry_is_gone_on_behind_in_the_directory_s_own_order() {
    let name = |name: &'static str| EntryName::Name(Name::new(name.as_bytes()).unwrap());
    let mut onward = Onward::new(None, 0);
    assert!(["b", "a"].into_iter().all(|n| onward.entry(name(n))));
    let Next::Read(last @ Some(_)) = onward.end(0, 2) else {
        panic!("it is read");
    };
    // That one has been found, so what follows it is new.
    let mut onward = Onward::new(last, 9);
    assert_eq!(onward.position(), 1);
    let taken = ["a", "d", "c"].map(|n| onward.entry(name(n)));
    assert_eq!(taken, [false, true, true]);
    // The end, and a directory that is empty by now.
    let Next::Read(last) = onward.end(1, 8) else {
        panic!("it is read");
    };
    let mut onward = Onward::new(last, 0);
    assert_eq!(onward.end(3, 8), Next::Ask(0));
    assert_eq!(onward.end(0, 8), Next::Read(last));
}
