// SPDX-License-Identifier: GPL-2.0

//! Lines for `assemble`.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use rnbd_ec::proto::{
    codec::Compression,
    command::{
        Command,
        Mode,
        Settings, //
    },
};

const MEMBERS: &str = "members=/dev/a,/dev/b,/dev/c";

fn refused(line: &str) -> (Errno, String) {
    let wrong = Command::parse(line.as_bytes()).unwrap_err();
    (wrong.errno(), wrong.to_string())
}

#[test]
fn a_line_with_all_options() {
    let line = format!(
        " mode=create  name=ec-0_A {MEMBERS} size=3g codec=none matrix=vandermonde force=1 \
         member_timeout_ms=100 hedge_ms=10 recover_every_n=7\n"
    );
    let command = Command::parse(line.as_bytes()).unwrap();
    let devices = ["/dev/a", "/dev/b", "/dev/c"].map(|path| Some(path.as_bytes()));
    let expected = Command {
        mode: Mode::Create,
        name: "ec-0_A",
        members: devices,
        size: Some(3 << 30),
        is_forced: true,
        settings: Settings {
            compression: Compression::None,
            member_timeout_ms: 100,
            hedge_ms: 10,
            recover_every_n: 7,
        },
    };
    assert_eq!(command, expected);
}

#[test]
fn what_is_left_out_has_its_default() {
    let command = Command::parse(b"name=e members=/dev/a,/dev/b").unwrap();
    assert_eq!(command.mode, Mode::Assemble);
    assert_eq!((command.size, command.is_forced), (None, false));
    assert_eq!(command.members[2], None);
    assert_eq!(command.settings, Settings::default());
    assert_eq!(command.settings.compression, Compression::Lz4);
}

#[test]
fn sizes_have_units() {
    let size = |value: &str| {
        let line = format!("mode=create name=e {MEMBERS} size={value}");
        Command::parse(line.as_bytes())
            .map(|c| c.size.unwrap())
            .ok()
    };
    assert_eq!(size("4096"), Some(4096));
    assert_eq!(size("4K"), Some(4096));
    assert_eq!(size("2M"), Some(2 << 20));
    assert_eq!(size("1T"), Some(1 << 40));
    for wrong in [
        "K",
        "-1",
        "1P",
        "1 K",
        "18446744073709551616",
        "18446744073709551615K",
    ] {
        assert_eq!(size(wrong), None, "{wrong}");
    }
}

#[test]
fn each_wrong_line_says_what_is_wrong() {
    let table = [
        ("members=/a,/b", "name missing"),
        ("name=e", "0 members"),
        ("name= members=/a,/b", "unknown or empty option 'name='"),
        ("name=e members=/a,/b x=1", "unknown or empty option 'x=1'"),
        ("name=.. members=/a,/b", "name=.. is not 1 to 27"),
        ("name=e members=/a,,/b", "no path"),
        ("name=e members=/a,/b,/c,/d", "more than 3"),
        ("name=e members=/a,/b,/a", "'/a' twice"),
        ("mode=create name=e members=/a,/b", "2 members: a new array"),
        ("name=e members=/a,/b force=x", "force=x is not in 0..=1"),
        ("mode=create name=e members=/a,/b,/c force=2", "0..=1"),
        (
            "name=e members=/a,/b matrix=xor",
            "matrix= is for a new array",
        ),
        ("name=e members=/a,/b matrix=x", "matrix=x is unknown"),
        ("name=e members=/a,/b member_timeout_ms=99", "100..=3600000"),
        (
            "name=e members=/a,/b recover_every_n=x",
            "recover_every_n=x",
        ),
    ];
    for (line, text) in table {
        let (found, words) = refused(line);
        assert_eq!(found, Errno::EINVAL, "{line}: {words}");
        assert!(words.contains(text), "{line}: {words}");
    }
}

#[test]
fn what_is_too_long_says_so() {
    let name = format!("name={} {MEMBERS}", "n".repeat(28));
    let path = format!("name=e members=/{}", "d".repeat(255));
    for (line, text) in [(name, "1 to 27"), (path, "at most 255")] {
        let (found, words) = refused(&line);
        assert_eq!(found, Errno::ENAMETOOLONG, "{words}");
        assert!(words.contains(text), "{words}");
    }
}

proptest! {
    #[test]
    fn any_line(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(wrong) = Command::parse(&line) {
            prop_assert!(!wrong.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_words(
        words in proptest::collection::vec("(name|members|size|mode|force)=[/a-c,0-9]{0,6}", 0..6),
    ) {
        let _ = Command::parse(words.join(" ").as_bytes()).map_err(|wrong| wrong.to_string());
    }
}
