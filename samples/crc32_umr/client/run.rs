// SPDX-License-Identifier: GPL-2.0

//! The demonstration: blocks are written, read back and compared.

use chunk4k::{
    Checksums,
    DATA_LEN, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    crc,
    pages::PageBlock, //
};
use rdma::{
    cm::SocketAddress,
    *, //
};

use super::{
    link::Link,
    Trouble, //
};
use crate::proto::{
    pattern,
    request::{
        Memory,
        Operation,
        Request,
        HEAD_LEN,
        LEN_MAX,
        PLAIN_LEN, //
    },
    response::Status, //
};

/// The bytes of a request, unless the administrator wants others.
const REQUEST_LEN: u16 = 16 * DATA_LEN as u16;

/// The kernel's checksums.
struct Kernel;

impl Checksums for Kernel {
    fn crc32(before: u32, bytes: &[u8]) -> u32 {
        crc::crc32(before, bytes)
    }

    fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        crc::crc32c(before, bytes)
    }
}

/// The mode in which data is written. It is read by RDMA in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The target reads it from this machine's memory.
    Rdma,
    /// The messages have it.
    Inline,
}

/// The work that is to be done.
pub(crate) struct Plan {
    first: u64,
    bytes: u64,
    request_len: u16,
    seed: u32,
    mode: Mode,
    writes: bool,
    reads: bool,
}

impl Plan {
    /// Creates a plan; [`None`] if there is nothing to do, or requests would not begin with blocks.
    pub(crate) fn new(
        first: u64,
        blocks: u32,
        bytes: u64,
        request_len: u16,
        seed: u32,
        (mode, writes, reads): (Mode, bool, bool),
    ) -> Option<Self> {
        let all = u64::from(blocks).checked_mul(DATA_LEN as u64)?;
        let bytes = if bytes == 0 { all } else { bytes };
        let request_len = if request_len == 0 {
            REQUEST_LEN
        } else {
            request_len
        };
        let is_one = bytes <= u64::from(request_len);
        let fits = is_one || usize::from(request_len) % DATA_LEN == 0;
        (bytes != 0 && fits).then_some(Self {
            first,
            bytes,
            request_len,
            seed,
            mode,
            writes,
            reads,
        })
    }

    /// Returns the first block and the bytes of each request.
    fn requests(&self) -> impl Iterator<Item = (u64, u16)> + '_ {
        let mut done = 0u64;
        core::iter::from_fn(move || {
            let left = self.bytes.checked_sub(done).filter(|left| *left != 0)?;
            // CAST: not more than the other.
            let len = left.min(self.request_len.into()) as u16;
            let block = self.first.checked_add(done / DATA_LEN as u64)?;
            done = done.saturating_add(len.into());
            Some((block, len))
        })
    }
}

/// The work that was done.
#[derive(Default)]
pub(crate) struct Summary {
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) requests: u64,
}

/// Memory for the data of one request, and for its checksum.
struct Buffer {
    pages: Arc<PageBlock>,
    mapping: Arc<PageMapping>,
    region: Mr,
}

/// Carries out `plan` with the target at `address`. Sleeps, killable.
pub(crate) fn run(address: &SocketAddress, plan: &Plan) -> Result<Summary, Trouble> {
    let link = Link::connect(address)?;
    pr_info!(
        "{}: {} chunks, {} requests at a time\n",
        address.address,
        link.welcome().chunks(),
        link.welcome().depth()
    );
    let none = |error| Trouble::Failed("no memory", error);
    let mut buffer = Buffer::new(&link).map_err(none)?;
    let mut bounce = KVec::from_elem(0, DATA_LEN, GFP_KERNEL).map_err(|_| none(ENOMEM))?;
    let mut summary = Summary::default();
    if plan.writes {
        for (block, len) in plan.requests() {
            buffer.fill(plan.seed, block, len, &mut bounce)?;
            summary.requests += 1;
            write(
                &link,
                &mut buffer,
                plan.mode,
                (summary.requests, block, len),
                &mut bounce,
            )?;
            summary.written_bytes += u64::from(len);
        }
    }
    if plan.reads {
        for (block, len) in plan.requests() {
            summary.requests += 1;
            read(&link, &mut buffer, (summary.requests, block, len))?;
            buffer.compare(plan.seed, block, len, &mut bounce)?;
            summary.read_bytes += u64::from(len);
        }
    }
    Ok(summary)
}

