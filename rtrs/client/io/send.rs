// SPDX-License-Identifier: GPL-2.0

//! Sends a request: writes the message, posts the work requests.

use kernel::prelude::*;
use kernel_ext::sync::Held;
use rdma::{
    sg,
    Access,
    Batch,
    MessageBuffer,
    SendFlags,
    WrBuffer, //
};
use rtrs_core::proto::{
    imm::Imm,
    wire::{
        Descriptor,
        ReadHead,
        ReadMessage,
        WriteHead, //
    },
};
use zerocopy::IntoBytes;

use crate::client::{
    io::{
        connection::{
            ConnectionContext,
            Tagged, //
        },
        prepare::{
            direction,
            prepare,
            Layout,
            READ,
            WRITE, //
        },
        request::{
            Attempt,
            DataMapping,
            InFlight,
            Sent, //
        },
        table::{
            Entry,
            RequestTable,
            GATHERED_MAX, //
        },
        transfer::{
            Outbound,
            Rejected, //
        }, //
    },
    path::connections::Connection, //
};

/// Most work requests of a request: invalidation of the region's old key, registration, write.
const CHAIN: usize = 3;
/// Most gather entries of a request: the pieces of its data, and the message.
const SEGMENTS: usize = GATHERED_MAX + 1;

type Chain<'a> = Batch<'a, ConnectionContext, CHAIN, 2>;

/// Registers the region of `entry` under its new key, after the invalidation of its old one.
#[inline(always)]
fn register(chain: &mut Chain<'_>, tag: u32, entry: &InFlight, access: Access) {
    if let Some(key) = entry.stale {
        chain.local_invalidate(tag, key, SendFlags::NONE);
    }
    chain.reg_mr(tag, &entry.mr, access, SendFlags::NONE);
}

/// Unmaps the data of a request that is not sent.
#[cold]
fn unmap<T: Outbound>(
    requests: &RequestTable,
    error: Error,
    data: DataMapping,
    mut transfer: T,
) -> Rejected<T> {
    if data.is_mapped() {
        if let Ok(list) = transfer.sg() {
            sg::unmap(requests, list);
        }
    }
    Rejected::new(error, transfer)
}

/// Copies the result of a function that is not inlined. It is returned by way of memory; without
/// the copy that is the memory of the caller's result, which the usual way then writes, too: 8 to
/// 10 instructions of a write with two paths.
#[inline(always)]
pub(super) fn relay<T>(sent: Result<(), Rejected<T>>) -> Result<(), Rejected<T>> {
    sent.map_err(|back| Rejected::new(back.error, back.transfer))
}

/// A request that is about to be sent on a connection. What is not inlined takes it by value: the
/// compiler need not have it in memory for that.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) connection: &'a Connection,
    pub(super) requests: &'a RequestTable,
    pub(super) entry: &'a Entry,
    /// The number of the connection, 0 of that for admin messages.
    pub(super) cid: usize,
    pub(super) id: u16,
    pub(super) message: &'a [u8],
    pub(super) attempt: Attempt,
}

