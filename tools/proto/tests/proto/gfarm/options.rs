// SPDX-License-Identifier: GPL-2.0

//! The options of a mount.

use std::net::IpAddr;

use proptest::prelude::*;
use proto::gfarm::{
    hosts::{
        servers,
        Hosts,
        Server, //
    },
    options::{
        OptionError,
        Options, //
    },
    setting::{
        Setting,
        COUNT, //
    }, //
};

fn parse(text: &str) -> Result<Options, OptionError<'_>> {
    Options::parse(text.as_bytes())
}

fn refused(text: &str) -> String {
    let error = parse(text)
        .err()
        .unwrap_or_else(|| panic!("{text} is valid"));
    assert_eq!(error.errno().get(), 22);
    error.to_string()
}

#[test]
fn what_is_left_out_has_its_default() {
    let options = parse("user=alice").unwrap();
    assert_eq!(options.user(), b"alice");
    assert_eq!((options.key(), options.ib_devname()), (None, None));
    assert_eq!((options.uid(), options.gid()), (None, None));
    let shown = ",username=alice,readahead=1024,ra_async=1,actimeo=1,connect_timeout=35,\
                 receive_timeout=60,reconnect_timeout=30,connections=8,idle_timeout=60,\
                 open_files=720";
    assert_eq!(options.to_string(), shown);
    assert_eq!(options.get(Setting::IbNumRrpc), 128);
    assert_eq!(options.get(Setting::IbNumSrpc), 64);
    assert_eq!(options.get(Setting::IbQkey), 0);
}

#[test]
fn all_options_are_understood_and_shown_but_the_key() {
    let text = "username=a.b@c_d-e,key=gfarm:alice,allow_other,nocto,uid=0,gid=100,\
                hosts=fs1/10.0.0.1+fs2/fd00::2,cc=on,cc_key=gfarm:all,ib_devname=rxe0,\
                readahead=256,ra_async=0,actimeo=0,connect_timeout=1,receive_timeout=2,\
                reconnect_timeout=0,connections=64,idle_timeout=1,open_files=9,ib_num_rrpc=1,\
                ib_num_srpc=2,ib_mtu=1024,\
                ib_gid=3,ib_port=2,ib_sl=4,ib_qkey=5,cc_timeout_ms=50,cc_share=100,\
                 cc_wait_ms=30000,cc_group=64,ib_pkey=0x8001,ib_tclass=104,cc_verify=0,\
                 cc_directory=64";
    let options = parse(text).unwrap();
    assert_eq!(options.key(), Some(&b"gfarm:alice"[..]));
    assert_eq!((options.uid(), options.gid()), (Some(0), Some(100)));
    assert!(options.allows_other() && !parse("user=u").unwrap().allows_other());
    assert!(options.is_nocto() && !parse("user=u").unwrap().is_nocto());
    assert_eq!(options.ib_devname(), Some(&b"rxe0"[..]));
    assert_eq!(options.node(), Some(&b"gfarm:all"[..]));
    let shown = options.to_string();
    assert!(!shown.contains("key=gfarm") && !shown.contains("key=g"));
    let is_shown = |word: &&str| !word.starts_with("key=") && !word.starts_with("cc_key=");
    for word in text.split(',').filter(is_shown) {
        assert!(
            format!("{shown},").contains(&format!(",{word},")),
            "{word}: {shown}"
        );
    }
    // What is shown is valid, but for the key that is not shown, and means the same.
    assert_eq!(refused(&shown), OptionError::NodeWithoutKey.to_string());
    let again = parse_unchecked(&shown);
    assert_eq!(again.to_string(), shown);
    assert!(again.is_shown_as(&options) && options.is_shown_as(&again));
}

/// Parses options as a remount does, without a look at all of them.
fn parse_unchecked(text: &str) -> Options {
    let mut options = Options::default();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.as_bytes())),
            None => (word, None),
        };
        options.set(name.as_bytes(), value).unwrap();
    }
    options
}

