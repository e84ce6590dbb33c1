// SPDX-License-Identifier: GPL-2.0

//! Tests of the parts that do not wait.

use super::check;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::sync::atomic::{AtomicU32, Ordering};
use kernel_ext::{
    crc::{
        self,
        Checksum,
        Intervals, //
    },
    erased::{
        Erased,
        Kind, //
    },
    errno,
    ida::Ida,
    lz4::{
        decompress,
        Compressor, //
    },
    memory,
    pages::PageBlock,
    percpu::{
        Counter,
        Counts,
        PerCpu, //
    },
    random,
    ratelimit::RateLimit,
    scatterlist::SgTable,
    xor::xor_into, //
};

/// The number of times that a part that a pause of the host has disturbed is begun anew.
const TURNS_MAX: u32 = 100;

/// Checks that the constants are those of C.
pub(super) fn errno() -> Result {
    check(errno::ECONNRESET.to_errno() == -104, "ECONNRESET is -104")?;
    check(errno::ENOTCONN.to_errno() == -107, "ENOTCONN is -107")?;
    check(
        errno::ECONNABORTED.to_errno() == -103,
        "ECONNABORTED is -103",
    )
}

/// Counts its drops.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Known answers, as a whole and in two parts, and of pages.
pub(super) fn crc() -> Result {
    const TEXT: &[u8] = b"123456789";
    let (head, tail) = TEXT.split_at(4);
    let ieee = crc::crc32(crc::crc32(0, head), tail);
    check(ieee == 0xcbf4_3926, "CRC-32 in two parts")?;
    check(crc::crc32(0, TEXT) == ieee, "CRC-32 as a whole")?;
    let castagnoli = crc::crc32c(crc::crc32c(0, head), tail);
    check(castagnoli == 0xe306_9283, "CRC-32C")?;
    let nvme = crc::crc64_nvme(crc::crc64_nvme(0, head), tail);
    check(nvme == 0xae8b_1486_0a79_9888, "CRC-64 of NVMe")?;
    let t10 = crc::crc_t10dif(crc::crc_t10dif(0, head), tail);
    check(t10 == 0xd0db, "CRC-16 of T10")?;
    let block = PageBlock::new(1)?;
    block.copy_in(PAGE_SIZE - 4, TEXT)?;
    let before = block.crc32(0, PAGE_SIZE - 4, 4)?;
    check(
        block.crc32(before, PAGE_SIZE, 5)? == ieee,
        "CRC-32 of pages",
    )?;
    check(
        block.crc32(0, PAGE_SIZE, PAGE_SIZE + 1).is_err(),
        "CRC-32 beyond the end",
    )
}

/// Checks each byte of pieces that begin and end on and beside what the library takes, and that
/// those around them stay.
pub(super) fn xor() -> Result {
    let mut from = KVVec::from_elem(0u8, PAGE_SIZE, GFP_KERNEL)?;
    let mut before = KVVec::from_elem(0u8, PAGE_SIZE, GFP_KERNEL)?;
    let mut to = KVVec::from_elem(0u8, PAGE_SIZE, GFP_KERNEL)?;
    random::fill(&mut from);
    random::fill(&mut before);
    for (start, source, len) in [
        (0, 0, PAGE_SIZE),
        (0, 0, 512),
        (0, 64, 1023),
        (64, 0, 2061),
        (8, 0, 1024),
        (0, 1, 1024),
        (3, 3, 511),
        (0, 0, 7),
        (0, 0, 0),
    ] {
        to.copy_from_slice(&before);
        let piece = to.get_mut(start..).ok_or(EINVAL)?;
        let sources = from.get(source..).and_then(|from| from.get(..len));
        xor_into(piece, sources.ok_or(EINVAL)?);
        let is_right = to
            .iter()
            .zip(&*before)
            .enumerate()
            .all(|(at, (to, before))| {
                let at = at.checked_sub(start).filter(|at| *at < len);
                let by = at.and_then(|at| from.get(source.saturating_add(at)));
                *to == before ^ by.copied().unwrap_or(0)
            });
        check(is_right, "each byte of a piece, and none beside it")?;
    }
    Ok(())
}

/// A block by the specification: a literal, a match of 22 bytes that begins one byte back, and the
/// last five literals.
const BLOCK: [u8; 11] = *b"\x1fa\x01\x00\x03\x50bcdef";
const LZ4_BYTES: usize = 128;

