// SPDX-License-Identifier: GPL-2.0

use proto::rnbd::message_queue::{
    is_free,
    is_same,
    is_stale,
    place,
    Place,
    Step,
    OF_SESSION_MAX, //
};

/// Threads of a work queue that names no other number.
const THREADS: u32 = 1024;

#[test]
fn sessions_with_many_silent_devices_leave_threads_for_the_others() {
    // CAST: a few.
    let wanted = 64 * OF_SESSION_MAX as u32;
    let taken = |may_refuse| {
        let is_free = |in_use: &u32| is_free(*in_use, may_refuse);
        (0..wanted).take_while(is_free).count()
    };
    // Clients that are refused ask again; those that are not would block their sessions.
    assert!(taken(true) + OF_SESSION_MAX < taken(false));
    let taken = taken(false);
    assert!(
        taken >= 4 * OF_SESSION_MAX,
        "one client leaves some for others"
    );
    assert!(taken + 512 < THREADS as usize, "512 sessions have one each");
}

#[test]
fn names_of_one_device_are_told_from_those_of_another() {
    for same in ["./a/b", "a/./b", "a//b", "/a/b", "a/b/.", "././/a/b/"] {
        assert!(is_same(b"a/b", same.as_bytes()), "{same}");
    }
    for other in [
        "", ".", "a", "b", "ab", "a/b/c", ".a/b", "a/.b", "a/..", "a/b.",
    ] {
        assert!(!is_same(b"a/b", other.as_bytes()), "{other}");
        assert!(!is_same(other.as_bytes(), b"a/b"), "{other}");
    }
    assert!(is_same(b"a/..", b"./a/.."), "the server refuses it");
}

#[test]
fn a_lane_keeps_little_of_clients_that_come_and_go() {
    // Each client sends as much as it can and is gone, while the device does not answer.
    let mut queue = vec![Step::Open];
    for _ in 0..10 {
        for step in [
            Step::Open,
            Step::Close(1),
            Step::CloseUntold(1),
            Step::Open,
            Step::Close(2),
        ] {
            if !is_stale(step, queue.iter().copied()) {
                queue.push(step);
            }
        }
    }
    let once = [
        Step::Open,
        Step::Close(1),
        Step::CloseUntold(1),
        Step::Close(2),
    ];
    assert_eq!(queue, once);
}

#[test]
fn a_silent_device_more_than_a_session_may_have_is_refused_and_blocks_nothing() {
    let ids = usize::from(proto::rtrs::permit::ADMIN_MAX);
    let is_queued = |step, busy| place(step, true, busy) == Place::Queue;
    let opens = (0..)
        .take_while(|busy| is_queued(Step::Open, *busy))
        .count();
    assert_eq!(place(Step::Open, true, opens), Place::Refused);
    // Whatever a client sends beside them that waits for a device has a queue.
    assert!((0..=opens + ids).all(|busy| is_queued(Step::Close(7), busy)));
    assert!(opens >= 4 * ids, "a client has many devices");
    // What no client has asked for takes no place of a CLOSE, and has one that no OPEN takes.
    let untold = |busy| place(Step::CloseUntold(7), false, busy);
    assert!((0..=opens).all(|busy| untold(busy) == Place::Queue));
    assert!((opens + 1..OF_SESSION_MAX + 9).all(|busy| untold(busy) == Place::Refused));
}

#[test]
fn a_client_that_asks_once_is_not_refused() {
    for busy in 0..=2 * OF_SESSION_MAX {
        let expected = match busy < OF_SESSION_MAX {
            true => Place::Queue,
            false => Place::Session,
        };
        assert_eq!(place(Step::Open, false, busy), expected);
        for may_refuse in [false, true] {
            assert_eq!(place(Step::Close(1), may_refuse, busy), expected);
        }
    }
}
