// SPDX-License-Identifier: GPL-2.0

//! A bit of the medium that flips is an error of what it belongs to, or is repaired: never silent.

use super::{
    life::{
        Life,
        PART,
        PARTS, //
    },
    objects::{
        Seen,
        OBJECTS, //
    },
    rig::{
        on_log,
        DEVICE_BYTES, //
    }, //
};

/// Flips a bit anywhere, and looks at all; returns whether it was noticed.
fn flip_one(seed: u64) -> bool {
    let mut life = Life::new(seed);
    life.live(1500);
    life.check();
    // Of the last batch nothing says that it was whole; the one that begins another life does.
    life.open_again();
    life.check();
    let (at, bit) = (life.random.below(DEVICE_BYTES), life.random.below(8) as u32);
    life.device.flip(at, bit);
    let mut is_noticed = false;
    for _ in 0..2 {
        for object in 0..OBJECTS as u64 {
            for part in 0..PARTS {
                let (look, seen) = life.look((object, part * PART));
                let right = look.of(life.objects.get(&object));
                is_noticed |= seen == Seen::Damaged;
                assert!(
                    seen == Seen::Damaged || seen == right,
                    "bit {bit} at {at}: object {object} is another one"
                );
            }
        }
        // Once more, as the log says it.
        if on_log(&life.device, false).is_err() {
            return true;
        }
        life.open_again();
    }
    is_noticed
}

/// A bit of data, heads, the table or superblocks.
#[test]
fn a_bit_that_flips_is_never_silent() {
    let noticed = (0..60).filter(|seed| {
        let found = std::panic::catch_unwind(|| flip_one(*seed));
        found.unwrap_or_else(|_| panic!("of life {seed}"))
    });
    assert!(noticed.count() > 2);
}
