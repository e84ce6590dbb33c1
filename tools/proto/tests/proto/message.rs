// SPDX-License-Identifier: GPL-2.0

//! Messages between a client and an RNBD server: what is asked, and what is answered.

use proptest::prelude::*;
use proto::{
    common::errno::Errno,
    rnbd::{
        access::AccessMode,
        boot::Boot,
        device::{
            agree,
            parse_sess_info_response,
            BadResponse,
            Device,
            Server, //
        },
        flags::{
            Op,
            Rw, //
        },
        identity::Identity,
        message::{
            Direction,
            IoRequest,
            Malformed,
            Message, //
        },
        wire::{
            Close,
            Io,
            Open,
            SessInfo,
            EXTENSION_MAGIC, //
        },
    }, //
};
use zerocopy::IntoBytes;

const NONCE: u64 = 0x0123_4567_89ab_cdef;

/// A C driver, as a client knows it.
const C_SERVER: Server = Server {
    version: 2,
    boot: None,
    is_extended: false,
};

const OUR_SERVER: Server = Server {
    is_extended: true,
    ..C_SERVER
};

fn io(op: u32, sector: u64, size: u32) -> Io {
    Io::new(3, sector, op, size, 0x4004)
}

fn parse_io(
    op: Op,
    size: u32,
    data_len: u32,
    direction: Direction,
) -> Result<IoRequest, Malformed> {
    let message = io(op as u32, 8, size);
    match Message::parse(message.as_bytes(), data_len, direction, 2)? {
        Message::Io(io) => Ok(io),
        other => panic!("{other:?}"),
    }
}

#[test]
fn d7_a_message_shorter_than_its_type_is_refused() {
    let open = Open::new(b"ram0", AccessMode::ReadWrite, None).unwrap();
    let (info, close, io) = (SessInfo::request(NONCE), Close::new(1), io(0, 0, 512));
    let messages: [(&[u8], u32, Direction); 4] = [
        (info.as_bytes(), 36, Direction::Read),
        (open.as_bytes(), 56, Direction::Read),
        (close.as_bytes(), 0, Direction::Write),
        (&io.as_bytes()[..24], 512, Direction::Read),
    ];
    for (bytes, data_len, direction) in messages {
        assert!(Message::parse(bytes, data_len, direction, 2).is_ok());
        for len in 0..bytes.len() {
            let short = Message::parse(&bytes[..len], data_len, direction, 2);
            assert_eq!(short, Err(Malformed::Truncated));
        }
    }
}

#[test]
fn d7_an_answer_must_have_room() {
    let info = SessInfo::request(NONCE);
    let open = Open::new(b"ram0", AccessMode::ReadWrite, None).unwrap();
    for (bytes, need) in [(info.as_bytes(), 36), (open.as_bytes(), 56)] {
        for data_len in 0..need {
            let tight = Message::parse(bytes, data_len, Direction::Read, 2);
            assert_eq!(tight, Err(Malformed::DataLength(data_len)));
        }
        let wrong_way = Message::parse(bytes, need, Direction::Write, 2);
        assert_eq!(wrong_way, Err(Malformed::Direction));
    }
}

#[test]
fn d7_a_device_name_without_an_end_is_refused() {
    let mut open = Open::new(b"ram0", AccessMode::ReadWrite, None).unwrap();
    open.dev_name = [b'x'; 255];
    let parse = |open: &Open| {
        let bytes = open.as_bytes().to_vec();
        match Message::parse(&bytes, 56, Direction::Read, 2) {
            Ok(Message::Open { name, .. }) => Ok(name.len()),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e),
        }
    };
    assert_eq!(parse(&open), Err(Malformed::DeviceName));
    open.dev_name[254] = 0;
    assert_eq!(parse(&open), Ok(254));
    open.dev_name[0] = 0;
    assert_eq!(parse(&open), Err(Malformed::DeviceName));
}

#[test]
fn an_unknown_access_mode_is_refused() {
    let mut open = Open::new(b"ram0", AccessMode::ReadWrite, None).unwrap();
    for mode in 3..=255 {
        open.access_mode = mode;
        let refused = Message::parse(open.as_bytes(), 56, Direction::Read, 2);
        assert_eq!(refused, Err(Malformed::AccessMode(mode)));
    }
}

#[test]
fn a_name_that_does_not_fit_its_field_makes_no_message() {
    assert!(Open::new(&[b'x'; 254], AccessMode::ReadOnly, None).is_some());
    assert!(Open::new(&[b'x'; 255], AccessMode::ReadOnly, None).is_none());
    assert!(Open::new(b"a\0b", AccessMode::ReadOnly, None).is_none());
}

