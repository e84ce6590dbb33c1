// SPDX-License-Identifier: GPL-2.0

//! Devices and files that are read.

use std::{
    fmt,
    fs::{
        self,
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
        FileTypeExt,
        MetadataExt,
        OpenOptionsExt, //
    },
    path::{
        Path,
        PathBuf, //
    },
};

use anyhow::{
    anyhow,
    bail,
    Context,
    Result, //
};
use rustix::fs::{
    fadvise,
    Advice, //
};
use seglog::{
    devices::Devices,
    members::{
        Members,
        MEMBERS, //
    },
};

/// `O_EXCL`: a block device that is mounted, in an array, or used by another program is not opened.
const EXCLUSIVE: i32 = 0o200;

/// Permission for others to have a device open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Anybody: what is read may change meanwhile.
    Shared,
    /// Nobody who wants it for himself, of a block device.
    Exclusive,
}

/// Source of bytes.
pub trait ReadAt: fmt::Debug {
    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of the device, or that it ends before.
    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(to, at)
    }
}

/// A device or a file that is open for reading.
#[derive(Debug)]
pub struct Medium {
    /// Its path, as it was given.
    pub path: PathBuf,
    from: Box<dyn ReadAt>,
    bytes: u64,
}

impl Medium {
    /// Returns one of so many bytes.
    pub fn new(path: &Path, from: Box<dyn ReadAt>, bytes: u64) -> Self {
        Self {
            path: path.to_path_buf(),
            from,
            bytes,
        }
    }

    /// Opens it. Nothing is ever written to it.
    ///
    /// # Errors
    ///
    /// Returns what the kernel says, and what to do about it.
    pub fn open(path: &Path, sharing: Sharing) -> Result<Self> {
        let flags = match sharing {
            Sharing::Shared => 0,
            Sharing::Exclusive => EXCLUSIVE,
        };
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let mut file = opened.map_err(|error| {
            let is_busy = error.kind() == io::ErrorKind::ResourceBusy;
            let why = anyhow!(error);
            if is_busy {
                why.context("in use: unmount it, or stop the array that it is in")
            } else {
                why
            }
        })?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("neither a block device nor a file");
        }
        let bytes = file.seek(SeekFrom::End(0))?;
        // What was read of a device earlier may be older than what is on it.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(Self::new(path, Box::new(file), bytes))
    }

    /// Opens several, each another one.
    ///
    /// # Errors
    ///
    /// Returns which cannot be opened, or is there twice.
    pub fn open_all(paths: &[PathBuf], sharing: Sharing) -> Result<Vec<Self>> {
        let (mut media, mut known) = (Vec::new(), Vec::new());
        for path in paths {
            let shown = || path.display().to_string();
            // Before it is opened: who has it for himself cannot have it again.
            let id = identity(&fs::metadata(path).with_context(shown)?);
            if let Some((_, other)) = known.iter().find(|(other, _)| *other == id) {
                bail!("{other} and {} are the same", shown());
            }
            known.push((id, shown()));
            media.push(Self::open(path, sharing).with_context(shown)?);
        }
        Ok(media)
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of the device, or that it ends before.
    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.from.read(at, to)
    }
}

/// Returns what two paths of the same device or file have in common.
fn identity(metadata: &fs::Metadata) -> (bool, u64, u64) {
    if metadata.file_type().is_block_device() {
        (true, metadata.rdev(), 0)
    } else {
        (false, metadata.dev(), metadata.ino())
    }
}

/// The members of an array that are there.
#[derive(Debug, Default)]
pub struct Media([Option<Medium>; MEMBERS]);

impl Media {
    /// Sets the medium of a member.
    pub fn set(&mut self, member: usize, medium: Medium) {
        if let Some(to) = self.0.get_mut(member) {
            *to = Some(medium);
        }
    }

    /// Returns the medium of a member.
    pub fn get(&self, member: usize) -> Option<&Medium> {
        self.0.get(member).and_then(Option::as_ref)
    }

    /// Returns the members that are there.
    pub fn present(&self) -> Members {
        (0..MEMBERS).filter(|m| self.get(*m).is_some()).collect()
    }
}

impl Devices for Media {
    type Error = io::Error;

    fn bytes(&self, member: usize) -> u64 {
        self.get(member).map_or(0, Medium::bytes)
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> io::Result<()> {
        let medium = self.get(member).ok_or(io::ErrorKind::NotFound)?;
        medium.read(at, to)
    }

    /// Never: this program reads.
    fn write(&mut self, _: usize, _: u64, _: &[u8], _: bool) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Never, as [`Self::write`].
    fn flush(&mut self, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
