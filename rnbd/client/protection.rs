// SPDX-License-Identifier: GPL-2.0

//! Requests of devices with protection information: their tuples travel behind their data.
//!
//! Those of writes are made here, unless the user of the disk brings some or has asked the block
//! layer to make them. Those of reads are verified here, where the data has arrived, so that what
//! is wrong is counted; the block layer then does not verify them again.

use block_ext::mq::{
    HwQueue,
    Rejected,
    Request, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    crc::Checksum, errno, pages::PageBlock, ratelimit::RateLimit, scatterlist::SgList,
};
use rtrs_client::{
    Ticket,
    Transfer, //
};
use zerocopy::IntoBytes;

use super::{
    device::Device,
    queue::{
        self,
        Queue, //
    },
    session::TupleBuffers, //
};
use crate::{
    pi_stats::PiStats,
    proto::{
        flags::{
            Op,
            Rw, //
        },
        pi::{
            message_digest::DIGESTED_LEN,
            tuple::Wrong,
            Geometry,
            GuardCheck,
            GuardHash, //
        },
        retry::AGAIN_MS,
        wire::Io, //
    },
    shown::Shown,
    tuples, //
};

/// Limits the log lines about wrong data.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 3);

/// Each byte of memory without a tuple: no escape, and of an address that no disk has.
const NO_TUPLE: u8 = 0xfe;

/// The protection information of a device, and what was seen of it.
pub(super) struct Protection {
    buffers: Arc<TupleBuffers>,
    stats: PiStats,
}

impl Protection {
    /// Creates the state of a device that was opened with `geometry`.
    pub(super) fn new(geometry: Geometry, buffers: Arc<TupleBuffers>) -> Self {
        Self {
            buffers,
            stats: PiStats::new(geometry),
        }
    }

    /// Returns what was seen.
    pub(super) fn stats(&self) -> &PiStats {
        &self.stats
    }

    /// Returns what the tuples are like.
    pub(super) fn geometry(&self) -> Geometry {
        self.stats.geometry()
    }

    /// Places the tuples of `request` behind its data, and returns the message for it.
    fn prepare(&self, request: &mut Request<Queue>, id: u32, rw: Rw) -> Result<Io> {
        let len_bytes = request.len_bytes();
        let io = Io::new(
            id,
            request.sector(),
            rw.to_wire(),
            len_bytes,
            request.ioprio(),
        );
        if !rw.op.has_data() {
            return add_digest(io, None);
        }
        let tuples_len = self.geometry().tuples_len(len_bytes).ok_or(EIO)?;
        let buffer = self.buffers.of(request).ok_or(EIO)?;
        let at = request.map_sg_with(buffer, tuples_len.into())? as usize;
        let io = io.with_tuples(tuples_len);
        let len = usize::from(tuples_len);
        if rw.op == Op::Read {
            // Tuples of an earlier request must not stand for those that do not come.
            buffer.fill(at, len, NO_TUPLE)?;
            return add_digest(io, None);
        }
        if request.has_tuples() {
            request.tuples_out(buffer, at, len)?;
        } else {
            let data = self.data(request, len_bytes, (buffer, at, len))?;
            let hash = data.make(GuardHash::NOTHING, GuardHash::and)?;
            // When it comes again it is the same request, and they are the same tuples.
            request.forbid_merges();
            match request.pdu_mut().guard_hash.keep(hash) {
                GuardCheck::Send => {}
                GuardCheck::SendAgain => log_sent_again(request.queue()),
                GuardCheck::Changed => {
                    log_changed(request.queue());
                    return Err(errno::EILSEQ);
                }
                GuardCheck::Damaged => return Err(errno::EILSEQ),
            }
        }
        self.stats.count_made(false, len_bytes);
        add_digest(io, Some((buffer, at, len)))
    }

    /// Verifies the data of a read that was answered, and gives the tuples to its user. They are
    /// behind the data, or a `tail` that came with the response.
    fn finish_read(&self, request: &mut Request<Queue>, tail: &[u8]) -> Result {
        let len_bytes = request.len_bytes();
        let len = usize::from(self.geometry().tuples_len(len_bytes).ok_or(EIO)?);
        let buffer = self.buffers.of(request).ok_or(EIO)?;
        let at = request.bounced_bytes() as usize;
        buffer.copy_in(at, tail)?;
        let verified = self.data(request, len_bytes, (buffer, at, len))?.verify()?;
        self.stats.count_verified(true, &verified.series);
        if let Err(wrong) = verified.result {
            log_wrong(request.queue(), wrong);
            return Err(errno::EILSEQ);
        }
        if request.has_tuples() {
            request.tuples_in(buffer, at, len)?;
            request.set_verified();
        }
        request.finish_bounce();
        Ok(())
    }

    /// Returns the data of a request, whose tuples are so many bytes at an offset of a block.
    #[inline]
    fn data<'a>(
        &self,
        request: &'a Request<Queue>,
        len_bytes: u32,
        (buffer, at, len): (&'a PageBlock, usize, usize),
    ) -> Result<tuples::Protected<'a, SgList>> {
        Ok(tuples::Protected {
            data: request.sg(),
            len_bytes,
            first: self.geometry().reference(request.sector()).ok_or(EIO)?,
            tuples: buffer.cursor(at, len)?,
            geometry: self.geometry(),
        })
    }
}