#[test]
fn messages_that_no_client_sends_are_refused() {
    for kind in (0..=u16::MAX).filter(|k| !matches!(k, 0 | 2 | 4 | 5)) {
        let bytes = [&kind.to_le_bytes()[..], &[0; 300]].concat();
        let refused = Message::parse(&bytes, 0, Direction::Read, 2);
        assert_eq!(refused, Err(Malformed::Kind(kind)));
    }
}

#[test]
fn d9_a_read_or_write_whose_size_is_not_its_data_is_refused() {
    for (op, direction) in [(Op::Read, Direction::Read), (Op::Write, Direction::Write)] {
        assert!(parse_io(op, 4096, 4096, direction).is_ok());
        for (size, data_len) in [(4096, 0), (4096, 512), (512, 4096), (0, 512), (0, 0)] {
            let refused = parse_io(op, size, data_len, direction);
            assert_eq!(
                refused,
                Err(Malformed::Size(size)),
                "{op:?} {size} {data_len}"
            );
        }
        for size in [1, 511, 513, 4097] {
            assert_eq!(
                parse_io(op, size, size, direction),
                Err(Malformed::Size(size))
            );
        }
    }
}

#[test]
fn d9_operations_without_data_come_without_data() {
    for op in [Op::Discard, Op::SecureErase, Op::WriteZeroes] {
        for direction in [Direction::Read, Direction::Write] {
            assert_eq!(parse_io(op, 65536, 0, direction).unwrap().size, 65536);
            let refused = parse_io(op, 512, 512, direction);
            assert_eq!(refused, Err(Malformed::DataLength(512)));
            assert_eq!(parse_io(op, 0, 0, direction), Err(Malformed::Size(0)));
            assert_eq!(parse_io(op, 100, 0, direction), Err(Malformed::Size(100)));
        }
    }
}

#[test]
fn flags_about_stable_storage_are_for_writes_and_flushes() {
    for (op, fits) in [
        (0, false),
        (1, true),
        (2, true),
        (3, false),
        (4, false),
        (5, false),
    ] {
        for flag in [1 << 9, 1 << 10] {
            let size = if op == 2 { 0 } else { 512 };
            let data_len = if op < 2 { size } else { 0 };
            let direction = if op == 0 {
                Direction::Read
            } else {
                Direction::Write
            };
            let message = io(op | flag, 8, size);
            let parsed = Message::parse(message.as_bytes(), data_len, direction, 2);
            assert_eq!(parsed.is_ok(), fits, "operation {op}, flag {flag:#x}");
            if !fits {
                assert_eq!(parsed, Err(Malformed::Flags));
            }
        }
    }
}

#[test]
fn d9_an_unknown_operation_is_answered_with_an_error() {
    for op in 6..=255u8 {
        let message = io(op.into(), 0, 512);
        for (data_len, direction) in [(0, Direction::Write), (512, Direction::Read)] {
            let refused = Message::parse(message.as_bytes(), data_len, direction, 2);
            assert_eq!(refused, Err(Malformed::Op(op)));
            assert_eq!(refused.unwrap_err().errno(), Errno::EOPNOTSUPP);
        }
    }
}

#[test]
fn a_flush_comes_either_way_and_concerns_nothing() {
    for direction in [Direction::Read, Direction::Write] {
        assert!(parse_io(Op::Flush, 0, 0, direction).is_ok());
        assert_eq!(
            parse_io(Op::Flush, 512, 0, direction),
            Err(Malformed::Size(512))
        );
        assert_eq!(
            parse_io(Op::Flush, 0, 512, direction),
            Err(Malformed::DataLength(512))
        );
    }
}

#[test]
fn data_that_moves_the_wrong_way_is_refused() {
    // A "write" in an RTRS read would put the chunk's old contents on the disk.
    let refused = parse_io(Op::Write, 512, 512, Direction::Read);
    assert_eq!(refused, Err(Malformed::Direction));
    let refused = parse_io(Op::Read, 512, 512, Direction::Write);
    assert_eq!(refused, Err(Malformed::Direction));
}

#[test]
fn sectors_do_not_wrap_round() {
    let parse = |sector| {
        let message = io(Op::Discard as u32, sector, 512 * 8);
        Message::parse(message.as_bytes(), 0, Direction::Write, 2).err()
    };
    assert_eq!(parse(u64::MAX - 8), None);
    assert_eq!(parse(u64::MAX - 7), Some(Malformed::Sector(u64::MAX - 7)));
}