/// Writes the first `len` bytes of the buffer to `block` and those after it.
fn write(
    link: &Link,
    buffer: &mut Buffer,
    mode: Mode,
    (id, block, len): (u64, u64, u16),
    bounce: &mut [u8],
) -> Result<(), Trouble> {
    let signature = buffer.checksum(len)?;
    let operation = match mode {
        Mode::Inline => Operation::WriteInline { signature },
        Mode::Rdma => Operation::WriteRdma {
            signature,
            memory: buffer.expose(),
        },
    };
    let encoded = Request::new(id, len, block, operation).encode::<Kernel>();
    link.put(0, &encoded.head)?;
    let mut at = HEAD_LEN as u32;
    if mode == Mode::Inline {
        for (from, count) in buffer.parts(len) {
            let part = bounce.get_mut(..count).ok_or(Trouble::Lost)?;
            buffer.copy_out(from, part)?;
            link.put(at, part)?;
            at = at.saturating_add(count as u32);
        }
    }
    link.put(at, &encoded.rest)?;
    let status = match mode {
        Mode::Inline => link.ask(id, PLAIN_LEN.saturating_add(len.into()), None)?,
        Mode::Rdma => {
            let memory = Some((&buffer.region, Access::REMOTE_READ));
            let status = link.ask(id, PLAIN_LEN, memory)?;
            link.invalidate(&buffer.region)?;
            status
        }
    };
    check(block, status)
}

/// Reads `len` bytes from `block` on to the buffer, and checks their checksum.
fn read(
    link: &Link,
    buffer: &mut Buffer,
    (id, block, len): (u64, u64, u16),
) -> Result<(), Trouble> {
    buffer.clear()?;
    let operation = Operation::Read(buffer.expose());
    let encoded = Request::new(id, len, block, operation).encode::<Kernel>();
    link.put(0, &encoded.head)?;
    link.put(HEAD_LEN as u32, &encoded.rest)?;
    let memory = Some((&buffer.region, Access::REMOTE_WRITE));
    let status = link.ask(id, PLAIN_LEN, memory)?;
    link.invalidate(&buffer.region)?;
    check(block, status)?;
    buffer.mapping.for_cpu(0, buffer.mapping.len());
    let mut stored = [0; 4];
    buffer.copy_out(len.into(), &mut stored)?;
    let stored = u32::from_le_bytes(stored);
    let computed = buffer.checksum(len)?;
    if stored != computed {
        return Err(Trouble::Signature {
            block,
            stored,
            computed,
        });
    }
    Ok(())
}

fn check(block: u64, status: Status) -> Result<(), Trouble> {
    match status {
        Status::Done => Ok(()),
        status => Err(Trouble::Refused { block, status }),
    }
}

impl Buffer {
    fn new(link: &Link) -> Result<Self> {
        let order = PageBlock::order_for(LEN_MAX as usize);
        let pages = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
        let mapping = PageMapping::new(link.pd(), pages.clone(), DmaDirection::Bidirectional)?;
        let region = Mr::of_blocks(link.pd(), &[mapping.clone()], 4096, Mr::IOVA_BASE)?;
        Ok(Self {
            pages,
            mapping,
            region,
        })
    }

    /// Makes a new key, which the next request registers, and returns what the target needs.
    fn expose(&mut self) -> Memory {
        self.region.update_key();
        // What the CPU has written.
        self.mapping.for_device(0, self.mapping.len());
        let remote = self.region.remote();
        Memory {
            address: remote.addr,
            key: remote.key,
        }
    }

    /// Returns the places and lengths of the data of each block.
    fn parts(&self, len: u16) -> impl Iterator<Item = (usize, usize)> {
        let len = usize::from(len);
        let count = move |at: usize| len.saturating_sub(at).min(DATA_LEN);
        (0..len).step_by(DATA_LEN).map(move |at| (at, count(at)))
    }

    fn fill(&self, seed: u32, block: u64, len: u16, bounce: &mut [u8]) -> Result<(), Trouble> {
        for ((at, count), block) in self.parts(len).zip(block..) {
            let part = bounce.get_mut(..count).ok_or(Trouble::Lost)?;
            pattern::fill(seed, block, part);
            let copied = self.pages.copy_in(at, part);
            copied.map_err(|error| Trouble::Failed("the buffer is too short", error))?;
        }
        Ok(())
    }

    fn compare(&self, seed: u32, block: u64, len: u16, bounce: &mut [u8]) -> Result<(), Trouble> {
        for ((at, count), block) in self.parts(len).zip(block..) {
            let part = bounce.get_mut(..count).ok_or(Trouble::Lost)?;
            self.copy_out(at, part)?;
            if let Some(at) = pattern::differs(seed, block, part) {
                return Err(Trouble::Differs { block, at });
            }
        }
        Ok(())
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) -> Result<(), Trouble> {
        let copied = self.pages.copy_out(at, into);
        copied.map_err(|error| Trouble::Failed("the buffer is too short", error))
    }

    fn clear(&self) -> Result<(), Trouble> {
        let cleared = self.pages.zero(0, self.pages.len_bytes());
        cleared.map_err(|error| Trouble::Failed("the buffer is too short", error))
    }

    fn checksum(&self, len: u16) -> Result<u32, Trouble> {
        let computed = self.pages.crc32(0, 0, len.into());
        computed.map_err(|error| Trouble::Failed("the buffer is too short", error))
    }
}
