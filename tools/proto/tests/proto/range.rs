// SPDX-License-Identifier: GPL-2.0

//! Limits of an IO message: the range of an operation without data, and the usual operations.

use proptest::prelude::*;
use proto::rnbd::{
    flags::Op,
    message::{
        Direction,
        IoRequest,
        Malformed,
        Message, //
    },
    wire::Io, //
};
use zerocopy::IntoBytes;

#[test]
fn an_operation_without_data_is_within_the_device() {
    let of = |op: Op, sector, sectors: u32| {
        let message = Io::new(3, sector, op as u32, sectors * 512, 0);
        IoRequest::parse(message.as_bytes(), 0, Direction::Write, 2).unwrap()
    };
    for op in [Op::Discard, Op::SecureErase, Op::WriteZeroes] {
        let check = |sector, sectors| of(op, sector, sectors).check_range(1000);
        let end = |sector, sectors: u32| {
            let size = sectors * 512;
            Err(Malformed::End { sector, size })
        };
        // Of whatever length: the device may have had other limits when the client asked.
        assert_eq!(check(0, 1000), Ok(()));
        assert_eq!(check(999, 1), Ok(()));
        assert_eq!(check(992, 9), end(992, 9));
        assert_eq!(check(1000, 1), end(1000, 1));
        assert_eq!(check(u64::MAX - 8, 8), end(u64::MAX - 8, 8));
        assert_eq!(check(0, 1001), end(0, 1001));
    }
}

proptest! {
    #[test]
    fn a_usual_io_is_what_any_io_is(
        rw in prop_oneof![Just(0), Just(1), Just(0x100), Just(0x101), 0..0x1002u32, any::<u32>()],
        sector in prop_oneof![0..9u64, any::<u64>(), Just(u64::MAX)],
        size in prop_oneof![(0..9u32).prop_map(|sectors| sectors * 512), 0..1025u32],
        (more, kind) in (prop_oneof![Just(0), Just(512), 0..3u32], prop_oneof![Just(4), 0..9u8]),
        (len, version) in (prop_oneof![Just(32), 0..41usize], prop_oneof![Just(2), 0..4u8]),
        writes in any::<bool>(),
    ) {
        let mut message = [0; 40];
        message[..32].copy_from_slice(Io::new(3, sector, rw, size, 7).as_bytes());
        message[0] = kind;
        let direction = if writes { Direction::Write } else { Direction::Read };
        let (user, data_len) = (&message[..len], size + more);
        let usual = IoRequest::parse_usual(user, data_len, direction, version);
        let parsed = Message::parse(user, data_len, direction, version);
        let is_usual = rw & !0x100 == u32::from(writes) && sector >> 63 == 0 && len == 32;
        match (usual, parsed) {
            (Some(usual), parsed) => prop_assert_eq!(parsed, Ok(Message::Io(usual))),
            (None, Ok(Message::Io(_))) => prop_assert!(!is_usual || version < 2),
            (None, _) => {}
        }
    }
}