#[test]
fn a_priority_counts_from_version_2_and_32_bytes_on() {
    let message = io(Op::Read as u32, 0, 512);
    for (version, len, prio) in [
        (2, 32, 0x4004),
        (1, 32, 0),
        (2, 31, 0),
        (2, 24, 0),
        (0, 24, 0),
    ] {
        let bytes = &message.as_bytes()[..len];
        let parsed = Message::parse(bytes, 512, Direction::Read, version);
        let Ok(Message::Io(io)) = parsed else {
            panic!("{parsed:?}");
        };
        assert_eq!(io.prio, prio, "version {version}, {len} bytes");
    }
}

#[test]
fn d15_what_we_do_not_use_is_zero_on_the_wire() {
    let open = Open::new(b"x", AccessMode::ReadOnly, None).unwrap();
    assert!(open.as_bytes()[7..].iter().all(|b| *b == 0));
    // Between the version and the magic, and all behind the nonce.
    let request = SessInfo::request(u64::MAX);
    assert_eq!(request.as_bytes()[5..8], [0; 3]);
    assert_eq!(request.as_bytes()[20..], [0; 16]);
    let answer = SessInfo::response(2);
    assert_eq!(answer.as_bytes()[5..], [0; 31]);
    let answer = SessInfo::response_to(2, u64::MAX, Boot::from_number(u64::MAX));
    assert_eq!(answer.as_bytes()[5..8], [0; 3]);
    assert_eq!(answer.as_bytes()[28..], [0; 8]);
    assert_eq!(device().to_wire().as_bytes()[46..48], [0; 2]);
    let io = Io::new(u32::MAX, u64::MAX, u32::MAX, u32::MAX, u16::MAX);
    assert_eq!(io.as_bytes()[2..4], [0; 2]);
    assert_eq!(io.as_bytes()[26..], [0; 6]);
    assert_eq!(Close::new(u32::MAX).as_bytes()[2..4], [0; 2]);
}

#[test]
fn both_sides_speak_the_older_version() {
    for (theirs, agreed) in [(0, 0), (1, 1), (2, 2), (3, 2), (255, 2)] {
        assert_eq!(agree(theirs), agreed);
        let answer = SessInfo::response(theirs);
        let parsed = parse_sess_info_response(answer.as_bytes(), NONCE);
        assert_eq!(
            parsed,
            Ok(Server {
                version: agreed,
                ..C_SERVER
            })
        );
    }
    let answer = SessInfo::request(NONCE);
    let kind = parse_sess_info_response(answer.as_bytes(), NONCE);
    assert_eq!(kind, Err(BadResponse::Kind(0)));
    let short = parse_sess_info_response(&answer.as_bytes()[..35], NONCE);
    assert_eq!(short, Err(BadResponse::Truncated));
}

fn device() -> Device {
    Device {
        device_id: 1,
        nsectors: 2048,
        max_hw_sectors: 248,
        max_write_zeroes_sectors: 1,
        max_discard_sectors: 2,
        discard_granularity: 4096,
        discard_alignment: 512,
        physical_block_size: 4096,
        logical_block_size: 512,
        max_segments: 128,
        secure_discard: true,
        fua: true,
        writeback: false,
        identity: Identity::from_wire(0x3000_0000_0000_0001),
        pi: None,
    }
}

#[test]
fn a_device_that_no_disk_can_be_is_not_believed() {
    type Change = fn(&mut Device);
    let parse = |change: Change| {
        let mut device = device();
        change(&mut device);
        Device::parse(device.to_wire().as_bytes(), &OUR_SERVER).err()
    };
    assert_eq!(parse(|_| {}), None);
    assert_eq!(
        parse(|d| d.logical_block_size = 0),
        Some(BadResponse::BlockSize(0))
    );
    assert_eq!(
        parse(|d| d.logical_block_size = 256),
        Some(BadResponse::BlockSize(256))
    );
    assert_eq!(
        parse(|d| d.logical_block_size = 520),
        Some(BadResponse::BlockSize(520))
    );
    assert_eq!(
        parse(|d| d.logical_block_size = 8192),
        Some(BadResponse::BlockSize(4096))
    );
    assert_eq!(
        parse(|d| d.physical_block_size = 0),
        Some(BadResponse::BlockSize(0))
    );
    let last = u64::MAX >> 10;
    assert_eq!(parse(|d| d.nsectors = u64::MAX >> 10), None);
    assert_eq!(
        parse(|d| d.nsectors = (u64::MAX >> 10) + 1),
        Some(BadResponse::Capacity(last + 1))
    );
    let bytes = device().to_wire();
    for len in 0..56 {
        let short = Device::parse(&bytes.as_bytes()[..len], &OUR_SERVER);
        assert_eq!(short, Err(BadResponse::Truncated));
    }
    let mut other = *bytes.as_bytes().first_chunk::<56>().unwrap();
    other[0] = 2;
    assert_eq!(
        Device::parse(&other, &OUR_SERVER),
        Err(BadResponse::Kind(2))
    );
}

