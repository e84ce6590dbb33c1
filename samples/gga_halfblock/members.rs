// SPDX-License-Identifier: GPL-2.0

//! The storage of a target's blocks: a file, a block device, or what a test makes of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{bail, Context, Result};

use crate::sbc::{self, Geometry};

/// A storage that has the half blocks of a target, one after the other.
pub trait Storage: Sync {
    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()>;

    /// Writes bytes.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn flush(&self) -> io::Result<()>;
}

/// A file or a block device; or none, in the place of one that is lost.
#[derive(Debug)]
pub struct Medium {
    file: Option<File>,
    /// The position of its first half block.
    first: u64,
}

impl Storage for Medium {
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.file()?
            .read_exact_at(to, self.first.saturating_add(offset))
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file()?
            .write_all_at(from, self.first.saturating_add(offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }
}

impl Medium {
    /// A member that is lost.
    pub const LOST: Self = Self {
        file: None,
        first: 0,
    };

    /// `O_EXCL`: a block device that is mounted or used by another program is not opened.
    const EXCLUSIVE: i32 = 0o200;

    fn file(&self) -> io::Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| io::Error::other("the member is lost"))
    }

    /// Opens a member. An `.sbc` file is known by its head; anything else has half blocks of
    /// `half_bytes` from its first byte on, as many as fit.
    ///
    /// # Errors
    ///
    /// Returns why it is none.
    pub fn open(path: &Path, half_bytes: u32, is_written: bool) -> Result<(Self, Geometry)> {
        Self::opened(path, half_bytes, is_written).with_context(|| path.display().to_string())
    }

    fn opened(path: &Path, half_bytes: u32, is_written: bool) -> Result<(Self, Geometry)> {
        let flags = if is_written { Self::EXCLUSIVE } else { 0 };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(is_written).custom_flags(flags);
        let mut file = options.open(path)?;
        // Of a device as well, whose metadata has no length.
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut head = [0; sbc::HEADER_BYTES];
        let known = bytes.min(head.len() as u64) as usize;
        file.read_exact_at(head.get_mut(..known).unwrap_or_default(), 0)?;
        if let Some(geometry) = Geometry::decode(&head, bytes)? {
            let (file, first) = (Some(file), head.len() as u64);
            return Ok((Self { file, first }, geometry));
        }
        let blocks = bytes.checked_div(half_bytes.into()).unwrap_or(0);
        let Ok(blocks @ 1..) = u32::try_from(blocks) else {
            bail!("{bytes} bytes are no block, or more than {}", u32::MAX);
        };
        let file = Some(file);
        Ok((Self { file, first: 0 }, Geometry { half_bytes, blocks }))
    }
}
