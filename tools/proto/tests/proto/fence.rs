// SPDX-License-Identifier: GPL-2.0

//! The look of a server at the other paths before it serves a request, in every order of two paths;
//! and the fence message: which lives a client asks about, and which questions a server refuses.

use std::cell::RefCell;

use proto::rtrs::{
    fence::{
        check,
        look,
        next_number,
        BadFence,
        Carriers,
        Fences,
        Life,
        Look, //
    },
    imm::Imm,
    wire::{
        ConnectRequest,
        ConnectResponse,
        FENCES, //
    }, //
};
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

/// The looks of both paths of a session at each other.
#[derive(Debug, Default)]
struct Shared {
    is_closed: [bool; 2],
    /// Request contexts that are taken, by path and chunk.
    taken: [[bool; 2]; 2],
    /// Requests that are with the disk, or were, by path and chunk.
    served: [[bool; 2]; 2],
}

impl Shared {
    /// Whether the other path carries a request in the chunk; if so, it is closed.
    fn is_contested(&mut self, path: usize, chunk: usize) -> bool {
        let other = 1 - path;
        let contested = self.taken[other][chunk];
        self.is_closed[other] |= contested;
        contested
    }
}

/// The steps of the path that the client has gone over to: both requests that were lost on the
/// first one, the second chunk's first. What is between two steps may be another path's.
fn newer_path(shared: &mut Shared, step: usize) {
    match step {
        0 => shared.taken[1][1] = true,
        1 => shared.served[1][1] = !shared.is_contested(1, 1),
        // Its answer; the client may use the chunk for something else.
        2 if shared.served[1][1] => shared.taken[1][1] = false,
        3 => shared.taken[1][0] = true,
        4 => _ = shared.is_contested(1, 0),
        _ => {}
    }
}

const STEPS: usize = 5;

/// Runs a late request for the second chunk on the first path, whose first chunk is with the disk.
/// `at` are the steps that the newer path has done before the context is taken, before the state is
/// read, and before the other path is looked at.
fn late_request(at: [usize; 3]) -> (Look, Shared, bool) {
    let mut first = Shared::default();
    first.taken[0][0] = true;
    let shared = RefCell::new(first);
    let mut done = 0;
    let mut upto = |step: usize| {
        while done < step {
            newer_path(&mut shared.borrow_mut(), done);
            done += 1;
        }
    };
    upto(at[0]);
    shared.borrow_mut().taken[0][1] = true;
    upto(at[1]);
    let closed_before = shared.borrow().is_closed[0];
    let is_up = || !shared.borrow().is_closed[0];
    let verdict = look(Some(Carriers::UNKNOWN), is_up, || {
        upto(at[2]);
        shared.borrow_mut().is_contested(0, 1)
    });
    (verdict, shared.into_inner(), closed_before)
}

fn orders() -> impl Iterator<Item = [usize; 3]> {
    let pairs = (0..=STEPS).flat_map(|a| (a..=STEPS).map(move |b| (a, b)));
    pairs.flat_map(|(a, b)| (b..=STEPS).map(move |c| [a, b, c]))
}

#[test]
fn a_path_that_was_closed_before_the_look_serves_nothing() {
    let mut late = 0;
    for at in orders() {
        let (verdict, shared, closed_before) = late_request(at);
        if closed_before {
            assert_eq!(verdict, Look::Discard, "{at:?}: {shared:?}");
            late += usize::from(shared.served[1][1]);
        }
    }
    // Among them are those whose second copy was answered: the chunk is free on the other path.
    assert!(late > 0);
}

#[test]
fn of_two_requests_in_a_chunk_one_at_most_is_served() {
    for at in orders() {
        let (verdict, shared, _) = late_request(at);
        let both = verdict == Look::Serve && shared.served[1][1] && shared.taken[1][1];
        assert!(!both, "{at:?}: {shared:?}");
    }
}

#[test]
fn a_path_without_others_does_not_look() {
    let verdict = look(None, || panic!("state"), || panic!("others"));
    assert_eq!(verdict, Look::Serve);
}

#[test]
fn a_request_that_is_alone_in_its_chunk_looks_at_no_other_path() {
    let alone = || Some(Carriers::before(0));
    assert_eq!(look(alone(), || true, || panic!("others")), Look::Serve);
    assert_eq!(look(alone(), || false, || panic!("others")), Look::Discard);
    for word in [Carriers::ONE, Carriers::DOUBT, Carriers::DOUBT | 127] {
        for (is_contested, expected) in [(true, Look::Defer), (false, Look::Serve)] {
            let found = look(Some(Carriers::before(word)), || true, || is_contested);
            assert_eq!(found, expected, "{word:#x}");
        }
    }
}

fn life(session: u64, number: u32) -> Life {
    Life::new(session, number).unwrap()
}

