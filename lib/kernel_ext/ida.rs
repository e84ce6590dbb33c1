// SPDX-License-Identifier: GPL-2.0

//! Allocation of small unique numbers.
//!
//! `kernel::id_pool::IdPool` of 7.2 is a bitmap that its user locks and resizes. The kernel's `ida`
//! does both by itself, and is what the C drivers use; a wrapper of it in the kernel crate replaces
//! this one.
//!
//! C header: [`include/linux/idr.h`](srctree/include/linux/idr.h)
//!
//! # Examples
//!
//! ```
//! use kernel_ext::ida::Ida;
//!
//! let ida = Ida::new()?;
//! let id = ida.alloc(0, 15)?;
//! assert_eq!(id.get(), 0);
//! drop(id); // 0 is free again
//! # Ok::<(), Error>(())
//! ```

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// The C object.
///
/// # Invariants
///
/// `raw` is initialised and never moves.
#[pin_data(PinnedDrop)]
struct Raw {
    #[pin]
    raw: Opaque<bindings::ida>,
}

// SAFETY: An IDA is not tied to a thread.
unsafe impl Send for Raw {}
// SAFETY: `ida_alloc_range` and `ida_free` take the lock of the xarray themselves.
unsafe impl Sync for Raw {}

#[pinned_drop]
impl PinnedDrop for Raw {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants, `raw` is initialised. `drop` has the only reference.
        unsafe { bindings::ida_destroy(self.raw.get()) };
    }
}

/// An allocator of small unique numbers.
#[derive(Clone)]
pub struct Ida(Arc<Raw>);

impl Ida {
    /// Creates an allocator without allocated numbers. May sleep.
    pub fn new() -> Result<Self> {
        let init = pin_init!(Raw {
            raw <- Opaque::ffi_init(|slot: *mut bindings::ida| {
                // SAFETY: The helper initialises the memory of the slot, all of it.
                unsafe { kernel_ext_sys::kernel_ext_helper_ida_init(slot) };
            }),
        });
        Ok(Self(Arc::pin_init(init, GFP_KERNEL)?))
    }

    /// Allocates the smallest free number in `min..=max`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOSPC` if all numbers are allocated, `EINVAL` if a bound does not fit an `i32`,
    /// `ENOMEM` if the allocation fails.
    pub fn alloc(&self, min: u32, max: u32) -> Result<IdaId> {
        if min > max || i32::try_from(max).is_err() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariants of `Raw`, the IDA is initialised.
        let id =
            unsafe { bindings::ida_alloc_range(self.0.raw.get(), min, max, bindings::GFP_KERNEL) };
        to_result(id)?;
        Ok(IdaId {
            ida: self.0.clone(),
            id: u32::try_from(id)?,
        })
    }
}

/// An allocated number. Dropping it frees the number.
///
/// # Invariants
///
/// `id` is allocated in `ida`.
pub struct IdaId {
    ida: Arc<Raw>,
    id: u32,
}

impl IdaId {
    /// Returns the number.
    pub fn get(&self) -> u32 {
        self.id
    }
}

impl Drop for IdaId {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `id` is allocated in `ida`.
        unsafe { bindings::ida_free(self.ida.raw.get(), self.id) };
    }
}
