// SPDX-License-Identifier: GPL-2.0

//! Ports and addresses that a node can use, and the words about those that it cannot.

use proto::gfarm::cache::{
    fragment::FragmentLen,
    place::{
        Entry,
        Facts,
        Partition,
        Unusable,
        Wish, //
    },
};

const WISH: Wish = Wish {
    port: 1,
    gid_index: None,
    mtu_bytes: None,
    pkey: None,
};

const FACTS: Facts = Facts {
    is_active: true,
    is_infiniband: false,
    mtu_bytes: 1024,
};

fn entry(index: u8, gid: [u8; 16], is_udp: bool) -> Entry {
    Entry { index, gid, is_udp }
}

/// A link-local address, an IPv4 address, each for Ethernet frames and for UDP packets, and another
/// IPv4 address.
fn table() -> [Entry; 5] {
    let mut local = [0; 16];
    local[0] = 0xfe;
    let mapped = |last| {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[15] = last;
        gid
    };
    [
        entry(0, local, false),
        entry(1, local, true),
        entry(3, mapped(1), false),
        entry(4, mapped(1), true),
        entry(6, mapped(2), true),
    ]
}

#[test]
fn fragments_are_as_long_as_port_and_mount_let_them() {
    for (wished, port, fragment) in [
        (None, 1024, 1024),
        (None, 4096, 4096),
        (Some(256), 4096, 256),
        (Some(1500), 4096, 1024),
        (Some(1024), 1024, 1024),
    ] {
        let wish = Wish {
            mtu_bytes: wished,
            ..WISH
        };
        let facts = Facts {
            mtu_bytes: port,
            ..FACTS
        };
        assert_eq!(wish.fragments(&facts).map(FragmentLen::bytes), Ok(fragment));
    }
}

#[test]
fn a_port_whose_datagrams_become_shorter_is_of_no_use() {
    let longest = FragmentLen::new(2048).unwrap();
    let look = |mtu_bytes, wished| {
        let facts = Facts { mtu_bytes, ..FACTS };
        let wish = Wish {
            mtu_bytes: wished,
            ..WISH
        };
        wish.still_fits(&facts, longest)
    };
    for wished in [None, Some(2048), Some(3000)] {
        for port in [2048, 4096] {
            assert_eq!(look(port, wished), Ok(()), "{wished:?} of {port}");
        }
        let shorter = Unusable::Shorter {
            needed: 2048,
            port: 1024,
        };
        assert_eq!(look(1024, wished), Err(shorter));
        assert_eq!(shorter.errno().get(), 90);
    }
    let down = Facts {
        is_active: false,
        ..FACTS
    };
    assert_eq!(WISH.still_fits(&down, longest), Err(Unusable::Down(1)));
}

#[test]
fn ports_that_cannot_be_used_say_why() {
    let of = |mtu_bytes: Option<u32>, facts: Facts| Wish { mtu_bytes, ..WISH }.fragments(&facts);
    let down = Facts {
        is_active: false,
        ..FACTS
    };
    let short = Facts {
        mtu_bytes: 512,
        ..FACTS
    };
    for (result, errno, text) in [
        (of(None, down), 100, "port 1 is not active"),
        (
            of(Some(1025), FACTS),
            90,
            "ib_mtu=1025: the datagrams of the port have 1024 bytes",
        ),
        (of(None, short), 90, "have 512 bytes, messages up to 1024"),
        (
            of(Some(256), short),
            90,
            "have 512 bytes, messages up to 1024",
        ),
        (Err(Unusable::NoDevice), 19, "no such RDMA device"),
        (
            Err(Unusable::NoneActive(2)),
            19,
            "no RDMA device has an active port 2",
        ),
        (
            Err(Unusable::NoPort(7)),
            19,
            "ib_port=7: the device has no such port",
        ),
    ] {
        let why = result.unwrap_err();
        assert_eq!(why.errno().get(), errno, "{why}");
        assert!(why.to_string().contains(text), "{why}");
    }
}

