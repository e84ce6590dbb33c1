// SPDX-License-Identifier: GPL-2.0

//! Tests of the block layer: a disk in memory, and bios to it.

use super::check;
use block_ext::{
    bdev::{
        BlockDevice,
        Mode, //
    },
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
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
    Flags,
    Op, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    errno::EOPNOTSUPP,
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicI32,
            AtomicU32,
            AtomicU64,
            Ordering::Relaxed, //
        },
        Completion, //
    }, //
};

const SECTOR: usize = 512;
const SECTORS: usize = 128;

/// Checks that limits with a warning of the block layer are rejected.
pub(super) fn limits() -> Result {
    let good = Limits {
        virt_boundary_mask: 4095,
        ..Limits::new(248, 128)
    };
    check(good.check().is_ok(), "usual limits are taken")?;
    check(good.segments_needed() == 128, "small pieces count, too")?;
    check(
        Limits::new(248, 128).segments_needed() == 128,
        "pieces can be short",
    )?;
    let bad = [
        Limits {
            physical_block_bytes: 1536,
            ..good
        },
        Limits {
            virt_boundary_mask: 4096,
            ..good
        },
        Limits {
            max_hw_sectors: 7,
            ..good
        },
        Limits {
            max_segments: 0,
            ..good
        },
    ];
    let blocks = [0, 131072].map(|logical_block_bytes| Limits {
        logical_block_bytes,
        ..good
    });
    let masks = [0, 5, 8191].map(|dma_alignment_mask| Limits {
        dma_alignment_mask,
        ..good
    });
    for limits in [&bad[..], &blocks, &masks].into_iter().flatten() {
        check(limits.check() == Err(EINVAL), "odd limits are refused")?;
    }
    Ok(())
}

/// A disk in memory.
struct Memory {
    pages: PageBlock,
    flushes: AtomicU64,
    /// Milliseconds after which a request is started again; 0: it is served.
    later_ms: AtomicU32,
    put_off: AtomicU32,
}

impl Memory {
    fn serve(&self, rq: &mut Request<Self>) -> Result {
        if rq.op() == Op::Flush {
            self.flushes.fetch_add(1, Relaxed);
            return check(
                rq.len_bytes() == 0 && rq.sg().is_empty(),
                "a flush is empty",
            );
        }
        let start = usize::try_from(rq.sector())? * SECTOR;
        let len = rq.len_bytes() as usize;
        rq.map_sg()?;
        if rq.op() == Op::Read {
            return rq.copy_in(&self.pages, start);
        }
        let mut buffer = [0; SECTOR];
        for offset in (0..len).step_by(SECTOR) {
            match rq.op() {
                Op::Write => {
                    rq.sg().copy_out(offset, &mut buffer);
                    self.pages.copy_in(start + offset, &buffer)?;
                }
                Op::Discard | Op::WriteZeroes => self.pages.zero(start + offset, SECTOR)?,
                _ => return Err(EOPNOTSUPP),
            }
        }
        Ok(())
    }
}

#[vtable]
impl Operations for Memory {
    type Set = ();
    type Queue = Memory;
    type Pdu = bool;

    fn queue_rq(
        _hw: HwQueue<'_, Self>,
        memory: &Memory,
        mut rq: Request<Self>,
    ) -> Result<(), Rejected<Self>> {
        // Each request is rejected the first time that its tag is used.
        if !core::mem::replace(rq.pdu_mut(), true) {
            return Err(Rejected(rq));
        }
        let later_ms = memory.later_ms.load(Relaxed);
        if later_ms != 0 {
            memory.put_off.fetch_add(1, Relaxed);
            rq.requeue_later(later_ms);
            return Ok(());
        }
        let result = memory.serve(&mut rq);
        rq.complete(result);
        Ok(())
    }
}

/// An open device and its pool of bios.
struct Target {
    device: BlockDevice,
    pool: BioPool<Io>,
}

impl Target {
    fn open(mode: Mode) -> Result<Arc<Self>> {
        let device = BlockDevice::open(c"/dev/test_disk", mode)?;
        let pool = BioPool::new(1)?;
        Ok(Arc::new(Target { device, pool }, GFP_KERNEL)?)
    }

    /// Submits one IO, prepared by `fill`, and waits for its end.
    fn io(
        self: &Arc<Self>,
        op: Op,
        sector: u64,
        fill: impl FnOnce(&mut Bio<Io>) -> Result,
    ) -> Result {
        self.submit(op, sector, fill)?.wait()
    }

