// SPDX-License-Identifier: GPL-2.0

//! The subnet of InfiniBand of the test device.

use proto::test_device::fabric::{is_same_partition, Change, Fabric};

#[test]
fn a_subnet_gives_its_ports_what_is_written() {
    let mut fabric = Fabric::new(2);
    assert_eq!(
        (fabric.of_lid(0x11), fabric.of_lid(0x12)),
        (Some(0), Some(1))
    );
    assert_eq!((fabric.of_lid(0), fabric.of_lid(0x13)), (None, None));
    assert_eq!(fabric.port(0).unwrap().pkeys, [0xffff, 0, 0, 0]);
    assert_eq!(fabric.port(2), None);
    for (rule, wanted) in [
        ("port=0 lid=0x21", (0, Change::Lid)),
        ("port=1 pkeys=0x7fff,32769", (1, Change::Pkeys)),
        ("port=1 prefix=0xfec0000000000001", (1, Change::Manager)),
    ] {
        assert_eq!(fabric.change(rule), Some(wanted), "{rule}");
    }
    assert_eq!((fabric.of_lid(0x11), fabric.of_lid(0x21)), (None, Some(0)));
    let port = *fabric.port(1).unwrap();
    assert_eq!((port.lid, port.pkeys), (0x12, [0x7fff, 0x8001, 0, 0]));
    assert_eq!(port.prefix, 0xfec0_0000_0000_0001);
    let before = fabric;
    for wrong in [
        "",
        "lid=1",
        "port=2 lid=1",
        "port=0",
        "port=0 lid=0",
        "port=0 lid=0xc000",
        "port=0 lid=65537",
        "port=0 lid=1 lid=2",
        "port=0 gid=1",
        "port=0 pkeys=",
        "port=0 pkeys=1,2,3,4,5",
        "port=0 pkeys=65536",
        "port=0 prefix=x",
    ] {
        assert_eq!(fabric.change(wrong), None, "{wrong}");
        assert_eq!(fabric, before, "{wrong}");
    }
}

#[test]
fn members_hear_each_other_unless_both_are_limited() {
    for (own, sent, is_heard) in [
        (0xffff, 0xffff, true),
        (0x7fff, 0xffff, true),
        (0xffff, 0x7fff, true),
        (0x7fff, 0x7fff, false),
        (0x8001, 0xffff, false),
        (0x8001, 0x8002, false),
        (0x8000, 0x8000, false),
        (0, 0, false),
    ] {
        assert_eq!(is_same_partition(own, sent), is_heard, "{own:#x} {sent:#x}");
    }
}
