// SPDX-License-Identifier: GPL-2.0

//! Sends a request: maps the memory, writes the message, posts the work requests.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use kernel_ext::scatterlist::SgList;
use rdma::{
    sg,
    Access,
    Batch,
    SendFlags,
    WrBuffer, //
};
use rtrs_core::proto::{
    imm::Imm,
    request::head_offset,
    wire::{
        Descriptor,
        ReadHead,
        ReadMessage,
        WriteHead,
        TAIL_LEN_MAX, //
    },
};
use zerocopy::IntoBytes;

use crate::client::{
    io::{
        connection::{
            ConnectionContext,
            Tagged, //
        },
        request::{
            Attempt,
            DataMapping,
            InFlight, //
        },
        table::{
            RequestTable,
            GATHERED_MAX, //
        },
        transfer::{
            Direction,
            Outbound,
            Rejected, //
        }, //
    },
    path::{
        connections::Connection, //
        error::PathError,
    }, //
};

/// The direction of a request as a const parameter: reads and writes are compiled as two functions,
/// each without the other's branches.
pub(crate) const READ: bool = false;
/// The direction of a write, see [`READ`].
pub(crate) const WRITE: bool = true;

const fn direction<const IS_WRITE: bool>() -> Direction {
    if IS_WRITE {
        Direction::Write
    } else {
        Direction::Read
    }
}

/// The offsets and lengths of a request in its chunk.
struct Layout {
    data_len: u32,
    /// The bytes of the data that come with the response.
    tail_len: u32,
    usr_len: u16,
    /// User message and head together.
    message_len: u32,
    /// Offset of the head in the chunk.
    head_offset: u32,
}

