// SPDX-License-Identifier: GPL-2.0

//! Sends requests of the block layer to the server, and ends them.
//!
//! Everything here is the IO path: no allocation, no sleeping lock. The tag of a request is the
//! number of the server's chunk that it uses, so the block layer's tags are the only flow control.

mod together;

use block_ext::{
    mq::{
        HwQueue,
        Operations,
        Rejected,
        Request,
        RequestList, //
    },
    Command,
    Flags, //
};
use kernel::prelude::*;
use kernel_ext::{
    errno,
    pages::PageBlock,
    scatterlist::SgList, //
};
use rtrs_client::{
    Direction,
    IoQueue,
    Ticket,
    Transfer, //
};
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

use crate::client::{
    device::Device,
    protection,
    retry::{
        end,
        History, //
    },
};
use crate::proto::{
    cache::{
        Note,
        Owed, //
    },
    flags::{
        Op,
        Rw,
        RwFlags, //
    },
    io_state::IoState,
    wire::{
        Io,
        IoV1, //
    },
};

/// The queues of a session's disks, as the block layer sees them.
pub(super) struct Queue;

/// A request that RTRS carries out.
struct InFlight(Request<Queue>);

impl AsRef<Request<Queue>> for InFlight {
    #[inline]
    fn as_ref(&self) -> &Request<Queue> {
        &self.0
    }
}

impl From<InFlight> for Request<Queue> {
    #[inline]
    fn from(in_flight: InFlight) -> Self {
        in_flight.0
    }
}

impl Transfer for InFlight {
    #[inline(always)]
    fn data_len(&self) -> u32 {
        self.0.data_len()
    }

    #[inline(always)]
    fn fill_sg(&mut self) -> Result {
        if !self.0.sg().is_empty() {
            return Ok(());
        }
        self.0.map_sg().map_err(|_| EIO)
    }

    #[inline(always)]
    fn sg(&mut self) -> &mut SgList {
        self.0.sg_mut()
    }

    #[inline(always)]
    fn copy_in(&mut self, pages: &PageBlock, offset: usize) -> Result {
        self.0.copy_in(pages, offset)
    }

    #[inline]
    fn done(self, result: Result) {
        match result {
            Ok(()) => Device::acknowledged(self.0),
            Err(error) => Device::failed(self.0, error),
        }
    }

    fn requeue(self, ticket: Ticket) {
        Device::requeue(self.0, ticket);
    }

    fn is_valid(&self, message: &[u8]) -> bool {
        is_for(&self.0, message)
    }

    fn ticket(&self) -> Option<Ticket> {
        self.0.pdu().ticket()
    }
}

/// Returns whether `message`, with which the request was sent, has the number that its device has
/// on the server now.
pub(super) fn is_for(request: &Request<Queue>, message: &[u8]) -> bool {
    let number = IoV1::read_from_prefix(message).map(|(io, _)| io.device_id.get());
    number.is_ok_and(|number| request.queue().io_state().is_number(number))
}

#[vtable]
impl Operations for Queue {
    type Set = ();
    type Queue = Device;
    type Pdu = History;

    #[inline]
    fn queue_rq(
        hw: HwQueue<'_, Self>,
        device: &Device,
        request: Request<Self>,
    ) -> Result<(), Rejected<Self>> {
        match (usual(request.command()), device.io_state()) {
            (Some(rw), IoState::Open(remote_id)) => {
                let note = device.cache().get().note_of(&rw);
                send_usual(hw, device, request, (remote_id, rw, note))
            }
            _ => queue_unusual(hw, device, request),
        }
    }

    fn queue_rqs(list: RequestList<'_, Self>) {
        together::queue(list);
    }

    #[inline]
    fn poll(hw: HwQueue<'_, Self>, device: &Device) -> u32 {
        hw.poll_index().map_or(0, |index| device.rtrs().poll(index))
    }

