// SPDX-License-Identifier: GPL-2.0

//! Chunks of lost requests: an exhaustive walk through a small world, with a server that does what
//! servers may do.

use std::{
    collections::{
        BTreeSet,
        VecDeque, //
    },
    time::{
        Duration,
        Instant, //
    },
};

use proptest::prelude::*;
use proto::rtrs::{
    quarantine::{
        pieces,
        Chunk,
        Place,
        Quarantine,
        Ticket, //
    },
    PATHS_MAX, //
};

fn quarantine(chunks: usize) -> Quarantine<Vec<Chunk>> {
    let mut q = Quarantine::new(Vec::new());
    assert!(q.provide(vec![Chunk::default(); chunks]).is_empty());
    q
}

fn own(chunk: u16) -> Option<Place> {
    Some(Place {
        chunk,
        is_again: false,
    })
}

fn again(chunk: u16) -> Option<Place> {
    Some(Place {
        chunk,
        is_again: true,
    })
}

#[test]
fn a_paused_request_shows_its_ticket_also_where_no_chunk_is_held() {
    let mut q = quarantine(4);
    let ticket = q.lost(1, 0);
    assert!(!ticket.is_paused(0) && !q.is_any_paused(0));
    let paused = q.pause(ticket, 3000);
    let other = q.lost(2, 0);
    let other = q.pause(other, 1000);
    q.connected(0);
    for (now_ms, first, second) in [(0, true, true), (1000, true, false), (3000, false, false)] {
        assert_eq!(paused.is_paused(now_ms), first);
        assert_eq!(other.is_paused(now_ms), second);
        assert_eq!((q.held(), q.is_any_paused(now_ms)), (0, first));
    }
    assert_eq!(q.take(1, Some(paused)), own(1));
    let ticket = q.lost(3, 1);
    let paused = q.pause(ticket, 9000);
    assert_eq!(q.take(1, Some(paused)), again(3), "in its chunk, as before");
}

#[test]
fn d29_a_lost_requests_chunk_is_held_until_its_path_is_connected() {
    let mut q = quarantine(4);
    assert_eq!(q.take(1, None), own(1));
    q.lost(1, 0);
    assert_eq!((q.take(1, None), q.held(), q.is_held(1)), (None, 1, true));
    assert_eq!(q.take(2, None), own(2));
    q.connected(1);
    assert_eq!(q.take(1, None), None, "another path shows nothing");
    q.connected(0);
    assert_eq!((q.take(1, None), q.held()), (own(1), 0));
}

#[test]
fn each_path_that_it_went_out_on_has_to_be_seen() {
    let mut q = quarantine(4);
    q.lost(1, 0);
    q.lost(1, 127);
    q.connected(127);
    assert!(q.is_held(1));
    q.connected(0);
    assert!(!q.is_held(1));
}

#[test]
fn an_answer_to_the_same_request_shows_that_all_copies_are_over() {
    let mut q = quarantine(4);
    q.lost(1, 0);
    let ticket = q.lost(1, 1);
    assert_eq!(q.take(1, Some(ticket)), again(1));
    q.answered(1);
    assert_eq!((q.is_held(1), q.held()), (false, 0));
}

#[test]
fn a_lost_request_goes_out_in_its_first_chunk_whatever_tag_it_has_now() {
    let mut q = quarantine(4);
    let ticket = q.lost(1, 0);
    assert_eq!(q.take(2, Some(ticket)), again(1));
    assert_eq!(
        (q.used_instead_of(2), q.used_instead_of(1)),
        (Some(1), None)
    );
    assert_eq!(q.take(1, Some(ticket)), None, "once at a time");
    // The path comes back meanwhile: the chunk is in use all the same.
    q.connected(0);
    assert_eq!(q.take(1, None), None);
    assert_eq!(
        q.inquiry(1, true),
        None,
        "there is nothing to ask the server for"
    );
    q.answered(1);
    assert_eq!((q.take(1, None), q.used_instead_of(2)), (own(1), None));
}

