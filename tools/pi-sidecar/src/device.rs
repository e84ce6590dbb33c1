// SPDX-License-Identifier: GPL-2.0

//! Devices of blocks of 4 KiB: block devices and files, and those that tests have in memory.

use std::{
    fs::{
        File,
        OpenOptions, //
    },
    io::{
        self,
        Seek,
        SeekFrom, //
    },
    os::unix::fs::{
        FileExt,
        OpenOptionsExt, //
    },
    path::{
        Path,
        PathBuf, //
    },
};

use rustix::fs::{
    fallocate,
    FallocateFlags, //
};

use proto::sidecar::{
    record::Unit,
    Block,
    BLOCK_BYTES, //
};

/// A device of blocks.
pub trait Device {
    /// Returns the number of blocks.
    fn blocks(&self) -> u64;

    /// Returns the unit that it can write without reading.
    fn unit(&self) -> Unit;

    /// Reads a block.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()>;

    /// Reads a block that another machine may have written since: from the device, not from a
    /// cache of this one.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read_shared(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        self.read(block, to)
    }

    /// Writes a block, or whole units at its start; with `fua` they are durable then.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()>;

    /// Writes some of the bytes of a block that another machine may be changing, in whole sectors
    /// of 512 bytes from `start` on, past the caches of this one; returns whether it can. They are
    /// durable then.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn write_shared(&mut self, _block: u64, _start: usize, _from: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes zeroes of blocks without writing them; returns whether the device can do so.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn zero(&mut self, first: u64, blocks: u64) -> io::Result<bool>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn flush(&mut self) -> io::Result<()>;
}

impl<D: Device> Device for &mut D {
    fn blocks(&self) -> u64 {
        (**self).blocks()
    }

    fn unit(&self) -> Unit {
        (**self).unit()
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        (**self).read(block, to)
    }

    fn read_shared(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        (**self).read_shared(block, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        (**self).write(block, from, fua)
    }

    fn write_shared(&mut self, block: u64, start: usize, from: &[u8]) -> io::Result<bool> {
        (**self).write_shared(block, start, from)
    }

    fn zero(&mut self, first: u64, blocks: u64) -> io::Result<bool> {
        (**self).zero(first, blocks)
    }

    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }
}

/// Returns the part of some memory that begins at a block's boundary, as devices want it.
fn aligned(memory: &mut [u8], len: usize) -> io::Result<&mut [u8]> {
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    let aligned = memory.get_mut(start..).and_then(|m| m.get_mut(..len));
    aligned.ok_or(io::ErrorKind::InvalidInput.into())
}

/// A file, or a block device that no other program has for itself.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    blocks: u64,
}

impl FileDevice {
    /// `O_EXCL`: a block device that is mounted or used by another program is not opened.
    const EXCLUSIVE: i32 = 0o200;
    /// `O_DIRECT` of x86.
    const DIRECT: i32 = 0o40000;

    /// Opens a file or a block device.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel.
    pub fn open(path: &Path, writes: bool) -> io::Result<Self> {
        let flags = if writes { Self::EXCLUSIVE } else { 0 };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(writes)
            .custom_flags(flags)
            .open(path)?;
        let blocks = file.seek(SeekFrom::End(0))? / BLOCK_BYTES as u64;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            blocks,
        })
    }

    fn offset(&self, block: u64) -> io::Result<u64> {
        let is_inside = block < self.blocks;
        let offset = block.checked_mul(BLOCK_BYTES as u64);
        offset.filter(|_| is_inside).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a block behind the end of the device",
            )
        })
    }

    /// Reads a block, and no other one. The page cache reads up to some megabytes at a time, and
    /// all of them fail with one of their blocks.
    fn read_alone(&self, to: &mut Block, offset: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(Self::DIRECT);
        let file = options.open(&self.path)?;
        let mut memory = [0; 2 * BLOCK_BYTES];
        let aligned = aligned(&mut memory, BLOCK_BYTES)?;
        file.read_exact_at(aligned, offset)?;
        to.copy_from_slice(aligned);
        Ok(())
    }

    /// Writes sectors, and nothing beside them: the page cache writes whole pages.
    fn write_alone(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(Self::DIRECT);
        let file = options.open(&self.path)?;
        let mut memory = [0; 2 * BLOCK_BYTES];
        let aligned = aligned(&mut memory, from.len())?;
        aligned.copy_from_slice(from);
        file.write_all_at(aligned, offset)?;
        file.sync_data()
    }
}

impl Device for FileDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the block, though the file's device may have smaller units: a file lies on pages,
    /// and this program has time.
    fn unit(&self) -> Unit {
        Unit::BLOCK
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        let offset = self.offset(block)?;
        let read = self.file.read_exact_at(to, offset);
        // What it says is of another block, perhaps.
        read.or_else(|error| self.read_alone(to, offset).map_err(|_| error))
    }

    fn read_shared(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        let offset = self.offset(block)?;
        // Not each file system has direct IO; a file there is not shared.
        self.read_alone(to, offset)
            .or_else(|_| self.read(block, to))
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        self.file.write_all_at(from, self.offset(block)?)?;
        if fua {
            self.flush()?;
        }
        Ok(())
    }

    fn write_shared(&mut self, block: u64, start: usize, from: &[u8]) -> io::Result<bool> {
        let offset = self.offset(block)?.saturating_add(start as u64);
        match self.write_alone(from, offset) {
            // It has larger sectors, or no direct IO.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Makes a hole: the kernel makes one in a block device only where that writes zeroes itself.
    fn zero(&mut self, first: u64, blocks: u64) -> io::Result<bool> {
        let len = blocks.saturating_mul(BLOCK_BYTES as u64);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If it fails nothing is lost: writing tells why.
        Ok(fallocate(&self.file, flags, self.offset(first)?, len).is_ok())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
