// SPDX-License-Identifier: GPL-2.0

//! Replies: their bytes, and each rule that a peer can break.

use proto::gfarm::cache::{
    address::Address,
    fragment::FragmentLen,
    invalid::Invalid,
    pages::PageSet,
    reply::{
        Answer,
        Holder,
        Refusal,
        Reply,
        Sums,
        REPLY_LEN,
        REPLY_LEN_MAX, //
    },
    request::RequestId,
    wire::{
        open,
        Kind,
        DATAGRAM_LEN_MAX,
        HEAD_LEN, //
    }, //
};

use super::message::{
    forged,
    hex,
    key,
    node, //
};

/// Replies as written by hand, with codes as another implementation of the hash has them.
pub(super) const GOLDEN_DATA: &str = "
    6766636305000200 2222222222222222
    1111111111111111 0000000000000000
    eeffc00000000000 4523300000000000
    7f00000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000002010100 00001000d958e29d
    efbb2d82";
pub(super) const GOLDEN_SUMS: &str = "
    6766636305000200 2222222222222222
    1111111111111111 0000000000000000
    eeffc00000000000 4523300000000000
    7f00000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000002010100 0000100011111111
    2222222233333333 4444444455555555
    6666666677777777 570879d0fd4034ca";
pub(super) const GOLDEN_REDIRECT: &str = "
    6766636305000200 2222222222222222
    1111111111111111 0000000000000000
    eeffc00000000000 0000000000000000
    ff00000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000000
    0000000000000000 0000000000000080
    3333333333333333 fe80000000000000
    0202c9fffe001122 0000110000006f00
    0000000002010200 0000100034ea6053
    a0c48696";

fn holder() -> Holder {
    let gid = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 0xc9, 0xff, 0xfe, 0, 0x11, 0x22,
    ];
    Holder {
        node: node(3),
        address: Address::new(gid, 0, 0x11, 111, 0).unwrap(),
    }
}

fn reply(answer: Answer) -> Reply {
    let has_size = matches!(answer, Answer::Data { .. });
    Reply {
        id: RequestId {
            tag: 0x0102,
            cookie: 0xc0_ffee,
        },
        size_bytes: if has_size { 0x30_2345 } else { 0 },
        credits: 16,
        answer,
    }
}

fn data() -> Answer {
    let pages = PageSet::range(0, 7);
    Answer::Data { pages }
}

fn redirect() -> Answer {
    Answer::Redirect {
        holder: holder(),
        pages: PageSet::range(0, 8),
        fetch: PageSet::range(255, 1),
    }
}

fn parse(bytes: &[u8]) -> Result<Reply, Invalid> {
    let datagram = open(bytes, &key()).unwrap();
    assert_eq!(datagram.head.kind, Kind::Reply);
    Reply::parse(datagram.body).map(|(reply, _)| reply)
}

#[test]
fn the_bytes_are_those_of_the_page() {
    for (answer, golden) in [(data(), GOLDEN_DATA), (redirect(), GOLDEN_REDIRECT)] {
        let bytes = reply(answer).seal(node(2), node(1), &key()).unwrap();
        assert_eq!(bytes.to_vec(), hex(golden));
        assert_eq!(parse(&bytes), Ok(reply(answer)));
    }
}

#[test]
fn every_answer_survives_the_wire() {
    let fetch = PageSet::EMPTY;
    let pages = PageSet::range(0, 256);
    for answer in [
        data(),
        redirect(),
        Answer::Data { pages },
        Answer::Redirect {
            holder: holder(),
            pages,
            fetch,
        },
        Answer::Fetch { pages },
        Answer::OtherOwner(holder()),
        Answer::Wait {
            wait_ms: 1,
            depth: 255,
        },
        Answer::Busy { wait_ms: u16::MAX },
        Answer::Miss,
        Answer::Refused(Refusal::Invalid),
        Answer::Refused(Refusal::FragmentLen),
        Answer::Refused(Refusal::Leaving),
    ] {
        let bytes = reply(answer).seal(node(2), node(1), &key()).unwrap();
        assert_eq!(parse(&bytes), Ok(reply(answer)));
    }
}

#[test]
fn what_no_node_accepts_is_not_sealed() {
    let none = PageSet::EMPTY;
    let both = PageSet::range(0, 1);
    for answer in [
        Answer::Data { pages: none },
        Answer::Redirect {
            holder: holder(),
            pages: both,
            fetch: both,
        },
        Answer::Redirect {
            holder: holder(),
            pages: none,
            fetch: both,
        },
        Answer::Fetch { pages: none },
        Answer::Wait {
            wait_ms: 0,
            depth: 0,
        },
        Answer::Busy { wait_ms: 0 },
    ] {
        assert_eq!(reply(answer).seal(node(2), node(1), &key()), None);
    }
}

