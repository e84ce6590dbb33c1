// SPDX-License-Identifier: GPL-2.0

//! Pools of bios.

use super::BioData;
use block_ext_sys as raw;
use core::{
    marker::PhantomData,
    mem::{
        self,
        offset_of, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use kernel_ext::pages::PageBlock;

/// An allocation of a pool: the data is in front of the bio.
#[repr(C)]
pub(super) struct Frame<D: BioData> {
    pub(super) data: D,
    pub(super) pages: Option<Arc<PageBlock>>,
    /// The room for a description of tuples, with nothing in it that has to be dropped.
    pub(super) tuples: D::Tuples,
    bio: bindings::bio,
}

impl<D: BioData> Frame<D> {
    const BIO_OFFSET: usize = {
        // The slab cache of a pool is aligned to 8 bytes (`ARCH_KMALLOC_MINALIGN`).
        assert!(align_of::<Self>() <= 8);
        assert!(!mem::needs_drop::<D::Tuples>());
        offset_of!(Self, bio)
    };

    /// Returns the frame of a bio.
    #[inline]
    pub(super) fn of(bio: *mut bindings::bio) -> *mut Self {
        bio.wrapping_byte_sub(Self::BIO_OFFSET).cast()
    }

    /// Writes the data in front of a bio.
    ///
    /// # Safety
    ///
    /// The caller must own `bio`, and must ensure that it was allocated by a [`BioPool<D>`] and
    /// that its frame is not initialized.
    #[inline]
    pub(super) unsafe fn init(bio: *mut bindings::bio, data: D) {
        let this = Self::of(bio);
        // SAFETY: The pool reserves room for all of it in front of the bio.
        unsafe {
            ptr::write(&raw mut (*this).data, data);
            ptr::write(&raw mut (*this).pages, None);
            ptr::write(&raw mut (*this).tuples, D::Tuples::default());
        }
    }

    /// Takes the data that [`Self::init`] has written.
    ///
    /// # Safety
    ///
    /// The caller must own the frame, which must be initialized, and must take the data once.
    #[inline]
    pub(super) unsafe fn take(bio: *mut bindings::bio) -> (D, Option<Arc<PageBlock>>) {
        let this = Self::of(bio);
        // SAFETY: By the function requirements.
        unsafe {
            (
                ptr::read(&raw const (*this).data),
                ptr::read(&raw const (*this).pages),
            )
        }
    }
}

/// A pool of bios with data `D`: a per-CPU cache, and a reserve for memory pressure.
///
/// # Invariants
///
/// `set` is an initialized set of bios that have room for a [`Frame<D>`].
pub struct BioPool<D: BioData> {
    set: Pin<KBox<Opaque<bindings::bio_set>>>,
    _data: PhantomData<fn(D) -> D>,
}

// SAFETY: A set of bios is not tied to a task.
unsafe impl<D: BioData> Send for BioPool<D> {}

// SAFETY: Allocating from a set of bios is synchronized by the block layer.
unsafe impl<D: BioData> Sync for BioPool<D> {}

impl<D: BioData> BioPool<D> {
    /// Creates a pool with a reserve of `reserve` bios (at least 1 is kept). Process context, may
    /// sleep. Returns `ENOMEM` if an allocation fails.
    pub fn new(reserve: u16) -> Result<Self> {
        let front_pad = Frame::<D>::BIO_OFFSET.try_into()?;
        let flags = bindings::BIOSET_NEED_BVECS | bindings::BIOSET_PERCPU_CACHE;
        let set = KBox::pin_init(
            Opaque::try_ffi_init(|slot: *mut bindings::bio_set| {
                // SAFETY: `slot` is valid for writes, and all zeroes is a valid value.
                unsafe { slot.write(pin_init::zeroed()) };
                // SAFETY: The set is zeroed, as the function expects, and does not move.
                to_result(unsafe {
                    bindings::bioset_init(slot, reserve.max(1).into(), front_pad, flags as c_int)
                })
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The set was just initialized with room in front of each bio.
        Ok(BioPool {
            set,
            _data: PhantomData,
        })
    }

    /// Allocates a bio for `bdev` with room for one segment. May sleep.
    #[inline]
    pub(super) fn alloc(
        &self,
        bdev: *mut bindings::block_device,
        opf: u32,
    ) -> NonNull<bindings::bio> {
        // SAFETY: By the type invariants, the set is initialized, with pieces; the device is open.
        let bio = unsafe {
            bindings::bio_alloc_bioset(bdev, 1, opf, raw::BLOCK_EXT_GFP_NOIO, self.set.get())
        };
        // SAFETY: An allocation that may sleep waits for the reserve and does not fail.
        unsafe { NonNull::new_unchecked(bio) }
    }
}

impl<D: BioData> Drop for BioPool<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the set is initialized. No bio of it is left: each keeps
        // the pool by its data.
        unsafe { bindings::bioset_exit(self.set.get()) };
    }
}
