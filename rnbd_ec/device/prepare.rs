// SPDX-License-Identifier: GPL-2.0

//! Writes are made records: what costs most of a write, so several processors do it at a time.

use block_ext::mq::Request;
use kernel::{
    impl_has_work,
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    cpu,
    lz4::Compressor, //
};
use seglog::record::{
    Record,
    CODEC_ZEROES, //
};

use super::{
    core::Core,
    engine::blocks,
    queue::Queue, //
};
use crate::proto::{
    codec::{
        plain_bytes,
        worth,
        Codec,
        Compression, //
    },
    geometry::{
        REQUEST_BLOCKS_MAX,
        UNIT_BLOCKS, //
    },
};

/// The bytes of the longest request.
const REQUEST_BYTES_MAX: usize = plain_bytes(REQUEST_BLOCKS_MAX);
/// The records of a request: one more than it has whole units.
pub(super) const PARTS_MAX: usize = (REQUEST_BLOCKS_MAX / UNIT_BLOCKS) as usize + 1;
/// The helpers of an array.
const HELPERS_MAX: usize = 8;

/// No record.
pub(super) const NOTHING: Record = Record {
    index: 0,
    count: 0,
    codec: 0,
    payload_bytes: 0,
    skipped: 0,
};

/// A write as records.
pub(super) struct Prepared {
    /// The payloads, one after the other.
    bytes: KVVec<u8>,
    /// The records, and where the payload of each begins.
    parts: [(Record, usize); PARTS_MAX],
    count: usize,
}

impl Prepared {
    /// Allocates the memory. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            bytes: KVVec::from_elem(0, REQUEST_BYTES_MAX, GFP_KERNEL)?,
            parts: [(NOTHING, 0); PARTS_MAX],
            count: 0,
        })
    }

    /// A range is zeroes.
    pub(super) fn set_zeroes(&mut self, (first, count): (u64, u32)) -> Result {
        self.count = 0;
        let record = Record {
            index: first,
            count,
            codec: CODEC_ZEROES,
            ..NOTHING
        };
        self.push(record, 0)
    }

    /// Appends a record whose payload was written at `at`.
    fn push(&mut self, record: Record, at: usize) -> Result {
        *self.parts.get_mut(self.count).ok_or(EINVAL)? = (record, at);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Returns the bytes of the records.
    pub(super) fn record_bytes(&self) -> usize {
        let parts = self.parts.iter().take(self.count);
        parts.map(|(record, _)| record.bytes()).sum()
    }

    /// Returns the records, with their payloads.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.parts.iter().take(self.count).map(|(record, at)| {
            let end = at.saturating_add(record.payload_bytes.into());
            (record, self.bytes.get(*at..end).unwrap_or_default())
        })
    }
}

/// A write that is to be made records, or was.
pub(super) struct Job {
    pub(super) request: Request<Queue>,
    pub(super) prepared: KBox<Prepared>,
    pub(super) result: Result,
}

/// The memory for making records of one write at a time.
pub(super) struct Preparer {
    plain: KVVec<u8>,
    compressor: Compressor,
}

impl Preparer {
    /// Allocates the memory. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            plain: KVVec::from_elem(0, REQUEST_BYTES_MAX, GFP_KERNEL)?,
            compressor: Compressor::new()?,
        })
    }

    /// Makes the records.
    pub(super) fn prepare(&mut self, job: &mut Job, compression: Compression) {
        job.result = self.try_prepare(job, compression);
    }

    fn try_prepare(&mut self, job: &mut Job, compression: Compression) -> Result {
        let request = &mut job.request;
        let range @ (_, count) = blocks(request);
        request.map_sg()?;
        let len = plain_bytes(count);
        // What is not compressed is copied once.
        let all = match compression {
            Compression::None => &mut job.prepared.bytes,
            Compression::Lz4 => &mut self.plain,
        };
        let to = all.get_mut(..len).ok_or(EINVAL)?;
        if request.sg().copy_out(0, to) != len {
            return Err(EIO);
        }
        self.split(&mut job.prepared, range, compression)
    }

    /// Makes a record of each unit.
    fn split(
        &mut self,
        prepared: &mut Prepared,
        (first, count): (u64, u32),
        compression: Compression,
    ) -> Result {
        prepared.count = 0;
        let (mut done, mut at) = (0, 0);
        while done < count {
            let index = first.saturating_add(done.into());
            // CAST: Below the blocks of a unit.
            let skipped = (index % u64::from(UNIT_BLOCKS)) as u32;
            let blocks = UNIT_BLOCKS
                .saturating_sub(skipped)
                .min(count.saturating_sub(done));
            let start = plain_bytes(done);
            let range = start..start.saturating_add(plain_bytes(blocks));
            let (codec, bytes) = match compression {
                Compression::None => {
                    at = start;
                    raw(prepared.bytes.get(range).ok_or(EINVAL)?)
                }
                Compression::Lz4 => {
                    let from = self.plain.get(range).ok_or(EINVAL)?;
                    let to = prepared.bytes.get_mut(at..);
                    store(from, to, &mut self.compressor, compression)?
                }
            };
            let record = Record {
                index,
                count: blocks,
                codec,
                payload_bytes: u16::try_from(bytes).map_err(|_| EINVAL)?,
                skipped: 0,
            };
            prepared.push(record, at)?;
            at = at.saturating_add(bytes);
            done = done.saturating_add(blocks);
        }
        Ok(())
    }
}