#[test]
fn a_request_that_was_not_sent_leaves_the_chunk_held() {
    let mut q = quarantine(4);
    let ticket = q.lost(1, 0);
    assert_eq!(q.take(2, Some(ticket)), again(1));
    q.given_back(1);
    assert!(q.is_held(1));
    assert_eq!(q.take(3, Some(ticket)), again(1));
    let later = q.lost(1, 2);
    q.given_back(1);
    assert_eq!(q.take(3, Some(ticket)), own(3), "that ticket is used");
    assert_eq!(q.take(3, Some(later)), again(1));
}

#[test]
fn a_ticket_is_for_one_loss() {
    let mut q = quarantine(4);
    let old = q.lost(1, 0);
    q.connected(0);
    q.lost(1, 1);
    assert_eq!(q.take(2, Some(old)), own(2));
    assert_eq!(q.take(1, Some(old)), None);
}

#[test]
fn a_server_that_has_forgotten_the_session_has_forgotten_what_was_lost_before() {
    let mut q = quarantine(4);
    assert_eq!(q.inquiry(1, true), None);
    q.lost(1, 0);
    assert_eq!(q.inquiry(0, true), None, "its own return will show it");
    assert_eq!(q.inquiry(1, false), None, "a new path begins the session");
    let losses = q.inquiry(1, true).unwrap();
    q.lost(2, 1);
    q.forgotten(losses);
    assert_eq!((q.is_held(1), q.is_held(2)), (false, true));
    q.forgotten(q.inquiry(0, true).unwrap());
    assert_eq!((q.held(), q.inquiry(0, true)), (0, None));
}

#[test]
fn a_paths_number_is_not_used_again_while_a_chunk_is_held_for_it() {
    let mut q = quarantine(4);
    assert_eq!((q.add_path(), q.add_path()), (Some(0), Some(1)));
    q.lost(3, 0);
    // One held chunk of a path that is there, two of a path that is not.
    assert_eq!(q.add_path(), Some(2));
    q.lost(2, 0);
    q.remove_path(0);
    q.remove_path(2);
    assert_eq!(q.add_path(), Some(2));
    q.answered(2);
    q.remove_path(2);
    assert_eq!(q.add_path(), Some(2));
    q.answered(3);
    assert_eq!(q.add_path(), Some(0));
    for number in 3..PATHS_MAX {
        assert_eq!(q.add_path(), u8::try_from(number).ok());
    }
    assert_eq!(q.add_path(), None);
    q.remove_path(77);
    assert_eq!(q.add_path(), Some(77));
}

#[test]
fn what_is_none_changes_nothing() {
    let mut q = quarantine(2);
    let ticket = q.lost(2, 0);
    assert_eq!((q.held(), q.is_held(2)), (0, false));
    q.lost(0, 128);
    assert_eq!(q.held(), 0);
    assert_eq!(q.take(1, Some(ticket)), own(1));
    q.answered(9);
    q.given_back(9);
    q.connected(200);
    q.remove_path(255);
    assert_eq!(q.provide(vec![Chunk::default(); 9]).len(), 9, "too late");
}

/// A world of two chunks, two paths and one lost request at a time, with the copies that the server
/// may still have. The client does everything that it may.
#[derive(Clone, Debug)]
struct World {
    q: Quarantine<Vec<Chunk>>,
    /// The requests that a path's life at the server may still work on, for each path, as (chunk,
    /// request).
    at_server: [BTreeSet<(u16, u8)>; 2],
    /// The request in flight, of which there is one for each tag: (chunk, request, path).
    in_flight: [Option<(u16, u8, usize)>; 2],
    /// The request that was given back, and waits to be made anew: (ticket, request).
    waiting: Option<(Ticket, u8)>,
    requests: u8,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    New {
        tag: u16,
        path: usize,
    },
    Remake {
        tag: u16,
        path: usize,
    },
    Answer {
        tag: usize,
    },
    Lose {
        tag: usize,
        resend: bool,
    },
    Fail,
    /// The maker of the request that waits is told that it has ended, and may make it otherwise.
    End,
    /// The server is done with its old lives of a path, and the client sees it.
    Reconnect {
        path: usize,
    },
    /// A path asks a server that has forgotten the session.
    Forget {
        path: usize,
    },
}

