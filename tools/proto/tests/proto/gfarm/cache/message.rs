// SPDX-License-Identifier: GPL-2.0

//! Heads and codes of datagrams; and what the tests of messages have in common.

use proto::gfarm::{
    attr::{
        FileId,
        Time, //
    },
    cache::{
        address::{
            NodeId,
            QueuePair, //
        },
        pages::PageSet,
        request::Wanted,
        wire::{
            open,
            receives,
            seal,
            Head,
            Key,
            Kind,
            Rejected,
            CODE_LEN,
            DATAGRAM_LEN_MAX,
            HEAD_LEN,
            RECEIVE_BATCH, //
        }, //
    }, //
    identity::ContentId,
};

/// The key of the golden vectors: the bytes 0 to 15.
pub(super) fn key() -> Key {
    let mut bytes = [0; Key::LEN];
    for (byte, value) in bytes.iter_mut().zip(0..) {
        *byte = value;
    }
    Key::new(&bytes)
}

pub(super) fn node(digit: u64) -> NodeId {
    NodeId::new(digit * 0x1111_1111_1111_1111).unwrap()
}

/// A content with a time of its own.
pub(super) fn content(inum: u64, gen: u64) -> ContentId {
    ContentId {
        file: FileId { inum, gen },
        mtime: Time {
            sec: 0x6789_abcd,
            nsec: 987_654_321,
        },
    }
}

/// Eight pages at the start of chunk 2, and its last one.
pub(super) fn wanted() -> Wanted {
    let id = content(12345, 5);
    let pages = PageSet::range(0, 8).union(PageSet::range(255, 1));
    Wanted::new(id, 0x30_2345, 2, pages).unwrap()
}

/// The queue pair for replies of node 1.
pub(super) fn replies() -> QueuePair {
    QueuePair::new(0x2345, 0x5abc_def1).unwrap()
}

/// Reads bytes from hexadecimal digits; white space is let be.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| (c as char).to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn head(kind: Kind) -> Head {
    Head {
        kind,
        from: node(1),
        to: Some(node(2)),
        sequence: 7,
    }
}

fn sealed(head: &Head, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; DATAGRAM_LEN_MAX];
    let len = seal(head, body, &key(), &mut out).unwrap();
    out.truncate(len);
    out
}

/// Gives the bytes the right code again.
pub(super) fn forged(bytes: &mut Vec<u8>) {
    use proto::common::siphash::SipHash;

    let covered = bytes.len() - CODE_LEN;
    let mut hash = SipHash::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    hash.write(&bytes[..covered]);
    bytes.truncate(covered);
    bytes.extend(hash.finish().to_le_bytes());
}

#[test]
fn what_is_sealed_is_opened() {
    for kind in [
        Kind::Request,
        Kind::Reply,
        Kind::Hello,
        Kind::Members,
        Kind::Have,
    ] {
        for len in [0, 1, 7, 124, DATAGRAM_LEN_MAX - HEAD_LEN - CODE_LEN] {
            for to in [None, Some(node(3))] {
                let head = Head { to, ..head(kind) };
                let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let bytes = sealed(&head, &body);
                let datagram = open(&bytes, &key()).unwrap();
                assert_eq!((datagram.head, datagram.body), (head, &body[..]));
            }
        }
    }
}

#[test]
fn a_datagram_of_another_key_is_rejected() {
    let bytes = sealed(&head(Kind::Hello), b"body");
    assert_eq!(open(&bytes, &Key::new(&[1; 16])), Err(Rejected::Code));
}

#[test]
fn a_change_of_any_bit_is_noticed() {
    let honest = sealed(&head(Kind::Request), b"a body of some bytes");
    for bit in 0..honest.len() * 8 {
        let mut bytes = honest.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let expected = match bit / 8 {
            0..4 => Rejected::Magic,
            4..6 => Rejected::Version,
            // Some numbers are those of another kind.
            6 if [3, 5].contains(&bytes[6]) && bytes[7] == 0 => Rejected::Code,
            6..8 => Rejected::Kind,
            _ => Rejected::Code,
        };
        assert_eq!(open(&bytes, &key()), Err(expected), "bit {bit}");
    }
}

