// SPDX-License-Identifier: GPL-2.0

//! Numbers that people write to sysfs, and the texts that it shows.

use proptest::prelude::*;
use proto::{
    common::{
        errno::Errno,
        text::{
            is_word,
            parse_i32,
            parse_u64,
            NumberError, //
        }, //
    },
    rnbd::control::{
        parse_one,
        parse_resize,
        DeviceState,
        Remap,
        UnknownWord,
        Unmap, //
    },
    rtrs::stats::{
        ClientRdma,
        IoCounts,
        Latency,
        Reconnects, //
    }, //
};

#[test]
fn numbers_are_read_as_kstrtoul_reads_them() {
    for (written, base, value) in [
        ("0", 0, 0),
        ("10", 0, 10),
        ("010", 0, 8),
        ("0x10\n", 0, 16),
        ("0XfF", 0, 255),
        ("010", 10, 10),
        ("ff", 16, 255),
        ("0xff", 16, 255),
        ("+7", 10, 7),
        ("18446744073709551615", 10, u64::MAX),
        ("0xffffffffffffffff", 0, u64::MAX),
    ] {
        assert_eq!(
            parse_u64(written.as_bytes(), base),
            Ok(value),
            "{written:?}"
        );
    }
    for written in [
        "", "\n", "-1", "+", "0x", "09", " 1", "1 ", "1\n\n", "1k", "--1", "0x0x1",
    ] {
        assert_eq!(
            parse_u64(written.as_bytes(), 0),
            Err(NumberError::Invalid),
            "{written:?}"
        );
    }
    for written in [
        "18446744073709551616",
        "0x10000000000000000",
        "99999999999999999999999",
    ] {
        assert_eq!(
            parse_u64(written.as_bytes(), 0),
            Err(NumberError::Range),
            "{written:?}"
        );
    }
    assert_eq!(NumberError::Invalid.errno(), Errno::EINVAL);
    assert_eq!(NumberError::Range.errno(), Errno::ERANGE);
}

#[test]
fn signed_numbers_have_their_bounds() {
    assert_eq!(parse_i32(b"-2147483648", 10), Ok(i32::MIN));
    assert_eq!(parse_i32(b"2147483647\n", 10), Ok(i32::MAX));
    assert_eq!(parse_i32(b"-2147483649", 10), Err(NumberError::Range));
    assert_eq!(parse_i32(b"2147483648", 10), Err(NumberError::Range));
    assert_eq!(
        parse_i32(b"-18446744073709551616", 10),
        Err(NumberError::Range)
    );
    for written in ["-", "+-1", "-+1", "--1", ""] {
        assert_eq!(
            parse_i32(written.as_bytes(), 10),
            Err(NumberError::Invalid),
            "{written:?}"
        );
    }
}

#[test]
fn the_files_of_a_device_know_their_words() {
    assert_eq!(Unmap::parse(b"normal\n"), Ok(Unmap::Normal));
    assert_eq!(Unmap::parse(b" force "), Ok(Unmap::Force));
    assert_eq!(Unmap::parse(b"Force"), Err(UnknownWord));
    assert_eq!(Unmap::parse(b""), Err(UnknownWord));
    assert_eq!(Remap::parse(b"1\n"), Ok(Remap::Same));
    assert_eq!(Remap::parse(b"force\n"), Ok(Remap::Any));
    assert_eq!(Remap::parse(b"11"), Err(UnknownWord));
    assert_eq!(parse_one(b"1\n"), Ok(()));
    assert_eq!(parse_one(b"0"), Err(UnknownWord));
    assert_eq!(parse_one(b"11"), Err(UnknownWord));
    assert_eq!(parse_resize(b"0x100\n"), Ok(256));
    assert_eq!(
        parse_resize(b"0").map_err(|e| e.errno()),
        Err(Errno::EINVAL)
    );
    assert!(is_word(b"1\n", b"1") && is_word(b"1", b"1") && !is_word(b"1\n\n", b"1"));
    assert_eq!(UnknownWord.errno(), Errno::EINVAL);
}

#[test]
fn a_device_s_state_is_shown_and_rules_over_remap() {
    for (state, shown, remap) in [
        (DeviceState::Init, "init", Err(Errno::EBUSY)),
        (DeviceState::Mapped, "open", Err(Errno::EALREADY)),
        (DeviceState::Disconnected, "closed", Ok(())),
        (DeviceState::Unmapped, "unmapped", Err(Errno::ENODEV)),
        (DeviceState::Fenced, "closed", Ok(())),
    ] {
        assert_eq!(state.to_string(), shown);
        assert_eq!(state.check_remap(), remap);
        assert_eq!(DeviceState::from_u8(state as u8), Some(state));
    }
    assert_eq!(DeviceState::from_u8(5), None);
}

#[test]
fn statistics_are_shown_as_the_c_driver_shows_them() {
    let counts = IoCounts {
        reads: 1,
        read_bytes: 4096,
        writes: 2,
        written_bytes: 8192,
    };
    let client = ClientRdma {
        counts,
        inflight: 5,
        failover: 6,
    };
    assert_eq!(counts.to_string(), "1 4096 2 8192");
    assert_eq!(client.to_string(), "1 4096 2 8192 5 6");
    let (successful, failed) = (3, 1);
    assert_eq!(Reconnects { successful, failed }.to_string(), "3 1");
    assert_eq!(Latency(Some(12)).to_string(), "12 ns");
    assert_eq!(Latency(None).to_string(), "0 ns");
}

proptest! {
    #[test]
    fn numbers_survive_being_written(n in any::<u64>(), m in any::<i32>()) {
        prop_assert_eq!(parse_u64(format!("{n}").as_bytes(), 10), Ok(n));
        prop_assert_eq!(parse_u64(format!("{n:#x}").as_bytes(), 0), Ok(n));
        prop_assert_eq!(parse_u64(format!("0{n:o}").as_bytes(), 0), Ok(n));
        prop_assert_eq!(parse_i32(format!("{m}\n").as_bytes(), 10), Ok(m));
    }

    #[test]
    fn decimal_numbers_agree_with_the_library(written in "[+0-9x-]{0,22}") {
        let ours = parse_u64(written.as_bytes(), 10);
        // The library knows no 0x either, and takes the same single plus.
        prop_assert_eq!(ours.ok(), written.parse::<u64>().ok());
        // Minus zero is a number to the kernel and to the library.
        prop_assert_eq!(parse_i32(written.as_bytes(), 10).ok(), written.parse::<i32>().ok());
    }
}