fn deeds() -> Vec<Deed> {
    let mut all = vec![Deed::Fail, Deed::End];
    for i in [0, 1] {
        all.push(Deed::Answer { tag: i });
        all.push(Deed::Reconnect { path: i });
        all.push(Deed::Forget { path: i });
        for b in [false, true] {
            all.push(Deed::Lose { tag: i, resend: b });
            let (tag, path) = (u16::try_from(i).unwrap(), usize::from(b));
            all.push(Deed::New { tag, path });
            all.push(Deed::Remake { tag, path });
        }
    }
    all
}

impl World {
    fn new() -> Self {
        Self {
            q: quarantine(2),
            at_server: Default::default(),
            in_flight: [None; 2],
            waiting: None,
            requests: 0,
        }
    }

    /// Checks what must hold when `request` is written into `chunk`: the server works in it for no
    /// other.
    fn send(&mut self, tag: u16, chunk: u16, request: u8, path: usize) {
        for life in &self.at_server {
            let foreign = life.iter().find(|(c, r)| *c == chunk && *r != request);
            assert_eq!(foreign, None, "chunk {chunk} is written for {request}");
            // And no old copy is left elsewhere, which could come later.
            let elsewhere = life.iter().find(|(c, r)| *c != chunk && *r == request);
            assert_eq!(elsewhere, None, "{request} goes into {chunk}");
        }
        let used = self.in_flight.iter().flatten().find(|f| f.0 == chunk);
        assert_eq!(used, None, "chunk {chunk} is in use");
        self.at_server[path].insert((chunk, request));
        self.in_flight[usize::from(tag)] = Some((chunk, request, path));
    }

    /// The server has forgotten the session, and the client asks for it.
    fn forget(&mut self, path: usize) -> bool {
        let inquiry = self.q.inquiry(u8::try_from(path).unwrap(), true);
        let Some(losses) = inquiry.filter(|_| self.in_flight == [None; 2]) else {
            return false;
        };
        self.at_server = Default::default();
        self.q.forgotten(losses);
        true
    }

    /// The chunk of a request; whether there is one was said before.
    fn take(&mut self, tag: u16, ticket: Option<Ticket>) -> Option<Place> {
        let may_take = self.q.may_take(tag, ticket);
        let place = self.q.take(tag, ticket);
        assert_eq!(place.is_some(), may_take);
        place
    }

    /// Does it, or says that it cannot be done now.
    fn step(&mut self, deed: Deed) -> bool {
        match deed {
            Deed::New { tag, path } => {
                let free = self.in_flight[usize::from(tag)].is_none() && self.requests < 4;
                let place = free.then(|| self.take(tag, None)).flatten();
                let Some(place) = place else { return false };
                assert!(!place.is_again);
                self.requests += 1;
                self.send(tag, place.chunk, self.requests, path);
            }
            Deed::Remake { tag, path } => {
                let free = self.in_flight[usize::from(tag)].is_none();
                let Some((ticket, request)) = self.waiting.filter(|_| free) else {
                    return false;
                };
                let Some(place) = self.take(tag, Some(ticket)) else {
                    return false;
                };
                self.waiting = None;
                self.send(tag, place.chunk, request, path);
            }
            Deed::Answer { tag } => {
                let Some((chunk, request, _)) = self.in_flight[tag].take() else {
                    return false;
                };
                // A server that fences: the copies in the same chunk are over.
                for life in &mut self.at_server {
                    life.remove(&(chunk, request));
                }
                self.q.answered(chunk);
            }
            Deed::Lose { tag, resend } => {
                let Some((chunk, request, path)) = self.in_flight[tag].take() else {
                    return false;
                };
                if !resend && self.waiting.is_some() {
                    self.in_flight[tag] = Some((chunk, request, path));
                    return false;
                }
                let ticket = self.q.lost(chunk, u8::try_from(path).unwrap());
                if resend {
                    self.send(u16::try_from(tag).unwrap(), chunk, request, 1 - path);
                } else {
                    self.q.given_back(chunk);
                    self.waiting = Some((ticket, request));
                }
            }
            Deed::Fail => return self.waiting.take().is_some(),
            Deed::End => {
                let over = |w: &mut (Ticket, u8)| !self.q.may_be_executed(w.0);
                let Some((_, request)) = self.waiting.take_if(over) else {
                    return false;
                };
                let mut copies = self.at_server.iter().flatten();
                assert_eq!(copies.find(|(_, r)| *r == request), None, "it has ended");
            }
            Deed::Reconnect { path } => {
                if self.in_flight.iter().flatten().any(|f| f.2 == path) {
                    return false;
                }
                self.at_server[path].clear();
                self.q.connected(u8::try_from(path).unwrap());
            }
            Deed::Forget { path } => return self.forget(path),
        }
        let held = |chunk| u32::from(self.q.is_held(chunk));
        assert_eq!(self.q.held(), held(0) + held(1));
        true
    }
}

