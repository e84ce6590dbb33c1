// SPDX-License-Identifier: GPL-2.0

//! The memory of an array, all of which is allocated when it is assembled.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    crc,
    pages::PageBlock, //
};
use seglog::{
    layout::{
        Layout,
        COLUMN_BYTES_MAX, //
    },
    log::WINDOW,
    members::MEMBERS,
    segments::Segment,
    table::Table,
    Checksum, //
};

use crate::proto::{
    array::{
        Memory,
        PACKED, //
    },
    packing::{
        Columns,
        Packed, //
    },
};

/// The kernel's CRC-32C.
pub(super) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc::crc32c(0, bytes)
    }
}

/// The memory of an array in the kernel.
pub(super) struct InKernel;

impl Memory for InKernel {
    type Words = Words;
    type Segments = Elements<Segment>;
    type Packed = Elements<Packed>;
}

/// The words of a table.
pub(super) struct Words(KVVec<u64>);

impl Words {
    /// Allocates them; all are 0. Sleeps.
    pub(super) fn new(layout: &Layout) -> Result<Self> {
        let count = usize::try_from(layout.words()).map_err(|_| ENOMEM)?;
        Ok(Self(KVVec::from_elem(0, count, GFP_KERNEL)?))
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.0.get(index).copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(to) = self.0.get_mut(index) {
            *to = word;
        }
    }
}

/// Elements whose number does not change.
pub(super) struct Elements<T>(KVVec<T>);

impl<T: Clone + Default> Elements<T> {
    /// Allocates them. Sleeps.
    pub(super) fn new(count: usize) -> Result<Self> {
        Ok(Self(KVVec::from_elem(T::default(), count, GFP_KERNEL)?))
    }
}

impl<T> AsRef<[T]> for Elements<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T> AsMut<[T]> for Elements<T> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// Allocates the records of batches in flight. Sleeps.
pub(super) fn packed() -> Result<Elements<Packed>> {
    Elements::new(PACKED)
}

/// Allocates the columns of a batch that is made. Sleeps.
pub(super) fn columns() -> Result<Columns<Elements<u8>>> {
    let column = || Elements::new(COLUMN_BYTES_MAX);
    Ok(Columns {
        columns: [column()?, column()?, column()?],
    })
}

/// Memory that members are written from: a copy of the columns of each batch in flight, as a member
/// that hangs may take long to read it.
pub(super) struct Images(KVec<Arc<PageBlock>>);

impl Images {
    /// Allocates them. Sleeps.
    pub(super) fn new() -> Result<Self> {
        let count = WINDOW * MEMBERS;
        let mut images = KVec::with_capacity(count, GFP_KERNEL)?;
        let order = PageBlock::order_for(COLUMN_BYTES_MAX);
        for _ in 0..count {
            images.push(Arc::new(PageBlock::new(order)?, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self(images))
    }

    /// Returns that of a member's column of the batch in a slot.
    pub(super) fn get(&self, slot: usize, member: usize) -> Option<&Arc<PageBlock>> {
        self.0
            .get(slot.saturating_mul(MEMBERS).saturating_add(member))
    }
}
