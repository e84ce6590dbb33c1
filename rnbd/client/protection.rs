// SPDX-License-Identifier: GPL-2.0

//! Requests of devices with protection information: their tuples travel behind their data.
//!
//! The block layer makes the tuples of writes, and its user may. Those of reads are verified here,
//! where the data has arrived, so that what is wrong is counted; the block layer then does not
//! verify them again.

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
    crc::Checksum,
    errno,
    pages::PageBlock,
    ratelimit::RateLimit,
    scatterlist::SgList,
    sync::atomic::Ordering::Relaxed, //
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
    retry::end,
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
            seal::SEALED_LEN,
            tuple::{
                Verdict,
                Wrong, //
            },
            Geometry,
            Tuple, //
        },
        wire::Io, //
    },
    shown::Shown, //
};

/// Limits the log lines about wrong data.
static LOG_LIMIT: RateLimit = RateLimit::new(5000, 3);

/// Each byte of an escape.
const ESCAPE: u8 = 0xff;

/// Each byte of what is no tuple: no escape, and of an address that no disk has.
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
            return sealed(io, None);
        }
        let tuples_len = self.geometry().tuples_len(len_bytes).ok_or(EIO)?;
        let buffer = self.buffers.of(request).ok_or(EIO)?;
        let at = request.map_sg_with(buffer, tuples_len.into())? as usize;
        let io = io.with_tuples(tuples_len);
        let len = usize::from(tuples_len);
        if rw.op == Op::Read {
            // Tuples of an earlier request must not stand for those that do not come.
            fill(buffer, at, len, NO_TUPLE)?;
            return sealed(io, None);
        }
        let intervals = u64::from(len_bytes / self.geometry().interval_bytes());
        if request.has_tuples() {
            request.tuples_out(buffer, at, len)?;
            self.stats.written.fetch_add(intervals, Relaxed);
        } else {
            fill(buffer, at, len, ESCAPE)?;
            self.stats.not_protected.fetch_add(intervals, Relaxed);
        }
        sealed(io, Some((buffer, at, len)))
    }

    /// Verifies the data of a read that was answered, and gives the tuples to its user.
    fn finish_read(&self, request: &mut Request<Queue>) -> Result {
        let len_bytes = request.len_bytes();
        let tuples_len = self.geometry().tuples_len(len_bytes).ok_or(EIO)?;
        let buffer = self.buffers.of(request).ok_or(EIO)?;
        let at = request.bounced_bytes() as usize;
        if request.has_tuples() {
            self.verify(request, len_bytes, (buffer, at))?;
            request.tuples_in(buffer, at, usize::from(tuples_len))?;
            request.set_verified();
        }
        request.finish_bounce();
        Ok(())
    }

    /// Verifies the data of a read, whose tuples are at an offset of a block.
    fn verify(
        &self,
        request: &Request<Queue>,
        len_bytes: u32,
        (buffer, mut at): (&PageBlock, usize),
    ) -> Result {
        let format = self.geometry().format();
        let tuple_len = format.tuple_bytes() as usize;
        let mut reference = self.geometry().reference(request.sector()).ok_or(EIO)?;
        let (mut right, mut not_protected) = (0u64, 0u64);
        let interval_bytes = self.geometry().interval_bytes();
        let data = request.sg();
        let verified = data.checksums(self.stats.checksum(), interval_bytes, len_bytes, |guard| {
            let tuple = Tuple::load(format, |bytes| buffer.copy_out(at, bytes))?;
            match tuple.verify(format, reference, || guard) {
                Ok(Verdict::Right) => right = right.wrapping_add(1),
                Ok(Verdict::NotProtected) => not_protected = not_protected.wrapping_add(1),
                Err(wrong) => {
                    log_wrong(request.queue(), wrong);
                    return Err(errno::EILSEQ);
                }
            }
            at = at.wrapping_add(tuple_len);
            reference = reference.wrapping_add(1);
            Ok(())
        });
        self.stats.read.fetch_add(right, Relaxed);
        self.stats.not_protected.fetch_add(not_protected, Relaxed);
        verified
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
    rw.fua |= force_fua && rw.op == Op::Write;
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
            device.log_failed(request.op(), error);
            end(request, Err(error));
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

/// Fills the place of tuples. Their lengths are multiples of 8 bytes.
fn fill(buffer: &PageBlock, at: usize, len: usize, byte: u8) -> Result {
    for offset in (at..at.saturating_add(len)).step_by(size_of::<u64>()) {
        buffer.copy_in(offset, &[byte; size_of::<u64>()])?;
    }
    Ok(())
}

/// Returns `io` with the CRC of itself and of the `tuples`, at an offset of a block.
fn sealed(io: Io, tuples: Option<(&PageBlock, usize, usize)>) -> Result<Io> {
    let start = io.as_bytes().get(..SEALED_LEN).ok_or(EINVAL)?;
    let mut crc = Checksum::Crc32c.update(0, start);
    if let Some((block, at, len)) = tuples {
        crc = block.checksum(Checksum::Crc32c, crc, at, len)?;
    }
    // CAST: The checksum has 32 bits.
    Ok(io.sealed(crc as u32))
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
    /// Counts an error of protection information.
    fn count_error(&self) {
        if let Some(protection) = self.0.queue().protection() {
            let is_read = self.0.op() == block_ext::Op::Read;
            protection.stats.count_error(is_read);
        }
    }
}

impl Transfer for Protected {
    fn sg(&mut self) -> &mut SgList {
        self.0.sg_mut()
    }

    fn done(mut self, result: Result) {
        let finished = match (result, self.0.op(), self.0.queue().protection().cloned()) {
            (Ok(()), block_ext::Op::Read, Some(protection)) => protection.finish_read(&mut self.0),
            (result, _, _) => result,
        };
        match finished {
            Ok(()) => Device::acknowledged(self.0),
            Err(error) => {
                if error == errno::EILSEQ {
                    self.count_error();
                }
                Device::failed(self.0, error);
            }
        }
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