#[test]
fn a_mount_is_a_node_if_it_has_a_key_for_it() {
    let key = Some(&b"k"[..]);
    for (text, node, shown) in [
        ("user=u", None, ""),
        ("user=u,cc=off", None, ",cc=off"),
        ("user=u,cc_key=k", key, ",cc=on"),
        ("user=u,cc=on,cc_key=k", key, ",cc=on"),
        ("user=u,cc=on,cc=off,cc_key=k", None, ",cc=off"),
        (
            "user=u,cc=off,ib_mtu=1024,ib_devname=x,cc_share=1",
            None,
            ",cc=off",
        ),
        ("user=u,cc_key=k,ib_gid=0", key, ",ib_gid=0,cc=on"),
    ] {
        let options = parse(text).unwrap();
        assert_eq!(options.node(), node, "{text}");
        assert!(options.to_string().contains(shown), "{text}: {options}");
        assert_eq!(options.to_string().contains("cc="), !shown.is_empty());
    }
    assert!(refused("user=u,cc=on").contains("add cc_key=DESCRIPTION"));
    for name in ["cc=", "cc=yes", "cc=1"] {
        assert!(refused(&format!("user=u,{name}")).contains("cc"), "{name}");
    }
    for given in [
        "ib_num_rrpc=128",
        "ib_mtu=0",
        "ib_gid=0",
        "ib_devname=rxe0",
        "cc_share=0",
        "cc_group=0",
        "cc_verify=1",
        "cc_directory=0",
    ] {
        let said = refused(&format!("user=u,{given}"));
        let name = given.split('=').next().unwrap();
        let wanted = format!("{name}= has no effect: add cc_key=DESCRIPTION, or cc=off");
        assert_eq!(said, wanted);
    }
}

#[test]
fn a_remount_may_not_change_what_is_shown() {
    let is_same =
        |before: &str, text: &str| parse_unchecked(text).is_shown_as(&parse(before).unwrap());
    assert!(is_same("user=u,cc_key=k,ib_mtu=0", "user=u,cc=on,ib_mtu=0"));
    assert!(is_same("user=u,cc=off,cc_key=k", "user=u,cc=off"));
    assert!(!is_same("user=u,cc_key=k", "user=u"));
    assert!(!is_same("user=u,cc_key=k", "user=u,cc=off"));
    assert!(!is_same("user=u", "user=u,cc=on"));
    assert!(!is_same("user=u", "user=u,cc_key=k"));
    assert!(!is_same("user=u,cc_key=k", "user=u,cc=on,ib_gid=0"));
    assert!(!is_same("user=u", "user=u,allow_other"));
    assert!(!is_same("user=u", "user=u,nocto"));
}

#[test]
fn each_setting_has_a_range_and_says_so() {
    for setting in Setting::ALL {
        let (name, range) = (setting.name(), setting.range());
        assert_eq!(Setting::by_name(name.as_bytes()), Some(setting));
        let has_zero = setting.zero().is_some();
        let default = setting.default();
        assert!(
            range.contains(&default) || has_zero && default == 0,
            "{name}"
        );
        let zero = has_zero.then_some(0);
        for value in [*range.start(), *range.end()].into_iter().chain(zero) {
            let options = parse(&format!("user=u,cc_key=k,{name}={value}")).unwrap();
            assert_eq!(options.get(setting), value);
            assert_eq!(
                options.given(setting),
                setting.is_of_cache().then_some(value)
            );
        }
        let over = u64::from(*range.end()) + 1;
        let mut wrong = vec![
            over.to_string(),
            "4294967296".into(),
            "-1".into(),
            "+1".into(),
        ];
        wrong.extend(["1k", "0x", "0x1g", " 1", "", "1\n"].map(String::from));
        wrong.extend((!setting.is_hex()).then(|| "0x1".into()));
        let under = range.start().checked_sub(1);
        let under = under.filter(|under| *under != 0 || !has_zero);
        wrong.extend(under.map(|under| under.to_string()));
        for value in wrong {
            let shown = refused(&format!("user=u,cc_key=k,{name}={value}"));
            assert!(shown.contains(name), "{shown}");
            let limits = format!("{}..={}", range.start(), range.end());
            assert!(value.is_empty() || shown.contains(&limits), "{shown}");
            assert!(
                value.is_empty() || !has_zero || shown.contains("nor 0 for"),
                "{shown}"
            );
        }
    }
    assert_eq!(Setting::by_name(b"ra_sync"), None);
}

#[test]
fn errors_name_the_option() {
    for (text, named) in [
        ("user=u,colour=red", "unknown option 'colour'"),
        ("user=u,colour", "unknown option 'colour'"),
        ("user=u,=1", "unknown option ''"),
        ("", "option username= is missing"),
        ("readahead=1", "option username= is missing"),
        ("user", "option user needs a value"),
        ("user=", "option user needs a value"),
        ("username=", "option username needs a value"),
        ("user=u,readahead", "option readahead needs a value"),
        ("user=u,ra_sync", "option ra_sync needs a value"),
        ("user=a b", "username=a b is not a user's name"),
        ("username=a\\b", "username=a?b is not a user's name"),
        ("user=u,uid=4294967295", "uid=4294967295 is not"),
        ("user=u,gid=x", "gid=x is not a group's number"),
        ("user=u,ra_sync=2", "ra_sync=2 is not 0 or 1"),
        ("user=u,allow_other=1", "allow_other=1 is not an option"),
        ("user=u,hosts=fs1", "hosts=fs1 is not NAME/ADDRESS"),
        (
            "user=u,ib_mtu=255",
            "ib_mtu=255 is not in 256..=4096, nor 0 for that of the port",
        ),
        ("user=u,ib_devname=a/b=c", "ib_devname=a/b=c is not"),
    ] {
        let shown = refused(text).replace('\\', "?");
        assert!(shown.contains(named), "{text}: {shown}");
    }
    let long = |name, len| format!("user=u,{name}={}", "x".repeat(len));
    assert!(parse(&long("user", 64)).is_ok() && parse(&long("user", 65)).is_err());
    assert!(parse(&long("key", 127)).is_ok() && parse(&long("key", 128)).is_err());
    let devname = |len| format!("{},cc_key=k", long("ib_devname", len));
    assert!(parse(&devname(31)).is_ok() && parse(&devname(32)).is_err());
}

