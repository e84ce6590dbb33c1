// SPDX-License-Identifier: GPL-2.0

//! The bodies of `Hello` and `Members`.

use proptest::prelude::*;
use proto::gfarm::cache::{
    address::{
        Group,
        NodeId, //
    },
    gossip::{
        Gossip,
        GossipWriter,
        Malformed,
        BODY_LEN_MAX,
        RECORDS_MAX,
        RECORD_LEN, //
    },
    peer::{
        Claim,
        Record,
        Standing, //
    },
    wire::{
        CODE_LEN,
        DATAGRAM_LEN_MAX,
        HEAD_LEN, //
    },
};

use super::address::address;

fn record(n: u8) -> Record {
    Record {
        node: NodeId::new(n.into()).unwrap(),
        address: address(n),
        boot: 0x0a0b_0c0d,
        claim: Claim {
            incarnation: 0x0102_0304,
            standing: Standing::Suspect,
        },
        group: Group::new(n + 40).unwrap(),
    }
}

fn body(count: u8) -> Vec<u8> {
    let mut out = [0xaa; BODY_LEN_MAX];
    let mut writer = GossipWriter::new(&mut out, 0x1122_3344, record(1));
    for n in 0..count {
        assert!(writer.push(record(n + 2)));
    }
    writer.finish(0x5566).to_vec()
}

fn parse(body: &[u8]) -> Result<usize, Malformed> {
    Gossip::parse(body, record(1).node).map(|gossip| gossip.records().count())
}

#[test]
fn the_body_is_as_it_is_written_down() {
    let mut expected = vec![0x44, 0x33, 0x22, 0x11, 0x66, 0x55, 1, 0];
    for n in [1, 2] {
        expected.extend([n, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]);
        expected.extend([0, 0, 17, 0, 0, 0, 111, 0, 0, 0, 0]);
        expected.extend([1, 0x0d, 0x0c, 0x0b, 0x0a, 4, 3, 2, 1, n + 40]);
    }
    assert_eq!(body(1), expected);
    let gossip = Gossip::parse(&expected, record(1).node).unwrap();
    assert_eq!((gossip.nonce(), gossip.cursor()), (0x1122_3344, 0x5566));
    assert_eq!(gossip.sender(), record(1));
    assert!(gossip.records().eq([record(2)]));
}

#[test]
fn a_full_body_fits_a_datagram() {
    let full = body(RECORDS_MAX as u8);
    assert_eq!(full.len(), BODY_LEN_MAX);
    const { assert!(HEAD_LEN + BODY_LEN_MAX + CODE_LEN <= DATAGRAM_LEN_MAX) };
    assert_eq!(parse(&full), Ok(RECORDS_MAX));
    let mut out = [0; BODY_LEN_MAX];
    let mut writer = GossipWriter::new(&mut out, 0, record(1));
    let pushed = (0..99).filter(|_| writer.push(record(9))).count();
    assert_eq!((pushed, writer.is_full()), (RECORDS_MAX, true));
}

#[test]
fn each_rule_is_checked() {
    let honest = body(3);
    let with = |at: usize, value: u8| {
        let mut bytes = honest.clone();
        bytes[at] = value;
        parse(&bytes)
    };
    assert_eq!(parse(&honest), Ok(3));
    assert_eq!(with(7, 1), Err(Malformed::Reserved));
    assert_eq!(with(6, 2), Err(Malformed::Length));
    assert_eq!(with(6, 4), Err(Malformed::Length));
    assert_eq!(with(6, 21), Err(Malformed::Count));
    for record in 0..4 {
        let at = 8 + record * RECORD_LEN;
        assert_eq!(with(at, 0), Err(Malformed::Record), "no node");
        assert_eq!(
            with(at + 8, 0xff),
            Err(Malformed::Record),
            "a multicast GID"
        );
        assert_eq!(with(at + 26, 0), Err(Malformed::Record), "queue pair 0");
        assert_eq!(with(at + 30, 0), Err(Malformed::Record), "key 0");
        assert_eq!(with(at + 34, 16), Err(Malformed::Record), "service level");
        assert_eq!(with(at + 35, 4), Err(Malformed::Record), "standing");
        assert_eq!(with(at + 44, 0), Err(Malformed::Record), "no group");
        assert_eq!(with(at + 44, 65), Err(Malformed::Record), "group");
        assert_eq!(with(at + 44, 64), Ok(3), "the last group");
    }
    assert_eq!(
        with(8, 5),
        Err(Malformed::Record),
        "not the sender's number"
    );
    for len in 0..honest.len() {
        assert!(parse(&honest[..len]).is_err(), "{len} bytes");
    }
    let long = [&honest[..], &[0]].concat();
    assert_eq!(parse(&long), Err(Malformed::Length));
}

proptest! {
    #[test]
    fn no_body_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }
}
