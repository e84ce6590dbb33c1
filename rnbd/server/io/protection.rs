// SPDX-License-Identifier: GPL-2.0

//! Requests with protection information: their tuples are behind their data.
//!
//! Writes are verified before the disk gets them. In mode wire the tuples end here, and those of a
//! read are made from what the disk gave; in mode pass they go to the disk and come from it.

use core::fmt::{
    self,
    Display, //
};

use block_ext::{
    bdev::BlockDevice,
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    integrity::{
        BioTuples,
        Integrity,
        TupleKind, //
    },
    Flags, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    crc::Checksum,
    errno,
    module_param_word,
    pages::PageBlock,
    sync::Lent, //
};
use rtrs_server::Operation;

use super::{
    backlog::Backlog,
    client::Client,
    direction_of,
    flags_of,
    op_of,
    target::Target, //
};
use crate::{
    pi_stats::PiStats,
    proto::{
        flags::Op,
        message::IoRequest,
        pi::{
            message_digest::DIGESTED_LEN,
            tuple::Wrong,
            Format,
            Geometry,
            Kept,
            MessageDigest,
            Mode,
            Wanted, //
        },
    },
    server::log_limit::LOG_LIMIT,
    shown::Shown,
    tuples, //
};

module_param_word!(
    SRV_VERIFY,
    "srv_verify",
    [c"write", c"read", c"both", c"none"],
    "Which protection information the server verifies: that of write, of read (if the disk stores \
     it), of both or of none (default: write)"
);
module_param_word!(
    PI,
    "pi",
    [c"auto", c"wire", c"off"],
    "The protection information for clients that ask for it: auto passes it to disks that store \
     it or have a sidecar, wire protects the transfer only, off refuses it (default: auto)"
);

/// Returns whether writes are verified.
fn verifies_writes() -> bool {
    matches!(SRV_VERIFY.get(), 0 | 2)
}

/// Returns whether reads are verified.
fn verifies_reads() -> bool {
    matches!(SRV_VERIFY.get(), 1 | 2)
}

/// Returns the protection information of `device` for a client that asks for `wanted`;
/// `sidecar_block_bytes` is the size of the blocks of its sidecar, if it has one.
pub(in crate::server) fn offer(
    device: &BlockDevice,
    wanted: Wanted,
    sidecar_block_bytes: Option<u32>,
) -> Option<Geometry> {
    let kept = match PI.get() {
        0 if sidecar_block_bytes.is_some() => Kept::InSidecar,
        0 => device.integrity().map_or(Kept::Nowhere, by_disk),
        1 => Kept::Nowhere,
        _ => return None,
    };
    let block_bytes = sidecar_block_bytes.unwrap_or_else(|| device.logical_block_bytes());
    wanted.offer(block_bytes, kept)
}

fn by_disk(integrity: Integrity) -> Kept {
    let format = match integrity.kind {
        TupleKind::Crc64 => Format::Crc64,
        TupleKind::T10 => Format::T10,
    };
    Kept::ByDisk(format, integrity.interval_bytes)
}

/// The protection information of a device that a session has open, and what was seen of it.
pub(crate) struct Protection {
    /// Session and device, for the log.
    label: CString,
    bios: Arc<BioPool<ProtectedIo>>,
    stats: Arc<PiStats>,
}

/// The fault of a request.
enum Bad {
    /// Message and tuples have another CRC.
    Digest,
    /// An interval.
    Interval(Wrong),
}

impl Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest => f.write_str("message or tuples were changed on their way"),
            Self::Interval(wrong) => wrong.fmt(f),
        }
    }
}

impl Protection {
    /// Creates the state of a device that is opened with `geometry`.
    pub(crate) fn new(
        label: CString,
        geometry: Geometry,
        bios: Arc<BioPool<ProtectedIo>>,
    ) -> Result<Self> {
        Ok(Self {
            label,
            bios,
            stats: Arc::new(PiStats::new(geometry), GFP_KERNEL)?,
        })
    }

    /// Returns what was seen.
    pub(crate) fn stats(&self) -> &Arc<PiStats> {
        &self.stats
    }

    /// Returns what the tuples are like.
    pub(crate) fn geometry(&self) -> Geometry {
        self.stats.geometry()
    }

