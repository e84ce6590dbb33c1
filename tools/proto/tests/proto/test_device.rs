// SPDX-License-Identifier: GPL-2.0

//! The decisions of the test device.

use proto::test_device::{
    counts::{Counter, Counts, NAMES},
    engine::{cpu_of, engine_of, runs_beside},
    gather::{copy_pieces, Piece, Pieces, TooLong},
    key::{Extent, Refusal, Region, LOCAL_DMA_KEY, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE},
    message::{deliver, receives_datagram, Delivery, Responder, Status},
    qp_state::QpState,
    ring::Ring,
    send_queue::blocks,
};
use std::collections::VecDeque;

const STATES: [QpState; 5] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Err,
];

/// Bytes of an address space, by address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range(u64, u64);

impl Piece for Range {
    fn bytes(&self) -> u64 {
        self.1
    }

    fn part(&self, offset: u64, len: u64) -> Option<Self> {
        (offset.checked_add(len)? <= self.1).then_some(Self(self.0 + offset, len))
    }
}

fn list(pieces: &[Range]) -> Pieces<Vec<Option<Range>>> {
    let mut made = Pieces::new(vec![None; pieces.len()]);
    for piece in pieces {
        made.push(*piece).unwrap();
    }
    made
}

#[test]
fn a_ring_is_a_queue_of_its_length() {
    // Every sequence of 9 steps of three kinds.
    for (capacity, steps) in
        (0..5).flat_map(|capacity| (0..3_u32.pow(9)).map(move |n| (capacity, n)))
    {
        let (mut ring, mut model) = (Ring::new(capacity), VecDeque::new());
        for number in 0..9 {
            assert_eq!(ring.room(), capacity - model.len());
            match steps / 3_u32.pow(number) % 3 {
                0 => match ring.push() {
                    Some(place) => {
                        assert!(!model.contains(&place) && place < capacity);
                        model.push_back(place);
                    }
                    None => assert_eq!(model.len(), capacity),
                },
                1 => assert_eq!(ring.pop(), model.pop_front()),
                _ => assert_eq!(ring.pop_last(), model.pop_back()),
            }
            assert_eq!(ring.first(), model.front().copied());
            assert_eq!(ring.is_empty(), model.is_empty());
            assert_eq!(ring.nth(1), model.get(1).copied());
        }
    }
}

#[test]
fn states_follow_the_architecture() {
    for state in STATES {
        assert_eq!(QpState::from_raw(state.to_raw()), Some(state));
        assert!(state.may_become(QpState::Err) && state.may_become(QpState::Reset));
        assert!(!state.takes_sends() || state.takes_receives());
        assert_eq!(state.is_ready(), state.may_become(QpState::Rts));
    }
    // SQD and SQE are not there.
    assert_eq!((QpState::from_raw(4), QpState::from_raw(5)), (None, None));
    assert!(!QpState::Err.may_become(QpState::Rts) && !QpState::Reset.may_become(QpState::Rtr));
}

const EXTENT: Extent = Extent {
    iova: 0x1_0800,
    len: 0x2000,
    page_bytes: 0x1000,
};

fn registered(access: u32) -> (Region, u32) {
    let key = Region::first_key(3).unwrap() | 0x5a;
    let mut region = Region::new(7, 3);
    assert_eq!(region.register(7, key, access, EXTENT, 3), Ok(()));
    (region, key)
}

#[test]
fn a_key_gives_what_was_registered_and_no_more() {
    let access = LOCAL_WRITE | REMOTE_WRITE;
    let (region, key) = registered(access);
    let at = |domain, key, wanted, addr, len| region.access(domain, key, wanted, addr, len);
    assert_eq!(
        at(7, key, REMOTE_WRITE, 0x1_0800, 0x2000),
        Ok((0x800, 0x1000))
    );
    assert_eq!(at(7, key, REMOTE_WRITE, 0x1_27ff, 1), Ok((0x27ff, 0x1000)));
    assert_eq!(
        at(7, key, REMOTE_WRITE, 0x1_2800, 1),
        Err(Refusal::OutOfRange)
    );
    assert_eq!(
        at(7, key, REMOTE_WRITE, 0x1_07ff, 1),
        Err(Refusal::OutOfRange)
    );
    assert_eq!(
        at(7, key, REMOTE_WRITE, 0x1_0801, u64::MAX),
        Err(Refusal::OutOfRange)
    );
    assert_eq!(
        at(7, key, REMOTE_READ, 0x1_0800, 1),
        Err(Refusal::NotAllowed)
    );
    assert_eq!(
        at(8, key, REMOTE_WRITE, 0x1_0800, 1),
        Err(Refusal::OtherDomain)
    );
    assert_eq!(
        at(7, key ^ 1, REMOTE_WRITE, 0x1_0800, 1),
        Err(Refusal::NoKey)
    );
}

