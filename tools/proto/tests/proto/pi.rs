// SPDX-License-Identifier: GPL-2.0

//! Protection information: tuples, and the messages with them.

mod choice;
mod series;

use crc::{
    Crc,
    CRC_16_T10_DIF,
    CRC_32_ISCSI,
    CRC_64_NVME, //
};
use proto::rnbd::{
    flags::Op,
    message::{
        Direction,
        IoRequest,
        Malformed, //
    },
    pi::{
        geometry::{
            UnknownGeometry,
            TUPLES_LEN_MAX, //
        },
        message_digest::DIGESTED_LEN,
        tuple::{
            Verdict,
            Wrong, //
        },
        FirstGuardHash,
        Format,
        Geometry,
        GuardCheck,
        GuardHash,
        MessageDigest,
        Mode,
        Tuple, //
    },
    wire::Io, //
};
use zerocopy::IntoBytes;

const FORMATS: [Format; 2] = [Format::Crc64, Format::T10];
const MODES: [Mode; 3] = [Mode::Wire, Mode::Pass, Mode::Store];

/// Every geometry that there is.
fn geometries() -> Vec<Geometry> {
    let mut all = Vec::new();
    for mode in MODES {
        for format in FORMATS {
            let of = |exp: u32| Geometry::new(mode, format, 1 << exp);
            all.extend((0..32).filter_map(of));
        }
    }
    all
}

fn guard(format: Format, data: &[u8]) -> u64 {
    match format {
        Format::Crc64 => Crc::<u64>::new(&CRC_64_NVME).checksum(data),
        Format::T10 => Crc::<u16>::new(&CRC_16_T10_DIF).checksum(data).into(),
    }
}

fn written(tuple: &Tuple, format: Format) -> Vec<u8> {
    tuple.write(format)[..format.tuple_bytes() as usize].to_vec()
}

/// An io message with as many bytes of tuples as `tuples_len` says.
fn message(op: Op, sector: u64, size: u32, tuples_len: u16) -> Io {
    Io::new(3, sector, op as u32, size, 0).with_tuples(tuples_len)
}

#[test]
fn the_two_bytes_of_a_geometry_are_read_as_they_are_written() {
    let known = geometries();
    assert_eq!(known.len(), 9);
    let mut seen = Vec::new();
    for raw in 0..=u16::MAX {
        let raw = raw.to_le_bytes();
        match Geometry::from_wire(raw) {
            Ok(None) => assert_eq!(raw, [0, 0]),
            Ok(Some(geometry)) => {
                assert_eq!(geometry.to_wire(), raw);
                seen.push(geometry);
            }
            Err(unknown) => {
                assert_eq!(unknown, UnknownGeometry(raw));
                assert!(unknown.to_string().contains("unknown"));
            }
        }
    }
    assert_eq!(seen.len(), known.len());
    assert!(known.iter().all(|geometry| seen.contains(geometry)));
    // What the bytes are.
    let wire = Geometry::new(Mode::Wire, Format::Crc64, 4096).unwrap();
    let pass = Geometry::new(Mode::Pass, Format::T10, 512).unwrap();
    let store = Geometry::new(Mode::Store, Format::Crc64, 4096).unwrap();
    assert_eq!((wire.to_wire(), pass.to_wire()), ([0x11, 12], [0x22, 9]));
    assert_eq!(store.to_wire(), [0x13, 12]);
    assert_eq!(store.to_string(), "store crc64 for each 4096 bytes");
    assert_eq!(wire.to_string(), "wire crc64 for each 4096 bytes");
    assert_eq!(pass.to_string(), "pass t10 for each 512 bytes");
}

