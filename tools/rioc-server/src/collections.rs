// SPDX-License-Identifier: GPL-2.0

//! Memory that is allocated. It is counted: where a lock is held none may be.

use std::{
    cell::Cell,
    mem::MaybeUninit,
    ops::{
        Deref,
        DerefMut, //
    },
};

use crate::{
    error::{
        code::ENOMEM,
        Error,
        Result, //
    },
    Zeroed, //
};

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn allocate() {
    ALLOCATED.with(|count| count.set(count.get() + 1));
}

/// Returns how often this thread has allocated.
#[cfg(test)]
pub(crate) fn allocated() -> u64 {
    ALLOCATED.with(Cell::get)
}

/// The flags of an allocation.
#[derive(Clone, Copy)]
pub struct GfpFlags;

/// The flags of one that may sleep.
pub const GFP_KERNEL: GfpFlags = GfpFlags;

/// The error of an allocation.
#[derive(Debug)]
pub struct AllocError;

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        ENOMEM
    }
}

/// A vector.
#[derive(Clone, Debug)]
pub struct KVec<T>(Vec<T>);

/// A vector of any size.
pub type KVVec<T> = KVec<T>;

impl<T> Default for KVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> KVec<T> {
    /// Begins without memory.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Allocates it.
    pub fn with_capacity(count: usize, _flags: GfpFlags) -> Result<Self, AllocError> {
        allocate();
        Ok(Self(Vec::with_capacity(count)))
    }

    /// Adds an element.
    pub fn push(&mut self, element: T, _flags: GfpFlags) -> Result<(), AllocError> {
        if self.0.len() == self.0.capacity() {
            allocate();
        }
        self.0.push(element);
        Ok(())
    }

    /// Adds an element for which there is room: the driver drops it else, or its result.
    pub fn push_within_capacity(&mut self, element: T) -> Result<(), T> {
        assert!(
            self.0.len() < self.0.capacity(),
            "there is room, says the driver"
        );
        self.0.push(element);
        Ok(())
    }

    /// Takes an element out.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        (index < self.0.len()).then(|| self.0.remove(index))
    }

    /// Takes the last element.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Takes all elements.
    pub fn drain_all(&mut self) -> std::vec::Drain<'_, T> {
        self.0.drain(..)
    }

    /// Drops all elements.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Clone> KVec<T> {
    /// Allocates elements.
    pub fn from_elem(element: T, count: usize, _flags: GfpFlags) -> Result<Self, AllocError> {
        allocate();
        Ok(Self(vec![element; count]))
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// A box.
#[derive(Debug)]
pub struct KBox<T: ?Sized>(Box<T>);

impl<T> KBox<T> {
    /// Allocates it.
    pub fn new(value: T, _flags: GfpFlags) -> Result<Self, AllocError> {
        allocate();
        Ok(Self(Box::new(value)))
    }

    /// Allocates one that is written later.
    pub fn new_uninit(_flags: GfpFlags) -> Result<KBox<MaybeUninit<T>>, AllocError> {
        allocate();
        Ok(KBox(Box::new(MaybeUninit::uninit())))
    }

    /// Writes it.
    pub fn write(_memory: KBox<MaybeUninit<T>>, value: T) -> Self {
        // Not counted: the kernel has this memory already.
        Self(Box::new(value))
    }

    /// Takes the value out.
    pub fn into_inner(this: Self) -> T {
        *this.0
    }
}

impl<T: zerocopy::FromZeros> KBox<T> {
    /// Allocates zeroes.
    pub fn init(_zeroed: Zeroed, _flags: GfpFlags) -> Result<Self, AllocError> {
        allocate();
        Ok(Self(Box::new(T::new_zeroed())))
    }
}

impl<T: ?Sized> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
