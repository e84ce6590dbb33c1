// SPDX-License-Identifier: GPL-2.0

//! The disk of an array, as the block layer sees it.

use block_ext::{
    disk::{
        Disk,
        DiskConfig,
        New, //
    },
    limits::{
        DiscardLimits,
        Limits, //
    },
    mq::{
        HwQueue,
        Operations,
        Rejected,
        Request,
        TagSet,
        TagSetConfig, //
    },
    SECTOR_BYTES, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use seglog::{
    layout::Layout,
    record::ZEROES_MAX, //
};

use super::{
    core::Core,
    tags::DEPTH, //
};
use crate::{
    proto::geometry::{
        capacity_sectors,
        BLOCK_BYTES,
        REQUEST_BLOCKS_MAX,
        UNIT_BYTES, //
    },
    THIS_MODULE, //
};

/// The segments of a request at most: its data are copied, so each block may be elsewhere.
const SEGMENTS_MAX: u16 = REQUEST_BLOCKS_MAX as u16;

/// The sectors of a block.
const BLOCK_SECTORS: u32 = BLOCK_BYTES as u32 / SECTOR_BYTES;

/// The queue of a disk.
pub(crate) struct Queue;

/// Array to which its requests go.
pub(crate) struct Port(pub(super) Arc<Core>);

#[vtable]
impl Operations for Queue {
    type Set = ();
    type Queue = Port;
    type Pdu = ();

    fn queue_rq(
        _hw: HwQueue<'_, Self>,
        port: &Port,
        request: Request<Self>,
    ) -> Result<(), Rejected<Self>> {
        Core::arrive(&port.0, request).map_err(Rejected)
    }
}

/// Returns the limits of a disk.
fn limits() -> Limits {
    let zeroes_sectors = ZEROES_MAX.saturating_mul(BLOCK_SECTORS);
    Limits {
        logical_block_bytes: BLOCK_BYTES as u32,
        physical_block_bytes: BLOCK_BYTES as u32,
        io_opt_bytes: UNIT_BYTES as u32,
        discard: DiscardLimits {
            max_sectors: zeroes_sectors,
            granularity_bytes: BLOCK_BYTES as u32,
            alignment_bytes: 0,
        },
        max_write_zeroes_sectors: zeroes_sectors,
        write_cache: true,
        ..Limits::new(
            REQUEST_BLOCKS_MAX.saturating_mul(BLOCK_SECTORS),
            SEGMENTS_MAX,
        )
    }
}

/// Returns the identifier of the disk, by which a server of rnbd knows it when it comes back: a
/// locally assigned one (NAA 3), of what is random in the array's UUID.
fn naa_of(uuid: &[u8; 16]) -> u64 {
    const LOCALLY_ASSIGNED: u64 = 3 << 60;
    let (_, last) = uuid.split_at(8);
    let number = last.try_into().map_or(0, u64::from_be_bytes);
    LOCALLY_ASSIGNED | number >> 4
}

/// Makes the disk of an array, which user space does not see yet. Sleeps.
pub(super) fn make(
    core: &Arc<Core>,
    (name, uuid): (&CStr, &[u8; 16]),
    layout: &Layout,
) -> Result<Disk<Queue, New>> {
    // CAST: 64.
    let config = TagSetConfig::new(1, DEPTH as u32, SEGMENTS_MAX);
    let tags = TagSet::<Queue>::new(config, ())?;
    let port = Arc::new(Port(core.clone()), GFP_KERNEL)?;
    Disk::new(
        &tags,
        &THIS_MODULE,
        DiskConfig {
            name: fmt!("{name}"),
            minors: None,
            capacity_sectors: capacity_sectors(layout),
            read_only: false,
            limits: limits(),
            naa: Some(naa_of(uuid)),
        },
        port,
        (),
    )
}
