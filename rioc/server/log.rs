// SPDX-License-Identifier: GPL-2.0

//! Stores on a log: the log is opened, and its blocks are found.

use block_ext::{
    bdev::{
        BlockDevice,
        Holder,
        Mode, //
    },
    SECTOR_BYTES, //
};
use kernel::{
    prelude::*,
    str::BStr,
    sync::Arc, //
};
use kernel_ext::{
    errno,
    memory as kernel_memory,
    random,
    text::c_string, //
};
use seglog::{
    devices::Devices,
    fault::Fault,
    layout::{
        Layout,
        COLUMN_BYTES_MAX,
        SLOT_BYTES, //
    },
    members::Members,
    recovery::{
        Opened,
        Recovery, //
    },
    segments::{
        Segment,
        Segments, //
    },
    slots,
    superblock::{
        Refusal,
        Superblock, //
    },
    ArrayTag, //
};

use super::{
    log_io::LogIo,
    medium::{
        Acting,
        Kept, //
    },
    memory::{
        claims,
        random_key,
        Crc,
        Elements,
        Tables, //
    },
    one_device::{
        Failed,
        LogDevice,
        OneDevice, //
    },
};
use crate::proto::{
    body,
    command::LogOn,
    entry::ENTRY_BYTES,
    format,
    index::Index,
    log::{
        self,
        LogMemory,
        Logged,
        Moved,
        Table,
        Victim,
        COLUMNS,
        SLOTS_MAX, //
    },
    medium::Io,
    slot::{
        Slot,
        Stored,
        NONE, //
    },
    store::{
        Block,
        Store, //
    },
};

/// The only member of a log.
const OWN: Members = Members::of(0);

/// The bytes at the begin of a device, and at its end, that have marks of file systems: those of
/// btrfs are 64 KiB from its begin.
const MARKS_BYTES: usize = 68 << 10;

/// The memory of a log in the kernel.
pub(super) struct InLog;

impl LogMemory for InLog {
    type Column = Elements<u8>;
    type Slots = Elements<u32>;
    type Segments = Elements<Segment>;
    type Uses = Elements<u64>;
}

/// A segment that is collected, and what is needed to read it.
pub(super) struct Collected {
    victim: Victim,
    of: (Layout, ArrayTag),
}

impl Kept for Logged<InLog> {
    const IS_DURABLE: bool = true;
    type Victim = Collected;

    fn durable_up_to(&self) -> u64 {
        self.durable()
    }

    fn is_stopped(&self) -> bool {
        Self::is_stopped(self)
    }

    fn is_quiet(&self) -> bool {
        Self::is_stopped(self) || self.is_idle()
    }

    fn ended(&mut self, io: Io, is_well: bool) {
        Self::ended(self, io, is_well);
    }

    fn copy_block(&self, stored: &Stored, block: u8, to: &mut Block) -> Result<Option<u32>> {
        let Some(bytes) = self.at(body::place_of(stored, block)) else {
            return Ok(None);
        };
        let (sum, bytes) = body::block_unread(bytes, stored).map_err(|_| EIO)?;
        to.copy_from_slice(bytes);
        Ok(Some(sum))
    }

    fn settle(store: &mut Store<Tables, Self>, acting: &mut Acting) {
        store.settle((acting, &Crc));
    }

    fn is_low(&mut self) -> bool {
        Self::is_low(self)
    }

    fn begin_collecting(&mut self) -> Option<Collected> {
        let victim = Self::begin_collecting(self)?;
        let of = self.reading();
        Some(Collected { victim, of })
    }

    fn load(collected: &mut Collected, device: &mut OneDevice, column: &mut [u8]) -> bool {
        let (layout, tag) = collected.of;
        collected.victim.load(device, column, (&layout, tag), &Crc)
    }

    fn collect(
        store: &mut Store<Tables, Self>,
        (collected, column): (&mut Collected, &[u8]),
        acting: &mut Acting,
    ) -> bool {
        let from = (&mut collected.victim, column);
        store.collect(from, (acting, &Crc)) == Moved::All
    }

    fn end_collecting(&mut self, collected: &Collected) {
        Self::end_collecting(self, &collected.victim);
    }
}

/// A store on a log that was opened.
pub(super) struct OpenedStore {
    pub(super) store: KBox<Store<Tables, Logged<InLog>>>,
    pub(super) acting: Acting,
    pub(super) device: LogDevice,
    pub(super) memory_bytes: u64,
}

/// Opens the device of a log for its store alone. Sleeps.
#[inline(never)]
pub(super) fn open(name: &str, on: &LogOn<'_>) -> Result<Arc<BlockDevice>> {
    let holder = Holder::new()?;
    let path = c_string(on.device)?;
    let device = BlockDevice::open_exclusively(&path, Mode::ReadWrite, &holder);
    let device = device.inspect_err(|error| {
        let path = BStr::from_bytes(on.device);
        pr_err!("add_store: '{name}': {path}: cannot be opened: {error:?}\n");
    })?;
    Ok(Arc::new(device, GFP_KERNEL)?)
}

