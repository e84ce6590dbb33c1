// SPDX-License-Identifier: GPL-2.0

//! Tuples of intervals that follow each other.

use proto::rnbd::pi::{
    tuple::{
        Packed,
        Verdict,
        APP_ESCAPE, //
    },
    Format,
    Series,
    Tuple, //
};

use super::FORMATS;

/// Addresses at which a tuple's part of them ends or wraps around.
const ADDRESSES: [u64; 8] = [
    0,
    1,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    0xffff_ffff_ffff,
    0x1_0000_0000_0000,
    u64::MAX,
];

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Tuples that may be found where that of `guard` and `reference` is expected: that one, with each
/// bit of it flipped, with other application tags, and with those and a flipped bit.
fn found(format: Format, guard: u64, reference: u64) -> Vec<Packed> {
    let right = Tuple::new(format, guard, reference);
    let tags = [0, 1, 0x8000, APP_ESCAPE - 1, APP_ESCAPE];
    let mut all = Vec::new();
    for tuple in tags.map(|app| Tuple { app, ..right }) {
        all.push(tuple.pack(format));
        let bytes = tuple.write(format);
        for bit in 0..format.tuple_bytes() as usize * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let bytes = &bytes[..format.tuple_bytes() as usize];
            let changed = Tuple::read(format, bytes).unwrap();
            all.push(changed.pack(format));
        }
    }
    all
}

#[test]
fn a_tuple_in_memory_is_the_words_that_its_bytes_are() {
    for format in FORMATS {
        let len = format.tuple_bytes() as usize;
        for packed in found(format, 0x0123_4567_89ab_cdef, 0x1234_5678_9abc) {
            let bytes = packed.store(format, <[u8]>::to_vec);
            assert_eq!(bytes.len(), len);
            let tuple = packed.unpack(format);
            assert_eq!(Tuple::read(format, &bytes), Some(tuple));
            assert_eq!(tuple.write(format)[..len], bytes);
            assert_eq!(tuple.pack(format), packed);
            let again = Packed::load(format, |target| {
                assert_eq!(target.len(), len);
                target.copy_from_slice(&bytes);
                Ok::<(), ()>(())
            });
            assert_eq!(again, Ok(packed));
            let guard_len = if format == Format::T10 { 2 } else { 8 };
            assert_eq!(tuple.guard, number(&bytes[..guard_len]));
            let app = number(&bytes[guard_len..guard_len + 2]);
            assert_eq!(u64::from(tuple.app), app);
            assert_eq!(tuple.reference, number(&bytes[guard_len + 2..]));
        }
        assert_eq!(Packed::load(format, |_| Err(5)), Err(5));
    }
}

#[test]
fn a_series_says_of_each_tuple_what_the_tuple_says() {
    for format in FORMATS {
        for (address, guard) in ADDRESSES
            .into_iter()
            .flat_map(|address| [0, 5, 0xffff, 0x1_0000, u64::MAX].map(|guard| (address, guard)))
        {
            for packed in found(format, guard, address) {
                let mut series = Series::new(format, address);
                let expected = packed.unpack(format).verify(format, address, || guard);
                assert_eq!(series.verify(guard, packed), expected.map(|_| ()));
                let counts = match expected {
                    Ok(Verdict::Right) => (1, 0),
                    Ok(Verdict::NotProtected) => (0, 1),
                    Err(_) => (0, 0),
                };
                assert_eq!((series.right(), series.not_protected()), counts);
            }
        }
    }
}

#[test]
fn what_a_series_makes_it_verifies() {
    for format in FORMATS {
        for first in ADDRESSES {
            let guards = [7, 0xffff, 0, u64::MAX, 9];
            let mut makes = Series::new(format, first);
            let made = guards.map(|guard| makes.make(guard));
            assert_eq!((makes.right(), makes.not_protected()), (5, 0));
            for (n, (packed, guard)) in made.iter().zip(guards).enumerate() {
                let tuple = Tuple::new(format, guard, first.wrapping_add(n as u64));
                assert_eq!(*packed, tuple.pack(format));
            }
            let mut verifies = Series::new(format, first);
            for (packed, guard) in made.iter().zip(guards) {
                assert_eq!(verifies.verify(guard, *packed), Ok(()));
            }
            assert_eq!((verifies.right(), verifies.not_protected()), (5, 0));
        }
    }
}

#[test]
fn a_wrong_interval_is_the_next_one_still_and_escapes_are_counted_apart() {
    for format in FORMATS {
        let escape = Tuple {
            app: APP_ESCAPE,
            ..Tuple::new(format, 1, 2)
        };
        let mut series = Series::new(format, 100);
        let right = |n| Tuple::new(format, 3, n).pack(format);
        assert_eq!(series.verify(3, right(100)), Ok(()));
        assert_eq!(series.verify(3, escape.pack(format)), Ok(()));
        for _ in 0..2 {
            assert!(series.verify(4, right(102)).is_err());
            assert!(series.verify(3, right(103)).is_err());
            assert_eq!((series.right(), series.not_protected()), (1, 1));
        }
        assert_eq!(series.verify(3, right(102)), Ok(()));
        assert_eq!((series.right(), series.not_protected()), (2, 1));
    }
}
