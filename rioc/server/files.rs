// SPDX-License-Identifier: GPL-2.0

//! The files of the objects of a store: what `proto::store` has decided is done with them, without
//! the lock of the store.

use core::ops::ControlFlow;

use ferro_proto::{
    errno::Errno,
    text::Escaped, //
};
use kernel::{
    prelude::*,
    str::CStr, //
};
use kernel_ext::{
    file::{
        DataFile,
        Folder,
        Use, //
    },
    text::c_string, //
};

use crate::proto::{
    file_name,
    index::{
        Fetch,
        Leaving,
        Source, //
    },
    span::{
        ObjectId,
        BLOCK_BYTES,
        IO_BLOCKS_MAX,
        OBJECT_BYTES_MAX, //
    },
};

/// The blocks of a job, some of which are copied under the lock at a time.
const BUFFER_BYTES: usize = IO_BLOCKS_MAX * BLOCK_BYTES as usize;

/// Opens the folder of a store. Sleeps.
///
/// # Errors
///
/// Those of opening, after a log line.
pub(super) fn open(name: &str, path: &[u8]) -> Result<Folder> {
    Folder::open(&c_string(path)?).inspect_err(|error| {
        let shown = Escaped(path);
        pr_err!(
            "add_store: '{name}': backing={}: cannot be opened: {error:?}: give the path of a \
             folder that is there\n",
            format_args!("{shown}")
        );
    })
}

/// Makes a file in a folder, syncs it, and removes it. Sleeps.
///
/// # Errors
///
/// Those of the folder.
pub(super) fn probe(folder: &Folder) -> Result {
    let name = c_string(file_name::PROBE)?;
    let file = folder.file(&name, Use::Making)?;
    file.write(0, b"rioc")?;
    file.sync()?;
    drop(file);
    folder.remove(&name)?;
    folder.sync()
}