/// Round trips, blocks that do not fit, and ones that are damaged.
pub(super) fn lz4() -> Result {
    let mut compressor = Compressor::new()?;
    let (mut text, mut any) = ([0u8; LZ4_BYTES], [0u8; LZ4_BYTES]);
    random::fill(&mut any);
    for (to, from) in text.iter_mut().zip(b"segment and column, ".iter().cycle()) {
        *to = *from;
    }
    let (mut block, mut back) = ([0u8; 300], [0u8; LZ4_BYTES]);
    for (from, most) in [(&[0; LZ4_BYTES], 16), (&text, 40), (&any, LZ4_BYTES + 2)] {
        let len = compressor.compress(from, &mut block).ok_or(EIO)?;
        check(len <= most, "the length of a block")?;
        let (whole, rest) = block.split_at_mut(len);
        check(decompress(whole, &mut back) == Some(LZ4_BYTES), "its bytes")?;
        check(back == *from, "what was compressed")?;
        let (short, _) = whole.split_at(len.saturating_sub(1));
        check(decompress(short, &mut back) != Some(LZ4_BYTES), "cut short")?;
        let (less, _) = back.split_at_mut(LZ4_BYTES - 1);
        check(decompress(whole, less).is_none(), "room for less")?;
        let (less, _) = rest.split_at_mut(len.saturating_sub(1));
        check(compressor.compress(from, less).is_none(), "it does not fit")?;
    }
    check(compressor.compress(&text, &mut []).is_none(), "no room")?;
    check(
        decompress(&BLOCK, &mut back) == Some(28),
        "a block that is known",
    )?;
    let (head, tail) = back.split_at(23);
    check(
        head == [b'a'; 23] && tail.starts_with(b"bcdef"),
        "what it has",
    )?;
    let (short, _) = BLOCK.split_at(10);
    check(decompress(short, &mut back).is_none(), "it ends too early")?;
    check(decompress(&[], &mut back).is_none(), "no block")?;
    check(decompress(&[0], &mut back) == Some(0), "an empty one")?;
    damaged_blocks(&mut back)
}

/// Blocks of random bytes write nothing behind the room that there is.
fn damaged_blocks(back: &mut [u8; LZ4_BYTES]) -> Result {
    let mut damaged = [0u8; 64];
    let (to, guard) = back.split_at_mut(LZ4_BYTES / 2);
    guard.fill(0xa5);
    for _ in 0..1000 {
        random::fill(&mut damaged);
        let len = decompress(&damaged, to);
        check(len.is_none_or(|len| len <= to.len()), "more than fits")?;
        check(guard.iter().all(|byte| *byte == 0xa5), "behind the room")?;
    }
    Ok(())
}

const T10: Checksum = Checksum::CrcT10Dif;

/// Checks that the checksums of intervals of `memory` are those of `block`, one for each.
fn each_is_right(
    memory: &(impl Intervals + ?Sized),
    block: &PageBlock,
    interval: u32,
    len: u32,
) -> Result {
    let mut at = 0usize;
    memory.checksums(T10, interval, len, |checksum| {
        let expected = block.checksum(T10, 0, at, interval as usize)?;
        at = at.saturating_add(interval as usize);
        check(checksum == expected, "that of the interval")
    })?;
    check(at == len as usize, "one for each interval")
}

/// Checks that the checksums of intervals do not depend on where memory is cut, and that an error
/// ends the walk.
pub(super) fn intervals() -> Result {
    let block = Arc::new(PageBlock::new(2)?, GFP_KERNEL)?;
    for at in (0..block.len_bytes()).step_by(64) {
        let mut bytes = [0; 64];
        random::fill(&mut bytes);
        block.copy_in(at, &bytes)?;
    }
    // Cut within intervals, at their ends, and with several cuts in one.
    let mut list = SgTable::new(8)?;
    let mut at = 0usize;
    for len in [512u32, 1, 7, 504, 1000, 24, 6000, 8336] {
        list.push(block.clone(), at, len)?;
        at = at.checked_add(len as usize).ok_or(EINVAL)?;
    }
    check(at == block.len_bytes(), "the pieces are the block")?;
    for interval in [512u32, 4096] {
        for len in [interval, 2 * interval, 16384] {
            each_is_right(&*list, &block, interval, len)?;
            each_is_right(&*block, &block, interval, len)?;
        }
        let mut seen = 0;
        let stopped = list.checksums(T10, interval, 16384, |_| {
            seen += 1;
            Err(ENOENT)
        });
        check(stopped == Err(ENOENT) && seen == 1, "an error ends it")?;
        let none = |_| Ok(());
        for (interval, len) in [(interval, 16384 + interval), (interval, 513), (0, 512)] {
            check(
                list.checksums(T10, interval, len, none).is_err()
                    && block.checksums(T10, interval, len, none).is_err(),
                "whole intervals of the memory only",
            )?;
        }
    }
    Ok(())
}