#[test]
fn an_invalidated_key_gives_nothing() {
    let (mut region, key) = registered(REMOTE_READ);
    assert_eq!(region.invalidate(7, key ^ 1), Err(Refusal::NoKey));
    assert_eq!(region.invalidate(8, key), Err(Refusal::OtherDomain));
    assert_eq!(region.invalidate(7, key), Ok(()));
    assert_eq!(region.invalidate(7, key), Err(Refusal::NoKey));
    assert_eq!(
        region.access(7, key, REMOTE_READ, EXTENT.iova, 1),
        Err(Refusal::NoKey)
    );
}

#[test]
fn a_registration_that_makes_no_sense_is_refused() {
    let key = Region::first_key(3).unwrap();
    let refused = |domain, key, extent, pages| {
        Region::new(7, 3)
            .register(domain, key, 0, extent, pages)
            .unwrap_err()
    };
    assert_eq!(refused(8, key, EXTENT, 3), Refusal::OtherDomain);
    assert_eq!(
        refused(7, Region::first_key(4).unwrap(), EXTENT, 3),
        Refusal::NoKey
    );
    assert_eq!(refused(7, key, EXTENT, 2), Refusal::OutOfRange);
    for page_bytes in [0, 3, 0x1001] {
        assert_eq!(
            refused(
                7,
                key,
                Extent {
                    page_bytes,
                    ..EXTENT
                },
                3
            ),
            Refusal::OutOfRange
        );
    }
    let end = Extent {
        iova: u64::MAX,
        len: 2,
        page_bytes: 0x1000,
    };
    assert_eq!(refused(7, key, end, usize::MAX), Refusal::OutOfRange);
    let (mut twice, known) = registered(0);
    assert_eq!(twice.register(7, known, 0, EXTENT, 3), Err(Refusal::NoKey));
}

#[test]
fn no_region_has_the_key_of_all_memory() {
    assert_eq!(Region::first_key(Region::index_of(LOCAL_DMA_KEY)), None);
    assert_eq!(Region::first_key(1 << 24), None);
    assert_eq!(
        Region::index_of(Region::first_key((1 << 24) - 1).unwrap()),
        (1 << 24) - 1
    );
}

#[test]
fn pages_are_cut_at_their_ends() {
    let pages = [
        Range(0x9000, 0x1000),
        Range(0x3000, 0x1000),
        Range(0x5000, 0x1000),
    ];
    let mut pieces = Pieces::new(vec![None; 3]);
    assert_eq!(pieces.push_pages(&pages, 0x1000, 0x800, 0x1900), Ok(()));
    let mut got = Vec::new();
    let target = list(&[Range(0, 0x1900)]);
    assert_eq!(
        copy_pieces(&pieces, &target, 0x1900, |from, to| got.push((from, to))),
        0
    );
    let expected = [
        (Range(0x9800, 0x800), Range(0, 0x800)),
        (Range(0x3000, 0x1000), Range(0x800, 0x1000)),
        (Range(0x5000, 0x100), Range(0x1800, 0x100)),
    ];
    assert_eq!(got, expected);
    pieces.clear();
    assert_eq!(pieces.push_pages(&pages, 0x1000, 0x2fff, 2), Err(TooLong));
    assert_eq!(pieces.push_pages(&pages, 0, 0, 1), Err(TooLong));
    assert_eq!(list(&[]).push(Range(0, 1)), Err(TooLong));
}

#[test]
fn both_lists_are_copied_byte_for_byte() {
    // Every way to cut 6 bytes, on both sides; empty pieces among them.
    let cuts = |mask: u64| {
        let (mut pieces, mut start) = (vec![Range(100, 0)], 0);
        for end in 1..=6 {
            if end == 6 || mask >> end & 1 == 1 {
                pieces.extend([Range(start, end - start), Range(start, 0)]);
                start = end;
            }
        }
        list(&pieces)
    };
    for mask in 0..64 {
        for other in 0..64 {
            for len in 0..=8 {
                let mut copied = Vec::new();
                let left = copy_pieces(&cuts(mask), &cuts(other), len, |from, to| {
                    assert_eq!(from, to);
                    copied.extend(from.0..from.0 + from.1);
                });
                assert_eq!(left, len.saturating_sub(6));
                assert!(copied.iter().copied().eq(0..len.min(6)));
            }
        }
    }
}

