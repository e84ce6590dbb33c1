// SPDX-License-Identifier: GPL-2.0

//! The arguments that the program takes, and its words about errors.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../pi-sidecar/tests/tool/manual_page.rs"]
mod manual_page;
mod top;

use std::io;

use clap::{
    CommandFactory,
    Parser, //
};
use rioc_tool::{
    advice,
    commands::{
        self,
        CommandLine, //
    },
    object::Object, //
};

#[test]
fn every_command_and_option_has_an_entry() {
    let manual = include_str!("../../../../Documentation/rioc.8");
    let taken = manual_page::taken(&CommandLine::command());
    assert_eq!(manual_page::entries(manual), taken);
}

#[test]
fn an_object_is_two_numbers() {
    let object: Object = "10:0x14".parse().unwrap();
    assert_eq!(object.to_string(), "10:20");
    for wrong in ["10", "10:", "10:x", "1:18446744073709551616", "-1:0"] {
        let error = wrong.parse::<Object>().unwrap_err().to_string();
        assert!(error.contains("write "), "{wrong}: {error}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for line in [
        "rioc cow bb 1:2 3:4 --offset 4096",
        "rioc cow bb 1:2 3:4 --new --length 4096",
        "rioc lease bb 1:2",
        "rioc rm bb",
        "rioc put bb 1",
        "rioc check",
        "rioc top --interval 0",
    ] {
        assert!(
            CommandLine::try_parse_from(line.split(' ')).is_err(),
            "{line}"
        );
    }
}

#[test]
fn what_cannot_be_checked_has_the_status_of_fsck() {
    for log in ["/dev/no-such-device", "/dev/null", "/etc/passwd"] {
        let line = CommandLine::parse_from(["rioc", "check", log]);
        assert_eq!(commands::run(&line).unwrap(), 8, "{log}");
    }
}

#[test]
fn an_error_says_what_to_type() {
    let line = "rioc ls bb --device /dev/no-such-device".split(' ');
    let error = commands::run(&CommandLine::parse_from(line)).unwrap_err();
    assert!(
        error.to_string().contains("modprobe rioc_client"),
        "{error}"
    );
    let not_found = io::Error::from_raw_os_error(2);
    let attaching = advice::attaching(&not_found, "bb");
    assert!(
        attaching.contains("sessname=bb path=ip:ADDRESS"),
        "{attaching}"
    );
    for (errno, wanted) in [
        (2, "rioc ls bb"),
        (16, "lease"),
        (17, "rioc rm bb 1:2"),
        (28, "rioc rm bb OBJECT"),
        (116, "rioc lease bb 1:2"),
        (5, "dmesg"),
        (104, "do it again"),
        (108, "rioc-client/ctl/connect"),
    ] {
        let error = io::Error::from_raw_os_error(errno);
        let said = advice::operating(&error, "bb", "1:2");
        assert!(said.contains(wanted), "{said}");
    }
}
