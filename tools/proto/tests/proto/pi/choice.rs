// SPDX-License-Identifier: GPL-2.0

//! The protection information that client and server agree on.

use proto::{
    common::errno::Errno,
    rnbd::{
        access::AccessMode,
        device::{
            BadResponse,
            Device,
            Server, //
        },
        map::{
            Cpus,
            MapError,
            MapRequest, //
        },
        pi::{
            choice::{
                Refused,
                UnknownChoice,
                UnknownWanted, //
            },
            geometry::UnknownGeometry,
            Choice,
            Format,
            Geometry,
            Kept,
            Mode,
            Wanted, //
        },
        wire::Open, //
    },
};
use zerocopy::IntoBytes;

#[test]
fn what_a_client_asks_for_is_one_byte() {
    let all = [
        (0, None),
        (1, Some(Wanted::Any)),
        (2, Some(Wanted::Format(Format::Crc64))),
        (3, Some(Wanted::Format(Format::T10))),
    ];
    for (raw, wanted) in all {
        assert_eq!(Wanted::to_wire(wanted), raw);
        assert_eq!(Wanted::from_wire(raw), Ok(wanted));
        let open = Open::new(b"x", AccessMode::ReadWrite, wanted).unwrap();
        assert_eq!(open.as_bytes()[5], raw);
    }
    for raw in 4..=255 {
        assert_eq!(Wanted::from_wire(raw), Err(UnknownWanted(raw)));
        assert!(UnknownWanted(raw).to_string().contains(&raw.to_string()));
    }
}

#[test]
fn a_server_offers_what_its_disk_can_have() {
    let (crc64, t10) = (Wanted::Format(Format::Crc64), Wanted::Format(Format::T10));
    let offer = |wanted: Wanted, block, stored| {
        let offered = wanted.offer(block, stored)?;
        Some((
            offered.mode(),
            offered.format(),
            offered.interval_bytes() as usize,
        ))
    };
    let wire = |format, interval| Some((Mode::Wire, format, interval));
    let pass = |format, interval| Some((Mode::Pass, format, interval));
    for (wanted, block, stored, expected) in [
        (Wanted::Any, 512, Kept::Nowhere, wire(Format::Crc64, 4096)),
        (Wanted::Any, 4096, Kept::Nowhere, wire(Format::Crc64, 4096)),
        (Wanted::Any, 8192, Kept::Nowhere, None),
        (crc64, 512, Kept::Nowhere, wire(Format::Crc64, 4096)),
        (crc64, 8192, Kept::Nowhere, None),
        (t10, 512, Kept::Nowhere, wire(Format::T10, 512)),
        (t10, 4096, Kept::Nowhere, wire(Format::T10, 4096)),
        (t10, 1024, Kept::Nowhere, None),
        (t10, 8192, Kept::Nowhere, None),
        (
            Wanted::Any,
            512,
            Kept::ByDisk(Format::T10, 512),
            pass(Format::T10, 512),
        ),
        (
            t10,
            512,
            Kept::ByDisk(Format::T10, 512),
            pass(Format::T10, 512),
        ),
        (
            crc64,
            512,
            Kept::ByDisk(Format::T10, 512),
            wire(Format::Crc64, 4096),
        ),
        (
            crc64,
            4096,
            Kept::ByDisk(Format::Crc64, 4096),
            pass(Format::Crc64, 4096),
        ),
        (
            t10,
            4096,
            Kept::ByDisk(Format::Crc64, 4096),
            wire(Format::T10, 4096),
        ),
        // A disk with an interval that the format does not have here.
        (
            Wanted::Any,
            512,
            Kept::ByDisk(Format::Crc64, 512),
            wire(Format::Crc64, 4096),
        ),
    ] {
        assert_eq!(offer(wanted, block, stored), expected, "{wanted:?} {block}");
        let answer = wanted.offer(block, stored);
        assert_eq!(
            Wanted::is_answered(Some(wanted), None, answer),
            expected.is_some()
        );
        assert_eq!(Wanted::is_answered(None, None, answer), expected.is_none());
    }
}

#[test]
fn another_format_is_no_answer() {
    let wire_t10 = Geometry::new(Mode::Wire, Format::T10, 512);
    let crc64 = Wanted::Format(Format::Crc64);
    assert!(!Wanted::is_answered(Some(crc64), None, wire_t10));
}

#[test]
fn a_sidecar_keeps_crc64_of_4096_bytes() {
    let store = Geometry::new(Mode::Store, Format::Crc64, 4096);
    for wanted in [Wanted::Any, Wanted::Format(Format::Crc64)] {
        assert_eq!(wanted.offer(4096, Kept::InSidecar), store);
    }
    let t10 = Wanted::Format(Format::T10).offer(4096, Kept::InSidecar);
    assert_eq!(t10, Geometry::new(Mode::Wire, Format::T10, 4096));
}

