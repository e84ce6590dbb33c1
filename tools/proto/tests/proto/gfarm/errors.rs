// SPDX-License-Identifier: GPL-2.0

//! The errors of the servers.

use proto::gfarm::{
    error::GfarmError,
    operation::ReplyError,
    retry::Fault,
    xdr::Malformed, //
};

fn errno(raw: u32) -> u16 {
    GfarmError::new(raw).unwrap().errno().get()
}

#[test]
fn up_to_34_the_numbers_are_those_of_linux() {
    assert_eq!(GfarmError::new(0), None);
    for raw in 1..=34 {
        assert_eq!(u32::from(errno(raw)), raw);
    }
}

#[test]
fn from_35_on_they_are_gfarm_s_own() {
    let numbers = [
        84, 35, 36, 39, 37, 38, 115, 114, 88, 89, 90, 91, 92, 93, 95, 97, 98, 99, 100, 101, 103,
        104, 105, 106, 107, 110, 111, 113, 40, 122, 116, 43, 42, 75, 129, 127, 71, 113, 113, 2, 5,
        71, 22, 11, 5, 22, 40, 5, 5, 22, 1, 22, 22, 22, 22, 22, 16, 22, 22, 22, 5, 11, 22, 5, 116,
        22, 5, 5, 16, 129, 113, 17,
    ];
    let ours: Vec<u16> = (35..=106).map(errno).collect();
    assert_eq!(ours, numbers);
}

#[test]
fn numbers_of_later_versions_are_errors_as_well() {
    for raw in [107, 1000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let error = GfarmError::new(raw).unwrap();
        assert_eq!((error.errno().get(), error.name()), (5, None));
        assert!(error.to_string().contains(&raw.to_string()));
        assert!(!error.is_connection_error());
    }
}

#[test]
fn constants_have_the_numbers_of_their_names() {
    for (error, name) in [
        (
            GfarmError::OPERATION_NOT_PERMITTED,
            "OPERATION_NOT_PERMITTED",
        ),
        (
            GfarmError::NO_SUCH_FILE_OR_DIRECTORY,
            "NO_SUCH_FILE_OR_DIRECTORY",
        ),
        (GfarmError::NO_SUCH_PROCESS, "NO_SUCH_PROCESS"),
        (GfarmError::INPUT_OUTPUT, "INPUT_OUTPUT"),
        (GfarmError::BAD_FILE_DESCRIPTOR, "BAD_FILE_DESCRIPTOR"),
        (
            GfarmError::RESOURCE_TEMPORARILY_UNAVAILABLE,
            "RESOURCE_TEMPORARILY_UNAVAILABLE",
        ),
        (GfarmError::NO_MEMORY, "NO_MEMORY"),
        (GfarmError::TOO_MANY_OPEN_FILES, "TOO_MANY_OPEN_FILES"),
        (GfarmError::STALE_FILE_HANDLE, "STALE_FILE_HANDLE"),
        (GfarmError::NO_SUCH_OBJECT, "NO_SUCH_OBJECT"),
        (GfarmError::TOO_MANY_JOBS, "TOO_MANY_JOBS"),
        (GfarmError::FILE_MIGRATED, "FILE_MIGRATED"),
        (GfarmError::IS_A_SYMBOLIC_LINK, "IS_A_SYMBOLIC_LINK"),
        (GfarmError::INVALID_FILE_REPLICA, "INVALID_FILE_REPLICA"),
        (
            GfarmError::DB_ACCESS_SHOULD_BE_RETRIED,
            "DB_ACCESS_SHOULD_BE_RETRIED",
        ),
        (GfarmError::GFMD_FAILED_OVER, "GFMD_FAILED_OVER"),
        (GfarmError::CHECKSUM_MISMATCH, "CHECKSUM_MISMATCH"),
        (GfarmError::NO_FILESYSTEM_NODE, "NO_FILESYSTEM_NODE"),
    ] {
        assert_eq!(error.name(), Some(name));
        assert_eq!(error.to_string(), format!("error {} ({name})", error.get()));
    }
}

#[test]
fn errors_of_connections_are_those_of_libgfarm() {
    let all: Vec<u32> = (1..200)
        .filter(|raw| GfarmError::new(*raw).unwrap().is_connection_error())
        .collect();
    let expected = [32, 52, 53, 54, 55, 56, 57, 59, 60, 61, 62, 71, 76];
    assert_eq!(all, expected);
}

#[test]
fn a_reply_s_error_has_a_number_of_the_kernel() {
    let malformed = ReplyError::Malformed(Malformed::Value { field: "mode" });
    assert_eq!(malformed.errno().get(), 71);
    assert_eq!(malformed.to_string(), "mode has an invalid value");
    assert_eq!(ReplyError::NeedMore(3).errno().get(), 11);
    assert_eq!(
        ReplyError::NeedMore(3).to_string(),
        "answer lacks 3 bytes or more"
    );
    let gone = GfarmError::NO_SUCH_FILE_OR_DIRECTORY;
    assert_eq!(ReplyError::Server(gone).errno().get(), 2);
    assert_eq!(ReplyError::Server(gone).to_string(), gone.to_string());
}

#[test]
fn a_malformed_answer_names_the_part() {
    let text = Fault::malformed("mode").to_string();
    assert_eq!(text, "malformed answer: mode has an invalid value");
    let malformed = ReplyError::Malformed(Malformed::TooLong {
        field: "host",
        len: 256,
        max: 255,
    });
    let text = Fault::of_reply(malformed).unwrap().to_string();
    assert!(text.contains("host has 256"), "{text}");
}