#[test]
fn addresses_are_of_udp_packets_and_of_ipv4_if_there_is_one() {
    let choose = |table: &[Entry]| {
        WISH.address(&FACTS, table.iter().copied(), None)
            .map(|e| e.index)
    };
    let table = table();
    assert_eq!(choose(&table), Ok(4));
    assert_eq!(choose(&table[..3]), Ok(1));
    for none in [&table[..1], &[]] {
        let why = choose(none).unwrap_err();
        assert_eq!(why.errno().get(), 99);
        assert!(
            why.to_string().contains("no address for UDP packets"),
            "{why}"
        );
    }
    let infiniband = Facts {
        is_infiniband: true,
        ..FACTS
    };
    let first = WISH.address(&infiniband, table.into_iter(), None);
    assert_eq!(first.map(|e| e.index), Ok(0));
}

#[test]
fn an_address_that_is_named_is_that_one_or_none() {
    let at = |index, is_infiniband| {
        let wish = Wish {
            gid_index: Some(index),
            ..WISH
        };
        let facts = Facts {
            is_infiniband,
            ..FACTS
        };
        wish.address(&facts, table().into_iter(), None)
            .map(|e| e.index)
    };
    assert_eq!((at(1, false), at(6, false)), (Ok(1), Ok(6)));
    assert_eq!((at(0, true), at(3, true)), (Ok(0), Ok(3)));
    for (index, is_infiniband) in [(0, false), (3, false), (2, false), (2, true), (255, true)] {
        let why = at(index, is_infiniband).unwrap_err();
        assert_eq!(why.errno().get(), 99);
        assert_eq!(
            why.to_string(),
            format!("ib_gid={index}: the port has no usable address there")
        );
    }
}

#[test]
fn a_node_keeps_its_address_or_takes_one_of_the_same_family() {
    let table = table();
    let (local, first, second) = (table[1].gid, table[3].gid, table[4].gid);
    let choose = |table: &[Entry], present: [u8; 16]| {
        let found = WISH.address(&FACTS, table.iter().copied(), Some(&present));
        found.map(|entry| (entry.index, entry.gid))
    };
    assert_eq!(choose(&table, second), Ok((6, second)), "it has it still");
    assert_eq!(
        choose(&table, local),
        Ok((1, local)),
        "one of IPv6 stays one"
    );
    let moved = [table[1], entry(9, first, true), table[4]];
    assert_eq!(choose(&moved, first), Ok((9, first)), "at another index");
    assert_eq!(choose(&table[..4], second), Ok((4, first)), "that has gone");
    assert_eq!(
        choose(&table[..3], second),
        Err(Unusable::NoGid),
        "all have"
    );
    // InfiniBand has one family. Its first address changes with the prefix of the subnet.
    let infiniband = Facts {
        is_infiniband: true,
        ..FACTS
    };
    let found = WISH.address(&infiniband, table[..1].iter().copied(), Some(&first));
    assert_eq!(found.map(|entry| entry.index), Ok(0));
    // One that is named by its index is what is there.
    let named = Wish {
        gid_index: Some(6),
        ..WISH
    };
    let found = named.address(&FACTS, table.into_iter(), Some(&first));
    assert_eq!(found.map(|entry| entry.gid), Ok(second));
}

#[test]
fn a_partition_is_that_of_the_key_as_a_full_member_if_it_can_be() {
    let of = |pkey, table: &[u16]| {
        let places = (0..).zip(table.iter().copied());
        let table = places.map(|(index, pkey)| Partition { index, pkey });
        let found = Wish { pkey, ..WISH }.partition(table);
        found.map(|partition| (partition.index, partition.is_full()))
    };
    // The default partition as a limited member, as at most compute nodes.
    let table = [0x7fff, 0x0001, 0x8001, 0x0002, 0, 0x8003, 0x0003];
    assert_eq!(of(None, &table), Ok((0, false)));
    assert_eq!(of(None, &[0xffff]), Ok((0, true)));
    assert_eq!(of(None, &[]), Ok((0, true)));
    for (pkey, found) in [
        (0x8001, (2, true)),
        (0x0001, (2, true)),
        (0x8002, (3, false)),
        (0x0003, (5, true)),
        (0xffff, (0, false)),
    ] {
        assert_eq!(of(Some(pkey), &table), Ok(found), "{pkey:#x}");
    }
    // A place without a key is of no partition.
    for pkey in [0x8004, 0x0004, 0x8000, 0x0000] {
        let why = of(Some(pkey), &table).unwrap_err();
        assert_eq!(why.errno().get(), 99);
        let wanted = format!("ib_pkey={pkey:#x}: the port is no member of this partition");
        assert_eq!(why.to_string(), wanted);
    }
}
