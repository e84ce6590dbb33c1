// SPDX-License-Identifier: GPL-2.0

//! Requests: their bytes, and each rule that a peer can break.

use proptest::prelude::*;
use proto::gfarm::{
    attr::{
        FileId,
        Time, //
    },
    cache::{
        address::QueuePair,
        excluded::{
            Excluded,
            Reason,
            EXCLUDED_MAX, //
        },
        fragment::FragmentLen,
        invalid::Invalid,
        pages::PageSet,
        request::{
            Ask,
            Landing,
            Request,
            RequestId,
            Role,
            Wanted,
            REQUEST_LEN,
            TIMEOUT_MS_MAX, //
        },
        wire::{
            open,
            Kind,
            HEAD_LEN, //
        }, //
    },
    identity::ContentId, //
};

use super::message::{
    forged,
    hex,
    key,
    node,
    replies,
    wanted, //
};

/// A request as written by hand, and its code as another implementation of the hash has it.
pub(super) const GOLDEN: &str = "
    6766636305000100 1111111111111111
    2222222222222222 0700000000000000
    eeffc00000000000 3930000000000000
    0500000000000000 cdab896700000000
    b168de3a45233000 0000000002000000
    00000000ff000000 0000000000000000
    0000000000000000 0000000000000000
    0000008033333333 3333333344444444
    4444444400000000 0000000000000000
    0000000034120000 f0debc7a02010004
    0200c80001020000 45230000f1debc5a
    93109947d1c7a254";

fn request() -> Request {
    let fragment_len = FragmentLen::new(1024).unwrap();
    let landing = Landing::new(0x1234, 0x7abc_def0, fragment_len).unwrap();
    let mut excluded = Excluded::NONE;
    excluded.add(node(3), Reason::NoAnswer);
    excluded.add(node(4), Reason::NotHere);
    let ask = Ask {
        role: Role::Holder,
        is_retry: false,
        wants_sums: false,
        excluded,
    };
    let id = RequestId {
        tag: 0x0102,
        cookie: 0xc0_ffee,
    };
    Request::new(id, wanted(), (Some(landing), replies()), ask, 200).unwrap()
}

fn parse(bytes: &[u8]) -> Result<Request, Invalid> {
    let datagram = open(bytes, &key()).unwrap();
    assert_eq!(datagram.head.kind, Kind::Request);
    Request::parse(datagram.body)
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let request = request();
    let bytes = request.seal(node(1), node(2), 7, &key()).unwrap();
    assert_eq!(bytes.to_vec(), hex(GOLDEN));
    assert_eq!(parse(&bytes), Ok(request));
    let head = open(&bytes, &key()).unwrap().head;
    assert_eq!(
        (head.from, head.to, head.sequence),
        (node(1), Some(node(2)), 7)
    );
}

/// The golden request with bytes changed at some places.
fn changed(changes: &[(usize, &[u8])]) -> Result<Request, Invalid> {
    let mut bytes = hex(GOLDEN);
    for (at, change) in changes {
        bytes[*at..*at + change.len()].copy_from_slice(change);
    }
    forged(&mut bytes);
    parse(&bytes)
}

/// The golden request with bytes changed from `at` on.
fn with(at: usize, change: &[u8]) -> Result<Request, Invalid> {
    changed(&[(at, change)])
}

#[test]
fn a_holder_alone_is_asked_for_sums() {
    assert_eq!(with(161, &[2]).map(|r| r.ask().wants_sums), Ok(true));
    for role in 0..=1 {
        // An owner sends no pages.
        let request = changed(&[(160, &[role]), (161, &[2]), (148, &[0; 8]), (158, &[0; 2])]);
        assert_eq!(request, Err(Invalid::Flags));
    }
}

