// SPDX-License-Identifier: GPL-2.0

//! Addresses, against the standard library's and the kernel's printf-formats.

use std::net::{
    Ipv4Addr,
    Ipv6Addr, //
};

use proptest::prelude::*;
use proto::common::errno::Errno;
use proto::rtrs::addr::{
    repeated,
    Addr,
    AddrError,
    KnownEnds,
    PathAddrs,
    PathName, //
};

fn parse(text: &str) -> Result<Addr, AddrError> {
    Addr::parse(text.as_bytes())
}

#[test]
fn d18_addresses_of_two_families_are_never_equal() {
    let v6 = Addr::V6([7; 16]);
    let gid = Addr::Gid([7; 16]);
    let v4 = Addr::V4([0; 4]);
    assert_ne!(v6, gid);
    assert_ne!(v4, Addr::V6([0; 16]));
    assert_ne!(v4, Addr::Gid([0; 16]));
    // Nor is an IPv4 address the IPv6 address that maps it.
    assert_ne!(parse("ip:1.2.3.4"), parse("ip:::ffff:1.2.3.4"));
    assert_eq!(parse("ip:1.2.3.4"), parse("ip:1.2.3.4"));
    assert_ne!(parse("ip:1.2.3.4"), parse("ip:1.2.3.5"));
}

#[test]
fn a_family_is_part_of_an_address() {
    assert_eq!(parse("10.0.0.1"), Err(AddrError::Family));
    assert_eq!(parse(""), Err(AddrError::Family));
    assert_eq!(parse("IP:10.0.0.1"), Err(AddrError::Family));
    assert_eq!(AddrError::Family.errno(), Errno::EPROTONOSUPPORT);
    assert_eq!(parse("ip:"), Err(AddrError::Syntax));
    assert_eq!(parse("gid:10.0.0.1"), Err(AddrError::Syntax));
    assert_eq!(AddrError::Syntax.errno(), Errno::EINVAL);
}

#[test]
fn addresses_are_shown_as_the_kernel_shows_them() {
    // %pI4, %pI6c (with IPv4 for mapped and ISATAP ones), %pI6.
    for text in [
        "ip:10.0.0.1",
        "ip:::",
        "ip:::1",
        "ip:1::",
        "ip:fe80::1:0:0:2",
        "ip:2001:db8:0:1:1:1:1:1",
        "ip:1:0:0:2::3",
        "ip:::ffff:192.0.2.1",
        "ip:fe80::200:5efe:192.0.2.1",
        "ip:fe80::5efe:192.0.2.1",
        "gid:fe80:0000:0000:0000:0002:c903:00ef:5ab1",
    ] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    assert_eq!(
        parse("ip:FE80:0:0:0:0:0:0:1").unwrap().to_string(),
        "ip:fe80::1"
    );
    assert_eq!(
        parse("gid:fe80::1").unwrap().to_string(),
        "gid:fe80:0000:0000:0000:0000:0000:0000:0001"
    );
}

#[test]
fn a_link_local_address_has_a_scope() {
    let ll = |scope: &str| parse(&format!("ip:fe80::1%{scope}"));
    assert_eq!(ll("eth0").unwrap().to_string(), "ip:fe80::1%eth0");
    assert_ne!(ll("eth0"), ll("eth1"));
    assert_ne!(ll("eth0"), parse("ip:fe80::1"));
    for (scope, number) in [
        ("2", Some(2)),
        ("0", None),
        ("eth0", None),
        ("99999999999", None),
    ] {
        let Ok(Addr::LinkLocal(_, scope)) = ll(scope) else {
            panic!("{scope} is refused");
        };
        assert_eq!(scope.number(), number);
    }
    // As many bytes as an interface's name may have, and one more.
    assert!(ll(&"n".repeat(15)).is_ok());
    for scope in [
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "a%b",
        "a@b",
        "a:1",
        "\u{e9}",
        &"n".repeat(16),
    ] {
        assert_eq!(ll(scope), Err(AddrError::Syntax), "{scope}");
    }
    for address in [
        "ip:fd00::1%eth0",
        "ip:fec0::1%eth0",
        "ip:10.0.0.1%eth0",
        "gid:fe80::1%eth0",
    ] {
        assert_eq!(parse(address), Err(AddrError::Syntax), "{address}");
    }
    let path = PathAddrs::parse(b"ip:fe80::1%eth0@ip:fe80::2%eth0", 1234).unwrap();
    assert_eq!(
        (path.src, path.dst),
        (Some(ll("eth0").unwrap()), parse("ip:fe80::2%eth0").unwrap())
    );
}