#[test]
fn no_order_of_events_puts_a_request_into_a_chunk_that_the_server_works_in() {
    let all = deeds();
    let mut worlds = VecDeque::from([(World::new(), 0)]);
    let mut seen = BTreeSet::new();
    while let Some((world, depth)) = worlds.pop_front() {
        if depth == 9 || !seen.insert((format!("{world:?}"), depth)) {
            continue;
        }
        for deed in &all {
            let mut next = world.clone();
            if next.step(*deed) {
                worlds.push_back((next, depth + 1));
            }
        }
    }
    assert!(seen.len() > 20_000, "{} worlds", seen.len());
}

proptest! {
    #[test]
    fn no_long_row_of_events_does_either(row in proptest::collection::vec(0usize..64, 0..200)) {
        let all = deeds();
        let mut world = World::new();
        for pick in row {
            world.requests = 0;
            // Requests are told apart by who has them: no number that is about may be given again.
            let about = |n: u8| {
                world.at_server.iter().flatten().any(|(_, r)| *r == n)
                    || world.in_flight.iter().flatten().any(|f| f.1 == n)
                    || world.waiting.is_some_and(|w| w.1 == n)
            };
            let fresh = (1..=u8::MAX).find(|n| !about(*n)).unwrap();
            if fresh <= 4 {
                world.requests = fresh - 1;
            } else {
                world.requests = 4;
            }
            world.step(all[pick % all.len()]);
        }
        // Once everything is over nothing is held.
        for tag in [0, 1] {
            world.step(Deed::Answer { tag });
        }
        for path in [0, 1] {
            assert!(world.step(Deed::Reconnect { path }));
        }
        prop_assert_eq!(world.q.held(), 0);
    }
}

#[test]
fn who_uses_a_chunk_is_known_without_a_search() {
    const DEPTH: u16 = 65_535;
    let mut q = quarantine(DEPTH.into());
    let neighbour = |chunk: u16| (chunk + 1) % DEPTH;
    for chunk in 0..DEPTH {
        let ticket = q.lost(chunk, 0);
        assert_eq!(q.take(neighbour(chunk), Some(ticket)), again(chunk));
    }
    // A search through all of them for each would take half a minute, in the driver with interrupts
    // off.
    let begun = Instant::now();
    for chunk in 0..DEPTH {
        assert_eq!(q.used_instead_of(neighbour(chunk)), Some(chunk));
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
    q.given_back(7);
    assert_eq!(
        (q.used_instead_of(8), q.used_instead_of(9)),
        (None, Some(8))
    );
}

#[test]
fn chunks_are_free_piece_by_piece_as_all_at_once() {
    for depth in [1, 2, 255, 256, 257, 512, 1000, 65_535] {
        let mut all = quarantine(depth.into());
        for chunk in 0..depth {
            all.lost(chunk, u8::try_from(chunk % 3).unwrap());
        }
        let losses = u64::from(depth / 2);
        let (mut connected, mut forgotten) = (all.clone(), all.clone());
        for piece in pieces(depth) {
            assert!(piece.len() <= 256, "as long an interrupt waits");
            connected.connected_in(1, piece.clone());
            forgotten.forgotten_in(losses, piece);
        }
        let mut at_once = all.clone();
        at_once.connected(1);
        assert_eq!(format!("{connected:?}"), format!("{at_once:?}"));
        all.forgotten(losses);
        assert_eq!(format!("{forgotten:?}"), format!("{all:?}"));
    }
}