#[test]
fn a_life_that_was_given_up_stays_open_until_its_number_is_answered() {
    let mut fences = Fences::new(vec![None; 3]);
    let [fifth, sixth, other] = [5, 6, 7].map(|number| fences.reached(Some(life(1, number))));
    assert_eq!(fences.next(&other), None);
    assert!(fences.give_up(fifth) && fences.give_up(sixth));
    assert!(fences.is_open(life(1, 5)) && !fences.is_open(life(1, 7)));
    assert_eq!(fences.next(&other), Some(5));
    // The number of another session says nothing.
    fences.answered(2, 5);
    assert!(fences.must_ask(&other, life(1, 5)));
    fences.answered(1, 5);
    assert!(!fences.must_ask(&other, life(1, 5)));
    assert_eq!(fences.next(&other), Some(6));
    // A path that was there before is asked as well.
    assert!(fences.can_settle(&fifth, life(1, 6)) && fences.must_ask(&fifth, life(1, 6)));
    assert_eq!(fences.next(&fifth), Some(6));
}

#[test]
fn a_session_that_is_new_has_no_life_of_its_predecessor() {
    // A restarted server, and one of the C driver in its place.
    for other in [Some(life(2, 1)), None] {
        let mut fences = Fences::new(vec![None; 3]);
        let lost = fences.reached(Some(life(1, 5)));
        let newer = fences.reached(other);
        assert!(fences.give_up(lost));
        let mut asked = fences.clone();
        assert_eq!(fences.next(&newer), None);
        assert!(!fences.is_open(life(1, 5)));
        assert!(asked.can_settle(&newer, life(1, 5)));
        assert!(!asked.must_ask(&newer, life(1, 5)) && !asked.is_open(life(1, 5)));
        assert!(asked.can_settle(&newer, life(1, 5)));
    }
}

#[test]
fn a_path_of_an_older_session_settles_nothing() {
    // It leads to the server before its restart, and the client has not noticed that.
    for older in [Some(life(1, 5)), None] {
        let mut fences = Fences::new(vec![None; 3]);
        let older = fences.reached(older);
        let [lost, newer] = [1, 2].map(|number| fences.reached(Some(life(2, number))));
        assert!(fences.give_up(lost));
        assert!(!fences.can_settle(&older, life(2, 1)));
        assert_eq!(fences.next(&older), None);
        assert!(fences.must_ask(&older, life(2, 1)), "the life is forgotten");
        assert!(fences.can_settle(&newer, life(2, 1)) && fences.must_ask(&newer, life(2, 1)));
        assert_eq!(fences.next(&newer), Some(1));
    }
}

#[test]
fn lives_of_two_sessions_are_forgotten_in_the_order_of_the_sessions() {
    let mut fences = Fences::new(vec![None; 3]);
    let [first, second] = [1, 2].map(|session| fences.reached(Some(life(session, 1))));
    assert!(fences.give_up(second) && fences.give_up(first));
    let other = fences.reached(Some(life(2, 2)));
    assert_eq!(fences.next(&other), Some(1));
    assert!(fences.is_open(life(2, 1)) && !fences.is_open(life(1, 1)));
}

#[test]
fn without_room_the_caller_is_told() {
    let mut fences = Fences::new(vec![None; 1]);
    let [first, second] = [1, 2].map(|number| fences.reached(Some(life(1, number))));
    let nameless = fences.reached(None);
    assert!(!fences.give_up(nameless), "a server without the message");
    assert!(fences.give_up(first));
    assert!(!fences.give_up(second));
    fences.answered(1, 1);
    assert!(fences.give_up(second));
}

#[test]
fn only_other_paths_of_the_own_session_can_be_asked_about() {
    let own = Some(life(9, 4));
    assert_eq!(check(3, own, 6), Ok(()));
    // One that has ended, or is connected after the asking one.
    assert_eq!(check(1, own, 6), Ok(()));
    assert_eq!(check(6, own, 6), Ok(()));
    for number in [0, 4, 7, u32::MAX] {
        assert_eq!(check(number, own, 6), Err(BadFence::Unknown(number)));
    }
    assert_eq!(check(3, None, 6), Err(BadFence::Unexpected));
}

#[test]
fn a_number_is_used_once_and_fits_the_message() {
    let last = (1 << 28) - 1;
    assert_eq!(next_number(0), Some(1));
    assert_eq!(next_number(last - 1), Some(last));
    assert_eq!(next_number(last), None);
    assert_eq!(Life::new(1, last + 1), None);
    assert_eq!((Life::new(0, 1), Life::new(1, 0)), (None, None));
    for number in [1, last] {
        assert_eq!(
            Imm::decode(Imm::Fence(number).encode()),
            Ok(Imm::Fence(number))
        );
        assert_eq!(
            Imm::decode(Imm::Fenced(number).encode()),
            Ok(Imm::Fenced(number))
        );
    }
}

#[test]
fn a_c_peer_reads_and_writes_zeroes_where_the_agreement_is() {
    let mut request = ConnectRequest::new_zeroed();
    request.extension = FENCES.into();
    assert_eq!(request.as_bytes()[45..49], *b"FNC1");
    let mut response = ConnectResponse::new_zeroed();
    (response.extension, response.session) = (FENCES.into(), u64::MAX.into());
    assert_eq!(response.as_bytes()[20..24], *b"FNC1");
    assert!(response.as_bytes()[36..].iter().all(|byte| *byte == 0));
}
