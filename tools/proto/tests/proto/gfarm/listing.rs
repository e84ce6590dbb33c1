// SPDX-License-Identifier: GPL-2.0

//! Directories that end, and some that do not.

use proto::gfarm::{
    attr::EntryName,
    listing::{
        Endless,
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
