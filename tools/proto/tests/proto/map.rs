// SPDX-License-Identifier: GPL-2.0

//! The line that people write to `map_device`.

use proptest::prelude::*;
use proto::{
    common::errno::Errno,
    rnbd::{
        access::AccessMode,
        map::{
            link_name,
            Cpus,
            MapError,
            MapRequest, //
        },
    },
    rtrs::addr::{
        Addr,
        PathAddrs, //
    }, //
};

const CPUS: Cpus = Cpus {
    online: 3,
    possible: 4,
};

/// The smallest line that is complete.
const LEAST: &str = "sessname=s path=ip:10.0.0.1 device_path=/dev/ram0";

fn parse(line: &str) -> Result<MapRequest<'_>, MapError<'_>> {
    MapRequest::parse(line.as_bytes(), CPUS)
}

/// The error of a complete line with `more` behind it.
fn errno(line: &str) -> Errno {
    let error = parse(line).unwrap_err();
    assert!(!error.to_string().is_empty());
    error.errno()
}

#[test]
fn a_full_line_is_understood() {
    let line = "dest_port=5555 sessname=ses path=ip:10.0.0.1@ip:10.0.0.2 \
                path=gid:fe80::1,gid:fe80::2 path=ip:fd00::7 device_path=dir/disk \
                access_mode=migration nr_poll_queues=3\n";
    let m = parse(line).unwrap();
    assert_eq!(
        (m.sess_name, m.device_path),
        (&b"ses"[..], &b"dir/disk"[..])
    );
    assert_eq!((m.dest_port, m.access_mode), (5555, AccessMode::Migration));
    assert_eq!((m.nr_poll_queues, m.path_count), (3, 3));
    let paths: Vec<_> = m.paths().collect();
    assert_eq!(paths.len(), 3);
    let v4 = |last| Addr::V4([10, 0, 0, last]);
    assert_eq!(
        paths[0],
        PathAddrs {
            src: Some(v4(1)),
            dst: v4(2)
        }
    );
    assert!(matches!(
        paths[1],
        PathAddrs {
            src: Some(Addr::Gid(_)),
            dst: Addr::Gid(_)
        }
    ));
    assert!(matches!(
        paths[2],
        PathAddrs {
            src: None,
            dst: Addr::V6(_)
        }
    ));
}

#[test]
fn what_is_left_out_has_the_c_driver_s_default() {
    let m = parse(LEAST).unwrap();
    assert_eq!((m.dest_port, m.access_mode), (1234, AccessMode::ReadWrite));
    assert_eq!(m.nr_poll_queues, 0);
    // Without a path the session must exist: whether it does, others know.
    let m = parse("sessname=s device_path=ram0").unwrap();
    assert_eq!((m.path_count, m.paths().count()), (0, 0));
}

#[test]
fn spaces_separate_and_do_not_matter_otherwise() {
    let m = parse("  \n sessname=s   path=ip:10.0.0.1  device_path=ram0 \t\n").unwrap();
    assert_eq!((m.sess_name, m.device_path), (&b"s"[..], &b"ram0"[..]));
    assert_eq!(m.path_count, 1);
}

#[test]
fn of_an_option_given_twice_the_last_counts() {
    let m =
        parse("sessname=a sessname=b device_path=x device_path=y access_mode=ro access_mode=rw");
    let m = m.unwrap();
    assert_eq!((m.sess_name, m.device_path), (&b"b"[..], &b"y"[..]));
    assert_eq!(m.access_mode, AccessMode::ReadWrite);
}

#[test]
fn a_value_that_is_wrong_is_refused_though_a_later_one_counts() {
    for wrong in [
        "access_mode=wr".to_owned(),
        "device_path=../x".to_owned(),
        "sessname=a/b".to_owned(),
        format!("device_path={}", "d".repeat(255)),
        format!("sessname={}", "s".repeat(255)),
    ] {
        let line = format!("{wrong} {LEAST} access_mode=rw");
        assert_eq!(errno(&line), Errno::EINVAL, "{line}");
    }
}

