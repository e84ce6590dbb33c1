// SPDX-License-Identifier: GPL-2.0

//! Sizes of segments, disks and memory.

use proptest::prelude::*;
use rnbd_ec::proto::geometry::{
    capacity_sectors,
    check_place,
    held_bytes,
    is_overcommitted,
    layout,
    may_tear,
    table_bytes,
    NoPlace,
    Shape,
    Unfit, //
};

const MIB: u64 = 1 << 20;

fn shape(bytes: u64, block_bytes: u32) -> Shape {
    Shape {
        bytes,
        logical_block_bytes: block_bytes,
        physical_block_bytes: block_bytes,
    }
}

#[test]
fn a_terabyte() {
    let layout = layout(&[shape(1 << 40, 512); 3], None).unwrap();
    let parts = layout.parts();
    assert_eq!((parts.unit_bytes, layout.segment_bytes()), (512, 2 * MIB));
    // Of 2 TiB of data columns, seven eighths.
    let share = capacity_sectors(&layout) as f64 * 512.0 / (2u64 << 40) as f64;
    assert!((0.82..0.87).contains(&share), "{share}");
    assert!(table_bytes(&layout) < 15 << 28);
    assert!(!is_overcommitted(&layout));
}

#[test]
fn one_block_of_4096_decides() {
    let members = [
        shape(MIB << 10, 512),
        shape(MIB << 10, 4096),
        shape(MIB << 10, 512),
    ];
    assert_eq!(layout(&members, None).unwrap().parts().unit_bytes, 4096);
    let mut emulated = shape(MIB << 10, 512);
    emulated.physical_block_bytes = 4096;
    let members = [emulated, shape(MIB << 10, 512), shape(MIB << 10, 512)];
    assert_eq!(layout(&members, None).unwrap().parts().unit_bytes, 4096);
}

#[test]
fn what_replaces_a_member_has_blocks_as_short() {
    let (short, long) = (shape(MIB << 10, 512), shape(MIB << 10, 4096));
    let mut emulated = shape(MIB << 10, 512);
    emulated.physical_block_bytes = 4096;
    let of_short = layout(&[short; 3], None).unwrap();
    let of_long = layout(&[short, long, short], None).unwrap();
    assert_eq!(check_place(&short, &of_short), Ok(()));
    // A write of 512 bytes that is cut off may cost the 3584 beside them.
    let torn = NoPlace::Tears {
        bytes: 4096,
        unit_bytes: 512,
    };
    assert_eq!(check_place(&emulated, &of_short), Err(torn));
    let line = "has physical blocks of 4096 bytes, and the array writes 512 at a time: when power \
                fails, what was flushed beside them could be lost";
    assert_eq!(torn.to_string(), line);
    let told = [short, emulated, long].map(|shape| may_tear(&shape, &of_short));
    assert_eq!(told, [false, true, true]);
    assert_eq!(
        [short, emulated, long].map(|shape| may_tear(&shape, &of_long)),
        [false; 3]
    );
    // As at the creation: longer ones than those of the disk are taken.
    emulated.physical_block_bytes = 16384;
    for shape in [short, emulated, long] {
        assert_eq!(check_place(&shape, &of_long), Ok(()));
    }
    let line = format!(
        "has 1073741824 bytes in blocks of 4096, and needs {} in blocks of at most 512",
        of_short.end_bytes()
    );
    assert_eq!(check_place(&long, &of_short).unwrap_err().to_string(), line);
    let small = shape(MIB, 512);
    let refused = check_place(&small, &of_long);
    assert!(
        matches!(refused, Err(NoPlace::Blocks { .. })),
        "{refused:?}"
    );
}

#[test]
fn members_that_do_not_fit_are_named() {
    let good = shape(64 * MIB, 512);
    let found = layout(&[good, good, shape(64 * MIB, 8192)], None);
    assert_eq!(
        found,
        Err(Unfit::Blocks {
            member: 2,
            bytes: 8192
        })
    );
    let found = layout(&[good, shape(4 * MIB, 512), good], None);
    let expected = Unfit::TooSmall {
        member: 1,
        bytes: 4 * MIB,
    };
    assert_eq!(found, Err(expected));
    assert!(matches!(
        layout(&[good; 3], Some(4095)),
        Err(Unfit::Size { asked: 4095, .. })
    ));
    assert!(matches!(
        layout(&[good; 3], Some(1 << 50)),
        Err(Unfit::Size { .. })
    ));
}

#[test]
fn a_size_may_promise_more() {
    let members = [shape(64 * MIB, 512); 3];
    let held = capacity_sectors(&layout(&members, None).unwrap()) * 512;
    let more = layout(&members, Some(2 * held)).unwrap();
    assert_eq!(capacity_sectors(&more) * 512, 2 * held);
    assert!(is_overcommitted(&more));
    // What is promised without `size=`, but for the heads of the records, and a longer table.
    let percent = 100 * held / held_bytes(&more).unwrap();
    assert!((98..=102).contains(&percent), "{percent}");
    assert_eq!(held_bytes(&layout(&members, None).unwrap()), None);
    assert!(!is_overcommitted(&layout(&members, Some(MIB)).unwrap()));
}

proptest! {
    #[test]
    fn all_is_on_the_smallest_member(
        bytes in (9 * MIB)..(1u64 << 45),
        more in 0u64..(1 << 30),
        is_long in any::<bool>(),
    ) {
        let block_bytes = if is_long { 4096 } else { 512 };
        let members = [shape(bytes + more, 512), shape(bytes, block_bytes), shape(bytes, 512)];
        let layout = layout(&members, None).unwrap();
        prop_assert!(layout.end_bytes() <= bytes);
        // Little is left over: a table of the first guess is larger by its own share.
        let left = bytes - layout.end_bytes();
        prop_assert!(left < 3 * layout.segment_bytes() + bytes / 4096);
    }
}