impl Layout {
    #[inline(always)]
    fn new<const IS_WRITE: bool>(
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
/// connection has shown. A read that fits into its buffer maps nothing.
#[inline(always)]
fn map_data<'a, const IS_WRITE: bool>(
    requests: &RequestTable,
    entry: &mut InFlight,
    (transfer, data_len): (&'a mut impl Outbound, u32),
    context: &ConnectionContext,
) -> Result<(DataMapping, Option<&'a mut SgList>)> {
    if data_len == 0 {
        return Ok((DataMapping::None, None));
    }
    // The answer to an administrative message may be shorter than its memory, which is zeroed.
    if !IS_WRITE && context.cid != 0 {
        let buffer = entry.buffer.as_ref();
        if buffer.is_some_and(|buffer| buffer.fits(data_len)) {
            entry.is_asked = false;
            return Ok((DataMapping::Copied, None));
        }
    }
    let list = transfer.sg()?;
    let direction = direction::<IS_WRITE>().dma();
    let pieces = sg::map(requests.pd.device(), list, direction)?;
    if IS_WRITE && pieces <= requests.gathered_max() {
        return Ok((DataMapping::Sges, Some(list)));
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
    let data = match IS_WRITE {
        WRITE => DataMapping::FastReg,
        READ => DataMapping::FastRegRead,
    };
    Ok((data, Some(list)))
}

/// Lays out a request and maps its data.
#[inline(always)]
fn prepare<'a, const IS_WRITE: bool>(
    requests: &RequestTable,
    entry: &mut InFlight,
    message: &[u8],
    transfer: &'a mut impl Outbound,
    context: &ConnectionContext,
) -> Result<(Layout, DataMapping, Option<&'a mut SgList>)> {
    let (data_len, tail) = (transfer.data_len(), transfer.tail_len());
    let mut layout = Layout::new::<IS_WRITE>(message, data_len, tail, requests)?;
    let transfer = (transfer, data_len);
    let (data, list) = map_data::<IS_WRITE>(requests, entry, transfer, context)?;
    if !IS_WRITE && !entry.is_asked {
        // A tail does not stay until the client has invalidated the key.
        layout.tail_len = 0;
    }
    Ok((layout, data, list))
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

/// Most work requests of a request: invalidation of the region's old key, registration, write.
const CHAIN: usize = 3;
/// Most gather entries of a request: the pieces of its data, and the message.
const SEGMENTS: usize = GATHERED_MAX + 1;

type Chain<'a> = Batch<'a, ConnectionContext, CHAIN, SEGMENTS>;

/// Registers the region of `entry` under its new key, after the invalidation of its old one.
#[inline(always)]
fn register(chain: &mut Chain<'_>, tag: u32, entry: &InFlight, access: Access) {
    if let Some(key) = entry.stale {
        chain.local_invalidate(tag, key, SendFlags::NONE);
    }
    chain.reg_mr(tag, &entry.mr, access, SendFlags::NONE);
}

/// A request that is about to be posted.
struct Outgoing<'a> {
    requests: &'a RequestTable,
    context: &'a ConnectionContext,
    id: u16,
    message: &'a [u8],
    layout: &'a Layout,
}

impl Outgoing<'_> {
    /// Writes user message and head into the message buffer, and chains the work requests: the
    /// registration of the memory if it has a key, then one write with an immediate.
    #[inline(always)]
    fn lay_out<const IS_WRITE: bool>(
        &self,
        chain: &mut Chain<'_>,
        entry: &InFlight,
        list: Option<&SgList>,
        data: DataMapping,
    ) -> Result {
        let (requests, layout) = (self.requests, self.layout);
        let payload = requests.granted.geometry.join(self.id, layout.head_offset);
        let payload = payload.ok_or(EINVAL)?;
        let imm = Imm::Request { payload }.encode();
        let tag = self.context.tags.encode(Tagged::Send);

        let buffer = requests.messages.buffer(self.id.into(), layout.message_len);
        let buffer = buffer.ok_or(EINVAL)?;
        let at = u32::from(layout.usr_len);
        buffer.write(0, self.message)?;
        let message = buffer.segment();
        if IS_WRITE {
            buffer.write(at, WriteHead::new(layout.usr_len).as_bytes())?;
            let remote = entry.remote(0);
            let write = self.context.tags.encode(Tagged::Write(self.id));
            let signaled = SendFlags::SIGNALED;
            match data {
                DataMapping::Sges => {
                    let from = (list.ok_or(EINVAL)?, message);
                    let most = requests.pieces_max();
                    chain.write_sg_with_imm((tag, write), most, from, remote, imm, signaled);
                }
                DataMapping::FastReg => {
                    register(chain, tag, entry, Access::LOCAL_READ);
                    let local = [entry.mr.segment(0, layout.data_len), message];
                    chain.write_imm(write, &local, remote, imm, signaled);
                }
                DataMapping::None | DataMapping::FastRegRead | DataMapping::Copied => {
                    let flags = self.context.next_send();
                    chain.write_imm(tag, &[message], remote, imm, flags);
                }
            }
            return Ok(());
        }
        if let (DataMapping::Copied, Some(to)) = (data, &entry.buffer) {
            let to = to.lend(layout.data_len);
            let to = Descriptor::new(to.addr, to.key, layout.data_len);
            let head = ReadMessage::new(layout.usr_len, to).into_registered();
            buffer.write(at, head.as_bytes())?;
        } else if data == DataMapping::None {
            let head = ReadHead::without_reply(layout.usr_len);
            buffer.write(at, head.as_bytes())?;
        } else {
            let len = layout.data_len.wrapping_sub(layout.tail_len);
            let reply = Descriptor::new(entry.mr.iova(), entry.mr.key(), len);
            let mut head = ReadMessage::new(layout.usr_len, reply);
            if !entry.is_asked {
                head = head.without_invalidation();
            } else if layout.tail_len != 0 {
                head = head.with_tail();
            }
            buffer.write(at, head.as_bytes())?;
            register(chain, tag, entry, Access::REMOTE_WRITE);
        }
        let flags = self.context.next_send();
        let remote = entry.remote(layout.data_len);
        chain.write_imm(tag, &[message], remote, imm, flags);
        Ok(())
    }
}

impl Connection {
    /// Sends a request for chunk `id`.
    ///
    /// On success `transfer` is taken; a completion or the teardown ends it. On failure it is
    /// returned with `EBUSY` if the chunk is in use, `EMSGSIZE`, `EINVAL`, or the error of mapping
    /// its memory. Any context.
    #[inline(always)]
    pub(crate) fn send<const IS_WRITE: bool, T: Outbound>(
        &self,
        (requests, _guard): (&RequestTable, &rcu::Guard),
        id: u16,
        message: &[u8],
        attempt: Attempt,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let Some(entry) = requests.entries.get(usize::from(id)) else {
            return Err(Rejected::new(EINVAL, transfer));
        };
        let Some(mut held) = entry.acquire() else {
            return Err(Rejected::new(EBUSY, transfer));
        };
        let context = self.qp.handler();
        let prepared = prepare::<IS_WRITE>(requests, &mut held, message, &mut transfer, context);
        let (layout, data, list) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return Err(Rejected::new(e, transfer)),
        };

        let mut space = WrBuffer::new();
        let mut chain = self.qp.batch::<CHAIN, SEGMENTS>(&mut space);
        let outgoing = Outgoing {
            requests,
            context,
            id,
            message,
            layout: &layout,
        };
        let laid_out = outgoing.lay_out::<IS_WRITE>(&mut chain, &held, list.as_deref(), data);
        if let Err(e) = laid_out {
            if let (Some(list), true) = (list, data.is_mapped()) {
                sg::unmap(requests, list);
            }
            return Err(Rejected::new(e, transfer));
        }

        let number = held.begin(data, layout.tail_len);
        held.cid = context.cid;
        held.is_write = IS_WRITE;
        held.usr_len = layout.usr_len;
        held.attempt = attempt;
        if !IS_WRITE {
            held.sent_at = requests.now();
        }
        // The entry was free, so there is no transfer to drop; the compiler does not know that.
        core::mem::forget(held.transfer.replace(transfer.forget_type()));
        if attempt.is_counted {
            requests.count();
        }
        let bytes = layout.data_len.wrapping_add(u32::from(layout.usr_len));
        context.path.stats.count(direction::<IS_WRITE>(), bytes);
        if attempt.resent.is_failover() {
            context.path.stats.count_failover();
        }
        // From here on the answer may come, even before the post returns.
        held.arm();
        if let Err(e) = chain.post() {
            // Part of it may be posted: the teardown of the path ends the request.
            context.fail(PathError::Post(e));
        }
        if !IS_WRITE && data == DataMapping::FastRegRead {
            entry.posted.note(number);
        }
        Ok(())
    }
}