#[test]
fn data_has_a_tuple_for_each_interval() {
    for geometry in geometries() {
        let interval = geometry.interval_bytes();
        let most = geometry.size_max();
        assert_eq!(geometry.tuples_len(most), Some(TUPLES_LEN_MAX));
        assert_eq!(geometry.tuples_len(0), None);
        assert_eq!(geometry.tuples_len(u32::MAX / interval * interval), None);
        for size in (0..most + 2 * interval).step_by(256) {
            let tuples = (size / interval) * geometry.format().tuple_bytes();
            let fits = size != 0 && size % interval == 0 && size <= most;
            let expected = fits.then_some(tuples as u16);
            assert_eq!(geometry.tuples_len(size), expected, "{geometry} {size}");
        }
        let sectors = u64::from(interval / 512);
        for sector in [0, 1, 7, 8, 9, 16, u64::MAX - 7, u64::MAX] {
            let expected = (sector % sectors == 0).then_some(sector / sectors);
            assert_eq!(geometry.reference(sector), expected);
        }
    }
}

#[test]
fn the_checksums_are_those_of_the_catalogues() {
    let data = b"123456789";
    assert_eq!(guard(Format::Crc64, data), 0xae8b_1486_0a79_9888);
    assert_eq!(guard(Format::T10, data), 0xd0db);
}

#[test]
fn a_tuple_has_the_bytes_of_the_block_layer() {
    let tuple = Tuple {
        guard: 0x0102_0304_0506_0708,
        app: 0x1112,
        reference: 0x2122_2324_2526,
    };
    let bytes = written(&tuple, Format::Crc64);
    let expected = [
        1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Tuple::read(Format::Crc64, &bytes), Some(tuple));
    let short = written(&tuple, Format::T10);
    assert_eq!(short, [7, 8, 0x11, 0x12, 0x23, 0x24, 0x25, 0x26]);
    let back = Tuple::read(Format::T10, &short).unwrap();
    assert_eq!((back.guard, back.app), (0x0708, 0x1112));
    assert_eq!(back.reference, 0x2324_2526);
    // A reference tag that is too long does not spill into the others.
    let long = Tuple {
        reference: u64::MAX,
        ..tuple
    };
    assert_eq!(written(&long, Format::T10)[..4], [7, 8, 0x11, 0x12]);
    assert_eq!(written(&long, Format::Crc64)[8..10], [0x11, 0x12]);
    for format in FORMATS {
        for len in 0..20 {
            let is_read = Tuple::read(format, &[0; 20][..len]).is_some();
            assert_eq!(is_read, len as u32 == format.tuple_bytes());
        }
    }
}

#[test]
fn each_flipped_bit_of_data_or_tuple_is_seen() {
    for format in FORMATS {
        let len = format.tuple_bytes() as usize;
        let mut data: Vec<u8> = (0..512).map(|n| (n * 7 % 251) as u8).collect();
        let address = 0x1_0000_0005;
        let bytes = written(&Tuple::new(format, guard(format, &data), address), format);
        let verify = |data: &[u8], bytes: &[u8]| {
            let tuple = Tuple::read(format, bytes).unwrap();
            tuple.verify(format, address, || guard(format, data))
        };
        assert_eq!(verify(&data, &bytes), Ok(Verdict::Right));
        for bit in 0..data.len() * 8 {
            data[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(verify(&data, &bytes), Err(Wrong::Guard { .. })));
            data[bit / 8] ^= 1 << (bit % 8);
        }
        // The application tag belongs to the user: the digest protects it.
        let app = len / 2 - if format == Format::T10 { 2 } else { 0 };
        for bit in (0..len * 8).filter(|bit| !(app..app + 2).contains(&(bit / 8))) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let wrong = verify(&data, &bytes).unwrap_err();
            assert!(!wrong.to_string().is_empty());
        }
    }
}

