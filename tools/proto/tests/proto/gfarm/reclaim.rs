// SPDX-License-Identifier: GPL-2.0

//! The choice of the open file that gives its descriptor to another one.

use std::cell::Cell;

use proto::gfarm::{
    reclaim::{
        first,
        Closing,
        Held,
        Holder,
        ASKED_MAX,
        CLOSING_MAX,
        SLICE_MS, //
    },
    replica::HostId, //
};

use crate::chance::Chance;

/// A file that was read at a time.
fn file(number: u64, used_ms: u64, host: u32) -> Holder {
    Holder {
        number,
        used_ms,
        host: Some(HostId(host)),
        asked_ms: None,
        is_read: false,
    }
}

/// The numbers of those that are asked at this time, one after the other.
fn order(files: &[Holder], now_ms: u64) -> Vec<u64> {
    let mut seen = Closing::new(now_ms);
    files.iter().for_each(|file| seen.note(file));
    let mut turns: Vec<_> = files
        .iter()
        .filter_map(|file| Some((seen.turn(file)?, file.number)))
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    assert!(turns.windows(2).all(|two| two[0].0 < two[1].0));
    turns.into_iter().map(|(_, number)| number).collect()
}

#[test]
fn a_descriptor_is_kept_until_its_file_has_begun() {
    // All orders of what is noted: the descriptor is gone, or there, or the file begins.
    for order in 0..3_u32.pow(5) {
        let (mut held, mut has_begun, mut has_one) = (Held::new(true), false, true);
        assert!(!held.may_go());
        for event in (0..5).map(|at| order / 3_u32.pow(at) % 3) {
            match event {
                2 => held.begin(),
                noted => held.note(noted == 1),
            }
            has_begun |= event == 2;
            has_one = event == 1 || (event == 2 && has_one);
            assert_eq!(held.may_go(), has_begun && has_one);
        }
    }
}

#[test]
fn each_file_has_its_turn_also_of_those_that_were_read_at_the_same_time() {
    let files = [
        file(1, 20, 0),
        file(2, 10, 0),
        file(3, 10, 0),
        file(4, 10, 1),
    ];
    assert_eq!(order(&files, 1000), [2, 3, 4, 1]);
}

#[test]
fn a_gfsd_that_does_not_answer_is_not_asked_for_more() {
    let slice_ms = u64::from(SLICE_MS);
    let asked = |at_ms| Holder {
        asked_ms: Some(at_ms),
        ..file(1, 10, 7)
    };
    let gfmd_alone = Holder {
        host: None,
        ..file(5, 40, 0)
    };
    let files = |at_ms| [asked(at_ms), file(2, 20, 7), file(3, 30, 8), gfmd_alone];
    // It has a slice of time for the first one, which is not asked twice.
    assert_eq!(order(&files(1000), 999 + slice_ms), [2, 3, 5]);
    assert_eq!(order(&files(1000), 1000 + slice_ms), [3, 5]);
    assert_eq!(order(&files(u64::MAX), u64::MAX - 1), [2, 3, 5]);
    let mut seen = Closing::new(1000);
    let recent = [asked(999), asked(950), asked(100)];
    recent.iter().for_each(|file| seen.note(file));
    // Two may give theirs yet.
    assert_eq!([2, 3].map(|waiting| seen.is_short(waiting)), [false, true]);
    // What gfmd alone has is not taken for one of a gfsd.
    let lost = Holder {
        asked_ms: Some(0),
        ..gfmd_alone
    };
    assert_eq!(order(&[lost, gfmd_alone, file(2, 20, 7)], 9999), [2, 5]);
}

/// A file that is being closed since a time.
fn closing(number: u64, host: u32, asked_ms: u64) -> Holder {
    Holder {
        asked_ms: Some(asked_ms),
        ..file(number, 0, host)
    }
}

#[test]
fn gfsds_that_do_not_answer_leave_room_for_others() {
    // Two are being closed at a gfsd, and no third one, though it has time left yet.
    let idle = [file(8, 1, 7), file(9, 2, 6)];
    for (count, wanted) in [(0, vec![8, 9]), (1, vec![8, 9]), (2, vec![9])] {
        let files: Vec<_> = (0..count).map(|number| closing(number, 7, 1000)).collect();
        assert_eq!(order(&[&files[..], &idle].concat(), 1001), wanted);
    }
    // At sixteen gfsds, and at no other one.
    for (count, wanted) in [(15, vec![100, 101]), (16, vec![])] {
        let files: Vec<_> = (0..count)
            .flat_map(|host| [closing(host.into(), host, 0), closing(50, host, 0)])
            .collect();
        let idle = [file(100, 1, 40), file(101, 1, 41), file(102, 1, 3)];
        assert_eq!(order(&[&files[..], &idle].concat(), 5000), wanted);
    }
    // Room for all of them: `HOSTS_MAX` gfsds with `PER_HOST_MAX` files each.
    assert_eq!(CLOSING_MAX, 32);
}

#[test]
fn the_first_ones_are_asked_and_each_file_is_looked_at_twice() {
    let mut chance = Chance::new(11);
    for count in [0, 1, ASKED_MAX - 1, ASKED_MAX, ASKED_MAX + 1, 40, 2000] {
        let files: Vec<_> = (0..count as u64)
            .map(|number| Holder {
                is_read: chance.below(3) == 0,
                ..file(number, chance.below(20) as u64, chance.below(5) as u32)
            })
            .collect();
        let looks = Cell::new(0);
        let all = || {
            files.iter().map(|file| {
                looks.set(looks.get() + 1);
                (*file, file.number)
            })
        };
        let asked: Vec<_> = first(all, 1000, 1).into_iter().flatten().collect();
        let wanted = order(&files, 1000).into_iter().take(ASKED_MAX);
        assert_eq!(asked, wanted.collect::<Vec<_>>());
        assert_eq!(looks.get(), 2 * count);
        // No task waits for one.
        assert_eq!(first(all, 1000, 0), [None; ASKED_MAX]);
    }
}

#[test]
fn a_file_that_is_read_is_not_asked() {
    let read = Holder {
        is_read: true,
        ..file(1, 10, 0)
    };
    assert_eq!(order(&[read, file(2, 20, 0)], 1000), [2]);
}
