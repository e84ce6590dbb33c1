// SPDX-License-Identifier: GPL-2.0

//! Records in the columns of a batch.

use proptest::prelude::*;
use rnbd_ec::proto::{
    collector::{
        is_gain,
        run_of,
        runs, //
    },
    geometry::{
        layout,
        Shape, //
    },
    packing::{
        units_of_batch,
        Packed,
        Packing,
        RECORDS_MAX, //
    },
};
use seglog::{
    batch::{
        Kind,
        HEAD_BYTES, //
    },
    layout::Layout,
    record::Record,
};

fn of_512() -> Layout {
    let shape = Shape {
        bytes: 1 << 30,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
    };
    layout(&[shape; 3], None).unwrap()
}

fn record(payload_bytes: u16, count: u32, skipped: u8) -> Record {
    Record {
        index: 0,
        count,
        codec: 3,
        payload_bytes,
        skipped,
    }
}

#[test]
fn little_is_a_mirror_and_more_is_striped() {
    let (layout, mut packed) = (of_512(), vec![Packed::default(); RECORDS_MAX]);
    let mut packing = Packing::new(&layout, u32::MAX);
    assert!(packing.is_empty());
    assert_eq!((packing.kind(), packing.units(&layout)), (Kind::Striped, 1));
    packing.add(&record(4096, 1, 0), &mut packed).unwrap();
    assert_eq!((packing.kind(), packing.units(&layout)), (Kind::Mirror, 9));
    packing.add(&record(3000, 1, 0), &mut packed).unwrap();
    assert_eq!(packing.kind(), Kind::Mirror);
    packing.add(&record(3000, 1, 0), &mut packed).unwrap();
    assert_eq!(packing.kind(), Kind::Striped);
    assert_eq!(packing.used(1), HEAD_BYTES + Record::bytes_of(3000));
}

#[test]
fn one_long_record_is_a_mirror() {
    let (layout, mut packed) = (of_512(), vec![Packed::default(); RECORDS_MAX]);
    let mut packing = Packing::new(&layout, u32::MAX);
    packing.add(&record(16384, 4, 0), &mut packed).unwrap();
    assert_eq!(packing.kind(), Kind::Mirror);
}

#[test]
fn a_batch_ends_with_its_segment_if_a_record_fits() {
    let layout = of_512();
    assert_eq!(units_of_batch(&layout, 100), 100);
    assert_eq!(units_of_batch(&layout, 33), 33);
    assert_eq!(units_of_batch(&layout, 32), layout.column_units_max());
    assert_eq!(units_of_batch(&layout, 0), layout.column_units_max());
}

#[test]
fn runs_are_what_is_live() {
    let found = |skipped| runs(&record(100, 4, skipped)).collect::<Vec<_>>();
    assert_eq!(found(0).first(), Some(&(0..4)));
    assert_eq!(found(0b0001).first(), Some(&(1..4)));
    assert_eq!(found(0b0110), [0..1, 3..4]);
    assert_eq!(found(0b1010), [0..1, 2..3]);
    let whole = Record {
        index: 40,
        ..record(16384, 4, 0b0110)
    };
    let part = run_of(&whole, &(3..4), (2, 4096));
    assert_eq!(
        (part.index, part.count, part.codec, part.skipped),
        (43, 1, 2, 0)
    );
    assert!(is_gain(&whole, part.bytes()));
    assert!(!is_gain(&record(100, 4, 1), Record::bytes_of(100)));
}

proptest! {
    #[test]
    fn columns_have_what_they_say(
        sizes in proptest::collection::vec(1u16..16384, 1..300),
        units in 40u32..300,
    ) {
        let (layout, mut packed) = (of_512(), vec![Packed::default(); RECORDS_MAX]);
        let mut packing = Packing::new(&layout, units);
        let mut sums = [HEAD_BYTES; 2];
        for size in sizes {
            let record = record(size, 4, 0);
            let Some(room) = packing.add(&record, &mut packed) else { break };
            prop_assert_eq!(room.at, sums[room.column]);
            sums[room.column] += record.bytes();
        }
        prop_assert_eq!([packing.used(0), packing.used(1)], sums);
        let most = units.min(layout.column_units_max());
        prop_assert!(u32::from(packing.units(&layout)) <= most);
        prop_assert!(packing.records() <= RECORDS_MAX);
    }
}