#[test]
fn errors_are_those_of_the_c_driver() {
    for (line, expected) in [
        ("", Errno::EINVAL),
        ("sessname=s", Errno::EINVAL),
        ("device_path=ram0", Errno::EINVAL),
        ("sessname=a/b device_path=ram0", Errno::EINVAL),
        ("sessname=a..b device_path=ram0", Errno::EINVAL),
        ("sessname=s device_path=../ram0", Errno::EINVAL),
        (
            "sessname=s path=10.0.0.1 device_path=ram0",
            Errno::EPROTONOSUPPORT,
        ),
        ("sessname=s path=ip:10.0.0 device_path=ram0", Errno::EINVAL),
        (
            "sessname=s path=ip:10.0.0.1@10.0.0.2 device_path=r",
            Errno::EPROTONOSUPPORT,
        ),
        ("sessname=s device_path=ram0 access_mode=wr", Errno::EINVAL),
        (
            "sessname=s device_path=ram0 nr_poll_queues=99",
            Errno::EINVAL,
        ),
        (
            "sessname=s device_path=ram0 nr_poll_queues=-2",
            Errno::EINVAL,
        ),
        (
            "sessname=s device_path=ram0 nr_poll_queues=x",
            Errno::EINVAL,
        ),
        ("dest_port=65536 sessname=s device_path=ram0", Errno::EINVAL),
        ("dest_port=-1 sessname=s device_path=ram0", Errno::EINVAL),
        ("dest_port=port sessname=s device_path=ram0", Errno::EINVAL),
        ("sessname=s device_path=ram0 colour=red", Errno::EINVAL),
        ("sessname=s device_path=ram0 word", Errno::EINVAL),
        ("sessname= device_path=ram0", Errno::EINVAL),
        ("=s device_path=ram0", Errno::EINVAL),
    ] {
        assert_eq!(errno(line), expected, "{line}");
    }
}

#[test]
fn each_error_names_its_cure() {
    for (line, cure) in [
        ("device_path=ram0", "add sessname="),
        ("sessname=s", "add device_path="),
        (
            "sessname=s device_path=ram0 path=10.0.0.1",
            "path=ip:ADDRESS",
        ),
        (
            "sessname=s device_path=ram0 access_mode=x",
            "write ro, rw or migration",
        ),
        (
            "sessname=s device_path=ram0 nr_poll_queues=99",
            "-1 or 0 up to the number of CPUs",
        ),
        ("dest_port=99999", "0..=65535"),
        (
            "path=ip:10.0.0.1 dest_port=1",
            "must come before the first path=",
        ),
        ("colour=red", "known are dest_port="),
        ("sessname=.a device_path=x", "choose another sessname="),
        (
            "sessname=s device_path=a..b",
            "below the server's dev_search_path",
        ),
    ] {
        let shown = parse(line).unwrap_err().to_string();
        assert!(shown.contains(cure), "{line}: {shown}");
    }
}

#[test]
fn what_a_user_wrote_is_shown_without_controls_and_not_at_length() {
    let line = format!("\x1b[31m{}=1", "x".repeat(5000));
    let shown = parse(&line).unwrap_err().to_string();
    assert!(shown.contains("'?[31mxxx") && shown.len() < 450);
    assert!(shown.bytes().all(|c| c == b' ' || c.is_ascii_graphic()));
}

#[test]
fn a_port_must_come_before_the_paths_that_it_is_for() {
    let late = parse("sessname=s path=ip:10.0.0.1 dest_port=1 device_path=x");
    assert_eq!(late, Err(MapError::PortAfterPath));
    assert_eq!(
        parse("dest_port=0x10 sessname=s path=ip:10.0.0.1 device_path=x")
            .unwrap()
            .dest_port,
        16
    );
}

#[test]
fn a_session_may_have_128_paths_and_no_more() {
    let line = |n: usize| {
        let paths: Vec<_> = (0..n).map(|i| format!("path=ip:10.0.0.{i}")).collect();
        format!("{} sessname=s device_path=x", paths.join(" "))
    };
    assert_eq!(parse(&line(128)).unwrap().paths().count(), 128);
    let line = line(129);
    assert_eq!(parse(&line), Err(MapError::TooManyPaths));
    assert_eq!(MapError::TooManyPaths.errno(), Errno::ENOMEM);
}

