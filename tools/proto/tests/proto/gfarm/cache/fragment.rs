// SPDX-License-Identifier: GPL-2.0

//! Lengths, numbers and immediates of fragments.

use proto::gfarm::cache::{
    fragment::{
        FragmentId,
        FragmentLen,
        FRAGMENTS_MAX, //
    },
    pages::PageSet, //
};

#[test]
fn lengths_are_powers_of_two_up_to_a_page() {
    for bytes in (0..=9000).chain([u32::MAX, 1 << 31]) {
        let valid = [256, 512, 1024, 2048, 4096].contains(&bytes);
        let len = FragmentLen::new(bytes);
        assert_eq!(len.is_some(), valid, "{bytes}");
        assert!(len.is_none_or(|len| len.bytes() == bytes));
    }
}

#[test]
fn the_largest_length_fits_the_datagram() {
    for (mtu, bytes) in [
        (256, 256),
        (511, 256),
        (1024, 1024),
        (1500, 1024),
        (2048, 2048),
        (4096, 4096),
        (65_520, 4096),
        (u32::MAX, 4096),
    ] {
        assert_eq!(
            FragmentLen::largest(mtu).map(FragmentLen::bytes),
            Some(bytes)
        );
    }
    assert_eq!(FragmentLen::largest(0), None);
    assert_eq!(FragmentLen::largest(255), None);
}

#[test]
fn fragments_of_pages_cover_each_byte_once() {
    for log in 8..=12 {
        let len = FragmentLen::new(1 << log).unwrap();
        assert_eq!(len.per_page() * len.bytes() as usize, 4096);
        assert_eq!(len.pages_max() * len.per_page(), FRAGMENTS_MAX);
        for pages in 0..=256 {
            let count = len.count(PageSet::range(0, pages));
            let wanted = pages * len.per_page();
            assert_eq!(count, (pages <= len.pages_max()).then_some(wanted));
        }
        let mut next = 0;
        for rank in 0..len.pages_max() {
            let range = len.of_page(rank);
            assert_eq!(range.start * len.bytes() as usize, rank * 4096);
            assert_eq!(range.start, next);
            next = range.end;
        }
        assert_eq!(next, FRAGMENTS_MAX);
    }
}

#[test]
fn an_immediate_has_tag_and_index() {
    let id = FragmentId {
        tag: 0x1234,
        index: 0x00ab,
    };
    assert_eq!(id.to_imm(), 0x1234_00ab);
    for imm in [0, 1, 0xffff, 0x1_0000, 0xffff_ffff, 0x8001_7ffe] {
        assert_eq!(FragmentId::from_imm(imm).to_imm(), imm);
    }
}