#[test]
fn the_tuple_of_another_address_is_wrong_and_an_escape_says_nothing() {
    for format in FORMATS {
        let tuple = Tuple::new(format, 5, 7);
        assert_eq!(tuple.verify(format, 7, || 5), Ok(Verdict::Right));
        let wrong = tuple.verify(format, 8, || 5);
        let (tuple_of, interval) = (7, 8);
        assert_eq!(
            wrong,
            Err(Wrong::Reference {
                tuple: tuple_of,
                interval
            })
        );
        let wrong = tuple.verify(format, 7, || 6);
        assert_eq!(wrong, Err(Wrong::Guard { interval: 7 }));
        let escape = Tuple::read(format, &[0xff; 16][..format.tuple_bytes() as usize]).unwrap();
        let verdict = escape.verify(format, 8, || panic!("an escape needs no checksum"));
        assert_eq!(verdict, Ok(Verdict::NotProtected));
        let nearly = Tuple {
            app: 0xfffe,
            ..escape
        };
        assert!(nearly.verify(format, 8, || 5).is_err());
        // The address is cut as the block layer cuts it.
        let bits = if format == Format::T10 { 32 } else { 48 };
        let far = Tuple::new(format, 5, (1 << bits) + 3);
        assert_eq!(far.reference, 3);
        assert_eq!(far.verify(format, 3, || 5), Ok(Verdict::Right));
    }
}

#[test]
fn an_io_message_has_its_tuples_in_reserved_bytes() {
    let plain = Io::new(1, 8, 1, 4096, 0x4004);
    let with = plain.with_tuples(16).with_digest(0x0403_0201);
    assert_eq!(with.as_bytes()[..26], plain.as_bytes()[..26]);
    assert_eq!(with.as_bytes()[26..], [16, 0, 1, 2, 3, 4]);
    assert_eq!(plain.as_bytes()[26..], [0; 6]);
    assert_eq!(DIGESTED_LEN, 28);
    let (tuples_len, crc) = (16, 0x0403_0201);
    assert_eq!(
        MessageDigest::read(with.as_bytes()),
        Some(MessageDigest { tuples_len, crc })
    );
    assert_eq!(MessageDigest::read(&with.as_bytes()[..31]), None);
    let crc = Crc::<u32>::new(&CRC_32_ISCSI).checksum(b"123456789");
    assert_eq!(crc, 0xe306_9283);
}