/// Makes a new log on a device.
#[inline(never)]
fn create(name: &str, on: &LogOn<'_>, of: &LogDevice) -> Result {
    let device = &of.device;
    let bytes = device.capacity_sectors();
    let bytes = bytes.saturating_mul(SECTOR_BYTES.into());
    let blocks = (device.logical_block_bytes(), device.physical_block_bytes());
    let layout = format::layout(bytes, blocks).map_err(|unfit| {
        pr_err!(
            "add_store: '{name}': no log is made: {}\n",
            format_args!("{unfit}")
        );
        EINVAL
    })?;
    check_memory(name, &layout)?;
    let mut device = OneDevice::new(of)?;
    let [one, other] =
        slots::read(&mut device, 0, &Crc).map_err(|failed| unreadable(name, failed))?;
    let is_free = |slot: &Result<Superblock, Refusal>| *slot == Err(Refusal::NotFormatted);
    if !(on.is_forced || (is_free(&one) && is_free(&other))) {
        pr_err!(
            "add_store: '{name}': the device has a log: mode=assemble opens it, force=1 makes a \
             new one, and what it has is lost\n"
        );
        return Err(EEXIST);
    }
    let unreadable = |failed| unreadable(name, failed);
    if !on.is_forced && !is_empty(&mut device).map_err(unreadable)? {
        pr_err!(
            "add_store: '{name}': the device is not empty, as one with a file system: force=1 \
             makes a log, and what it has is lost\n"
        );
        return Err(EEXIST);
    }
    let of_store = (random::uuid(), ArrayTag(random::number()));
    let own = Superblock::new(of_store, 0, layout, random::number() | 1);
    let zeroes = KVec::from_elem(0, SLOT_BYTES as usize, GFP_KERNEL)?;
    slots::write_new(&mut device, &own, &zeroes, &Crc).map_err(|failed| {
        let error = failed.0;
        pr_err!("add_store: '{name}': no log is made: it cannot be written: {error:?}\n");
        error
    })
}

