// SPDX-License-Identifier: GPL-2.0

//! Files of a folder, as they are and as they were when they were synced.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Mutex,
        MutexGuard, //
    },
};

use crate::prelude::*;

/// The content of a folder.
#[derive(Debug, Default)]
struct Content {
    now: BTreeMap<Vec<u8>, Vec<u8>>,
    synced: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The names that are durable.
    names: Vec<Vec<u8>>,
    /// The error of what is done, after so many times more.
    failing: Option<(Error, u32)>,
    syncs: u64,
    is_read_only: bool,
    /// The names of what is no file.
    odd: Vec<Vec<u8>>,
    /// The names of files that cannot be removed.
    kept: Vec<Vec<u8>>,
}

/// The use for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reading.
    Reading,
    /// Reading and writing.
    Writing,
    /// Reading and writing: it is made, and is an error if it is there.
    Making,
}

/// A folder.
#[derive(Clone, Debug)]
pub struct Folder(std::sync::Arc<Mutex<Content>>);

/// A file.
pub struct DataFile(Folder, Vec<u8>);

impl Folder {
    /// Makes an empty one.
    pub fn empty() -> Self {
        Self(std::sync::Arc::default())
    }

    /// Finds none by a path.
    pub fn open(_path: &CStr) -> Result<Self> {
        Err(ENOENT)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }

    fn check(&self) -> Result {
        match &mut self.content().failing {
            Some((error, 0)) => Err(*error),
            Some((_, times)) => {
                *times -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lets all fail from now on, or work again.
    pub fn fail(&self, error: Option<Error>) {
        self.content().failing = error.map(|error| (error, 0));
    }

    /// Lets all fail that is done after so many times more.
    pub fn fail_after(&self, times: u32, error: Error) {
        self.content().failing = Some((error, times));
    }

    /// Cuts the power: what was not synced is gone.
    pub fn lose_power(&self) {
        let mut content = self.content();
        let names = content.names.clone();
        let synced = names.into_iter().map(|name| {
            let bytes = content.synced.get(&name).cloned().unwrap_or_default();
            (name, bytes)
        });
        content.now = synced.collect();
    }

    /// Returns how often files and the folder were synced.
    pub fn syncs(&self) -> u64 {
        self.content().syncs
    }

    /// Cuts a file behind the back of the store.
    pub fn damage(&self, name: &[u8]) {
        self.content().now.get_mut(name).unwrap().clear();
    }

    /// Lets files be read only, or be written again.
    pub fn read_only(&self, is_read_only: bool) {
        self.content().is_read_only = is_read_only;
    }

    /// Lets these files not be removed.
    pub fn keep(&self, names: &[Vec<u8>]) {
        self.content().kept = names.to_vec();
    }

    /// Returns the names of all files.
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.content().now.keys().cloned().collect()
    }

    /// Sets the size of a file behind the back of the store.
    pub fn resize(&self, name: &[u8], size: usize) {
        self.content().now.get_mut(name).unwrap().resize(size, 0);
    }

    /// Lets a name be of something that is no file.
    pub fn be_odd(&self, name: &[u8]) {
        self.content().odd.push(name.to_vec());
        self.content().now.insert(name.to_vec(), Vec::new());
    }

    /// Removes a file behind the back of the store.
    pub fn remove_behind(&self, name: &[u8]) {
        self.content().now.remove(name).unwrap();
    }

    /// Returns its number.
    pub fn identity(&self) -> usize {
        std::sync::Arc::as_ptr(&self.0).addr()
    }

    /// Opens a file.
    pub fn file(&self, name: &CStr, to: Use) -> Result<DataFile> {
        self.check()?;
        let name = name.to_bytes().to_vec();
        let mut content = self.content();
        if content.is_read_only && to != Use::Reading {
            return Err(EROFS);
        }
        if to == Use::Making && content.now.contains_key(&name) {
            return Err(EEXIST);
        }
        if to == Use::Making {
            content.now.entry(name.clone()).or_default();
        }
        let is_there = content.now.contains_key(&name);
        drop(content);
        match is_there {
            true => Ok(DataFile(self.clone(), name)),
            false => Err(ENOENT),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &CStr) -> Result {
        self.check()?;
        if self
            .content()
            .kept
            .iter()
            .any(|kept| kept == name.to_bytes())
        {
            return Err(EIO);
        }
        let removed = self.content().now.remove(name.to_bytes());
        removed.map(|_| ()).ok_or(ENOENT)
    }

    /// Makes names durable.
    pub fn sync(&self) -> Result {
        self.check()?;
        let mut content = self.content();
        content.names = content.now.keys().cloned().collect();
        content.syncs += 1;
        Ok(())
    }

    /// Calls for each name.
    pub fn each_name(&mut self, mut call: impl FnMut(&[u8], bool) -> ControlFlow<()>) -> Result {
        let odd = self.content().odd.clone();
        let names: Vec<_> = self.content().now.keys().cloned().collect();
        for name in [b".".to_vec()].iter().chain(&names) {
            if call(name, odd.contains(name)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl DataFile {
    fn with<R>(&self, call: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        self.0.check()?;
        let mut content = self.0.content();
        Ok(call(content.now.get_mut(&self.1).ok_or(EIO)?))
    }

    /// Returns its size.
    pub fn size(&self) -> Result<u64> {
        self.with(|bytes| bytes.len() as u64)
    }

    /// Reads.
    pub fn read(&self, at: u64, to: &mut [u8]) -> Result<usize> {
        self.with(|bytes| {
            let from = bytes.get(at as usize..).unwrap_or_default();
            let len = from.len().min(to.len());
            to[..len].copy_from_slice(&from[..len]);
            len
        })
    }

    /// Writes.
    pub fn write(&self, at: u64, from: &[u8]) -> Result {
        self.with(|bytes| {
            let end = at as usize + from.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[at as usize..end].copy_from_slice(from);
        })
    }

    /// Sets the size.
    pub fn truncate(&self, size: u64) -> Result {
        self.with(|bytes| bytes.resize(size as usize, 0))
    }

    /// Makes it durable.
    pub fn sync(&self) -> Result {
        let bytes = self.with(|bytes| bytes.clone())?;
        let mut content = self.0.content();
        content.synced.insert(self.1.clone(), bytes);
        content.syncs += 1;
        Ok(())
    }
}
