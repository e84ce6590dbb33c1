// SPDX-License-Identifier: GPL-2.0

//! Numbers and byte strings.

use proptest::prelude::*;
use proto::gfarm::xdr::{
    DecodeError,
    Decoder,
    Encoder,
    Full,
    Malformed, //
};

#[test]
fn numbers_are_big_endian_and_strings_have_their_length_before_them() {
    let mut out = [0xee; 40];
    let mut to = Encoder::new(&mut out);
    to.u32(0x0102_0304);
    to.i32(-2);
    to.u64(0x0506_0708_090a_0b0c);
    to.i64(-3);
    to.bytes(b"abc");
    to.raw(b"de");
    assert_eq!(to.finish(), Ok(33));
    let expected = b"\x01\x02\x03\x04\xff\xff\xff\xfe\x05\x06\x07\x08\x09\x0a\x0b\x0c\
                     \xff\xff\xff\xff\xff\xff\xff\xfd\0\0\0\x03abcde";
    assert_eq!(&out[..33], expected);
    let mut from = Decoder::new(&out[..33]);
    assert_eq!(from.u32(), Ok(0x0102_0304));
    assert_eq!(from.i32(), Ok(-2));
    assert_eq!(from.u64(), Ok(0x0506_0708_090a_0b0c));
    assert_eq!(from.i64(), Ok(-3));
    assert_eq!(from.bytes("s", 3), Ok(&b"abc"[..]));
    assert_eq!((from.raw(2), from.consumed()), (Ok(&b"de"[..]), 33));
    assert_eq!(from.raw(0), Ok(&b""[..]));
    assert_eq!(from.raw(1), Err(DecodeError::NeedMore(1)));
}

#[test]
fn a_request_that_does_not_fit_is_not_sent_in_part() {
    for len in 0..12 {
        let mut out = vec![0xee; len];
        let mut to = Encoder::new(&mut out);
        to.u32(1);
        to.bytes(b"abcd");
        // Would fit, behind a hole.
        to.raw(b"");
        to.raw(b"x");
        assert_eq!(to.finish(), Err(Full), "{len}");
    }
    let mut out = [0; 6];
    let mut to = Encoder::new(&mut out);
    to.u64(1);
    to.u32(2);
    assert_eq!(to.finish(), Err(Full), "nothing follows what did not fit");
    assert_eq!(out, [0; 6]);
    assert!(!Full.to_string().is_empty());
}

#[test]
fn a_length_above_the_limit_is_refused_before_the_bytes_arrive() {
    let bytes = [0, 0, 1, 0];
    let mut from = Decoder::new(&bytes);
    let too_long = Malformed::TooLong {
        field: "s",
        len: 256,
        max: 255,
    };
    assert_eq!(from.bytes("s", 255), Err(DecodeError::Malformed(too_long)));
    assert!(too_long.to_string().contains("s has 256"));
    assert_eq!(
        Decoder::new(&bytes).bytes("s", 256),
        Err(DecodeError::NeedMore(256))
    );
    assert_eq!(
        Decoder::new(&[0xff; 4]).bytes("s", usize::MAX),
        Err(DecodeError::NeedMore(0xffff_ffff))
    );
}

proptest! {
    #[test]
    fn an_incomplete_value_tells_how_much_is_missing(
        text in prop::collection::vec(any::<u8>(), 0..40),
        number: u64,
    ) {
        let mut out = [0; 64];
        let mut to = Encoder::new(&mut out);
        to.bytes(&text);
        to.u64(number);
        let len = to.finish().unwrap();
        for have in 0..len {
            let mut from = Decoder::new(&out[..have]);
            let missing = match from.bytes("s", 40) {
                Ok(_) => from.u64().map(|_| ()),
                Err(error) => Err(error),
            };
            let Err(DecodeError::NeedMore(more)) = missing else { panic!() };
            prop_assert!(more > 0 && have + more <= len);
        }
        let mut from = Decoder::new(&out[..len]);
        prop_assert_eq!(from.bytes("s", 40), Ok(&text[..]));
        prop_assert_eq!((from.u64(), from.consumed()), (Ok(number), len));
    }
}