#[test]
fn a_key_given_by_mistake_is_not_shown() {
    let key = format!("6ce20b9e {}", "ab".repeat(32));
    let shown = refused(&format!("user=u,key={key}"));
    assert!(!shown.contains("abab") && shown.contains("key="));
}

#[test]
fn reading_ahead_is_asynchronous_unless_it_is_switched_off() {
    for (text, is_async) in [
        ("user=u", 1),
        ("user=u,ra_async", 1),
        ("user=u,ra_async=0", 0),
        ("user=u,ra_async=0,ra_async", 1),
        // The specification's option has this meaning, whatever its name.
        ("user=u,ra_sync=1", 1),
        ("user=u,ra_sync=0", 0),
        ("user=u,ra_sync=0,ra_async=1", 1),
    ] {
        assert_eq!(
            parse(text).unwrap().get(Setting::RaAsync),
            is_async,
            "{text}"
        );
    }
}

#[test]
fn hosts_are_found_by_name() {
    let text = "user=u,hosts=fs1/10.0.0.1+FS2.example/fd00::2+fs1/10.0.0.9";
    let options = parse(text).unwrap();
    let find = |name: &str| options.hosts().find(name.as_bytes());
    let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(find("fs1"), address("10.0.0.1"));
    assert_eq!(find("fs2.EXAMPLE"), address("fd00::2"));
    assert_eq!((find("fs"), find("fs11"), find("")), (None, None, None));
    assert_eq!(Options::default().hosts().find(b"fs1"), None);
    for wrong in [
        "",
        "+",
        "fs1",
        "fs1/",
        "/10.0.0.1",
        "fs1/10.0.0",
        "fs1/fs2",
        "a/1.1.1.1+",
        "a b/1.1.1.1",
        "a/1.1.1.1/2",
        "a/1.1.1.1:1",
        "a/[::1]",
    ] {
        assert_eq!(Hosts::parse(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn a_source_is_servers() {
    let server = |text: &'static str| Server::parse(text.as_bytes());
    let is = |host: &'static str, port| {
        let host = host.as_bytes();
        Some(Server { host, port })
    };
    assert_eq!(server("gfmd.example.org:601"), is("gfmd.example.org", 601));
    assert_eq!(server("gfmd"), is("gfmd", 601));
    assert_eq!(server("10.0.0.1:10601"), is("10.0.0.1", 10601));
    assert_eq!(server("[fd00::1]:65535"), is("fd00::1", 65535));
    assert_eq!(server("[::1]"), is("::1", 601));
    assert!(server("[::1]").unwrap().address().unwrap().is_loopback());
    assert_eq!(server("gfmd").unwrap().address(), None);
    for wrong in [
        "",
        ":601",
        "a:",
        "a:0",
        "a:65536",
        "a:x",
        "a:1:2",
        "fd00::1",
        "[fd00::1",
        "[a]",
        "[10.0.0.1]",
        "[::1]601",
        "[::1]:",
        "a b",
        "a/b",
        "a:+1",
    ] {
        assert_eq!(server(wrong), None, "{wrong}");
    }
    let all: Vec<_> = servers(b"a:1,b,").collect();
    assert_eq!(all, [is("a", 1), is("b", 601), None]);
    assert_eq!(Server::parse(&[b'x'; 256]), None);
}

proptest! {
    #[test]
    fn what_was_set_is_shown(values in prop::collection::vec(any::<u32>(), COUNT)) {
        let mut text = "username=u,cc=on,cc_key=k".to_owned();
        for (setting, value) in Setting::ALL.iter().zip(&values) {
            let (low, high) = (*setting.range().start(), *setting.range().end());
            let value = low + value % (high - low + 1);
            text += &match setting.is_hex() {
                true => format!(",{}={value:#x}", setting.name()),
                false => format!(",{}={value}", setting.name()),
            };
        }
        let shown = parse(&text).unwrap().to_string();
        for word in shown[1..].split(',') {
            prop_assert!(text.split(',').any(|given| given == word), "{}", word);
        }
    }
}