    /// Verifies the CRC of a request's message and of the tuples of a write, which are its end,
    /// before anything that the message says is used.
    ///
    /// # Errors
    ///
    /// Returns `EILSEQ`, with a log line.
    fn check_digest(&self, operation: &Operation) -> Result {
        let is_read = operation.is_read();
        match has_right_digest(operation, is_read) {
            Some(true) => Ok(()),
            _ => Err(self.reject(is_read, Bad::Digest)),
        }
    }

    /// Returns the data at the start of `memory`, with its tuples behind it.
    #[inline]
    fn data<'a>(
        &self,
        memory: &'a PageBlock,
        first: u64,
        len_bytes: u32,
    ) -> Result<tuples::Protected<'a, PageBlock>> {
        let geometry = self.geometry();
        let tuples_len = geometry.tuples_len(len_bytes).ok_or(EINVAL)?;
        Ok(tuples::Protected {
            data: memory,
            len_bytes,
            first,
            tuples: memory.cursor(len_bytes as usize, tuples_len.into())?,
            geometry,
        })
    }

    /// Verifies the data at the start of `memory` by the tuples behind it, and counts it as that of
    /// a read or of a write.
    ///
    /// # Errors
    ///
    /// Returns `EILSEQ`, with a log line, if something is wrong; `EINVAL` if they do not fit into
    /// the memory, which does not happen.
    fn verify(&self, memory: &PageBlock, first: u64, len_bytes: u32, is_read: bool) -> Result {
        let verified = self.data(memory, first, len_bytes)?.verify()?;
        self.stats.count_verified(is_read, &verified.series);
        verified
            .result
            .map_err(|wrong| self.reject(is_read, Bad::Interval(wrong)))
    }

    /// Makes the tuples of the data at the start of `memory`, behind it.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if they do not fit into the memory, which does not happen.
    pub(crate) fn make(&self, memory: &PageBlock, first: u64, len_bytes: u32) -> Result {
        self.data(memory, first, len_bytes)?.make((), |(), _| ())?;
        self.stats.count_made(true, len_bytes);
        Ok(())
    }

    /// Counts and logs that something is wrong, and returns the error for the client.
    #[cold]
    fn reject(&self, is_read: bool, bad: Bad) -> Error {
        self.stats.count_error(is_read);
        if LOG_LIMIT.allow().is_some() {
            let what = if is_read { "read" } else { "write" };
            pr_err!("{}: {what} refused: {}\n", &*self.label, Shown(bad));
        }
        errno::EILSEQ
    }
}

/// A request in flight.
pub(crate) struct ProtectedIo {
    operation: Operation,
    target: Lent<Target>,
    protection: Arc<Protection>,
    first: u64,
    size: u32,
    /// A flush may come in the direction of a read, too.
    reads: bool,
}

impl ProtectedIo {
    /// Makes or verifies the tuples of a read, which the disk has carried out.
    fn finish(&self) -> Result {
        let protection = &self.protection;
        let memory = self.operation.memory().ok_or(EIO)?;
        let (first, size) = (self.first, self.size);
        match protection.geometry().mode() {
            Mode::Wire => protection.make(memory, first, size),
            Mode::Pass if verifies_reads() => protection.verify(memory, first, size, true),
            // Those of mode store do not come here.
            Mode::Pass | Mode::Store => Ok(()),
        }
    }
}

impl BioData for ProtectedIo {
    type Tuples = BioTuples;

    fn device(&self) -> &BlockDevice {
        self.target.device()
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.protection.bios
    }

    fn end(self, result: Result) {
        let result = match self.reads {
            true => result.and_then(|()| self.finish()),
            false => result,
        };
        // Gives the target back first, as the client may close the device when it has the answer.
        drop(self.target);
        drop(self.protection);
        self.operation.reply(result);
    }

    fn refused(self, _error: Error) {
        Backlog::add(self.target, self.operation);
    }
}

/// Starts a request of a device with protection information.
#[cold]
pub(super) fn start(
    client: &Client,
    target: Lent<Target>,
    protection: Arc<Protection>,
    operation: Operation,
) {
    if let Err(error) = protection.check_digest(&operation) {
        return operation.reply(Err(error));
    }
    let parsed = IoRequest::parse_protected(
        operation.user(),
        operation.data_len(),
        direction_of(&operation),
        client.version(),
        protection.geometry(),
    );
    match parsed {
        Ok((request, _)) if !target.is_permitted(request.rw.op) => {
            client.refuse_change(request.device_id, operation);
        }
        Ok((request, digest)) => match target.check_range(request) {
            Ok(()) => submit(target, protection, (request, digest), operation),
            Err(reason) => client.refuse(reason, operation),
        },
        Err(reason) => client.refuse(reason, operation),
    }
}

