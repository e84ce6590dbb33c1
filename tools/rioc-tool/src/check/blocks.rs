// SPDX-License-Identifier: GPL-2.0

//! Reads the blocks of all objects.

use std::collections::{
    BTreeSet,
    HashMap, //
};

use rioc::proto::{
    body::{
        block,
        place_of,
        TAGGED_BYTES, //
    },
    slot::{
        Extent,
        Life, //
    },
    span::BLOCK_BYTES,
};
use rnbd_ec_tool::{
    checksum::Crc,
    media::Media, //
};
use seglog::devices::Devices;

use super::{
    joined,
    Lost,
    Objects,
    Report, //
};
use crate::object::Object;

/// Blocks of an extent, by its number: a bit for each.
type Damaged = HashMap<u32, u32>;

/// Returns the extents with their numbers, in the order of their places.
fn extents(objects: &Objects) -> Vec<(u32, &Extent)> {
    let each = 0..objects.slots().count();
    let extents = each.filter_map(|number| Some((number, objects.slots().extent(number)?)));
    let mut extents: Vec<_> = extents.collect();
    extents.sort_unstable_by_key(|(_, extent)| extent.stored.place);
    extents
}

/// Reads each block once, and says of which objects those are that are damaged.
pub(super) fn verify(
    media: &mut Media,
    objects: &Objects,
    report: &mut Report,
    mut progress: impl FnMut(u64, u64),
) {
    let usage = objects.usage();
    report.objects = usage.objects.into();
    let (all, mut done) = (usage.blocks, 0u64);
    report.blocks = all;
    let (mut damaged, mut bytes) = (Damaged::new(), [0; TAGGED_BYTES]);
    for (number, extent) in extents(objects) {
        for part in (0..extent.blocks).filter(|part| extent.used.contains(*part)) {
            let place = place_of(&extent.stored, part);
            let why = match media.read(0, place, &mut bytes) {
                Ok(()) => match block(&bytes, &extent.stored, &Crc) {
                    Ok(_) => None,
                    Err(_) => Some("it is not what was written".to_owned()),
                },
                Err(error) => Some(format!("it cannot be read: {error}")),
            };
            if let Some(why) = why {
                report.note(|| format!("block at byte {place}: {why}"));
                report.damaged_blocks = report.damaged_blocks.saturating_add(1);
                *damaged.entry(number).or_default() |= bit(part);
            }
            done = done.saturating_add(1);
            progress(done, all);
        }
    }
    if !damaged.is_empty() {
        report.lost = lost(objects, &damaged);
    }
}

fn bit(part: u8) -> u32 {
    1u32.checked_shl(part.into()).unwrap_or_default()
}

/// Returns the bytes of objects that are in these blocks. An object that is being removed, or a
/// copy that was not finished, has no name and loses nothing.
fn lost(objects: &Objects, damaged: &Damaged) -> Vec<Lost> {
    let mut lost = BTreeSet::new();
    let slots = objects.slots();
    for range in (0..slots.count()).filter_map(|number| slots.range(number)) {
        let object = slots.object(range.object);
        let object = object.filter(|object| object.life == Life::Linked);
        let (Some(object), Some(bits)) = (object, damaged.get(&range.extent)) else {
            continue;
        };
        for skipped in 0..range.blocks {
            let number = range.block.saturating_add(skipped.into());
            let offset = u64::from(number).saturating_mul(BLOCK_BYTES);
            let bytes = object.size.saturating_sub(offset).min(BLOCK_BYTES);
            if bits & bit(range.first.saturating_add(skipped)) != 0 && bytes > 0 {
                let object = Object(object.id);
                lost.insert(Lost {
                    object,
                    offset,
                    bytes,
                });
            }
        }
    }
    joined(lost)
}
