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