/// Returns whether a device has nothing but zeroes where file systems, partitions and others have
/// their marks. Sleeps.
#[inline(never)]
fn is_empty(device: &mut OneDevice) -> Result<bool, Failed> {
    let mut bytes = KVVec::from_elem(0u8, MARKS_BYTES, GFP_KERNEL).map_err(Error::from)?;
    let end = device.bytes(0).saturating_sub(MARKS_BYTES as u64);
    for at in [0, end] {
        device.read(0, at, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the error of a device that cannot be read, and says so.
#[cold]
fn unreadable(name: &str, failed: Failed) -> Error {
    let error = failed.0;
    pr_err!("add_store: '{name}': no log is made: it cannot be read: {error:?}\n");
    error
}

fn check_memory(name: &str, layout: &Layout) -> Result {
    let needed = format::memory_bytes(layout);
    let there = kernel_memory::available_bytes();
    if needed > there {
        pr_err!("add_store: '{name}' takes {needed} bytes of memory, and {there} are free\n");
        return Err(ENOMEM);
    }
    Ok(())
}

/// Returns the error of a fault, and says what it is.
#[cold]
fn refused(name: &str, fault: &Fault<Failed>) -> Error {
    pr_err!(
        "add_store: '{name}': the log cannot be used: {}\n",
        format_args!("{fault}")
    );
    match fault {
        Fault::Io(_, error) => error.0,
        Fault::Superblock(_, Refusal::NotFormatted) => EINVAL,
        Fault::Superblock(_, Refusal::Unreadable) => EIO,
        Fault::NoQuorum(_) | Fault::OtherArray(_) | Fault::OtherMember { .. } => EINVAL,
        Fault::Scratch => ENOMEM,
        Fault::NoSegment => ENOSPC,
        _ => errno::EUCLEAN,
    }
}

/// Says that what a log has makes no sense.
fn damaged(name: &str, why: impl core::fmt::Debug) -> Error {
    pr_err!(
        "add_store: '{name}': the log is damaged: {}\n",
        format_args!("{why:?}")
    );
    errno::EUCLEAN
}

/// Reads the superblock; on the heap, as it is large.
#[inline(never)]
fn examine<'a>(
    device: &'a mut OneDevice,
    is_forced: bool,
    column: &'a mut [u8],
) -> Result<KBox<Recovery<'a, OneDevice, Crc>>, Fault<Failed>> {
    let columns = [column, &mut [], &mut []];
    let recovery = Recovery::examine(device, (OWN, is_forced), columns, &Crc)?;
    KBox::new(recovery, GFP_KERNEL).map_err(|_| Fault::Scratch)
}

/// Opens the log.
#[inline(never)]
fn open_log(
    recovery: &mut Recovery<'_, OneDevice, Crc>,
    free: u32,
    id: u64,
) -> Result<KBox<Opened>, Fault<Failed>> {
    let opened = recovery.open(id, free)?;
    KBox::new(opened, GFP_KERNEL).map_err(|_| Fault::Scratch)
}

/// Makes the store of an open log.
#[inline(never)]
fn make(
    opened: KBox<Opened>,
    index: Index<Elements<Slot>, Elements<u32>>,
    found: (Segments<Elements<Segment>>, Elements<u64>),
    has_cache: bool,
) -> Result<KBox<Store<Tables, Logged<InLog>>>> {
    let superblock = opened.superblocks.first().copied().flatten();
    let superblock = superblock.ok_or(errno::EUCLEAN)?;
    let mut spare = [const { None }; COLUMNS];
    for column in &mut spare {
        *column = Some(Elements::new(0, COLUMN_BYTES_MAX)?);
    }
    let memory = (spare, Elements::new(0, SLOTS_MAX)?);
    let claims = claims()?;
    let store = KBox::new_uninit(GFP_KERNEL)?;
    let opened = (KBox::into_inner(opened), superblock);
    let logged = Logged::new(opened, found, memory, has_cache);
    Ok(KBox::write(store, Store::new(index, claims, logged)))
}

/// Opens the log of a store, or makes a new one. Sleeps.
///
/// # Errors
///
/// Those of `ABI/sysfs-class-rioc-server`, after a log line.
// Little of the stack: below it the superblocks are read, of which each step has copies.
#[inline(never)]
pub(super) fn assemble(name: &str, on: &LogOn<'_>, device: &LogDevice) -> Result<OpenedStore> {
    if on.is_new {
        create(name, on, device)?;
    }
    let mut one = KBox::new(OneDevice::new(device)?, GFP_KERNEL)?;
    let mut column = KVVec::from_elem(0u8, COLUMN_BYTES_MAX, GFP_KERNEL)?;
    let recovery = examine(&mut one, on.is_forced, &mut column);
    let recovery = recovery.map_err(|fault| refused(name, &fault))?;
    follow(name, recovery, device)
}

/// Follows the log, and makes its store. Sleeps.
#[inline(never)]
fn follow(
    name: &str,
    mut recovery: KBox<Recovery<'_, OneDevice, Crc>>,
    of: &LogDevice,
) -> Result<OpenedStore> {
    let refused = |fault: Fault<Failed>| refused(name, &fault);
    let layout = *recovery.layout();
    let Some(count) = format::slots(&layout) else {
        pr_err!("add_store: '{name}': the device is a member of an array, and no log\n");
        return Err(EINVAL);
    };
    check_memory(name, &layout)?;
    let (count, segments) = (count as usize, layout.parts().segments as usize);
    let mut table = Table {
        entries: Elements::new([0; ENTRY_BYTES], count)?,
        uses: Elements::new(0, segments)?,
    };
    log::walk(&mut recovery, &mut table).map_err(refused)?;
    let mut memory = Elements::new(Slot::Free(NONE), count)?;
    let filled = log::slots(table.entries.as_ref(), memory.as_mut());
    filled.map_err(|why| damaged(name, why))?;
    let buckets = Elements::new(NONE, (count / 4).max(1))?;
    let index = Index::restore(memory, buckets, random_key());
    let index = index.map_err(|damage| damaged(name, damage))?;
    let memory = Elements::new(Segment::default(), segments)?;
    let segments = log::segments(memory, &table, &index, &layout);
    let segments = segments.map_err(|why| damaged(name, why))?;
    let (start, end) = (*recovery.start(), *recovery.opens_at());
    let free = segments.free_behind(&end, (&start, &layout));
    let free = free.ok_or(Fault::NoSegment).map_err(refused)?;
    let id = random::number() | 1;
    recovery.commit(id).map_err(refused)?;
    let opened = open_log(&mut recovery, free, id).map_err(refused)?;
    drop(recovery);
    let followed = end.sequence.saturating_sub(start.cursor.sequence);
    let objects = index.usage().objects;
    pr_info!("store '{name}': {objects} objects, {followed} batches of its log were followed\n");
    let has_cache = of.device.has_write_cache();
    let store = make(opened, index, (segments, table.uses), has_cache)?;
    let page_bytes = layout.parts().page_bytes as usize;
    let io = LogIo::new(of.device.clone(), has_cache, page_bytes)?;
    Ok(OpenedStore {
        store,
        acting: Acting::new(Some(io))?,
        device: of.clone(),
        memory_bytes: format::memory_bytes(&layout),
    })
}
