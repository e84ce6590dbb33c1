// SPDX-License-Identifier: GPL-2.0

//! Fields of an address, and the header before a datagram.

use proto::rdma::{
    address::{route, LinkLayer, Route, RouteError},
    header::{source_gid, HeaderKind},
};
use std::collections::HashSet;

/// Link-local, with the default prefix of InfiniBand.
const OWN: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0, 1];
const NEAR: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0, 2];
/// An address in another subnet: the last byte of the prefix differs.
const FAR: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 1, 0, 2, 0xc9, 3, 0, 0, 0, 2];

#[test]
fn infiniband_within_a_subnet_has_no_global_header() {
    for gid in [None, Some(&NEAR), Some(&[0; 16])] {
        let found = route(LinkLayer::InfiniBand, &OWN, gid, 7, 3);
        let wanted = Route {
            lid: 7,
            is_global: false,
            flow_label: 0,
        };
        assert_eq!(found, Ok(wanted), "{gid:?}");
    }
}

#[test]
fn infiniband_between_subnets_has_a_global_header_and_the_routers_lid() {
    let wanted = Route {
        lid: 0xbfff,
        is_global: true,
        flow_label: 0,
    };
    let found = route(LinkLayer::InfiniBand, &OWN, Some(&FAR), 0xbfff, 15);
    assert_eq!(found, Ok(wanted));
}

#[test]
fn infiniband_needs_the_lid_of_a_port() {
    for lid in [0, 0xc000, 0xffff] {
        for gid in [None, Some(&NEAR), Some(&FAR)] {
            let found = route(LinkLayer::InfiniBand, &OWN, gid, lid, 0);
            assert_eq!(found, Err(RouteError::BadLid), "{lid:#x} {gid:?}");
        }
    }
}

#[test]
fn ethernet_is_always_global_and_has_no_lid() {
    for gid in [&NEAR, &FAR, &OWN] {
        let found = route(LinkLayer::Ethernet, &OWN, Some(gid), 7, 0).unwrap();
        assert_eq!((found.lid, found.is_global), (0, true));
    }
    for gid in [None, Some(&[0; 16])] {
        let found = route(LinkLayer::Ethernet, &OWN, gid, 7, 0);
        assert_eq!(found, Err(RouteError::NoGid));
    }
}

/// The port that the kernel makes of a flow label (`rdma_flow_label_to_udp_sport()`).
fn udp_source_port(flow_label: u32) -> u32 {
    ((flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14)) | 0xc000
}

#[test]
fn ethernet_has_a_flow_label_for_each_pair_of_ports() {
    let label = |own, gid: [u8; 16]| {
        let found = route(LinkLayer::Ethernet, own, Some(&gid), 0, 0).unwrap();
        assert!((1..1 << 20).contains(&found.flow_label));
        found.flow_label
    };
    // The nodes of a cluster: their addresses differ in the last two bytes.
    let mut gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0];
    let mut ports = HashSet::new();
    for number in 0..1000_u16 {
        gid[14..].copy_from_slice(&number.to_be_bytes());
        assert_eq!(label(&OWN, gid), label(&OWN, gid), "stays the same");
        ports.insert(udp_source_port(label(&OWN, gid)));
    }
    assert!(ports.len() > 900, "{} ports for 1000 nodes", ports.len());
    assert_ne!(label(&OWN, NEAR), label(&NEAR, NEAR));
}

#[test]
fn a_service_level_has_four_bits() {
    for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        assert!(route(link, &OWN, Some(&NEAR), 1, 15).is_ok());
        let found = route(link, &OWN, Some(&NEAR), 1, 16);
        assert_eq!(found, Err(RouteError::BadServiceLevel));
    }
}

/// An IPv6 header from `NEAR`.
fn ipv6() -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[8..24].copy_from_slice(&NEAR);
    header[24..].copy_from_slice(&OWN);
    header
}

/// An IPv4 header from 10.1.2.3, behind 20 bytes of garbage.
fn ipv4(garbage: u8) -> [u8; 40] {
    let mut header = [garbage; 40];
    header[20] = 0x45;
    header[32..36].copy_from_slice(&[10, 1, 2, 3]);
    header
}

const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];

#[test]
fn the_sender_stands_in_the_header() {
    for kind in [HeaderKind::Global, HeaderKind::Unknown] {
        assert_eq!(source_gid(&ipv6(), kind), Some(NEAR));
    }
    for garbage in [0, 0x50, 0xff] {
        for kind in [HeaderKind::Ipv4, HeaderKind::Unknown] {
            assert_eq!(source_gid(&ipv4(garbage), kind), Some(MAPPED));
        }
    }
    // Where the device has told, nothing is guessed.
    assert_eq!(source_gid(&ipv4(0x60), HeaderKind::Ipv4), Some(MAPPED));
    let mut other = ipv6();
    other[0] = 0;
    assert_eq!(source_gid(&other, HeaderKind::Global), Some(NEAR));
}

#[test]
fn a_header_that_is_not_one_has_no_sender() {
    assert_eq!(source_gid(&ipv6(), HeaderKind::None), None);
    assert_eq!(source_gid(&[0; 40], HeaderKind::Unknown), None);
    // Garbage that looks like the other version.
    assert_eq!(source_gid(&ipv4(0x60), HeaderKind::Unknown), None);
}
