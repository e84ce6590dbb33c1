// SPDX-License-Identifier: GPL-2.0

//! The range of an operation without data, which no data limit.

use proto::rnbd::{
    flags::Op,
    message::{
        Direction,
        IoRequest,
        Malformed, //
    },
    wire::Io, //
};
use zerocopy::IntoBytes;

#[test]
fn an_operation_without_data_is_within_the_device_and_what_was_granted() {
    let of = |op: Op, sector, sectors: u32| {
        let message = Io::new(3, sector, op as u32, sectors * 512, 0);
        IoRequest::parse(message.as_bytes(), 0, Direction::Write, 2).unwrap()
    };
    for op in [Op::Discard, Op::SecureErase, Op::WriteZeroes] {
        let check = |sector, sectors, max| of(op, sector, sectors).check_range(1000, max);
        let end = |sector, sectors: u32| {
            let size = sectors * 512;
            Err(Malformed::End { sector, size })
        };
        assert_eq!(check(0, 1000, 1000), Ok(()));
        assert_eq!(check(999, 1, 8), Ok(()));
        assert_eq!(check(992, 9, 1000), end(992, 9));
        assert_eq!(check(1000, 1, 1000), end(1000, 1));
        assert_eq!(check(u64::MAX - 8, 8, 1000), end(u64::MAX - 8, 8));
        assert_eq!(check(0, 1001, u32::MAX), end(0, 1001));
        assert_eq!(check(0, 8, 8), Ok(()));
        assert_eq!(check(0, 9, 8), Err(Malformed::TooLong(9 * 512)));
        // A device without the operation: EOPNOTSUPP of the block layer.
        assert_eq!(check(0, 9, 0), Ok(()));
    }
}