#[test]
fn reserved_bytes_are_believed_only_if_the_nonce_comes_back() {
    let boot = Boot::from_number(9);
    let answer = SessInfo::response_to(2, NONCE, boot);
    let parsed = parse_sess_info_response(answer.as_bytes(), NONCE);
    assert_eq!(parsed, Ok(Server { boot, ..OUR_SERVER }));
    // What memory that was not cleared holds: an answer to somebody else, noise, all ones.
    let mut noise = [0xa5; 36];
    noise[..5].copy_from_slice(&[1, 0, 0, 0, 2]);
    let mut ones = [0xff; 36];
    ones[..5].copy_from_slice(&[1, 0, 0, 0, 2]);
    let other = SessInfo::response_to(2, NONCE + 1, boot);
    let mut no_magic = SessInfo::response_to(2, NONCE, boot);
    no_magic.magic = 0.into();
    let all: [&[u8]; 4] = [other.as_bytes(), &noise, &ones, no_magic.as_bytes()];
    for bytes in all {
        assert_eq!(parse_sess_info_response(bytes, NONCE), Ok(C_SERVER));
    }
    let told = device();
    let bytes = told.to_wire();
    assert_eq!(Device::parse(bytes.as_bytes(), &OUR_SERVER), Ok(told));
    let untold = Device {
        identity: None,
        ..told
    };
    assert_eq!(Device::parse(bytes.as_bytes(), &C_SERVER), Ok(untold));
}

#[test]
fn a_server_answers_a_nonce_and_nothing_else() {
    let parse =
        |message: &SessInfo| match Message::parse(message.as_bytes(), 36, Direction::Read, 2) {
            Ok(Message::SessInfo { nonce, .. }) => nonce,
            other => panic!("{other:?}"),
        };
    assert_eq!(parse(&SessInfo::request(NONCE)), Some(NONCE));
    assert_eq!(parse(&SessInfo::request(0)), Some(0));
    // A C client, whose stack was clean or not.
    for (magic, nonce) in [
        (0, 0),
        (0, NONCE),
        (EXTENSION_MAGIC + 1, NONCE),
        (u32::MAX, 0),
    ] {
        let mut message = SessInfo::request(nonce);
        message.magic = magic.into();
        message.boot = u64::MAX.into();
        assert_eq!(parse(&message), None);
    }
}

proptest! {
    #[test]
    fn devices_survive_the_wire(
        ids in any::<(u32, u32, u32, u32, u32, u32, u16)>(),
        nsectors in 0..=u64::MAX >> 10,
        bits in (9..=15u32, 0..=6u32),
        flags in any::<(bool, bool, bool)>(),
        identity in any::<u64>(),
    ) {
        let device = Device {
            device_id: ids.0,
            nsectors,
            max_hw_sectors: ids.1,
            max_write_zeroes_sectors: ids.2,
            max_discard_sectors: ids.3,
            discard_granularity: ids.4,
            discard_alignment: ids.5,
            physical_block_size: 1 << (bits.0 + bits.1).min(15),
            logical_block_size: 1 << bits.0,
            max_segments: ids.6,
            secure_discard: flags.0,
            fua: flags.1,
            writeback: flags.2,
            identity: Identity::from_wire(identity),
            pi: None,
        };
        let parsed = Device::parse(device.to_wire().as_bytes(), &OUR_SERVER);
        prop_assert_eq!(parsed, Ok(device));
    }

    #[test]
    fn io_survives_the_wire(
        device_id in any::<u32>(),
        sector in 0..=u64::MAX >> 1,
        sectors in 1..1024u32,
        prio in any::<u16>(),
        flags in any::<u32>(),
        writes in any::<bool>(),
    ) {
        let durable = if writes { 0 } else { 3 << 9 };
        let raw = (flags & !0xff & !durable) | u32::from(writes);
        let rw = Rw::from_wire(raw).unwrap();
        let size = sectors * 512;
        let message = Io::new(device_id, sector, rw.to_wire(), size, prio);
        let direction = if writes { Direction::Write } else { Direction::Read };
        let parsed = Message::parse(message.as_bytes(), size, direction, 2);
        let expected = IoRequest { device_id, sector, rw, size, prio };
        prop_assert_eq!(parsed, Ok(Message::Io(expected)));
    }
}