/// Checks that what is left of a part of a block becomes less, and does not reach beyond it.
pub(super) fn cursor() -> Result {
    let block = PageBlock::new(0)?;
    let mut part = block.cursor(100, 20)?;
    part.copy_in(b"abcdefgh")?;
    part.copy_in(b"ijklmnopqrs")?;
    check(part.copy_in(b"tu").is_err(), "there is one byte left")?;
    check(part.copy_in(b"t").is_ok(), "there was one byte left")?;
    check(part.copy_in(b"").is_ok(), "nothing fits always")?;
    check(part.copy_in(b"u").is_err(), "nothing is left")?;
    let mut part = block.cursor(100, 20)?;
    let (mut word, mut rest) = ([0; 8], [0; 12]);
    part.copy_out(&mut word)?;
    part.copy_out(&mut rest)?;
    check(
        &word == b"abcdefgh" && &rest == b"ijklmnopqrst",
        "what was written is read",
    )?;
    check(part.copy_out(&mut word).is_err(), "all was read")?;
    check(
        block.cursor(block.len_bytes(), 0).is_ok()
            && block.cursor(block.len_bytes(), 1).is_err()
            && block.cursor(usize::MAX, 2).is_err(),
        "a part lies in its block",
    )
}

static DROPPED: Kind<Dropped, u32> = Kind::new(1);
static NUMBER: Kind<usize, u32> = Kind::new(2);
static EMPTY: Kind<(), u32> = Kind::new(3);

/// Checks that the type is checked, and that drop runs once.
pub(super) fn erased() -> Result {
    let drops = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    drop(Erased::new(Dropped(drops.clone()), &DROPPED));
    check(
        drops.load(Ordering::Relaxed) == 1,
        "an erased value is dropped",
    )?;
    let mut erased = Erased::new(Dropped(drops.clone()), &DROPPED);
    check(*erased.ops() == 1, "its operations are those of its kind")?;
    check(
        erased.downcast_mut(&NUMBER).is_none(),
        "another type is refused",
    )?;
    check(erased.downcast_mut(&DROPPED).is_some(), "the type is found")?;
    let erased = erased.into_inner(&NUMBER).err().ok_or(EINVAL)?;
    drop(erased.into_inner(&DROPPED).map_err(|_| EINVAL)?);
    check(
        drops.load(Ordering::Relaxed) == 2,
        "a value that was taken out is dropped once",
    )?;
    check(
        Erased::new((), &EMPTY).is(&EMPTY),
        "an empty type has a kind",
    )
}

/// Checks copies, and ranges at the end.
pub(super) fn pages() -> Result {
    let block = PageBlock::new(PageBlock::order_for(3 * PAGE_SIZE))?;
    check(
        block.len_bytes() == 4 * PAGE_SIZE,
        "three pages need an order of 2",
    )?;
    check(PageBlock::order_for(0) == 0, "no bytes need one page")?;
    let mut bytes = [1u8; 100];
    block.copy_out(block.len_bytes() - 100, &mut bytes)?;
    check(bytes == [0; 100], "new pages are zero")?;
    for len in [0, 1, 7, 8, 23, 24, 32, 63, 64, 65, 99] {
        let mut source = [0u8; 100];
        random::fill(&mut source);
        let source = source.get(..len).ok_or(EINVAL)?;
        let mut target = [0u8; 100];
        let target = target.get_mut(..len).ok_or(EINVAL)?;
        block.copy_in(PAGE_SIZE - 3, source)?;
        block.copy_out(PAGE_SIZE - 3, target)?;
        check(source == target, "what was copied in comes out")?;
        block.zero(PAGE_SIZE - 3, len)?;
        block.copy_out(PAGE_SIZE - 3, target)?;
        check(
            target.iter().all(|byte| *byte == 0),
            "zeroed bytes are zero",
        )?;
    }
    check(
        block.copy_in(block.len_bytes() - 1, &[0; 2]).is_err(),
        "no copy past the end",
    )?;
    check(
        block.copy_out(usize::MAX, &mut bytes).is_err(),
        "no copy around the end",
    )?;
    check(
        PageBlock::new(40).is_err(),
        "an order that is too large is refused",
    )
}

/// Checks that every CPU has its own value.
pub(super) fn percpu() -> Result {
    #[derive(Default)]
    struct Stats {
        reads: Counter,
        last: AtomicU32,
    }
    let stats = PerCpu::<Stats>::new()?;
    for n in 1..=1000 {
        stats.this_cpu().reads.add(2);
        stats.this_cpu().last.store(n, Ordering::Relaxed);
    }
    let total: u64 = stats.iter().map(|(_cpu, stats)| stats.reads.get()).sum();
    check(total == 2000, "the counters sum up")?;
    let touched = stats
        .iter()
        .filter(|(_, stats)| stats.last.load(Ordering::Relaxed) != 0);
    check(touched.count() >= 1, "a CPU was touched")?;
    let counts = Counts::<2>::new()?;
    for _ in 0..1000 {
        counts.add::<1>(2);
    }
    counts.reset();
    counts.add::<1>(3);
    check(
        counts.sum(1) == 3 && counts.sum(0) == 0 && counts.sum(2) == 0,
        "counts sum up since they were reset",
    )?;
    let of_cpus = counts.of_cpus(1).map(|(_, count)| count);
    check(of_cpus.sum::<u64>() == 3, "each CPU has its own")?;
    check(stats.of_cpu(u32::MAX).is_none(), "there is no such CPU")?;
    let cpus = stats.iter().count();
    check(
        cpus >= kernel_ext::cpu::num_online_cpus() as usize,
        "all CPUs are there",
    )
}

