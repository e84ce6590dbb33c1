// SPDX-License-Identifier: GPL-2.0

//! Rows of a dump, as JSON has them.

use rnbd_ec::proto::codec::Codec;
use seglog::{
    record::{
        BLOCKS_MAX,
        CODEC_ZEROES, //
    },
    superblock::{
        Refusal,
        Superblock, //
    },
};
use serde::Serialize;

use crate::{
    lenient::{
        Batch,
        Listed, //
    },
    media::Medium,
    show,
    slots::{
        Slot,
        Slots, //
    },
};

#[derive(Serialize)]
pub(super) struct LayoutRow {
    pub(super) unit_bytes: u32,
    pub(super) segment_units: u32,
    pub(super) segments: u32,
    pub(super) page_bytes: u32,
    pub(super) blocks: u64,
}

#[derive(Serialize)]
pub(super) struct StartRow {
    pub(super) dump: u64,
    pub(super) area: u8,
    pub(super) batch: u64,
    pub(super) segment: u32,
    pub(super) unit: u32,
    pub(super) next_segment: u32,
    pub(super) segment_use: u64,
    pub(super) incarnation: u64,
}

#[derive(Serialize)]
pub(super) struct DeviceRow {
    pub(super) id: String,
    pub(super) since_use: u64,
}

/// A superblock, as JSON has it.
#[derive(Serialize)]
pub(super) struct SuperblockRow {
    pub(super) uuid: String,
    pub(super) member: usize,
    pub(super) writes: u64,
    pub(super) layout: LayoutRow,
    pub(super) epoch: String,
    pub(super) parent: String,
    pub(super) incarnation: u64,
    pub(super) failed: Vec<usize>,
    pub(super) start: StartRow,
    pub(super) devices: Vec<DeviceRow>,
}

#[derive(Serialize)]
pub(super) struct SlotRow {
    pub(super) slot: u8,
    pub(super) counts: bool,
    pub(super) superblock: Option<SuperblockRow>,
    pub(super) why: Option<String>,
}

#[derive(Serialize)]
pub(super) struct MediumRow {
    pub(super) device: String,
    pub(super) bytes: u64,
    pub(super) slots: Vec<SlotRow>,
    pub(super) why: Option<String>,
}

#[derive(Serialize)]
pub(super) struct RecordRow {
    pub(super) column: usize,
    pub(super) at: usize,
    pub(super) block: u64,
    pub(super) blocks: u32,
    pub(super) codec: String,
    pub(super) bytes: u16,
    pub(super) skipped: Vec<u32>,
}

#[derive(Serialize)]
pub(super) struct BatchRow {
    pub(super) batch: u64,
    pub(super) segment: u32,
    pub(super) unit: u32,
    pub(super) units: u16,
    pub(super) kind: &'static str,
    pub(super) segment_use: u64,
    pub(super) incarnation: u64,
    pub(super) durable: u64,
    pub(super) next_segment: u32,
    pub(super) members: Vec<usize>,
    pub(super) lacking: Vec<usize>,
    pub(super) counts: bool,
    pub(super) lost_columns: Vec<usize>,
    pub(super) records: Vec<RecordRow>,
}

impl From<&Superblock> for SuperblockRow {
    fn from(superblock: &Superblock) -> Self {
        let (parts, start) = (superblock.layout.parts(), &superblock.start);
        let cursor = &start.cursor;
        let device = |device: &seglog::identity::Device| DeviceRow {
            id: show::id(device.id),
            since_use: device.since,
        };
        Self {
            uuid: show::uuid(&superblock.uuid),
            member: superblock.member,
            writes: superblock.writes,
            layout: LayoutRow {
                unit_bytes: parts.unit_bytes,
                segment_units: parts.segment_units,
                segments: parts.segments,
                page_bytes: parts.page_bytes,
                blocks: parts.entries,
            },
            epoch: show::id(superblock.epoch.id),
            parent: show::id(superblock.epoch.parent),
            incarnation: superblock.epoch.incarnation,
            failed: superblock.epoch.failed.iter().collect(),
            start: StartRow {
                dump: start.generation,
                area: start.area,
                batch: cursor.sequence,
                segment: cursor.segment,
                unit: cursor.unit,
                next_segment: cursor.next,
                segment_use: cursor.segment_sequence,
                incarnation: cursor.incarnation,
            },
            devices: superblock.devices.iter().map(device).collect(),
        }
    }
}

impl From<&Batch> for BatchRow {
    fn from(batch: &Batch) -> Self {
        let head = &batch.head;
        let record = |listed: &Listed| {
            let record = &listed.record;
            let codec = match (record.codec, Codec::from_number(record.codec)) {
                (CODEC_ZEROES, _) => "zeroes".to_owned(),
                (_, Ok(Codec::Raw)) => "raw".to_owned(),
                (_, Ok(Codec::Lz4)) => "lz4".to_owned(),
                (number, Err(_)) => format!("codec {number}"),
            };
            let blocks = 0..record.count.min(BLOCKS_MAX);
            RecordRow {
                column: listed.column,
                at: listed.at,
                block: record.index,
                blocks: record.count,
                codec,
                bytes: record.payload_bytes,
                skipped: blocks.filter(|block| !record.assigns(*block)).collect(),
            }
        };
        Self {
            batch: head.sequence,
            segment: head.place.segment,
            unit: head.place.unit,
            units: head.units,
            kind: batch.kind(),
            segment_use: head.segment_sequence,
            incarnation: head.incarnation,
            durable: head.durable,
            next_segment: head.next,
            members: head.used.iter().collect(),
            lacking: batch.lacking.iter().collect(),
            counts: batch.counts(),
            lost_columns: batch.lost_columns.clone(),
            records: batch.records.iter().map(record).collect(),
        }
    }
}

impl MediumRow {
    /// Returns what a medium has.
    pub(super) fn new(medium: &Medium, slots: &Slots) -> Self {
        let chosen = slots.superblock();
        let counts = |slot: u8| chosen.as_ref().is_ok_and(|chosen| chosen.slot() == slot);
        let row = |(number, slot): (u8, &Slot)| SlotRow {
            slot: number,
            counts: counts(number),
            superblock: match slot {
                Slot::Whole(superblock) => Some(superblock.into()),
                _ => None,
            },
            why: match slot {
                Slot::Whole(_) => None,
                Slot::Refused(Refusal::NotFormatted) => Some("none".to_owned()),
                Slot::Refused(refusal) => Some(refusal.to_string()),
                Slot::Unreadable(error) => Some(format!("it cannot be read: {error}")),
            },
        };
        Self {
            device: medium.path.display().to_string(),
            bytes: medium.bytes(),
            slots: slots.iter().map(row).collect(),
            why: chosen.as_ref().err().map(ToString::to_string),
        }
    }
}