    fn timeout(device: &Device, tag: u32) {
        // CAST: as in `chunk_of`.
        device.rtrs().timed_out(tag as u16);
    }
}

/// Returns operation and flags of a read or write that needs no more than to be sent, if the
/// device is [`IoState::Open`]; `None` of any other request. If it has to wait for its chunk, RTRS
/// says so: nothing is done for it before, as it is for a flush.
#[inline(always)]
fn usual(command: Command) -> Option<Rw> {
    let op = match command.op() {
        block_ext::Op::Read => Op::Read,
        block_ext::Op::Write => Op::Write,
        _ => return None,
    };
    let flags = RwFlags::SYNC.when(command.is_sync());
    let unusual = Flags::SWAP | Flags::FUA | Flags::PREFLUSH;
    (!command.flags().intersects(unusual)).then_some(Rw { op, flags })
}

/// Does what [`Queue::queue_rq`] does for a request that is not [`usual`], and for a device that is
/// not [`IoState::Open`].
#[cold]
#[inline(never)]
fn queue_unusual(
    hw: HwQueue<'_, Queue>,
    device: &Device,
    request: Request<Queue>,
) -> Result<(), Rejected<Queue>> {
    let Some(mut rw) = rw_of(&request) else {
        request.end(Err(errno::EOPNOTSUPP));
        return Ok(());
    };
    if request.flags().contains(Flags::SWAP) {
        device.note_swap();
    }
    // A disconnect invalidates the device's number on the server, so a request for a device that is
    // not open must not be sent.
    let remote_id = match device.io_state() {
        IoState::Open(remote_id) => remote_id,
        IoState::OpenForceFua(remote_id) => {
            let Some(forced) = rw.forced() else {
                return end_unforced(device, request);
            };
            rw = forced;
            remote_id
        }
        IoState::OpenProtected { id, force_fua } => {
            return protection::send(hw, device, request, rw, (id, force_fua));
        }
        IoState::Queueing | IoState::Failing => return device.refuse(request),
    };
    if must_wait(device, &request) {
        return device.wait_for_chunk(request);
    }
    match device.cache().send(&rw) {
        Ok(note) => {
            let (request, head) = compose(request, (remote_id, rw, note));
            send(hw, device, rw.op, head.as_bytes(), InFlight(request))
        }
        Err(Owed) => device.fail_flush(request),
    }
}

/// Sends a request that is [`usual`]. If the path that was chosen gives it back, it is begun anew,
/// as one that is not.
#[inline(always)]
fn send_usual(
    hw: HwQueue<'_, Queue>,
    device: &Device,
    request: Request<Queue>,
    (remote_id, rw, note): (u32, Rw, Note),
) -> Result<(), Rejected<Queue>> {
    let (request, head) = compose(request, (remote_id, rw, note));
    let (chunk, io_queue) = (chunk_of(&request), io_queue_of(&hw));
    let direction = direction_of(rw.op);
    let transfer = InFlight(request);
    let sent = device
        .rtrs()
        .submit_once(chunk, io_queue, direction, head.as_bytes(), transfer);
    match sent {
        Ok(()) => Ok(()),
        Err(back) => given_back(hw, device, back.error, back.transfer.into()),
    }
}

/// Begins a request anew that a path has given back, if another one may take it.
#[cold]
#[inline(never)]
fn given_back(
    hw: HwQueue<'_, Queue>,
    device: &Device,
    error: Error,
    request: Request<Queue>,
) -> Result<(), Rejected<Queue>> {
    if device.rtrs().may_send_again(error) {
        queue_unusual(hw, device, request)
    } else {
        device.take_back(error, request)
    }
}

/// Returns the queue to which a hardware queue belongs.
#[inline(always)]
fn io_queue_of(hw: &HwQueue<'_, Queue>) -> IoQueue {
    match hw.poll_index() {
        Some(index) => IoQueue::Poll(index),
        None => IoQueue::Cpu(hw.index()),
    }
}