/// Checks that two UUIDs differ and are of version 4.
pub(super) fn random() -> Result {
    let (one, other) = (random::uuid(), random::uuid());
    check(one != other, "UUIDs differ")?;
    check(one[6] >> 4 == 4, "a UUID is of version 4")?;
    let mut bytes = [0; 32];
    random::fill(&mut bytes);
    check(bytes != [0; 32], "random bytes are not all zero")
}

/// Checks that numbers are unique and are freed.
pub(super) fn ida() -> Result {
    let ida = Ida::new()?;
    let zero = ida.alloc(0, 1)?;
    let one = ida.alloc(0, 1)?;
    check(
        zero.get() == 0 && one.get() == 1,
        "the smallest number comes first",
    )?;
    check(
        ida.alloc(0, 1).err() == Some(ENOSPC),
        "the range is limited",
    )?;
    drop(zero);
    check(ida.alloc(0, 1)?.get() == 0, "a number comes back")?;
    check(
        ida.alloc(2, 1).err() == Some(EINVAL),
        "an empty range is refused",
    )
}

/// Checks that the burst passes, and that suppressed events are counted. By the clock: a sleep
/// counts ticks, and after a pause of the host they come faster than time passes.
pub(super) fn ratelimit() -> Result {
    let interval_ms = 40;
    for _ in 0..TURNS_MAX {
        let limit = RateLimit::new(interval_ms, 2);
        let began = Instant::<Monotonic>::now();
        let found = [limit.allow(), limit.allow(), limit.allow()];
        // The host has stopped the machine between two of them.
        if began.elapsed() > Delta::from_millis(i64::from(interval_ms) / 2) {
            continue;
        }
        check(
            found == [Some(0), Some(0), None],
            "the burst passes, the next is suppressed",
        )?;
        while began.elapsed() < Delta::from_millis(i64::from(interval_ms) * 3 / 2) {
            fsleep(Delta::from_millis(1));
        }
        return check(
            limit.allow() == Some(1),
            "after the interval one passes and tells of one",
        );
    }
    check(false, "three events within half an interval")
}

/// Checks what a task may wait for when it allocates.
pub(super) fn memory_scopes() -> Result {
    check(memory::may_start_io(), "an allocation may start IO")?;
    let inside = memory::without_io(|| {
        let deeper = memory::from_reserves(memory::may_start_io);
        deeper || memory::may_start_io()
    });
    check(!inside, "no allocation in a scope starts IO")?;
    let small = memory::from_reserves(|| KBox::new(7u32, GFP_KERNEL));
    check(small.is_ok_and(|n| *n == 7), "reserves have room")?;
    check(memory::may_start_io(), "the scope is over")
}

/// Checks that a list over pages can be filled, read, written and emptied.
pub(super) fn scatterlist() -> Result {
    let pages = Arc::new(PageBlock::new(1)?, GFP_KERNEL)?;
    let mut table = SgTable::new(2)?;
    check(
        table.is_empty() && table.capacity() == 2,
        "a table is empty",
    )?;
    let outside = table.push(pages.clone(), PAGE_SIZE, PAGE_SIZE as u32 + 1);
    check(outside == Err(EINVAL), "pages have an end")?;
    table.push(pages.clone(), PAGE_SIZE - 2, 4)?;
    table.push(pages.clone(), 0, 3)?;
    check(
        table.push(pages.clone(), 0, 1) == Err(ENOSPC),
        "a table has an end",
    )?;
    check(table.nents() == 2 && table.len_bytes() == 7, "two entries")?;
    check(
        table.copy_in(1, b"abcdefgh") == Ok(6),
        "what fits is copied",
    )?;
    let mut back = [0; 3];
    pages.copy_out(PAGE_SIZE - 1, &mut back)?;
    check(&back == b"abc", "an entry crosses pages")?;
    check(
        table.copy_out(4, &mut back) == 3,
        "the second entry is read",
    )?;
    check(&back == b"def", "the second entry follows the first")?;
    table.clear()?;
    check(
        table.copy_out(0, &mut back) == 0,
        "a cleared table is empty",
    )
}
