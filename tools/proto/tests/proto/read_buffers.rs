// SPDX-License-Identifier: GPL-2.0

//! The buffers of small reads.

use core::num::NonZeroU32;

use proto::rtrs::{
    device::PAGE_SIZE_MIN,
    read_buffers::{
        ReadBuffers,
        READ_COPY_MAX_DEFAULT,
        READ_COPY_MAX_MAX, //
    },
    wire::TAIL_LEN_MAX, //
};

#[test]
fn no_read_is_copied_with_zero_and_beyond_the_range() {
    assert_eq!(ReadBuffers::new(0), None);
    assert_eq!(ReadBuffers::new(READ_COPY_MAX_MAX + 1), None);
    assert_eq!(ReadBuffers::new(u32::MAX), None);
}

#[test]
fn no_two_buffers_share_a_byte_or_a_cache_line() {
    for copy_max in 1..=READ_COPY_MAX_MAX {
        let layout = ReadBuffers::new(copy_max).unwrap();
        assert!(layout.buffer_len() >= copy_max + TAIL_LEN_MAX, "{copy_max}");
        assert!(layout.block_len().is_power_of_two());
        assert_eq!(layout.block_len() % 4096, 0);
        let count = layout.per_block();
        assert!(count >= 1, "{copy_max}");
        for index in 0..count {
            let offset = layout.offset(index).unwrap();
            assert_eq!((offset, offset % 64), (index * layout.buffer_len(), 0));
            assert!(
                offset + layout.buffer_len() <= layout.block_len(),
                "{copy_max}"
            );
        }
        assert_eq!(layout.offset(count), None);
        assert_eq!(layout.offset(u32::MAX), None);
    }
}

#[test]
fn a_path_takes_less_than_three_mebibytes_by_default() {
    let layout = ReadBuffers::new(READ_COPY_MAX_DEFAULT).unwrap();
    let bytes = layout.bytes(512);
    assert!(bytes < 3 << 20, "{bytes}");
    assert!(bytes >= 512 * u64::from(layout.buffer_len()));
    assert_eq!(layout.bytes(1), u64::from(layout.block_len()));
    // The largest sum does not overflow.
    let largest = ReadBuffers::new(READ_COPY_MAX_MAX).unwrap();
    assert_eq!(largest.bytes(u16::MAX), 65535 * (128 << 10));
}

#[test]
fn a_region_has_as_many_blocks_as_the_device_permits() {
    for copy_max in [1, 4096, READ_COPY_MAX_MAX / 2, READ_COPY_MAX_MAX] {
        let layout = ReadBuffers::new(copy_max).unwrap();
        let pages = layout.block_len() / PAGE_SIZE_MIN;
        let blocks = |pages_max| layout.blocks_per_region(pages_max).map(NonZeroU32::get);
        assert_eq!([blocks(0), blocks(pages - 1)], [None; 2]);
        assert_eq!([blocks(pages), blocks(2 * pages - 1)], [Some(1); 2]);
        assert_eq!(blocks(2 * pages), Some(2));
        assert_eq!(blocks(512), Some(512 / pages));
        assert_eq!(blocks(u32::MAX), Some(u32::MAX / pages));
    }
}
