// SPDX-License-Identifier: GPL-2.0

//! A device, with a volatile cache or without: what ends in the cache is lost with the power, but
//! for parts that were written by themselves, torn at eight bytes.

use std::sync::{
    Mutex,
    MutexGuard, //
};

use rioc::proto::medium::Io;

use crate::{
    prelude::*,
    str::CString,
    sync::Arc,
    workqueue::WorkQueue,
    Flags,
    SECTOR_BYTES, //
};

/// The bytes that a medium writes whole.
const WORD: usize = 8;

/// An IO in flight.
#[derive(Clone, Debug)]
enum Begun {
    Write(u64, Vec<u8>, Flags),
    /// A flush of what had ended before it began.
    Flush(usize),
}

/// The content of a device.
#[derive(Clone, Debug, Default)]
struct Content {
    /// Bytes that are durable, and those that are read.
    stable: Vec<u8>,
    seen: Vec<u8>,
    /// The writes in the cache, in the order in which they have ended; `None` if they are durable.
    cached: Vec<Option<(u64, Vec<u8>)>>,
    begun: Vec<(Io, Begun)>,
    has_cache: bool,
    reads: u64,
}

impl Content {
    fn write(&mut self, at: u64, bytes: Vec<u8>, flags: Flags) {
        let place = at as usize..at as usize + bytes.len();
        self.seen[place.clone()].copy_from_slice(&bytes);
        match self.has_cache && !flags.is_fua() {
            true => self.cached.push(Some((at, bytes))),
            false => self.stable[place].copy_from_slice(&bytes),
        }
    }

    fn flush(&mut self, end: usize) {
        for (at, bytes) in self.cached[..end].iter_mut().filter_map(Option::take) {
            self.stable[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// An open device.
#[derive(Debug)]
pub struct BlockDevice(Mutex<Content>);

/// The mode of an open device.
pub enum Mode {
    /// Both.
    ReadWrite,
}

/// The holder of a device.
pub struct Holder;

impl Holder {
    /// Makes one.
    pub fn new() -> Result<Self> {
        Ok(Self)
    }
}

impl BlockDevice {
    /// Makes one of zeroes.
    pub fn of_zeroes(bytes: usize, has_cache: bool) -> Result<Arc<Self>> {
        let content = Content {
            stable: vec![0; bytes],
            seen: vec![0; bytes],
            has_cache,
            ..Content::default()
        };
        Ok(Arc::new(Self(Mutex::new(content)), GFP_KERNEL)?)
    }

    /// Finds none by a name.
    pub fn open_exclusively(_path: &CString, _mode: Mode, _holder: &Holder) -> Result<Self> {
        Err(ENODEV)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }

    /// Returns its sectors.
    pub fn capacity_sectors(&self) -> u64 {
        self.content().seen.len() as u64 / u64::from(SECTOR_BYTES)
    }

    /// Returns the bytes of a block.
    pub fn logical_block_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    /// Returns the bytes of a block that is written without reading.
    pub fn physical_block_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    /// Whether it has a volatile cache.
    pub fn has_write_cache(&self) -> bool {
        self.content().has_cache
    }

    /// Says from now on that it has a volatile cache.
    pub fn begin_to_cache(&self) {
        self.content().has_cache = true;
    }

    /// Returns how often it was read, and begins to count anew.
    pub fn take_reads(&self) -> u64 {
        std::mem::take(&mut self.content().reads)
    }

    /// Flips a bit of what is read.
    pub fn flip(&self, at: usize, bit: u32) {
        let mut content = self.content();
        content.seen[at] ^= 1 << bit;
        content.stable[at] ^= 1 << bit;
    }

    /// Returns where these bytes are.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        let content = self.content();
        let mut all = content.seen.windows(bytes.len());
        all.position(|there| there == bytes)
    }

    /// Begins to write.
    pub fn begin_write(&self, io: Io, at: u64, bytes: &[u8], flags: Flags) {
        let begun = Begun::Write(at, bytes.to_vec(), flags);
        self.content().begun.push((io, begun));
    }

    /// Begins to flush what was written.
    pub fn begin_flush(&self, io: Io) {
        let mut content = self.content();
        let end = content.cached.len();
        content.begun.push((io, Begun::Flush(end)));
    }

    /// Ends one of the IOs in flight, which `choose` chooses of so many.
    pub fn end_one(&self, choose: impl FnOnce(usize) -> usize) -> Option<Io> {
        let mut content = self.content();
        let count = content.begun.len();
        if count == 0 {
            return None;
        }
        let (io, begun) = content.begun.remove(choose(count));
        match begun {
            Begun::Write(at, bytes, flags) => content.write(at, bytes, flags),
            Begun::Flush(end) => content.flush(end),
        }
        Some(io)
    }

    /// Cuts the power: of each write that is not durable `kept` says which words are.
    pub fn lose_power(&self, mut kept: impl FnMut(usize) -> Vec<bool>) {
        let mut content = self.content();
        let cached = std::mem::take(&mut content.cached);
        let begun = std::mem::take(&mut content.begun);
        let begun = begun.into_iter().filter_map(|(_, begun)| match begun {
            Begun::Write(at, bytes, _) => Some((at, bytes)),
            Begun::Flush(_) => None,
        });
        for (at, bytes) in cached.into_iter().flatten().chain(begun) {
            let words = kept(bytes.len() / WORD);
            for ((number, word), is_kept) in bytes.chunks(WORD).enumerate().zip(words) {
                if is_kept {
                    let place = at as usize + number * WORD;
                    content.stable[place..place + word.len()].copy_from_slice(word);
                }
            }
        }
        content.seen = content.stable.clone();
    }
}

/// The limit of the time that IOs are waited for: here they end at once.
pub struct Limit {
    /// The time of one IO.
    pub timeout_ms: u32,
    /// The queue of the item that submits.
    pub queue: Arc<WorkQueue>,
}

/// A device of which one IO after the other is done.
pub struct Blocking(Arc<BlockDevice>);

impl Blocking {
    /// Takes a device.
    pub fn new(
        device: Arc<BlockDevice>,
        _order: u32,
        _permission: (),
        _limit: Option<Limit>,
    ) -> Result<Self> {
        Ok(Self(device))
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<BlockDevice> {
        &self.0
    }

    /// Whether the device owes an answer: here none does.
    pub fn is_owed(&self) -> bool {
        false
    }

    /// Reads.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result {
        let mut content = self.0.content();
        content.reads += 1;
        let from = content.seen.get(at as usize..at as usize + to.len());
        to.copy_from_slice(from.ok_or(EIO)?);
        Ok(())
    }

    /// Writes.
    pub fn write(&mut self, at: u64, from: &[u8], flags: Flags) -> Result {
        self.0.content().write(at, from.to_vec(), flags);
        Ok(())
    }

    /// Makes durable what was written.
    pub fn flush(&mut self) -> Result {
        let mut content = self.0.content();
        let end = content.cached.len();
        content.flush(end);
        Ok(())
    }
}