/// A golden reply with bytes changed at some places.
fn with(golden: &str, changes: &[(usize, &[u8])]) -> Result<Reply, Invalid> {
    let mut bytes = hex(golden);
    for (at, change) in changes {
        bytes[*at..*at + change.len()].copy_from_slice(change);
    }
    forged(&mut bytes);
    parse(&bytes)
}

#[test]
fn each_field_of_data_is_checked() {
    let with = |at, change: &[u8]| with(GOLDEN_DATA, &[(at, change)]);
    assert_eq!(with(0, b"gfcc"), Ok(reply(data())));
    assert_eq!(with(40, &[0; 8]), Err(Invalid::Field), "no size");
    assert_eq!(with(48, &[0]), Err(Invalid::Field), "no pages");
    assert_eq!(with(80, &[0x80]), Err(Invalid::Field), "pages to fetch");
    assert_eq!(with(112, &[1]), Err(Invalid::Field), "a holder");
    assert_eq!(with(120, &[1]), Err(Invalid::Field), "an address");
    assert_eq!(with(146, &[1]), Err(Invalid::Field), "an address");
    assert_eq!(with(147, &[1]), Err(Invalid::Field), "a depth");
    assert_eq!(with(152, &[1]), Err(Invalid::Field), "a time");
    for status in [0, 9, 255] {
        assert_eq!(with(150, &[status]), Err(Invalid::Status));
    }
    assert_eq!(with(151, &[1]), Err(Invalid::Status));
}

#[test]
fn each_field_of_a_redirect_is_checked() {
    let with = |at, change: &[u8]| with(GOLDEN_REDIRECT, &[(at, change)]);
    assert_eq!(with(40, &[1]), Err(Invalid::Field), "a size");
    assert_eq!(with(48, &[0]), Err(Invalid::Field), "no pages");
    assert_eq!(with(79, &[0x80]), Err(Invalid::Sets), "there, and to fetch");
    assert_eq!(with(112, &[0; 8]), Err(Invalid::Holder), "no number");
    assert_eq!(with(120, &[0; 16]), Err(Invalid::Holder), "no address");
    assert_eq!(
        with(120, &[0xff]),
        Err(Invalid::Holder),
        "a group's address"
    );
    assert_eq!(with(147, &[1]), Err(Invalid::Field), "a depth");
    assert_eq!(with(153, &[1]), Err(Invalid::Field), "a time");
}

#[test]
fn a_field_that_the_status_has_no_use_for_is_0() {
    // The sets, the holder, the time, as each status has them in turn.
    let sets: &[(usize, &[u8])] = &[(40, &[0; 8]), (48, &[0; 8]), (80, &[0; 8])];
    let of = |status: u8, more: &[(usize, &[u8])]| {
        let mut changes = sets.to_vec();
        let status = [status];
        changes.push((150, &status));
        changes.extend(more);
        with(GOLDEN_DATA, &changes).map(|reply| reply.answer)
    };
    let pages: (usize, &[u8]) = (48, &[1]);
    let fetch: (usize, &[u8]) = (80, &[1]);
    let node: (usize, &[u8]) = (112, &[1]);
    let detail: (usize, &[u8]) = (152, &[1]);
    let one = PageSet::range(0, 1);
    assert_eq!(of(3, &[fetch]), Ok(Answer::Fetch { pages: one }));
    for more in [
        &[][..],
        &[pages],
        &[fetch, pages],
        &[fetch, node],
        &[fetch, detail],
    ] {
        assert_eq!(of(3, more), Err(Invalid::Field), "{more:?}");
    }
    assert_eq!(of(4, &[]), Err(Invalid::Holder));
    assert_eq!(
        of(5, &[detail]),
        Ok(Answer::Wait {
            wait_ms: 1,
            depth: 0
        })
    );
    let deep: (usize, &[u8]) = (147, &[7]);
    assert_eq!(
        of(5, &[detail, deep]),
        Ok(Answer::Wait {
            wait_ms: 1,
            depth: 7
        })
    );
    assert_eq!(of(5, &[deep]), Err(Invalid::Field));
    assert_eq!(of(6, &[detail, deep]), Err(Invalid::Field));
    assert_eq!(of(6, &[detail]), Ok(Answer::Busy { wait_ms: 1 }));
    assert_eq!(of(7, &[]), Ok(Answer::Miss));
    assert_eq!(of(8, &[detail]), Ok(Answer::Refused(Refusal::Invalid)));
    for status in [5, 6, 8] {
        assert_eq!(of(status, &[]), Err(Invalid::Field));
        assert_eq!(of(status, &[detail, pages]), Err(Invalid::Field));
        assert_eq!(of(status, &[detail, fetch]), Err(Invalid::Field));
        assert_eq!(of(status, &[detail, node]), Err(Invalid::Field));
        assert_eq!(of(status, &[detail, (40, &[1])]), Err(Invalid::Field));
    }
    for more in [pages, fetch, node, detail, (40, &[1])] {
        assert_eq!(of(7, &[more]), Err(Invalid::Field));
    }
    assert_eq!(of(8, &[(152, &[4])]), Err(Invalid::Field));
}

