// SPDX-License-Identifier: GPL-2.0

//! The layout of a log, for devices of any size.

use rioc::proto::format::{
    layout,
    slots,
    slots_of,
    Unfit, //
};
use seglog::layout::Layout;

#[test]
fn a_log_uses_its_device_and_fits() {
    for bytes in [
        9 << 20,
        10 << 20,
        64 << 20,
        (64 << 20) + 4096,
        1 << 30,
        1 << 40,
    ] {
        for blocks in [(512, 512), (512, 4096), (4096, 4096)] {
            let made = layout(bytes, blocks).unwrap();
            assert!(made.end_bytes() <= bytes);
            let data = u64::from(made.parts().segments) * made.segment_bytes();
            assert!(data * 10 > bytes * 8, "{data} of {bytes}");
            assert!(u64::from(slots(&made).unwrap()) >= slots_of(data / 4104));
            assert_eq!(made.unit_bytes(), if blocks.1 == 512 { 512 } else { 4096 });
        }
    }
}

#[test]
fn a_device_that_does_not_fit_is_named() {
    assert_eq!(layout(1 << 30, (8192, 8192)), Err(Unfit::Blocks(8192)));
    for bytes in [0, 1, 4096, 8 << 20] {
        assert_eq!(layout(bytes, (512, 512)), Err(Unfit::TooSmall(bytes)));
    }
    let too_large = layout(u64::MAX, (512, 512)).unwrap_err();
    for unfit in [Unfit::Blocks(8192), Unfit::TooSmall(1), too_large] {
        assert!(unfit.to_string().starts_with("it has "), "{unfit}");
    }
}

#[test]
fn a_log_of_an_array_is_none_of_objects() {
    let own = layout(64 << 20, (512, 512)).unwrap();
    let mut parts = *own.parts();
    assert_eq!(slots(&Layout::new(parts).unwrap()), None);
    parts.entries += 1;
    assert_eq!(slots(&Layout::single(parts).unwrap()), None);
}