    /// Submits one IO, prepared by `fill`.
    fn submit(
        self: &Arc<Self>,
        op: Op,
        sector: u64,
        fill: impl FnOnce(&mut Bio<Io>) -> Result,
    ) -> Result<Arc<Outcome>> {
        let outcome = Arc::pin_init(
            pin_init!(Outcome {
                errno: AtomicI32::new(0),
                done <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let io = Io {
            target: self.clone(),
            outcome: outcome.clone(),
        };
        let mut bio = Bio::new(io, op, Flags::SYNC, sector);
        if let Err(error) = fill(&mut bio) {
            drop(bio);
            let lost = outcome.wait() == Err(EIO);
            check(lost, "a bio that is not submitted ends with EIO")?;
            return Err(error);
        }
        bio.submit();
        Ok(outcome)
    }

    fn data(self: &Arc<Self>, op: Op, sector: u64, pages: &Arc<PageBlock>, len: u32) -> Result {
        self.io(op, sector, |bio| bio.add_pages(pages.clone(), 0, len))
    }

    fn range(self: &Arc<Self>, op: Op, sector: u64, len: u32) -> Result {
        self.io(op, sector, |bio| bio.set_len_bytes(len))
    }
}

#[pin_data]
struct Outcome {
    errno: AtomicI32,
    #[pin]
    done: Completion,
}

impl Outcome {
    /// Waits for the end of the IO, and returns its result.
    fn wait(&self) -> Result {
        self.done.wait();
        match self.errno.load(Relaxed) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        }
    }
}

struct Io {
    target: Arc<Target>,
    outcome: Arc<Outcome>,
}

impl BioData for Io {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.target.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.target.pool
    }

    fn end(self, result: Result) {
        let errno = result.err().map_or(0, Error::to_errno);
        self.outcome.errno.store(errno, Relaxed);
        self.outcome.done.complete_all();
    }
}

/// Checks that data written to a disk is read back, and that invalid arguments are rejected.
pub(super) fn disk() -> Result {
    let released = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    let disk = new_disk(Token(released.clone()))?.add()?;
    let target = Target::open(Mode::ReadWrite)?;
    check(target.device.capacity_sectors() == SECTORS as u64, "size")?;
    transfers(&target, disk.queue())?;
    refusals(&target)?;
    read_only()?;
    check(disk.open_count() != 0, "an open disk is counted")?;
    relimit(&disk)?;
    let idle = disk.forbid_open_if_idle().err();
    check(idle == Some(EBUSY), "the disk is open")?;
    let [first, second] = [disk.forbid_open(), disk.forbid_open()];
    let refused = Target::open(Mode::ReadOnly).err();
    check(refused == Some(ENXIO), "a closed disk cannot be opened")?;
    drop(first);
    let refused = Target::open(Mode::ReadOnly).err();
    check(refused == Some(ENXIO), "there is another reason")?;
    drop(second);
    read_only()?;
    quiesced(&target, &disk)?;
    requeued(&target, disk.queue())?;
    let kept = (*disk).clone();
    let quiesced = kept.quiesce();
    // Does not wait for the guard.
    disk.remove();
    drop(quiesced);
    drop(kept.quiesce());
    drop(kept);
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    check(
        target.data(Op::Read, 0, &pages, 512).is_err(),
        "a removed disk does not answer",
    )?;
    check(
        released.load(Relaxed) == 0,
        "a token lives as long as the disk is open",
    )
}

/// Counts its drops.
struct Token(Arc<AtomicU32>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Checks that the token of a disk that was never added is dropped with the disk.
pub(super) fn token() -> Result {
    let released = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    drop(new_disk(Token(released.clone()))?);
    check(released.load(Relaxed) == 1, "a token is released")
}

/// Checks that the limits of a disk in use can change, within the entries of its requests.
fn relimit(disk: &Disk<Memory>) -> Result {
    let limits = |segments| Limits {
        physical_block_bytes: 4096,
        ..Limits::new(32, segments)
    };
    disk.set_limits(limits(4))?;
    check(
        disk.set_limits(limits(5)) == Err(EINVAL),
        "requests have room for what other limits allow",
    )?;
    let odd = Limits {
        logical_block_bytes: 513,
        ..limits(4)
    };
    check(
        disk.set_limits(odd) == Err(EINVAL),
        "other limits are checked",
    )
}

/// Checks that requests wait as long as a disk is quiesced.
fn quiesced(target: &Arc<Target>, disk: &Disk<Memory>) -> Result {
    let [first, second] = [disk.quiesce(), disk.quiesce()];
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    let read = target.submit(Op::Read, 0, |bio| bio.add_pages(pages, 0, 512))?;
    drop(first);
    let early = read.done.wait_timeout_ms(200).is_ok();
    drop(second);
    read.done.wait_timeout_ms(10_000)?;
    check(!early, "a request waits for the last guard")?;
    check(read.wait().is_ok(), "then it is served")
}

/// Checks that a request is started again when it is due, although others are requeued until then.
fn requeued(target: &Arc<Target>, memory: &Memory) -> Result {
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    memory.later_ms.store(200, Relaxed);
    let mut reads = KVec::new();
    for _ in 0..6 {
        let read = target.submit(Op::Read, 0, |bio| bio.add_pages(pages.clone(), 0, 512))?;
        reads.push(read, GFP_KERNEL)?;
        fsleep(Delta::from_millis(80));
    }
    memory.later_ms.store(0, Relaxed);
    for read in &reads {
        read.done.wait_timeout_ms(10_000)?;
    }
    let is_kept = memory.put_off.load(Relaxed) > 6;
    check(is_kept, "later requests put none off")
}

fn new_disk(token: Token) -> Result<Disk<Memory, New>> {
    let limits = Limits {
        discard: DiscardLimits {
            max_sectors: SECTORS as u32,
            granularity_bytes: 512,
            alignment_bytes: 0,
        },
        max_write_zeroes_sectors: SECTORS as u32,
        write_cache: true,
        ..Limits::new(64, 4)
    };
    let config = |sectors| DiskConfig {
        name: fmt!("test_disk"),
        minors: None,
        capacity_sectors: sectors,
        read_only: false,
        limits,
        naa: None,
    };
    let memory = Arc::new(
        Memory {
            pages: PageBlock::new(PageBlock::order_for(SECTORS * SECTOR))?,
            flushes: AtomicU64::new(0),
            later_ms: AtomicU32::new(0),
            put_off: AtomicU32::new(0),
        },
        GFP_KERNEL,
    )?;
    let none = TagSet::<Memory>::new(TagSetConfig::new(0, 8, 4), ());
    check(none.is_err(), "a set has hardware queues")?;
    let small = TagSet::<Memory>::new(TagSetConfig::new(1, 8, 3), ())?;
    let refused = Disk::new(&small, &crate::THIS_MODULE, config(0), memory.clone(), ());
    check(
        refused.err() == Some(EINVAL),
        "requests have room for what the limits allow",
    )?;
    let set = TagSet::<Memory>::new(TagSetConfig::new(2, 8, 4), ())?;
    let refused = Disk::new(
        &set,
        &crate::THIS_MODULE,
        config(u64::MAX),
        memory.clone(),
        (),
    );
    check(refused.err() == Some(EINVAL), "a disk has a size")?;
    let shown = config(SECTORS as u64);
    Disk::new(&set, &crate::THIS_MODULE, shown, memory, token)
}

fn transfers(target: &Arc<Target>, memory: &Memory) -> Result {
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    for offset in (0..PAGE_SIZE).step_by(8) {
        pages.copy_in(offset, &offset.to_le_bytes())?;
    }
    target.data(Op::Write, 7, &pages, PAGE_SIZE as u32)?;
    pages.zero(0, PAGE_SIZE)?;
    target.data(Op::Read, 7, &pages, PAGE_SIZE as u32)?;
    for offset in (0..PAGE_SIZE).step_by(8) {
        let mut word = [0; 8];
        pages.copy_out(offset, &mut word)?;
        check(word == offset.to_le_bytes(), "what was written is read")?;
    }
    target.range(Op::WriteZeroes, 8, 512)?;
    target.data(Op::Read, 7, &pages, PAGE_SIZE as u32)?;
    let mut word = [1; 8];
    pages.copy_out(520, &mut word)?;
    check(word == [0; 8], "zeroes were written")?;
    target.range(Op::Discard, 0, 1024)?;
    let flushes = memory.flushes.load(Relaxed);
    target.io(Op::Flush, u64::MAX, |_| Ok(()))?;
    check(
        memory.flushes.load(Relaxed) == flushes + 1,
        "a flush reaches the disk",
    )
}

fn refusals(target: &Arc<Target>) -> Result {
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    let end = SECTORS as u64;
    let refused = [
        (target.data(Op::Read, 0, &pages, 100), EINVAL),
        (target.data(Op::Discard, 0, &pages, 512), EINVAL),
        (target.data(Op::Read, 0, &pages, 0), EINVAL),
        (target.data(Op::Read, 0, &pages, u32::MAX), EINVAL),
        (target.data(Op::Read, end, &pages, 512), EIO),
        (target.data(Op::Write, u64::MAX, &pages, 512), EIO),
        (target.data(Op::Other, 0, &pages, 512), EOPNOTSUPP),
        (target.range(Op::Read, 0, 512), EINVAL),
        (target.range(Op::Write, 0, 0), EINVAL),
        (target.range(Op::WriteZeroes, 0, 0), EINVAL),
        (target.range(Op::SecureErase, 0, 512), EOPNOTSUPP),
    ];
    for (index, (result, error)) in refused.into_iter().enumerate() {
        if result != Err(error) {
            pr_err!("bio {}: {:?}, not {:?}\n", index, result, error);
            return Err(EINVAL);
        }
    }
    let class = target.io(Op::Flush, 0, |bio| bio.set_ioprio(4 << 13));
    check(class == Err(EINVAL), "there are four priority classes")?;
    let piece = |bio: &mut Bio<_>| bio.add_pages(pages.clone(), 0, 512);
    let twice = target.io(Op::Read, 0, |bio| piece(bio).and(piece(bio)));
    let both = target.io(Op::Read, 0, |bio| bio.set_len_bytes(512).and(piece(bio)));
    check([twice, both] == [Err(ENOSPC); 2], "a bio has one piece")
}

fn read_only() -> Result {
    let target = Target::open(Mode::ReadOnly)?;
    let pages = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
    check(
        target.data(Op::Write, 0, &pages, 512) == Err(EROFS),
        "a reader does not write",
    )?;
    target.io(Op::Flush, 0, |_| Ok(()))?;
    target.data(Op::Read, 0, &pages, 512)
}