#[test]
fn poll_queues_are_up_to_one_a_cpu() {
    for (given, queues) in [("0", 0), ("1", 1), ("4", 4), ("-1", CPUS.online)] {
        let line = format!("{LEAST} nr_poll_queues={given}");
        assert_eq!(parse(&line).unwrap().nr_poll_queues, queues);
    }
    assert_eq!(errno(&format!("{LEAST} nr_poll_queues=5")), Errno::EINVAL);
}

#[test]
fn io_queues_are_up_to_one_a_cpu_that_may_come() {
    assert_eq!(parse(LEAST).unwrap().nr_io_queues, None);
    for (given, queues) in [("1", 1), ("3", 3), ("4", 4), ("004", 4)] {
        let line = format!("{LEAST} nr_io_queues={given}");
        assert_eq!(parse(&line).unwrap().nr_io_queues, Some(queues));
    }
    for wrong in ["0", "-1", "5", "4294967297", "0x2", "two"] {
        let line = format!("{LEAST} nr_io_queues={wrong}");
        assert_eq!(errno(&line), Errno::EINVAL, "{wrong}");
        let shown = parse(&line).unwrap_err().to_string();
        let cure = "is not in 1..=4, the number of CPUs: leave it out";
        assert!(shown.contains(cure), "{shown}");
    }
}

#[test]
fn names_have_their_bounds() {
    let line =
        |s: usize, d: usize| format!("sessname={} device_path={}", "s".repeat(s), "d".repeat(d));
    assert!(parse(&line(1, 253)).is_ok());
    assert!(parse(&line(253, 1)).is_ok());
    assert_eq!(errno(&line(1, 254)), Errno::ENAMETOOLONG);
    assert_eq!(errno(&line(254, 1)), Errno::ENAMETOOLONG);
    assert_eq!(errno(&line(255, 1)), Errno::EINVAL);
    assert_eq!(errno(&line(1, 255)), Errno::EINVAL);
}

#[test]
fn a_device_s_link_has_no_slashes() {
    let mut out = [0; 256];
    let name = link_name(b"/dev/disk/x", b"ses", &mut out).unwrap();
    assert_eq!(name.to_bytes(), b"!dev!disk!x@ses");
    assert!(link_name(b"abc", b"d", &mut [0; 5]).is_none());
    assert!(link_name(b"abc", b"d", &mut [0; 6]).is_some());
    assert!(link_name(b"a\0c", b"d", &mut out).is_none());
    // Not only ASCII.
    let name = link_name("disk-\u{e9}".as_bytes(), b"d", &mut out).unwrap();
    assert_eq!(name.to_str(), Ok("disk-\u{e9}@d"));
}

proptest! {
    #[test]
    fn lines_say_what_was_put_into_them(
        port in prop::option::of(any::<u16>()),
        sess in "[a-zA-Z0-9_@%-]{1,60}",
        paths in prop::collection::vec((prop::option::of(any::<u32>()), any::<u128>()), 0..9),
        device in "[a-z/][a-z/_-]{0,60}",
        mode in 0..3u8,
        polls in -1..=CPUS.possible as i32,
    ) {
        let mode = AccessMode::from_wire(mode).unwrap();
        let mut words = Vec::new();
        words.extend(port.map(|p| format!("dest_port={p}")));
        words.push(format!("sessname={sess}"));
        let paths: Vec<_> = paths
            .iter()
            .map(|(src, dst)| PathAddrs {
                src: src.map(|s| Addr::V4(s.to_be_bytes())),
                dst: Addr::V6(dst.to_be_bytes()),
            })
            .collect();
        for PathAddrs { src, dst } in &paths {
            let src = src.map_or(String::new(), |s| format!("{s}@"));
            words.push(format!("path={src}{dst}"));
        }
        words.push(format!("device_path={device}"));
        words.push(format!("access_mode={mode}"));
        words.push(format!("nr_poll_queues={polls}"));
        let line = words.join(" ");
        let m = parse(&line).unwrap();
        prop_assert_eq!(m.sess_name, sess.as_bytes());
        prop_assert_eq!(m.device_path, device.as_bytes());
        prop_assert_eq!(m.dest_port, port.unwrap_or(1234));
        prop_assert_eq!(m.access_mode, mode);
        let all = CPUS.online;
        prop_assert_eq!(m.nr_poll_queues, if polls < 0 { all } else { polls as u32 });
        prop_assert_eq!(m.paths().collect::<Vec<_>>(), paths);
    }
}