/// Returns the codec of a unit that is not compressed, and the bytes of its payload.
fn raw(unit: &[u8]) -> (u8, usize) {
    if is_zeroes(unit) {
        (CODEC_ZEROES, 0)
    } else {
        (Codec::Raw.number(), unit.len())
    }
}

/// Writes the payload of a unit at the start of `to`; returns its codec and its bytes.
pub(super) fn store(
    from: &[u8],
    to: Option<&mut [u8]>,
    compressor: &mut Compressor,
    compression: Compression,
) -> Result<(u8, usize)> {
    let as_it_is = raw(from);
    if as_it_is.1 == 0 {
        return Ok(as_it_is);
    }
    let to = to.and_then(|to| to.get_mut(..from.len())).ok_or(EINVAL)?;
    if compression == Compression::Lz4 {
        let room = to.get_mut(..worth(from.len())).ok_or(EINVAL)?;
        if let Some(bytes) = compressor.compress(from, room) {
            return Ok((Codec::Lz4.number(), bytes));
        }
    }
    to.copy_from_slice(from);
    Ok(as_it_is)
}

/// Whether all bytes, whole words, are zeroes.
fn is_zeroes(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks_exact(size_of::<u64>());
    words.all(|word| word.try_into().map_or(0, u64::from_ne_bytes) == 0)
}

/// A work item that makes records beside the engine.
#[pin_data]
pub(super) struct Helper {
    core: Arc<Core>,
    #[pin]
    preparer: Mutex<Preparer>,
    #[pin]
    work: Work<Helper>,
}

impl_has_work! {
    impl HasWork<Self> for Helper { self.work }
}

impl WorkItem for Helper {
    type Pointer = Arc<Helper>;

    fn run(helper: Arc<Helper>) {
        let core = &helper.core;
        let mut preparer = helper.preparer.lock();
        while let Some(mut job) = core.next_unprepared() {
            preparer.prepare(&mut job, core.settings.compression);
            core.is_prepared(job);
        }
    }
}

impl Helper {
    /// Lets it look for writes. Any context.
    pub(super) fn start(self: &Arc<Self>) {
        let queue = &self.core.queues.shared.engines;
        let _ = queue.enqueue::<Arc<Self>, 0>(self.clone());
    }

    /// Makes the helpers of an array: one for each processor beside that of the engine, if it
    /// compresses; a copy is made sooner than it is handed over. Sleeps.
    pub(super) fn make(core: &Arc<Core>) -> Result<KVec<Arc<Self>>> {
        let count = match core.settings.compression {
            Compression::None => 0,
            Compression::Lz4 => (cpu::num_online_cpus() as usize).saturating_sub(1),
        };
        let count = count.min(HELPERS_MAX);
        let mut all = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let preparer = Preparer::new()?;
            let helper = Arc::pin_init(
                pin_init!(Self {
                    core: core.clone(),
                    preparer <- new_mutex!(preparer, "rnbd_ec::Helper::preparer"),
                    work <- new_work!("rnbd_ec::Helper::work"),
                }),
                GFP_KERNEL,
            )?;
            all.push(helper, GFP_KERNEL)?;
        }
        Ok(all)
    }
}