#[test]
fn a_datagram_that_was_cut_is_rejected() {
    let honest = sealed(&head(Kind::Request), b"body");
    for len in 0..honest.len() {
        let expected = if len < HEAD_LEN + CODE_LEN {
            Rejected::Length
        } else {
            Rejected::Code
        };
        assert_eq!(open(&honest[..len], &key()), Err(expected), "{len} bytes");
    }
    let mut longer = honest.clone();
    longer.push(0);
    assert_eq!(open(&longer, &key()), Err(Rejected::Code));
}

#[test]
fn a_datagram_with_the_right_code_is_checked_all_the_same() {
    let honest = sealed(&head(Kind::Request), b"body");
    let damaged = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = honest.clone();
        damage(&mut bytes);
        forged(&mut bytes);
        open(&bytes, &key()).map(|datagram| datagram.head)
    };
    assert_eq!(damaged(&|_| {}), Ok(head(Kind::Request)));
    assert_eq!(damaged(&|b| b[3] = b'C'), Err(Rejected::Magic));
    assert_eq!(damaged(&|b| b[4] = 1), Err(Rejected::Version));
    assert_eq!(damaged(&|b| b[5] = 1), Err(Rejected::Version));
    for (low, high) in [(0, 0), (6, 0), (1, 1), (255, 255)] {
        let kind = damaged(&|b| (b[6], b[7]) = (low, high));
        assert_eq!(kind, Err(Rejected::Kind));
    }
    assert_eq!(damaged(&|b| b[8..16].fill(0)), Err(Rejected::From));
    assert_eq!(damaged(&|b| b[16..24].fill(0)).unwrap().to, None);
    let longer = damaged(&|b| b.resize(DATAGRAM_LEN_MAX + 1, 0));
    assert_eq!(longer, Err(Rejected::Length));
    assert!(damaged(&|b| b.resize(DATAGRAM_LEN_MAX, 0)).is_ok());
}

#[test]
fn what_has_no_room_is_not_sealed() {
    let body = [0; DATAGRAM_LEN_MAX];
    let fits = DATAGRAM_LEN_MAX - HEAD_LEN - CODE_LEN;
    let mut out = [0; DATAGRAM_LEN_MAX + 8];
    let head = head(Kind::Members);
    let seal = |body: &[u8], out: &mut [u8]| seal(&head, body, &key(), out);
    assert_eq!(seal(&body[..fits], &mut out), Some(DATAGRAM_LEN_MAX));
    assert_eq!(seal(&body[..fits + 1], &mut out), None);
    assert_eq!(seal(&body[..4], &mut out[..44]), Some(44));
    for room in 0..44 {
        assert_eq!(seal(&body[..4], &mut out[..room]), None);
    }
}

/// Three of four replies at once found none when there were as many receives as requests.
#[test]
fn each_message_finds_a_receive_however_many_have_come_before() {
    for number in (1..=130).chain([4096, u16::MAX]) {
        let count = receives(number);
        assert_eq!(count % RECEIVE_BATCH, 0, "{number}");
        // Those of a batch are posted again when the last one was used.
        for used in 0..RECEIVE_BATCH {
            assert!(count - used >= number.into(), "{number}, {used} used");
        }
        assert!(count < u32::from(number) + 2 * RECEIVE_BATCH, "{number}");
    }
}

#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", key()), "Key { .. }");
}

#[test]
fn a_key_is_read_from_32_digits() {
    let read = |text: &str| {
        let mut read = Key::empty();
        read.read(text.as_bytes()).then_some(read)
    };
    let digits = "000102030405060708090A0b0c0d0e0f";
    assert_eq!(read(digits), Some(key()));
    assert_eq!(read(&format!("{digits}\n")), Some(key()));
    let last = Key::new(b"\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77\x66\x55\x44\x33\x22\x11\0");
    assert_eq!(read("ffeeddccbbaa99887766554433221100"), Some(last));
    for wrong in [
        "",
        &digits[1..],
        &digits.replace('f', "g"),
        &format!(" {}", &digits[1..]),
        &format!("+{}", &digits[1..]),
        &format!("{digits}0"),
        &format!("{digits}00"),
        &format!("{digits}\n\n"),
    ] {
        assert_eq!(read(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_key_is_wiped_when_it_is_dropped() {
    assert!(core::mem::needs_drop::<Key>());
    let mut key = key();
    key.wipe();
    assert_eq!(key, Key::new(&[0; Key::LEN]));
}
