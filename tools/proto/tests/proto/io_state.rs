// SPDX-License-Identifier: GPL-2.0

//! The state by which requests are sent, as a word.

use proto::rnbd::io_state::{Flushes, IoState};

#[test]
fn every_state_survives_as_a_word() {
    let ids = [0, 1, 0x7fff_ffff, u32::MAX - 1, u32::MAX];
    let open = ids.into_iter().flat_map(|id| {
        let ways = [(false, false), (true, false), (false, true), (true, true)];
        ways.map(|(force_fua, is_protected)| IoState::open(id, force_fua, is_protected))
    });
    let states: Vec<IoState> = open.chain([IoState::Queueing, IoState::Failing]).collect();
    for state in &states {
        assert_eq!(IoState::from_word(state.to_word()), *state);
        let same = states.iter().filter(|s| s.to_word() == state.to_word());
        assert_eq!(same.count(), 1, "{state:?}");
    }
}

#[test]
fn writes_are_forced_where_no_flush_may_come() {
    for (caches, forced) in [
        (&[false][..], false),
        (&[true], false),
        (&[false, true], true),
        (&[true, false], false),
        (&[true, true], false),
        (&[true, false, true], true),
        (&[true, false, true, true], true),
    ] {
        let (first, later) = caches.split_first().unwrap();
        let mut flushes = Flushes::new(*first);
        later.iter().for_each(|has| flushes.follow(*has));
        let has = *caches.last().unwrap();
        assert_eq!(flushes.must_force(has), forced, "{caches:?}");
    }
    assert_eq!(IoState::open(7, false, false), IoState::Open(7));
    assert_eq!(IoState::open(7, true, false), IoState::OpenForceFua(7));
}

#[test]
fn it_is_told_each_time_that_writes_begin_to_be_forced() {
    for (first, later) in [
        (
            false,
            &[(true, true), (true, false), (false, false), (true, true)][..],
        ),
        // Two outages, before the disk has followed the first one.
        (true, &[(true, false), (false, false), (true, true)]),
    ] {
        let mut flushes = Flushes::new(first);
        for (has, is_told) in later {
            flushes.follow(*has);
            assert_eq!(flushes.begins_to_force(*has), *is_told, "{first} {later:?}");
        }
    }
}

#[test]
fn an_answer_about_another_number_changes_nothing() {
    let protected = IoState::open(7, false, true);
    for state in [IoState::Open(7), IoState::OpenForceFua(7), protected] {
        assert_eq!(state.remote_id(), Some(7));
        assert_eq!(state.not_open_there(7), Some(IoState::Failing));
        assert_eq!(state.not_open_there(8), None);
        assert!(state.is_number(7) && !state.is_number(8));
    }
    for state in [IoState::Queueing, IoState::Failing] {
        assert_eq!(state.remote_id(), None);
        assert!(!state.is_number(7) && !state.is_number(0), "{state:?}");
        assert_eq!(state.not_open_there(7), None);
    }
}