/// Returns the chunk of a request.
#[inline(always)]
fn chunk_of(request: &Request<Queue>) -> u16 {
    // CAST: tags are below the depth of the tag set, which is at most 65535.
    request.tag() as u16
}

/// Notes how a request is sent to the device with the number `remote_id` on the server, and returns
/// its message.
#[inline(always)]
fn compose(
    mut request: Request<Queue>,
    (remote_id, rw, note): (u32, Rw, Note),
) -> (Request<Queue>, Io) {
    let history = request.pdu_mut();
    history.remote_id = remote_id;
    history.note = note;
    let head = Io::new(
        remote_id,
        request.sector(),
        rw.to_wire(),
        request.len_bytes(),
        request.ioprio(),
    );
    (request, head)
}

/// Ends a request that cannot be forced through the server's cache, unless a copy of it may still
/// be carried out: the block layer writes zeroes instead, which the copy must not overwrite.
#[cold]
pub(super) fn end_unforced(
    device: &Device,
    request: Request<Queue>,
) -> Result<(), Rejected<Queue>> {
    if device.rtrs().may_be_executed(request.pdu().ticket()) {
        return device.wait_for_chunk(request);
    }
    end(request, Err(errno::EOPNOTSUPP));
    Ok(())
}

/// Returns whether a request waits beside the queue. It is asked before anything is done for the
/// request, which would be done again each time that it is started.
#[inline]
pub(super) fn must_wait(device: &Device, request: &Request<Queue>) -> bool {
    let tag = chunk_of(request);
    device.rtrs().must_wait(tag, || request.pdu().ticket())
}

/// Passes a request to RTRS.
#[inline(always)]
pub(super) fn send<T: Transfer + AsRef<Request<Queue>> + Into<Request<Queue>>>(
    hw: HwQueue<'_, Queue>,
    device: &Device,
    op: Op,
    head: &[u8],
    transfer: T,
) -> Result<(), Rejected<Queue>> {
    let (chunk, io_queue) = (chunk_of(transfer.as_ref()), io_queue_of(&hw));
    match device
        .rtrs()
        .submit(chunk, io_queue, direction_of(op), head, transfer)
    {
        Ok(()) => Ok(()),
        Err(back) => device.take_back(back.error, back.transfer.into()),
    }
}

/// Returns the operation and flags for the server; `None` if the protocol does not have them.
#[inline]
fn rw_of(request: &Request<Queue>) -> Option<Rw> {
    let op = match request.op() {
        block_ext::Op::Read => Op::Read,
        block_ext::Op::Write => Op::Write,
        block_ext::Op::Flush => Op::Flush,
        block_ext::Op::Discard => Op::Discard,
        block_ext::Op::SecureErase => Op::SecureErase,
        block_ext::Op::WriteZeroes => Op::WriteZeroes,
        block_ext::Op::Other => return None,
    };
    let flags = request.flags();
    let unmaps_not = op == Op::WriteZeroes && flags.contains(Flags::NOUNMAP);
    Some(Rw {
        op,
        // As the C driver: requests with a flush are forced as well.
        flags: RwFlags::SYNC
            .when(request.is_sync())
            .and(RwFlags::FUA.when(flags.intersects(Flags::FUA | Flags::PREFLUSH)))
            .and(RwFlags::PREFLUSH.when(flags.contains(Flags::PREFLUSH)))
            .and(RwFlags::NOUNMAP.when(unmaps_not)),
    })
}

/// Returns the direction of an operation's data. Operations without data have that of the C driver,
/// which depends on the block layer's number of the operation.
#[inline]
fn direction_of(op: Op) -> Direction {
    match op {
        Op::Read | Op::Flush => Direction::Read,
        Op::Write | Op::Discard | Op::SecureErase | Op::WriteZeroes => Direction::Write,
    }
}
