// SPDX-License-Identifier: GPL-2.0

//! Prepares a request: lays it out in its chunk, and maps its memory.

use kernel::prelude::*;
use rdma::sg;
use rtrs_core::proto::{
    request::head_offset,
    wire::{
        ReadHead,
        ReadMessage,
        WriteHead,
        TAIL_LEN_MAX, //
    },
};

use crate::client::io::{
    connection::ConnectionContext,
    request::{
        DataMapping,
        InFlight, //
    },
    table::RequestTable,
    transfer::{
        Direction,
        Outbound, //
    }, //
};

/// The direction of a request as a const parameter: reads and writes are compiled as two functions,
/// each without the other's branches.
pub(crate) const READ: bool = false;
/// The direction of a write, see [`READ`].
pub(crate) const WRITE: bool = true;

pub(crate) const fn direction<const IS_WRITE: bool>() -> Direction {
    if IS_WRITE {
        Direction::Write
    } else {
        Direction::Read
    }
}

/// The offsets and lengths of a request in its chunk.
pub(crate) struct Layout {
    pub(crate) data_len: u32,
    /// The bytes of the data that come with the response.
    pub(crate) tail_len: u32,
    pub(crate) usr_len: u16,
    /// User message and head together.
    pub(crate) message_len: u32,
    /// Offset of the head in the chunk.
    pub(crate) head_offset: u32,
}

impl Layout {
    #[inline(always)]
    pub(crate) fn new<const IS_WRITE: bool>(
        message: &[u8],
        data_len: u32,
        tail: u32,
        requests: &RequestTable,
    ) -> Result<Self> {
        let usr_len = u16::try_from(message.len()).map_err(|_| EMSGSIZE)?;
        // The head follows the user message, with its descriptor if there is data.
        // CAST: sizes of messages.
        let head_len = match (IS_WRITE, data_len) {
            (WRITE, _) => size_of::<WriteHead>() as u32,
            (READ, 0) => size_of::<ReadHead>() as u32,
            (READ, _) => size_of::<ReadMessage>() as u32,
        };
        let head_offset = head_offset(
            data_len,
            usr_len,
            head_len,
            requests.message_max,
            requests.granted.geometry.chunk_size(),
        )
        .map_err(|_| EMSGSIZE)?;
        Ok(Self {
            data_len,
            tail_len: tail_len::<IS_WRITE>(tail, requests, data_len),
            usr_len,
            // Below MESSAGE_SIZE, which `head_offset` checked.
            message_len: u32::from(usr_len).wrapping_add(head_len),
            head_offset,
        })
    }
}

/// Maps the data for the device.
///
/// A write of few pieces uses their DMA addresses: that saves the registration and the
/// invalidation, and the server cannot use them. All other data is reached through the region,
/// whose key is new each time. Whether the server is asked to invalidate it depends on what the
/// connection has shown.
#[inline(always)]
fn map_data<const IS_WRITE: bool>(
    requests: &RequestTable,
    entry: &mut InFlight,
    (transfer, data_len): (&mut impl Outbound, u32),
    context: &ConnectionContext,
) -> Result<DataMapping> {
    if data_len == 0 {
        return Ok(DataMapping::None);
    }
    let list = transfer.sg()?;
    let direction = direction::<IS_WRITE>().dma();
    let pieces = sg::map(requests.pd.device(), list, direction)?;
    if IS_WRITE && pieces <= requests.gathered_max() {
        return Ok(DataMapping::Sges);
    }
    let shown = context.invalidations.shown();
    let mr = &mut entry.mr;
    if let Err(e) = mr.map(list, requests) {
        sg::unmap(requests, list);
        return Err(e);
    }
    let (variant, is_asked) = entry.keys.next(mr.key_variant(), shown, || requests.tick());
    mr.update_variant(variant);
    entry.is_asked = is_asked;
    Ok(match IS_WRITE {
        WRITE => DataMapping::FastReg,
        READ => DataMapping::FastRegRead,
    })
}

/// Lays out a request and maps its data.
#[inline(always)]
pub(crate) fn prepare<const IS_WRITE: bool>(
    requests: &RequestTable,
    entry: &mut InFlight,
    message: &[u8],
    transfer: &mut impl Outbound,
    context: &ConnectionContext,
) -> Result<(Layout, DataMapping)> {
    let (data_len, tail) = (transfer.data_len(), transfer.tail_len());
    let mut layout = Layout::new::<IS_WRITE>(message, data_len, tail, requests)?;
    let transfer = (transfer, data_len);
    let data = map_data::<IS_WRITE>(requests, entry, transfer, context)?;
    if !IS_WRITE && !entry.is_asked {
        // A tail does not stay until the client has invalidated the key.
        layout.tail_len = 0;
    }
    Ok((layout, data))
}

/// Returns the bytes of the tail of a request, of which the upper layer offers so many; 0 if it has
/// none, or if the responses on this path have no message that it could be in.
#[inline(always)]
fn tail_len<const IS_WRITE: bool>(offered: u32, requests: &RequestTable, data_len: u32) -> u32 {
    match offered {
        1..=TAIL_LEN_MAX if !IS_WRITE && offered < data_len && requests.granted.new_rkey => offered,
        _ => 0,
    }
}
