// SPDX-License-Identifier: GPL-2.0

//! Addresses of nodes.

use proto::gfarm::cache::address::{
    random_qkey,
    Address,
    Group,
    NodeId,
    Port, //
};

pub(crate) fn gid(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xfe, 0x80, last);
    gid
}

/// The address of a node at a port of its own.
pub(crate) fn address(last: u8) -> Address {
    Address::new(gid(last), 0, 17, 111, 0).unwrap()
}

#[test]
fn each_part_has_its_range() {
    let (ok, none) = (gid(1), [0; 16]);
    let mut group = ok;
    group[0] = 0xff;
    for (gid, lid, qpn, qkey, sl, is_valid) in [
        (ok, 0, 2, 1, 0, true),
        (none, 1, 0x00ff_ffff, 0x7fff_ffff, 15, true),
        (ok, 0xbfff, 2, 1, 0, true),
        (none, 0, 2, 1, 0, false),
        (group, 1, 2, 1, 0, false),
        (ok, 0xc000, 2, 1, 0, false),
        (none, 0xffff, 2, 1, 0, false),
        (ok, 0, 0, 1, 0, false),
        (ok, 0, 1, 1, 0, false),
        (ok, 0, 0x0100_0000, 1, 0, false),
        (ok, 0, 2, 0, 0, false),
        (ok, 0, 2, 0x8000_0000, 0, false),
        (ok, 0, 2, 1, 16, false),
    ] {
        let made = Address::new(gid, lid, qpn, qkey, sl);
        assert_eq!(made.is_some(), is_valid, "{gid:?} {lid} {qpn} {qkey} {sl}");
        // What is refused here is refused from the wire.
        let mut bytes = [0; Address::LEN];
        bytes[..16].copy_from_slice(&gid);
        bytes[16..18].copy_from_slice(&lid.to_le_bytes());
        bytes[18..22].copy_from_slice(&qpn.to_le_bytes());
        bytes[22..26].copy_from_slice(&qkey.to_le_bytes());
        bytes[26] = sl;
        assert_eq!(Address::from_bytes(&bytes), made);
        if let Some(made) = made {
            assert_eq!(made.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_random_key_is_one_that_programs_may_use() {
    for (random, qkey) in [
        (0, 1),
        (1, 1),
        (0x8000_0000, 1),
        (0x8000_0001, 1),
        (0x1234_5678_9abc_def0, 0x1abc_def0),
        (u64::MAX, 0x7fff_ffff),
    ] {
        assert_eq!(random_qkey(random), qkey, "{random:x}");
        assert!(Address::new(gid(1), 0, 17, qkey, 0).is_some());
    }
}

#[test]
fn a_place_is_a_port_and_a_queue_pair() {
    let by_gid = Address::new(gid(1), 5, 17, 1, 0).unwrap();
    let moved = Address::new(gid(1), 6, 17, 2, 3).unwrap();
    let by_lid = Address::new([0; 16], 5, 17, 1, 0).unwrap();
    assert!(
        by_gid.is_same_place(&moved),
        "the subnet manager has given another LID"
    );
    assert!(!by_gid.is_same_place(&by_lid));
    assert!(!by_gid.is_same_place(&Address::new(gid(1), 5, 18, 1, 0).unwrap()));
    assert!(!by_gid.is_same_place(&Address::new(gid(2), 5, 17, 1, 0).unwrap()));
    assert!(!by_lid.is_same_place(&Address::new([0; 16], 6, 17, 1, 0).unwrap()));
}

#[test]
fn a_source_is_compared_with_the_address() {
    let (by_gid, by_lid) = (address(1), Address::new([0; 16], 5, 17, 1, 0).unwrap());
    let with_header = Port::of_source(Some(gid(1)), 99).unwrap();
    assert!(by_gid.is_source(with_header, 17));
    assert!(!by_gid.is_source(with_header, 18), "another queue pair");
    assert!(!by_lid.is_source(with_header, 17));
    assert!(by_lid.is_source(Port::of_source(None, 5).unwrap(), 17));
    assert!(!by_gid.is_source(Port::of_source(None, 5).unwrap(), 17));
    // It has both: its datagrams come without a GID within the subnet, and with one from another.
    let both = Address::new(gid(1), 5, 17, 1, 0).unwrap();
    assert!(both.is_source(Port::of_source(None, 5).unwrap(), 17));
    assert!(!both.is_source(Port::of_source(None, 6).unwrap(), 17));
    assert!(both.is_source(with_header, 17));
    assert!(!both.is_source(Port::of_source(Some(gid(2)), 5).unwrap(), 17));
    assert_eq!(Port::of_source(None, 0), None);
    assert_eq!(Port::of_source(None, 0xc000), None);
    assert_eq!(Port::of_source(Some([0; 16]), 5), None);
}

#[test]
fn no_node_has_the_number_0() {
    assert_eq!(NodeId::new(0), None);
    assert_eq!(NodeId::new(255).unwrap().get(), 255);
    assert_eq!(NodeId::new(255).unwrap().to_string(), "00000000000000ff");
}

#[test]
fn a_group_is_a_place_in_the_network() {
    let ip = |a, b, c, d| {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, a, b, c, d]);
        gid
    };
    let net = |subnet: u8| {
        let mut gid = gid(9);
        (gid[0], gid[1], gid[7]) = (0xfd, 0, subnet);
        gid
    };
    for (gid, lid, number) in [
        // RoCE: by /24 of IPv4, by /64 of IPv6; link-local addresses tell nothing.
        (ip(10, 0, 3, 7), 0, 4),
        (ip(10, 0, 3, 200), 0, 4),
        (ip(10, 0, 4, 7), 0, 5),
        (ip(10, 0, 67, 7), 0, 4),
        (net(0), 0, 1),
        (net(12), 0, 13),
        (gid(1), 0, 1),
        (gid(2), 0, 1),
        // InfiniBand: by 64 LIDs, in a subnet with a prefix of its own as well.
        (gid(1), 1, 1),
        (gid(1), 63, 1),
        (gid(1), 64, 2),
        ([0; 16], 64, 2),
        (net(3), 128, 6),
        (net(255), 0xbfff, 63),
    ] {
        let group = Group::of_port(gid, lid);
        assert_eq!(group.get(), number, "{gid:?} {lid}");
        assert_eq!(Group::new(number), Some(group));
    }
    assert_eq!([0, 65, 255].map(Group::new), [None; 3]);
    assert_eq!(Group::new(64).map(Group::get), Some(64));
}