#[test]
fn a_device_is_mapped_with_what_the_user_has_chosen() {
    let crc64 = Geometry::new(Mode::Wire, Format::Crc64, 4096).unwrap();
    let t10 = Geometry::new(Mode::Pass, Format::T10, 512).unwrap();
    let missing = Err(Refused::Missing);
    for (word, none, with_crc64, with_t10) in [
        (
            "off",
            Ok(()),
            Err(Refused::Another(crc64)),
            Err(Refused::Another(t10)),
        ),
        ("auto", Ok(()), Ok(()), Ok(())),
        ("require", missing, Ok(()), Ok(())),
        ("crc64", missing, Ok(()), Err(Refused::Another(t10))),
        ("t10", missing, Err(Refused::Another(crc64)), Ok(())),
    ] {
        let choice = Choice::parse(word.as_bytes()).unwrap();
        assert_eq!(choice.check(None), none, "{word}");
        assert_eq!(choice.check(Some(crc64)), with_crc64, "{word}");
        assert_eq!(choice.check(Some(t10)), with_t10, "{word}");
        assert_eq!(choice.wanted().is_none(), word == "off");
    }
    for word in ["", "on", "CRC64", "store", "opaque48", "crc64 "] {
        assert_eq!(Choice::parse(word.as_bytes()), Err(UnknownChoice), "{word}");
    }
    assert_eq!(Refused::Missing.errno(), Errno::EOPNOTSUPP);
    assert_eq!(Refused::Another(t10).errno(), Errno::EINVAL);
    assert!(Refused::Missing.to_string().contains("pi=off"));
    assert!(Refused::Another(t10).to_string().contains("pass t10"));
}

#[test]
fn map_device_knows_pi() {
    let cpus = Cpus {
        online: 4,
        possible: 4,
    };
    let parse = |more: &'static str| {
        let line = format!("sessname=s path=ip:10.0.0.1 device_path=d {more}").leak();
        MapRequest::parse(line.as_bytes(), cpus).map(|request| request.pi)
    };
    assert_eq!(parse(""), Ok(Choice::Off));
    assert_eq!(parse("pi=crc64"), Ok(Choice::Format(Format::Crc64)));
    assert_eq!(parse("pi=crc64 pi=require"), Ok(Choice::Require));
    let error = parse("pi=sometimes").unwrap_err();
    assert_eq!(error, MapError::Pi(b"sometimes"));
    assert!(error.to_string().contains("pi=sometimes"));
}

#[test]
fn a_device_of_a_c_server_has_none_whatever_its_bytes_are() {
    let device = Device {
        device_id: 1,
        nsectors: 2050,
        max_hw_sectors: 248,
        max_write_zeroes_sectors: 0,
        max_discard_sectors: 0,
        discard_granularity: 0,
        discard_alignment: 0,
        physical_block_size: 512,
        logical_block_size: 512,
        max_segments: 1,
        secure_discard: false,
        fua: false,
        writeback: false,
        identity: None,
        pi: Geometry::new(Mode::Wire, Format::Crc64, 4096),
    };
    let mut server = Server {
        version: 2,
        boot: None,
        is_extended: true,
    };
    let mut answer = device.to_wire();
    assert_eq!(answer.as_bytes()[46..48], [0x11, 12]);
    assert_eq!(Device::parse(answer.as_bytes(), &server), Ok(device));
    // Sectors behind the last whole interval are no part of the disk.
    assert_eq!(device.capacity_sectors(), 2048);
    let plain = Device { pi: None, ..device };
    assert_eq!(plain.capacity_sectors(), 2050);
    answer.pi = [0x31, 12];
    let unknown = BadResponse::Pi(UnknownGeometry([0x31, 12]));
    assert_eq!(Device::parse(answer.as_bytes(), &server), Err(unknown));
    assert!(unknown.to_string().contains("0x31"));
    server.is_extended = false;
    assert_eq!(Device::parse(answer.as_bytes(), &server), Ok(plain));
}

#[test]
fn a_slow_disk_without_tuples_is_found_by_the_next_open_of_pi_auto() {
    let wanted = Choice::Auto.wanted();
    // Its blocks are larger than intervals; a server with pi=off says the same of any disk.
    let has = wanted.and_then(|wanted| wanted.offer(16384, Kept::Nowhere));
    assert_eq!((has, Choice::Auto.check(has)), (None, Ok(())));
    // The first OPEN has opened it for no one, and the next turn of map_device finds it.
    assert!(Wanted::is_answered(wanted, wanted, has));
    // So does an OPEN after that, which knows what the device has.
    assert!(Wanted::is_answered(None, wanted, has));
}

#[test]
fn an_open_that_asks_for_something_else_is_not_answered_by_what_is_open() {
    let crc64 = Geometry::new(Mode::Wire, Format::Crc64, 4096);
    let all = [
        None,
        Some(Wanted::Any),
        Some(Wanted::Format(Format::Crc64)),
        Some(Wanted::Format(Format::T10)),
    ];
    for wanted in all {
        for opened_for in all {
            let has_it = wanted.is_some() && wanted != Some(Wanted::Format(Format::T10));
            assert_eq!(Wanted::is_answered(wanted, opened_for, crc64), has_it);
            let same = wanted.is_none() || wanted == opened_for;
            assert_eq!(Wanted::is_answered(wanted, opened_for, None), same);
        }
    }
}