impl<'a> Outgoing<'a> {
    #[inline(always)]
    fn context(&self) -> &'a ConnectionContext {
        self.connection.qp.handler()
    }

    /// Returns the memory for user message and head, with the user message, and the immediate.
    #[inline(always)]
    fn compose(&self, layout: &Layout) -> Result<(MessageBuffer<'a>, u32)> {
        let requests = self.requests;
        let payload = requests.granted.geometry.join(self.id, layout.head_offset);
        let payload = payload.ok_or(EINVAL)?;
        let buffer = requests
            .messages
            .buffer(self.id.into(), layout.message_len)
            .ok_or(EINVAL)?;
        buffer.write(0, self.message)?;
        Ok((buffer, Imm::Request { payload }.encode()))
    }

    /// Returns whether a read of so many bytes goes into its buffer. The answer to an
    /// administrative message may be shorter than its memory, which is zeroed.
    #[inline(always)]
    pub(super) fn is_copied(&self, entry: &InFlight, data_len: u32) -> bool {
        let buffer = entry.buffer.as_ref();
        let is_io = self.cid != 0 && data_len != 0;
        is_io && buffer.is_some_and(|buffer| buffer.fits(data_len))
    }

    /// Sends a read into its buffer.
    #[inline(always)]
    pub(super) fn send_copied<T: Outbound>(
        &self,
        held: Held<'_, InFlight>,
        data_len: u32,
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let mut space = WrBuffer::new();
        let mut chain = self.connection.qp.batch::<1, 1>(&mut space);
        let added = self.add_copied(&mut chain, held, data_len, transfer);
        if added.is_ok() {
            self.connection.post(&mut chain);
        }
        added
    }

    /// Adds a read into its buffer: one work request, and nothing is mapped.
    #[inline(always)]
    pub(super) fn add_copied<const N: usize, const S: usize, T: Outbound>(
        &self,
        chain: &mut Batch<'_, ConnectionContext, N, S>,
        mut held: Held<'_, InFlight>,
        data_len: u32,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let spoil_len = transfer.spoil_len();
        if spoil_len != 0 {
            if let Some(buffer) = &held.buffer {
                buffer.spoil_end(data_len, spoil_len);
            }
        }
        match self.lay_out_copied(chain, &held, data_len) {
            Ok(layout) => {
                held.is_asked = false;
                self.commit::<READ>(held, &layout, DataMapping::Copied, transfer);
                Ok(())
            }
            Err(e) => Err(Rejected::new(e, transfer)),
        }
    }

    #[inline(always)]
    fn lay_out_copied<const N: usize, const S: usize>(
        &self,
        chain: &mut Batch<'_, ConnectionContext, N, S>,
        entry: &InFlight,
        data_len: u32,
    ) -> Result<Layout> {
        let layout = Layout::new::<READ>(self.message, data_len, 0, self.requests)?;
        let to = entry.buffer.as_ref().ok_or(EINVAL)?.lend(data_len);
        let (buffer, imm) = self.compose(&layout)?;
        let to = Descriptor::new(to.addr, to.key, data_len);
        let head = ReadMessage::new(layout.usr_len, to).into_registered();
        buffer.write(layout.usr_len.into(), head.as_bytes())?;
        let (context, remote) = (self.context(), entry.remote(data_len));
        let (tag, flags) = (context.tags.encode(Tagged::Send), context.next_send());
        chain.write_imm(tag, &[buffer.segment()], remote, imm, flags);
        Ok(layout)
    }

    /// Sends a read that is not copied. Not inlined, so that most reads do not use its stack.
    #[inline(never)]
    pub(super) fn send_read<T: Outbound>(
        self,
        mut held: Held<'_, InFlight>,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let (requests, context) = (self.requests, self.context());
        match prepare::<READ>(requests, &mut held, self.message, &mut transfer, context) {
            Ok((layout, data)) => self.send_keyed::<READ, T>(held, &layout, data, transfer),
            Err(e) => Err(Rejected::new(e, transfer)),
        }
    }

    /// Maps a write of one piece of memory, and sends it by its address. It is mapped before the
    /// rest, as less has to be saved over the calls of the DMA layer then.
    #[inline(always)]
    pub(super) fn send_piece<T: Outbound>(
        &self,
        held: Held<'_, InFlight>,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        if let Err(e) = self.map_piece(&mut transfer) {
            return Err(Rejected::new(e, transfer));
        }
        let mut space = WrBuffer::new();
        let mut chain = self.connection.qp.batch::<1, 2>(&mut space);
        let added = self.add_piece(&mut chain, held, transfer);
        if added.is_ok() {
            self.connection.post(&mut chain);
        }
        added
    }

    /// Maps the only piece of a write.
    #[inline(always)]
    pub(super) fn map_piece(&self, transfer: &mut impl Outbound) -> Result {
        let list = transfer.sg()?;
        let device = self.requests.pd.device();
        sg::map(device, list, direction::<WRITE>().dma()).map(drop)
    }

    /// Adds a write of one piece of memory, which is mapped.
    #[inline(always)]
    pub(super) fn add_piece<const N: usize, const S: usize, T: Outbound>(
        &self,
        chain: &mut Batch<'_, ConnectionContext, N, S>,
        held: Held<'_, InFlight>,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let data = DataMapping::Sges;
        match self.lay_out_piece(chain, &held, &mut transfer) {
            Ok(layout) => {
                self.commit::<WRITE>(held, &layout, data, transfer);
                Ok(())
            }
            Err(e) => Err(unmap(self.requests, e, data, transfer)),
        }
    }

    /// Sends a write of several pieces, or without data. Not inlined, as [`Self::send_read`].
    #[inline(never)]
    pub(super) fn send_write<T: Outbound>(
        self,
        mut held: Held<'_, InFlight>,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let (requests, context) = (self.requests, self.context());
        let prepared = prepare::<WRITE>(requests, &mut held, self.message, &mut transfer, context);
        let (layout, data) = match prepared {
            Ok((layout, DataMapping::Sges)) => (layout, DataMapping::Sges),
            Ok((layout, data)) => {
                return self.send_keyed::<WRITE, T>(held, &layout, data, transfer)
            }
            Err(e) => return Err(Rejected::new(e, transfer)),
        };
        let mut space = WrBuffer::new();
        let mut chain = self.connection.qp.batch::<CHAIN, SEGMENTS>(&mut space);
        if let Err(e) = self.lay_out_gathered(&mut chain, &held, &layout, &mut transfer) {
            return Err(unmap(requests, e, data, transfer));
        }
        self.post::<WRITE, CHAIN, SEGMENTS>(held, &layout, data, transfer, chain);
        Ok(())
    }

    /// Sends a request by the key of the region, or without data.
    #[inline(always)]
    fn send_keyed<const IS_WRITE: bool, T: Outbound>(
        &self,
        held: Held<'_, InFlight>,
        layout: &Layout,
        data: DataMapping,
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let mut space = WrBuffer::new();
        let mut chain = self.connection.qp.batch::<CHAIN, 2>(&mut space);
        if let Err(e) = self.lay_out::<IS_WRITE>(&mut chain, &held, layout, data) {
            return Err(unmap(self.requests, e, data, transfer));
        }
        self.post::<IS_WRITE, CHAIN, 2>(held, layout, data, transfer, chain);
        Ok(())
    }

    /// Writes user message and head of a write into the message buffer.
    #[inline(always)]
    fn compose_write(&self, layout: &Layout) -> Result<(MessageBuffer<'a>, u32)> {
        let (buffer, imm) = self.compose(layout)?;
        let head = WriteHead::new(layout.usr_len);
        buffer.write(layout.usr_len.into(), head.as_bytes())?;
        Ok((buffer, imm))
    }

    /// Chains the only piece of a write, which is mapped, and its message.
    #[inline(always)]
    fn lay_out_piece<const N: usize, const S: usize>(
        &self,
        chain: &mut Batch<'_, ConnectionContext, N, S>,
        entry: &InFlight,
        transfer: &mut impl Outbound,
    ) -> Result<Layout> {
        let layout = Layout::new::<WRITE>(self.message, transfer.data_len(), 0, self.requests)?;
        let (buffer, imm) = self.compose_write(&layout)?;
        let tag = self.context().tags.encode(Tagged::Write(self.id));
        let from = (&*transfer.sg()?, buffer.segment());
        let (to, flags) = (entry.remote(0), SendFlags::SIGNALED);
        match chain.write_piece_with_imm(tag, from, to, imm, flags) {
            true => Ok(layout),
            // One piece is one segment of the device.
            false => Err(EIO),
        }
    }

    /// Chains the pieces of a write and its message.
    #[inline(always)]
    fn lay_out_gathered(
        &self,
        chain: &mut Batch<'_, ConnectionContext, CHAIN, SEGMENTS>,
        entry: &InFlight,
        layout: &Layout,
        transfer: &mut impl Outbound,
    ) -> Result {
        let tags = &self.context().tags;
        let (buffer, imm) = self.compose_write(layout)?;
        chain.write_sg_with_imm(
            (
                tags.encode(Tagged::Send),
                tags.encode(Tagged::Write(self.id)),
            ),
            self.requests.pieces_max(),
            (&*transfer.sg()?, buffer.segment()),
            entry.remote(0),
            imm,
            SendFlags::SIGNALED,
        );
        Ok(())
    }

    /// Writes user message and head into the message buffer, and chains the work requests: the
    /// registration of the memory if it has a key, then one write with an immediate.
    #[inline(always)]
    fn lay_out<const IS_WRITE: bool>(
        &self,
        chain: &mut Chain<'_>,
        entry: &InFlight,
        layout: &Layout,
        data: DataMapping,
    ) -> Result {
        let context = self.context();
        let tag = context.tags.encode(Tagged::Send);
        let (buffer, imm) = self.compose(layout)?;
        let at = u32::from(layout.usr_len);
        let message = buffer.segment();
        if IS_WRITE {
            buffer.write(at, WriteHead::new(layout.usr_len).as_bytes())?;
            let remote = entry.remote(0);
            if data == DataMapping::FastReg {
                register(chain, tag, entry, Access::LOCAL_READ);
                let local = [entry.mr.segment(0, layout.data_len), message];
                let write = context.tags.encode(Tagged::Write(self.id));
                chain.write_imm(write, &local, remote, imm, SendFlags::SIGNALED);
            } else {
                chain.write_imm(tag, &[message], remote, imm, context.next_send());
            }
            return Ok(());
        }
        if data == DataMapping::None {
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
        let flags = context.next_send();
        let remote = entry.remote(layout.data_len);
        chain.write_imm(tag, &[message], remote, imm, flags);
        Ok(())
    }

    /// Commits a request and posts its work requests.
    #[inline(always)]
    fn post<const IS_WRITE: bool, const N: usize, const S: usize>(
        &self,
        held: Held<'_, InFlight>,
        layout: &Layout,
        data: DataMapping,
        transfer: impl Outbound,
        mut chain: Batch<'_, ConnectionContext, N, S>,
    ) {
        let number = self.commit::<IS_WRITE>(held, layout, data, transfer);
        self.connection.post(&mut chain);
        if !IS_WRITE && data == DataMapping::FastRegRead {
            self.entry.posted.note(number);
        }
    }

    /// Fills the entry and counts the request, whose work requests are posted next. From now on a
    /// completion or the teardown ends it. Returns what [`InFlight::begin`] does.
    #[inline(always)]
    fn commit<const IS_WRITE: bool>(
        &self,
        mut held: Held<'_, InFlight>,
        layout: &Layout,
        data: DataMapping,
        transfer: impl Outbound,
    ) -> u32 {
        let (requests, context, attempt) = (self.requests, self.context(), self.attempt);
        let sent = Sent {
            // CAST: A path has at most `CONNECTIONS_MAX`.
            cid: self.cid as u16,
            usr_len: layout.usr_len,
            attempt,
            is_write: IS_WRITE,
            data,
        };
        let number = held.begin(sent, layout.tail_len);
        if data == DataMapping::FastRegRead {
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
        number
    }
}