#[test]
fn a_request_with_tuples_is_one_of_whole_intervals() {
    for geometry in geometries() {
        for sectors in 1..=64u32 {
            let size = sectors * 512;
            let right = geometry.tuples_len(size);
            for (op, direction) in [(Op::Read, Direction::Read), (Op::Write, Direction::Write)] {
                for len in [0, 7, 8, 16, 24, 496, 512, u16::MAX]
                    .into_iter()
                    .chain(right)
                {
                    let bytes = message(op, 64, size, len).with_digest(9);
                    let data_len = size + u32::from(len);
                    let parsed = IoRequest::parse_protected(
                        bytes.as_bytes(),
                        data_len,
                        direction,
                        2,
                        geometry,
                    );
                    if Some(len) != right {
                        assert_eq!(parsed, Err(Malformed::Tuples(len)));
                        continue;
                    }
                    let (request, digest) = parsed.unwrap();
                    assert_eq!((request.size, request.rw.op), (size, op));
                    let tuples_len = len;
                    assert_eq!(digest, MessageDigest { tuples_len, crc: 9 });
                }
            }
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let geometry = Geometry::new(Mode::Wire, Format::Crc64, 4096).unwrap();
    let parse = |io: Io, data_len| {
        IoRequest::parse_protected(io.as_bytes(), data_len, Direction::Write, 2, geometry)
    };
    let io = message(Op::Write, 8, 4096, 16);
    assert!(parse(io, 4112).is_ok());
    for data_len in [0, 15, 16, 4095, 4096, 4111, 4113, u32::MAX] {
        assert!(parse(io, data_len).is_err(), "{data_len}");
    }
    // Between two intervals.
    for sector in 1..8 {
        let io = message(Op::Write, sector, 4096, 16);
        assert_eq!(parse(io, 4112), Err(Malformed::Tuples(16)));
    }
    // Operations without data have no tuples.
    let discard = message(Op::Discard, 8, 4096, 0);
    assert!(parse(discard, 0).is_ok());
    assert_eq!(
        parse(message(Op::Discard, 8, 4096, 16), 16),
        Err(Malformed::Tuples(16))
    );
    for len in 0..32 {
        let short = &io.as_bytes()[..len];
        let parsed = IoRequest::parse_protected(short, 4112, Direction::Write, 2, geometry);
        assert_eq!(parsed, Err(Malformed::Truncated));
    }
    assert_eq!(IoRequest::device_id_of(io.as_bytes()), Some(3));
    assert_eq!(IoRequest::device_id_of(&io.as_bytes()[..23]), None);
    assert!(Malformed::Tuples(16).to_string().contains("16"));
}

#[test]
fn a_write_that_comes_again_has_the_tuples_that_it_had_first() {
    let [own, other] = [1, 2].map(|guard| GuardHash::NOTHING.and(guard));
    let mut first = FirstGuardHash::default();
    // It is sent, lost, and comes again with data that have changed: never with other tuples.
    assert_eq!(first.keep(own), GuardCheck::Send);
    assert_eq!(first.keep(own), GuardCheck::Send);
    assert_eq!(first.keep(other), GuardCheck::Changed);
    first.rejected(true);
    assert_eq!(
        first.keep(other),
        GuardCheck::Changed,
        "a copy of it was sent"
    );
    first.ended();
    assert_eq!(
        first.keep(other),
        GuardCheck::Send,
        "the next one with its tag"
    );
    // Not taken at its first start: the next one with its tag may be another.
    first.rejected(false);
    assert_eq!(first.keep(own), GuardCheck::Send);
}

#[test]
fn a_write_whose_data_change_in_flight_is_sent_once_more() {
    let hash = |guard| GuardHash::NOTHING.and(guard);
    let mut kept = FirstGuardHash::default();
    assert!(!kept.refused(), "its tuples are its user's");
    assert_eq!(kept.keep(hash(1)), GuardCheck::Send);
    assert!(kept.refused());
    assert!(!kept.refused(), "it is begun anew already");
    assert_eq!(kept.keep(hash(2)), GuardCheck::SendAgain);
    // From then on it is as any write: lost, it comes with the same tuples; refused, it fails.
    assert_eq!(kept.keep(hash(2)), GuardCheck::Send);
    assert_eq!(kept.keep(hash(1)), GuardCheck::Changed);
    assert!(!kept.refused());
    kept.ended();
    assert_eq!(kept.keep(hash(3)), GuardCheck::Send);
    // The data are what they were: they were damaged on their way, and its user is told.
    assert!(kept.refused());
    assert_eq!(kept.keep(hash(3)), GuardCheck::Damaged);
    kept.ended();
    assert_eq!(kept, FirstGuardHash::default());
}

#[test]
fn tuples_that_were_made_are_known_by_their_guards() {
    let hash = |guards: &[u64]| {
        guards
            .iter()
            .fold(GuardHash::NOTHING, |hash, g| hash.and(*g))
    };
    let guards: Vec<u64> = (0..248).map(|n| n * n % 251).collect();
    for (place, bit) in (0..guards.len()).flat_map(|place| (0..64).map(move |bit| (place, bit))) {
        let mut other = guards.clone();
        other[place] ^= 1 << bit;
        assert_ne!(hash(&other), hash(&guards), "bit {bit} of guard {place}");
        // Of T10 there are 16 bits.
        if place != 0 && bit < 16 {
            other[place - 1] ^= 1 << bit;
            assert_ne!(
                hash(&other),
                hash(&guards),
                "bit {bit} of two guards, {place}"
            );
        }
    }
    let mut swapped = guards.clone();
    swapped.swap(3, 4);
    assert_ne!(hash(&swapped), hash(&guards));
    assert_ne!(hash(&guards[1..]), hash(&guards));
}