/// Submits a request whose digest was verified and which the access mode permits.
fn submit(
    target: Lent<Target>,
    protection: Arc<Protection>,
    (request, digest): (IoRequest, MessageDigest),
    operation: Operation,
) {
    if let Err(error) = check(&protection, &request, &operation) {
        return operation.reply(Err(error));
    }
    if let Some(queue) = target.queue() {
        return queue.push(operation);
    }
    if target.backlog().is_at_once(request.rw.op) {
        let (request, may_refuse) = ((request, digest), target.refusal());
        submit_with(target, protection, request, operation, may_refuse);
    } else {
        Backlog::add(target, operation);
    }
}

/// Submits a request that has waited in the [`Backlog`], and was verified. Sleeps while the disk
/// takes no more.
pub(super) fn submit_in_turn(
    target: Lent<Target>,
    protection: Arc<Protection>,
    version: u8,
    operation: Operation,
) {
    let parsed = IoRequest::parse_protected(
        operation.user(),
        operation.data_len(),
        direction_of(&operation),
        version,
        protection.geometry(),
    );
    match parsed {
        Ok(request) => submit_with(target, protection, request, operation, Flags::NONE),
        // It was parsed before.
        Err(reason) => {
            drop(target);
            operation.reply(Err(reason.errno().into()));
        }
    }
}

fn submit_with(
    target: Lent<Target>,
    protection: Arc<Protection>,
    (request, digest): (IoRequest, MessageDigest),
    mut operation: Operation,
    may_refuse: Flags,
) {
    // Other operations than reads and writes have no tuples, and may begin at any sector.
    let first = protection.geometry().reference(request.sector).unwrap_or(0);
    let (op, size) = (request.rw.op, request.size);
    let passes = protection.geometry().mode() == Mode::Pass && op.has_data();
    if op.has_data() {
        operation.promise_data();
    }
    let io = ProtectedIo {
        operation,
        target,
        protection,
        first,
        size,
        reads: op == Op::Read,
    };
    // Not by `plain::submit`: that is called at one place, where the compiler puts it.
    let flags = flags_of(request.rw) | may_refuse;
    let mut bio = Bio::new(io, op_of(op), flags, request.sector);
    // A priority that does not exist is ignored.
    let _ = bio.set_ioprio(request.prio);
    let mut filled = if op.has_data() {
        bio.add_own_pages(|io| io.operation.memory(), 0, size)
    } else {
        bio.set_len_bytes(size)
    };
    if passes && filled.is_ok() {
        let tuples_len = digest.tuples_len.into();
        filled = bio.add_tuples(|io| io.operation.memory(), size as usize, tuples_len, first);
    }
    // Dropping the bio ends it with an error.
    if filled.is_ok() {
        bio.submit();
    }
}

/// Verifies a request before the disk gets it.
fn check(protection: &Protection, request: &IoRequest, operation: &Operation) -> Result {
    let is_write = request.rw.op == Op::Write;
    let first = protection.geometry().reference(request.sector);
    // What a sidecar stores is right: it would make good data errors.
    let is_stored = protection.geometry().mode() == Mode::Store;
    if is_write && (is_stored || verifies_writes()) {
        let memory = operation.memory().ok_or(EIO)?;
        protection.verify(memory, first.ok_or(EINVAL)?, request.size, false)?;
    }
    Ok(())
}

/// Returns whether the CRC of a request's message, and of the tuples of a write, is right; `None`
/// if it has none.
pub(super) fn has_right_digest(operation: &Operation, is_read: bool) -> Option<bool> {
    let digest = MessageDigest::read(operation.user())?;
    let start = operation.user().get(..DIGESTED_LEN)?;
    let mut crc = Checksum::Crc32c.update(0, start);
    if !is_read {
        let len = usize::from(digest.tuples_len);
        let at = (operation.data_len() as usize).checked_sub(len)?;
        let memory = operation.memory()?;
        crc = memory.checksum(Checksum::Crc32c, crc, at, len).ok()?;
    }
    Some(crc == u64::from(digest.crc))
}