/// Returns the objects of which there are files, and how many other names there are. The look ends
/// behind one object more than there may be. Sleeps.
///
/// # Errors
///
/// Those of reading the folder, or of a file, whose object is told: `EINVAL` if it is none, `EFBIG`
/// if no object is so long; `ENOMEM`.
#[expect(clippy::type_complexity, reason = "there is one user")]
pub(super) fn objects(
    folder: &mut Folder,
    objects_max: usize,
) -> Result<(KVVec<(ObjectId, u64)>, u64), (Error, Option<ObjectId>)> {
    let (mut found, mut others, mut failed) = (KVVec::new(), 0u64, None);
    let walked = folder.each_name(|name, is_other| {
        match file_name::object(name) {
            // It is not opened: that of a device may do something.
            Some(id) if is_other => failed = Some((EINVAL, Some(id))),
            Some(id) if found.push((id, 0), GFP_KERNEL).is_err() => failed = Some((ENOMEM, None)),
            Some(_) => (),
            None if matches!(name, b"." | b"..") => (),
            None => others = others.saturating_add(1),
        }
        if failed.is_some() || found.len() > objects_max {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    walked.map_err(|error| (error, None))?;
    failed.map_or(Ok(()), Err)?;
    if found.len() > objects_max {
        return Ok((found, others));
    }
    for (id, size) in found.iter_mut() {
        let file = file_of(folder, *id, Use::Reading);
        let known = file.and_then(|file| file.size());
        *size = known.map_err(|error| (error, Some(*id)))?;
        if *size > OBJECT_BYTES_MAX {
            return Err((EFBIG, Some(*id)));
        }
    }
    Ok((found, others))
}

fn file_of(folder: &Folder, id: ObjectId, to: Use) -> Result<DataFile> {
    let name = file_name::of(id);
    let name = CStr::from_bytes_with_nul(&name).map_err(|_| EINVAL)?;
    folder.file(name, to)
}

/// The error as pure code has it.
pub(super) fn errno(error: Error) -> Errno {
    Errno::new(error.to_errno()).unwrap_or(Errno::EIO)
}

/// A folder, and memory for one thing that is done with a file of it.
pub(super) struct Filing {
    folder: Folder,
    buffer: KVVec<u8>,
    /// A file was made whose name may not be durable.
    owes_name: bool,
    /// A file has failed, of which a line in the log tells.
    pub(super) is_failing: bool,
}

impl Filing {
    /// Allocates it. Sleeps.
    pub(super) fn new(folder: Folder) -> Result<Self> {
        Ok(Self {
            folder,
            buffer: KVVec::from_elem(0, BUFFER_BYTES, GFP_KERNEL)?,
            owes_name: false,
            is_failing: false,
        })
    }

    /// Returns the blocks that [`Self::fetch`] has read.
    pub(super) fn fetched(&self, fetch: &Fetch) -> &[u8] {
        let bytes = (fetch.blocks as usize).saturating_mul(BLOCK_BYTES as usize);
        self.buffer.get(..bytes).unwrap_or_default()
    }

    /// Reads blocks. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the file; `EIO` if it is shorter than what was written to it.
    pub(super) fn fetch(&mut self, fetch: &Fetch) -> Result {
        let file = file_of(&self.folder, fetch.object, Use::Reading)?;
        let bytes = (fetch.blocks as usize).saturating_mul(BLOCK_BYTES as usize);
        let to = self.buffer.get_mut(..bytes).ok_or(EIO)?;
        let read = file.read(u64::from(fetch.block).saturating_mul(BLOCK_BYTES), to)?;
        // Of the last block there may be a part.
        if read.saturating_add(BLOCK_BYTES as usize) <= bytes {
            return Err(EIO);
        }
        to.get_mut(read..).unwrap_or_default().fill(0);
        Ok(())
    }

    /// Writes blocks of an object to its file, and syncs it. `copy` copies a block out of the
    /// store. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the file; some of it may be there.
    pub(super) fn leave(
        &mut self,
        leaving: &Leaving,
        mut copy: impl FnMut(&Source, &mut [u8]) -> Result,
    ) -> Result {
        let (file, size) = self.file_to_write(leaving)?;
        let cut_at = leaving.cut_at.map(u64::from);
        let cut_at = cut_at.map_or(size, |block| block.saturating_mul(BLOCK_BYTES));
        if cut_at < size {
            file.truncate(cut_at)?;
        }
        // First, so that it has no size that the object has never had when this fails.
        if leaving.size != cut_at.min(size) {
            file.truncate(leaving.size)?;
        }
        for part in leaving.parts() {
            let mut first = 0;
            while first < part.blocks {
                let count = part.blocks.saturating_sub(first).min(IO_BLOCKS_MAX as u32);
                let bytes = (count as usize).saturating_mul(BLOCK_BYTES as usize);
                let buffer = self.buffer.get_mut(..bytes).ok_or(EIO)?;
                match &part.source {
                    // One of an extent is no longer than the buffer.
                    Some(source) => copy(source, buffer)?,
                    None => buffer.fill(0),
                }
                let block = u64::from(part.block).saturating_add(first.into());
                let at = block.saturating_mul(BLOCK_BYTES);
                let rest = usize::try_from(leaving.size.saturating_sub(at)).unwrap_or(bytes);
                file.write(at, buffer.get(..rest).unwrap_or(buffer))?;
                first = first.saturating_add(count);
            }
        }
        file.sync()?;
        // Also after a job that has made it, and failed.
        if self.owes_name {
            self.folder.sync()?;
            self.owes_name = false;
        }
        Ok(())
    }

    /// Opens the file of a job; returns its size as well.
    fn file_to_write(&mut self, leaving: &Leaving) -> Result<(DataFile, u64)> {
        let found = match file_of(&self.folder, leaving.object, Use::Writing) {
            Err(error) if error == ENOENT => None,
            other => Some(other?),
        };
        let size = found.as_ref().map(DataFile::size).transpose()?;
        if !leaving.may_write(size) {
            return Err(EIO);
        }
        if let Some(file) = found {
            return Ok((file, size.unwrap_or_default()));
        }
        self.owes_name = true;
        Ok((file_of(&self.folder, leaving.object, Use::Making)?, 0))
    }

    /// Removes the file of an object, if there is one. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the folder.
    pub(super) fn remove(&mut self, object: ObjectId) -> Result {
        let name = file_name::of(object);
        let name = CStr::from_bytes_with_nul(&name).map_err(|_| EINVAL)?;
        match self.folder.remove(name) {
            Err(error) if error != ENOENT => Err(error),
            // One that an earlier removal has not synced is gone for good now.
            _ => self.folder.sync(),
        }
    }
}