#[test]
fn each_field_is_checked() {
    assert_eq!(with(0, b"gfcc"), Ok(request()));
    assert_eq!(with(40, &[0; 8]), Err(Invalid::Object));
    // The size: none, more than the kernel has files of, and less than the pages need.
    assert_eq!(with(68, &[0; 8]), Err(Invalid::Size));
    assert_eq!(with(68, &(1u64 << 63).to_le_bytes()), Err(Invalid::Size));
    assert_eq!(with(68, &(3u64 << 20).to_le_bytes()).map(|_| ()), Ok(()));
    let short = (3 << 20) - 4096u64;
    assert_eq!(with(68, &short.to_le_bytes()), Err(Invalid::Pages));
    assert_eq!(with(68, &(short + 1).to_le_bytes()).map(|_| ()), Ok(()));
    // The chunk: behind the end, and one whose start is no number.
    assert_eq!(with(76, &[3]), Err(Invalid::Pages));
    assert_eq!(with(76, &[255; 8]), Err(Invalid::Pages));
    assert_eq!(with(76, &(1u64 << 44).to_le_bytes()), Err(Invalid::Pages));
    // The pages: none, and more than fragments of 1024 bytes can be.
    assert_eq!(with(84, &[0; 32]), Err(Invalid::Pages));
    assert_eq!(with(84, &[255; 7]).map(|_| ()), Ok(()), "57 pages");
    assert_eq!(with(84, &[255; 8]), Err(Invalid::Fragments), "65 pages");
    for len in [0u16, 1, 128, 255, 1023, 1025, 8192, 0xffff] {
        assert_eq!(with(158, &len.to_le_bytes()), Err(Invalid::Fragments));
    }
    // An owner with a place for fragments, and a holder without one.
    assert_eq!(with(160, &[0]), Err(Invalid::Landing));
    assert_eq!(with(160, &[1]), Err(Invalid::Landing));
    for role in 0..=2 {
        let request = changed(&[(160, &[role]), (148, &[0; 8]), (158, &[0; 2])]);
        let expected = if role == 2 {
            Err(Invalid::Landing)
        } else {
            Ok(role)
        };
        assert_eq!(request.map(|r| r.ask().role as u8), expected);
    }
    let owner = changed(&[
        (160, &[0]),
        (84, &[255; 31]),
        (148, &[0; 8]),
        (158, &[0; 2]),
    ]);
    assert_eq!(
        owner.map(|r| r.wanted().pages().len()),
        Ok(249),
        "no fragments, no limit"
    );
    assert_eq!(with(160, &[3]), Err(Invalid::Role));
    assert_eq!(with(161, &[1]).map(|r| r.ask().is_retry), Ok(true));
    for flags in [4, 7, 0x80, 0xff] {
        assert_eq!(with(161, &[flags]), Err(Invalid::Flags));
    }
    assert_eq!(with(162, &[0, 0]), Err(Invalid::Timeout));
    for (ms, is_valid) in [(1, true), (TIMEOUT_MS_MAX, true), (10_001, false)] {
        let result = with(162, &ms.to_le_bytes());
        let expected = if is_valid {
            Ok(ms)
        } else {
            Err(Invalid::Timeout)
        };
        assert_eq!(result.map(|r| r.timeout_ms()), expected);
    }
}

#[test]
fn each_queue_pair_has_a_number_and_a_key() {
    // That for fragments, and that for replies.
    for at in [148, 168] {
        for qpn in [0, 1, 1 << 24, u32::MAX] {
            assert_eq!(with(at, &qpn.to_le_bytes()), Err(Invalid::QueuePair));
        }
        for qkey in [0, 1 << 31, u32::MAX] {
            assert_eq!(with(at + 4, &qkey.to_le_bytes()), Err(Invalid::QueueKey));
        }
        for qp in [(2u32, 1u32), ((1 << 24) - 1, i32::MAX as u32)] {
            let bytes = [qp.0.to_le_bytes(), qp.1.to_le_bytes()].concat();
            assert_eq!(with(at, &bytes).map(|_| ()), Ok(()));
        }
    }
}

#[test]
fn the_time_of_the_last_write_is_checked() {
    assert_eq!(with(64, &999_999_999u32.to_le_bytes()).map(|_| ()), Ok(()));
    let more = with(64, &1_000_000_000u32.to_le_bytes());
    assert_eq!(more, Err(Invalid::Time));
}