#[test]
fn paths_have_one_end_or_two() {
    let (a, b) = (Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2]));
    let path = |text: &str| PathAddrs::parse(text.as_bytes(), 1234);
    assert_eq!(path("ip:10.0.0.2"), Ok(PathAddrs { src: None, dst: b }));
    for text in ["ip:10.0.0.1@ip:10.0.0.2", "ip:10.0.0.1,ip:10.0.0.2"] {
        assert_eq!(
            path(text),
            Ok(PathAddrs {
                src: Some(a),
                dst: b
            })
        );
    }
    for text in [
        "@",
        ",",
        "ip:10.0.0.1@",
        "ip:10.0.0.1,",
        "ip:1.2.3.4@ip:1.2.3.4@ip:1.2.3.4",
    ] {
        assert!(path(text).is_err(), "{text}");
    }
    assert_eq!(path("@ip:10.0.0.2"), Err(AddrError::Family));
    // A port that is the session's changes nothing; another one would be ignored, as in C.
    for text in ["ip:10.0.0.2:1234", "ip:10.0.0.2:01234"] {
        assert_eq!(path(text), Ok(PathAddrs { src: None, dst: b }));
    }
    for text in ["ip:10.0.0.2:1235", "ip:10.0.0.1@ip:10.0.0.2:0"] {
        assert_eq!(path(text), Err(AddrError::Port), "{text}");
    }
    for text in [
        "ip:10.0.0.2:",
        "ip:10.0.0.2:-1",
        "ip:10.0.0.2:66770",
        "ip:10.0.0.2:1234:1234",
        "ip:10.0.0.1:1234@ip:10.0.0.2",
        "gid:10.0.0.2:1234",
    ] {
        assert_eq!(path(text), Err(AddrError::Syntax), "{text}");
    }
    // An IPv6 address has no port after it.
    let last = Addr::V6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
    assert_eq!(path("ip:fd00::1234").map(|path| path.dst), Ok(last));
    let name = PathName { src: a, dst: b };
    assert_eq!(name.to_string(), "ip:10.0.0.1@ip:10.0.0.2");
}

/// Texts that are, or nearly are, addresses.
fn nearly() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9a-f:.]{0,45}",
        "([0-9a-f]{0,5}:){0,9}[0-9a-f]{0,5}",
        "([0-9a-f]{0,4}:){0,3}:([0-9a-f]{1,4}:){0,5}[0-9.]{0,15}",
        "[0-9]{0,4}(\\.[0-9]{0,4}){0,5}",
        any::<u128>().prop_map(|n| Ipv6Addr::from(n).to_string()),
        any::<[u16; 8]>().prop_map(|w| Ipv6Addr::from(w.map(|x| x & 0x8001)).to_string()),
        any::<u32>().prop_map(|n| Ipv4Addr::from(n).to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_same_texts_are_addresses_as_for_the_standard_library(text in nearly()) {
        let v4 = text.parse::<Ipv4Addr>().ok().map(|a| Addr::V4(a.octets()));
        let v6 = text.parse::<Ipv6Addr>().ok();
        let expected = v4.or(v6.map(|a| Addr::V6(a.octets())));
        prop_assert_eq!(parse(&format!("ip:{text}")).ok(), expected);
        let gid = v6.map(|a| Addr::Gid(a.octets()));
        prop_assert_eq!(parse(&format!("gid:{text}")).ok(), gid);
    }

    #[test]
    fn addresses_survive_being_shown(
        words in any::<[u16; 8]>(),
        mask in any::<u8>(),
        v4 in any::<[u8; 4]>(),
    ) {
        let mut words = words;
        for (i, w) in words.iter_mut().enumerate() {
            *w &= if (mask >> i) & 1 == 0 { 0 } else { 0xffff };
        }
        let octets = Ipv6Addr::from(words).octets();
        for addr in [Addr::V4(v4), Addr::V6(octets), Addr::Gid(octets)] {
            prop_assert_eq!(parse(&addr.to_string()), Ok(addr));
        }
        let isatap = matches!(words, [.., 0 | 0x200, 0x5efe, _, _]);
        if !isatap {
            let library = format!("ip:{}", Ipv6Addr::from(words));
            prop_assert_eq!(Addr::V6(octets).to_string(), library);
        }
    }
}

#[test]
fn a_path_is_the_same_by_its_known_ends() {
    let ends = |text: &[u8], found: Option<&[u8]>| KnownEnds {
        asked: PathAddrs::parse(text, 1234).unwrap(),
        found: found.map(|text| Addr::parse(text).unwrap()),
    };
    let both = ends(b"ip:10.0.0.1@ip:10.0.0.2", None);
    let routed = ends(b"ip:10.0.0.2", Some(b"ip:10.0.0.1"));
    let open = ends(b"ip:10.0.0.2", None);
    assert!(both.is_same_path(&both) && open.is_same_path(&open));
    assert!(routed.is_same_path(&both) && both.is_same_path(&routed));
    assert!(routed.is_same_path(&open) && open.is_same_path(&routed));
    // Where the routing leads is not known yet.
    assert!(!open.is_same_path(&both) && !both.is_same_path(&open));
    for other in [
        ends(b"ip:10.0.0.1@ip:10.0.0.3", None),
        ends(b"ip:10.0.1.1@ip:10.0.0.2", None),
        ends(b"ip:10.0.0.3", Some(b"ip:10.0.0.1")),
    ] {
        assert!(!routed.is_same_path(&other) && !other.is_same_path(&routed));
    }
    // An address that was given does not change when it was found.
    let found = ends(b"ip:10.0.0.1@ip:10.0.0.2", Some(b"ip:10.0.0.1"));
    assert!(found.is_same_path(&both));
}

#[test]
fn a_path_that_is_named_twice_is_found() {
    let paths: Vec<_> = ["ip:10.0.0.2", "ip:10.0.1.1@ip:10.0.0.2", "ip:10.0.0.3"]
        .map(|text| PathAddrs::parse(text.as_bytes(), 1234).unwrap())
        .to_vec();
    assert_eq!(repeated(&paths), None);
    for again in &paths {
        let mut more = paths.clone();
        more.push(*again);
        assert_eq!(repeated(&more), Some(again));
    }
}