#[test]
fn a_message_meets_its_peer() {
    let refused = |sender, receiver| Delivery::Refuse { sender, receiver };
    let gone = refused(Status::RetryExceeded, None);
    assert_eq!(deliver(None, true, true, 1), gone);
    for state in STATES {
        let end = |is_mine, room| {
            Some(Responder {
                state,
                is_mine,
                room,
            })
        };
        assert_eq!(deliver(end(false, Some(9)), true, true, 1), gone);
        if !state.is_ready() {
            assert_eq!(deliver(end(true, Some(9)), false, false, 1), gone);
            continue;
        }
        assert_eq!(deliver(end(true, None), false, false, 1), Delivery::Execute);
        assert_eq!(
            deliver(end(true, None), true, true, 1),
            Delivery::AwaitReceive
        );
        assert_eq!(
            deliver(end(true, Some(9)), true, true, 9),
            Delivery::Execute
        );
        // The bytes of a write with immediate data go elsewhere.
        assert_eq!(
            deliver(end(true, Some(0)), true, false, 9),
            Delivery::Execute
        );
        assert_eq!(
            deliver(end(true, Some(8)), true, true, 9),
            refused(Status::RemoteInvalidRequest, Some(Status::LocalLength))
        );
    }
}

#[test]
fn a_datagram_needs_the_key_and_the_room() {
    assert!(receives_datagram(QpState::Rtr, 5, 5, 9, 9));
    assert!(!receives_datagram(QpState::Rtr, 5, 6, 9, 9));
    assert!(!receives_datagram(QpState::Rts, 5, 5, 8, 9));
    assert!(!receives_datagram(QpState::Init, 5, 5, 9, 9));
}

#[test]
fn counts_have_their_names_and_add_up() {
    let mut one = Counts::default();
    one.add(Counter::SendDoorbells, 1);
    one.add(Counter::Reads, 2);
    one.add(Counter::Events, u64::MAX);
    let mut sum = one;
    sum.add_all(&one);
    assert_eq!(sum.get(Counter::Reads), 4);
    assert_eq!(sum.get(Counter::Events), u64::MAX);
    let text = sum.to_string();
    let table: Vec<_> = NAMES.iter().zip(text.split(' ')).collect();
    assert_eq!(table.len(), text.split(' ').count());
    assert_eq!(table[0], (&"send_doorbells", "2"));
    assert_eq!(table[6], (&"reads", "4"));
    assert_eq!(table[13].0, &"events");
}

#[test]
fn what_is_registered_after_its_invalidation_is_late() {
    let (mut region, key) = registered(REMOTE_WRITE);
    assert_eq!(region.invalidate(7, key), Ok(()));
    let next = key ^ 1;
    assert_eq!(region.invalidate_early(7, next), Ok(()));
    assert_eq!(region.invalidate_early(8, next), Err(Refusal::OtherDomain));
    assert!(region.invalidate_early(7, key + 256).is_err());
    for (key, is_late) in [(key, false), (next, true)] {
        assert_eq!(region.register(7, key, REMOTE_WRITE, EXTENT, 3), Ok(()));
        assert_eq!(region.is_late(), is_late);
        assert_eq!(region.invalidate(7, key), Ok(()));
    }
}

#[test]
fn a_send_queue_has_the_size_of_mlx5() {
    // Work requests of 448, 320, 256, 192 and 192 bytes.
    let segments = [(17, 7), (9, 5), (5, 4), (3, 3), (1, 3)];
    for (segments, each) in segments {
        assert_eq!(blocks(1, segments), u64::next_power_of_two(each));
        assert_eq!(blocks(1024, segments), 1024 * u64::next_power_of_two(each));
    }
    // The largest depths of a session whose client has a queue of 2 MiB.
    let sends = |depth: u32| depth * 7 / 2 + 2;
    for (segments, depth) in [(17, 1336), (9, 1871), (5, 2340), (3, 3120)] {
        assert_eq!(blocks(sends(depth), segments), 32768);
        assert_eq!(blocks(sends(depth + 2), segments), 65536);
    }
    assert_eq!(blocks(u32::MAX, u32::MAX), 1 << 63);
}

#[test]
fn the_ends_of_a_connection_are_of_two_engines_and_vectors_of_all_processors() {
    for engines in 2..=4 {
        for qp in 16..64 {
            assert!(engine_of(qp, engines) < engines);
            assert_ne!(engine_of(qp, engines), engine_of(qp + 1, engines));
        }
    }
    assert_eq!(engine_of(17, 1), 0);
    assert_eq!(
        (0..5).map(|vector| cpu_of(vector, 2)).collect::<Vec<_>>(),
        [0, 1, 0, 1, 0]
    );
    assert_eq!((engine_of(17, 0), cpu_of(3, 0)), (0, 0));
}

#[test]
fn an_engine_is_alone_for_what_others_must_see_at_once() {
    let refused = Delivery::Refuse {
        sender: Status::RetryExceeded,
        receiver: None,
    };
    for delivery in [Delivery::Execute, refused] {
        assert!(runs_beside(Some(delivery), false));
        assert!(!runs_beside(Some(delivery), true));
    }
    assert!(!runs_beside(Some(Delivery::AwaitReceive), false));
    assert!(!runs_beside(None, false));
}