#[test]
fn the_list_of_excluded_nodes_is_checked() {
    // A reason without a node, a node without a reason, an unknown reason.
    assert_eq!(with(116, &[0; 8]), Err(Invalid::Excluded));
    assert_eq!(with(164, &[0]), Err(Invalid::Excluded));
    assert_eq!(with(164, &[4]), Err(Invalid::Excluded));
    assert_eq!(with(167, &[1]), Err(Invalid::Excluded));
    // The same node twice, and a gap.
    assert_eq!(with(124, &[0x33; 8]), Err(Invalid::Excluded));
    let gap = [&[0; 8][..], &[0x55; 8]].concat();
    assert_eq!(
        changed(&[(124, &gap), (164, &[1, 0, 3])]),
        Err(Invalid::Excluded)
    );
    let full = with(164, &[3, 1, 0, 0]).unwrap();
    let listed: Vec<_> = full.ask().excluded.iter().collect();
    assert_eq!(
        listed,
        [(node(3), Reason::Busy), (node(4), Reason::NoAnswer)]
    );
}

#[test]
fn a_body_of_another_length_is_refused() {
    let bytes = hex(GOLDEN);
    let body = &bytes[HEAD_LEN..REQUEST_LEN - 8];
    assert_eq!(Request::parse(body), Ok(request()));
    for len in 0..body.len() {
        assert_eq!(Request::parse(&body[..len]), Err(Invalid::Length));
    }
    let longer = [body, &[0]].concat();
    assert_eq!(Request::parse(&longer), Err(Invalid::Length));
}

#[test]
fn a_full_list_forgets_what_was_added_first() {
    let mut list = Excluded::NONE;
    for n in 1..=6 {
        list.add(node(n), Reason::NotHere);
    }
    list.add(node(4), Reason::Busy);
    let listed: Vec<_> = list.iter().map(|(node, _)| node).collect();
    assert_eq!(listed, [node(3), node(4), node(5), node(6)]);
    assert_eq!(listed.len(), EXCLUDED_MAX);
    assert_eq!(list.reason(node(4)), Some(Reason::Busy));
    assert_eq!(list.reason(node(1)), None);
}

#[test]
fn a_part_has_pages_of_the_whole() {
    let whole = wanted();
    let pages = PageSet::range(2, 3);
    let part = whole.part(pages).unwrap();
    assert_eq!(part.pages(), pages);
    assert_eq!((part.id(), part.chunk()), (whole.id(), whole.chunk()));
    assert_eq!(part.size_bytes(), whole.size_bytes());
    assert_eq!(whole.part(PageSet::EMPTY), None);
    assert_eq!(whole.part(PageSet::range(7, 2)), None);
}

proptest! {
    #[test]
    fn every_request_survives_the_wire(
        (cookie, inum, generation, tag) in any::<(u64, u64, u64, u16)>(),
        (chunk, first, count) in (0..1u64 << 43, any::<u8>(), 1usize..=16),
        (qpn, qkey, log) in (2u32..1 << 24, 1u32..1 << 31, 8u32..=12),
        (role, timeout_ms) in (0usize..3, 1..=TIMEOUT_MS_MAX),
        nodes in prop::collection::vec((1u64..=15, 0usize..3), 0..6),
    ) {
        let id = ContentId {
            file: FileId { inum: inum.max(1), gen: generation },
            mtime: Time { sec: tag.into(), nsec: qkey % 1_000_000_000 },
        };
        let pages = PageSet::range(first, count);
        let wanted = Wanted::new(id, (chunk + 1) << 20, chunk, pages).unwrap();
        let fragment_len = FragmentLen::new(1 << log).unwrap();
        let landing = Landing::new(qpn, qkey, fragment_len).unwrap();
        let role = [Role::Owner, Role::NamedOwner, Role::Holder][role];
        let mut excluded = Excluded::NONE;
        for (n, reason) in nodes {
            excluded.add(node(n), [Reason::NoAnswer, Reason::NotHere, Reason::Busy][reason]);
        }
        let wants_sums = role == Role::Holder && cookie % 3 == 0;
        let ask = Ask { role, is_retry: cookie % 2 == 0, wants_sums, excluded };
        let landing = (role == Role::Holder).then_some(landing);
        let id = RequestId { tag, cookie };
        let replies = QueuePair::new((1 << 24) + 1 - qpn, qkey).unwrap();
        let request = Request::new(id, wanted, (landing, replies), ask, timeout_ms).unwrap();
        let bytes = request.seal(node(1), node(2), cookie, &key()).unwrap();
        prop_assert_eq!(parse(&bytes), Ok(request));
    }
}