/// Sends a request to the device with the number `id` on the server; writes are forced through its
/// cache if `force_fua`.
#[cold]
#[inline(never)]
pub(super) fn send(
    hw: HwQueue<'_, Queue>,
    device: &Device,
    mut request: Request<Queue>,
    mut rw: Rw,
    (id, force_fua): (u32, bool),
) -> Result<(), Rejected<Queue>> {
    if force_fua {
        let Some(forced) = rw.forced() else {
            return queue::end_unforced(device, request);
        };
        rw = forced;
    }
    if queue::must_wait(device, &request) {
        return device.wait_for_chunk(request);
    }
    let Ok(note) = device.cache().send(&rw) else {
        return device.fail_flush(request);
    };
    let prepared = match device.protection() {
        Some(protection) => protection.prepare(&mut request, id, rw),
        None => Err(EIO),
    };
    let message = match prepared {
        Ok(message) => message,
        Err(error) => {
            Protected(request).end(Err(error));
            return Ok(());
        }
    };
    let history = request.pdu_mut();
    history.remote_id = id;
    history.note = note;
    queue::send(hw, device, rw.op, message.as_bytes(), Protected(request))
}

#[cold]
fn log_wrong(device: &Device, wrong: Wrong) {
    if LOG_LIMIT.allow().is_some() {
        pr_err!("{device}: wrong data from the server: {}\n", Shown(wrong));
    }
}

#[cold]
fn log_changed(device: &Device) {
    if LOG_LIMIT.allow().is_some() {
        pr_err!("{device}: the data of a write has changed since it was sent first\n");
    }
}

#[cold]
fn log_sent_again(device: &Device) {
    if LOG_LIMIT.allow().is_some() {
        pr_info!(
            "{device}: the data of a write have changed while it was sent: it is sent once more\n"
        );
    }
}

/// Returns `io` with the CRC of itself and of the `tuples`, at an offset of a block.
fn add_digest(io: Io, tuples: Option<(&PageBlock, usize, usize)>) -> Result<Io> {
    let start = io.as_bytes().get(..DIGESTED_LEN).ok_or(EINVAL)?;
    let mut crc = Checksum::Crc32c.update(0, start);
    if let Some((block, at, len)) = tuples {
        crc = block.checksum(Checksum::Crc32c, crc, at, len)?;
    }
    // CAST: The checksum has 32 bits.
    Ok(io.with_digest(crc as u32))
}

/// A request that RTRS carries out, with tuples if it is a read or a write. Those of other devices
/// have a type of their own and are sent at one place: there the compiler puts all that does it.
struct Protected(Request<Queue>);

impl AsRef<Request<Queue>> for Protected {
    fn as_ref(&self) -> &Request<Queue> {
        &self.0
    }
}

impl From<Protected> for Request<Queue> {
    fn from(protected: Protected) -> Self {
        protected.0
    }
}

impl Protected {
    /// Ends the request: with an error if what was read is wrong. A write that the server has
    /// refused may be begun once more.
    fn finish(mut self, result: Result, tail: &[u8]) {
        let finished = match (result, self.0.op(), self.0.queue().protection().cloned()) {
            (Ok(()), block_ext::Op::Read, Some(protection)) => {
                protection.finish_read(&mut self.0, tail)
            }
            (result, _, _) => result,
        };
        if finished == Err(errno::EILSEQ) && self.0.pdu_mut().guard_hash.refused() {
            // The server has not carried it out. Its tuples are made anew when it is begun again.
            return self.0.requeue_later(AGAIN_MS);
        }
        self.end(finished);
    }

    /// Ends the request.
    fn end(mut self, result: Result) {
        self.0.pdu_mut().guard_hash.ended();
        match result {
            Ok(()) => Device::acknowledged(self.0),
            Err(error) => {
                if error == errno::EILSEQ {
                    self.count_error();
                }
                Device::failed(self.0, error);
            }
        }
    }

    /// Counts an error of protection information.
    fn count_error(&self) {
        if let Some(protection) = self.0.queue().protection() {
            let is_read = self.0.op() == block_ext::Op::Read;
            protection.stats.count_error(is_read);
        }
    }
}

impl Transfer for Protected {
    fn data_len(&self) -> u32 {
        self.0.sg().len_bytes()
    }

    fn sg(&mut self) -> &mut SgList {
        self.0.sg_mut()
    }

    fn tail_len(&self) -> u32 {
        let (protection, len_bytes) = (self.0.queue().protection(), self.0.len_bytes());
        let tuples_len = protection.and_then(|p| p.geometry().tuples_len(len_bytes));
        tuples_len.map_or(0, u32::from)
    }

    fn done(self, result: Result) {
        self.finish(result, &[]);
    }

    fn done_with_tail(self, tail: &[u8]) {
        self.finish(Ok(()), tail);
    }

    fn requeue(self, ticket: Ticket) {
        Device::requeue(self.0, ticket);
    }

    fn is_valid(&self, message: &[u8]) -> bool {
        queue::is_for(&self.0, message)
    }

    fn ticket(&self) -> Option<Ticket> {
        self.0.pdu().ticket()
    }
}