#[test]
fn a_body_of_another_length_is_refused() {
    let bytes = hex(GOLDEN_DATA);
    let body = &bytes[HEAD_LEN..REPLY_LEN - 8];
    assert_eq!(Reply::parse(body), Ok((reply(data()), Sums::NONE)));
    for len in 0..body.len() {
        assert_eq!(Reply::parse(&body[..len]), Err(Invalid::Length));
    }
    let longer = [body, &[0]].concat();
    assert_eq!(Reply::parse(&longer), Err(Invalid::Length));
}

/// The sums of the golden reply.
fn sum(page: u8) -> u32 {
    0x1111_1111 * (u32::from(page) + 1)
}

#[test]
fn sums_stand_behind_the_fields() {
    let mut bytes = [0; REPLY_LEN_MAX];
    let data = reply(data());
    let len = data.seal_with_sums(node(2), node(1), &key(), &mut bytes, sum);
    assert_eq!(bytes[..len.unwrap()], hex(GOLDEN_SUMS));
    let datagram = open(&bytes[..len.unwrap()], &key()).unwrap();
    let (read, sums) = Reply::parse(datagram.body).unwrap();
    assert_eq!((read, sums.is_empty()), (data, false));
    assert!(sums.iter().eq((0..7).map(sum)));
    assert_eq!(parse(&hex(GOLDEN_SUMS)), parse(&hex(GOLDEN_DATA)));
}

#[test]
fn the_longest_reply_is_the_longest_datagram() {
    let pages = PageSet::range(0, 256);
    let (mut bytes, data) = ([0; REPLY_LEN_MAX], reply(Answer::Data { pages }));
    let len = data.seal_with_sums(node(2), node(1), &key(), &mut bytes, sum_of);
    assert_eq!(len, Some(DATAGRAM_LEN_MAX));
    let datagram = open(&bytes, &key()).unwrap();
    let (_, sums) = Reply::parse(datagram.body).unwrap();
    assert!(sums.iter().eq((0..=255).map(sum_of)));
    // A port that takes the fragments of so many pages takes the reply.
    for len in [256, 512, 1024, 2048, 4096] {
        let fragments = FragmentLen::new(len).unwrap();
        assert!(REPLY_LEN + 4 * fragments.pages_max() <= len as usize);
    }
}

fn sum_of(page: u8) -> u32 {
    0xfeed_0000 | u32::from(page)
}

#[test]
fn no_other_answer_has_sums_and_none_has_too_few() {
    let mut bytes = [0; REPLY_LEN_MAX];
    for answer in [redirect(), Answer::Miss] {
        let sealed = reply(answer).seal_with_sums(node(2), node(1), &key(), &mut bytes, sum);
        assert_eq!(sealed, None);
    }
    // Of each number of bytes behind the fields those of all seven sums are taken, and none.
    let whole = hex(GOLDEN_SUMS);
    for more in 0..64 {
        let mut bytes = whole[..REPLY_LEN - 8].to_vec();
        bytes.resize(REPLY_LEN - 8 + more, 0x55);
        bytes.extend([0; 8]);
        forged(&mut bytes);
        let expected = match more {
            0 | 28 => Ok(reply(data())),
            _ => Err(Invalid::Length),
        };
        assert_eq!(parse(&bytes), expected, "{more} bytes");
    }
    // One page less, one more, and another status, with the seven sums.
    let with = |at, change: &[u8]| with(GOLDEN_SUMS, &[(at, change)]);
    assert_eq!(with(48, &[0x3f]), Err(Invalid::Length));
    assert_eq!(with(48, &[0xff]), Err(Invalid::Length));
    assert_eq!(with(150, &[7]), Err(Invalid::Length));
}
