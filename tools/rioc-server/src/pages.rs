// SPDX-License-Identifier: GPL-2.0

//! Pages that are copied to and from.

use std::{
    cell::Cell,
    sync::Mutex, //
};

use crate::prelude::*;

thread_local! {
    static COPIED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the bytes that this thread has copied out of pages, and begins to count anew.
pub fn take_copied_bytes() -> u64 {
    COPIED.with(Cell::take)
}

/// Pages.
#[derive(Debug)]
pub struct PageBlock(Mutex<Vec<u8>>);

impl PageBlock {
    /// Allocates `2^order` pages.
    pub fn new(order: u32) -> Result<Self> {
        Ok(Self(Mutex::new(vec![0; 4096 << order])))
    }

    /// Returns the order for so many bytes.
    pub fn order_for(bytes: usize) -> u32 {
        bytes.div_ceil(4096).next_power_of_two().trailing_zeros()
    }

    fn with(&self, at: usize, len: usize, call: impl FnOnce(&mut [u8])) -> Result {
        let mut all = self.0.lock().unwrap();
        call(all.get_mut(at..at + len).ok_or(EINVAL)?);
        Ok(())
    }

    /// Copies bytes to it.
    pub fn copy_in(&self, at: usize, from: &[u8]) -> Result {
        self.with(at, from.len(), |to| to.copy_from_slice(from))
    }

    /// Copies bytes out of it.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> Result {
        COPIED.with(|count| count.set(count.get() + to.len() as u64));
        self.with(at, to.len(), |from| to.copy_from_slice(from))
    }

    /// Zeroes bytes of it.
    pub fn zero(&self, at: usize, len: usize) -> Result {
        self.with(at, len, |to| to.fill(0))
    }
}
