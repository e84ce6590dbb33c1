// SPDX-License-Identifier: GPL-2.0

//! The atomics of `loom`, made when they are first used, since the kernel's types are made in
//! constants. A test uses each once before it begins threads: loom compares that, too.

use loom::sync::atomic as modelled;
use std::sync::OnceLock;

pub use loom::sync::atomic::Ordering;

/// Carries out an operation of this order that reads and writes. Those of the kernel that are
/// sequentially consistent are full barriers, for which loom has only a fence.
fn barrier<R>(order: Ordering, operation: impl FnOnce() -> R) -> R {
    if order != Ordering::SeqCst {
        return operation();
    }
    modelled::fence(order);
    let result = operation();
    modelled::fence(order);
    result
}

macro_rules! atomic {
    ($(#[$doc:meta])* $name:ident$(<$of:ident>)?, $value:ty) => {
        $(#[$doc])*
        pub struct $name$(<$of>)? {
            first: $value,
            cell: OnceLock<modelled::$name$(<$of>)?>,
        }

        impl$(<$of>)? $name$(<$of>)? {
            /// Creates one with this value.
            pub const fn new(first: $value) -> Self {
                Self { first, cell: OnceLock::new() }
            }

            fn cell(&self) -> &modelled::$name$(<$of>)? {
                self.cell.get_or_init(|| modelled::$name::new(self.first))
            }

            /// Loads the value.
            pub fn load(&self, order: Ordering) -> $value {
                self.cell().load(order)
            }

            /// Stores a value.
            pub fn store(&self, value: $value, order: Ordering) {
                self.cell().store(value, order);
            }

            /// Stores a value, and returns the one before.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                barrier(order, || self.cell().swap(value, order))
            }

            /// Stores `to` if the value is `from`, and returns the value before in any case.
            pub fn compare_exchange(
                &self, from: $value, to: $value, success: Ordering, failure: Ordering,
            ) -> Result<$value, $value> {
                barrier(success, || self.cell().compare_exchange(from, to, success, failure))
            }

            /// The value; nobody else has access. A change through the reference is not seen.
            pub fn get_mut(&mut self) -> &mut $value {
                self.first = self.cell().load(Ordering::Relaxed);
                &mut self.first
            }
        }
    };
}

atomic!(
    /// An atomic state.
    AtomicU8,
    u8
);
atomic!(
    /// An atomic number.
    AtomicU32,
    u32
);
atomic!(
    /// An atomic pointer.
    AtomicPtr<T>,
    *mut T
);

impl AtomicU32 {
    /// Stores the larger of both values, and returns the one before.
    pub fn fetch_max(&self, value: u32, order: Ordering) -> u32 {
        barrier(order, || self.cell().fetch_max(value, order))
    }

    /// Adds a value, and returns the one before.
    pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        barrier(order, || self.cell().fetch_add(value, order))
    }

    /// Subtracts a value, and returns the one before.
    pub fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        barrier(order, || self.cell().fetch_sub(value, order))
    }

    /// Sets bits, and returns the value before.
    pub fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        barrier(order, || self.cell().fetch_or(value, order))
    }

    /// Keeps these bits only, and returns the value before.
    pub fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        barrier(order, || self.cell().fetch_and(value, order))
    }
}

// SAFETY: As the atomic pointer of `core`, it is only a word.
unsafe impl<T> Send for AtomicPtr<T> {}
// SAFETY: As above.
unsafe impl<T> Sync for AtomicPtr<T> {}
