// SPDX-License-Identifier: GPL-2.0

//! Owned values whose type is forgotten, without an allocation.
//!
//! A library that must keep something of its user until later (a request in flight) and that is
//! not generic over the user stores an [`Erased`]. The value lies inside; it is at most
//! [`Erased::SIZE`] bytes, which a box, an `Arc` or an owned block request fit.
//!
//! # Examples
//!
//! ```
//! use kernel_ext::erased::Erased;
//!
//! let erased = Erased::new(7u32);
//! let erased = erased.into_inner::<u64>().unwrap_err();
//! assert_eq!(erased.into_inner::<u32>().ok(), Some(7));
//! ```

use core::{
    any::TypeId,
    mem::{self, ManuallyDrop, MaybeUninit},
    ptr,
};

/// What is remembered of a type.
struct Kind {
    type_id: fn() -> TypeId,
    drop_in_place: unsafe fn(*mut Words),
}

/// Room for a value.
type Words = MaybeUninit<[usize; 2]>;

struct KindOf<T>(core::marker::PhantomData<T>);

impl<T: Send + 'static> KindOf<T> {
    const KIND: Kind = Kind {
        type_id: TypeId::of::<T>,
        drop_in_place: |words| {
            // SAFETY: by the invariant of `Erased`, the words hold a `T`; `Drop` runs this once.
            unsafe { ptr::drop_in_place(words.cast::<T>()) }
        },
    };
}

/// An owned value of a forgotten type.
///
/// # Invariants
///
/// `words` holds an initialised value of exactly the type for which `kind` was made; that type is
/// `Send` and `'static`.
pub struct Erased {
    words: Words,
    kind: &'static Kind,
}

impl Erased {
    /// Most bytes that a value may have.
    pub const SIZE: usize = mem::size_of::<Words>();

    /// Takes `value` in.
    ///
    /// A type that does not fit is refused at compile time.
    #[inline(always)]
    pub fn new<T: Send + 'static>(value: T) -> Self {
        const {
            assert!(mem::size_of::<T>() <= mem::size_of::<Words>());
            assert!(mem::align_of::<T>() <= mem::align_of::<Words>());
        }
        let mut words = Words::uninit();
        // SAFETY: the words are large and aligned enough, which was checked above.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
        // INVARIANT: `T` was just written, and the kind is that of `T`.
        Self {
            words,
            kind: const { &KindOf::<T>::KIND },
        }
    }

    /// Whether the value is a `T`.
    #[inline(always)]
    pub fn is<T: Send + 'static>(&self) -> bool {
        // Two types never share a `Kind`, as `type_id` differs in content; one type may have
        // several (one per crate), hence the comparison of the ids as the second way.
        ptr::eq(self.kind, const { &KindOf::<T>::KIND }) || self.is_slow(TypeId::of::<T>())
    }

    #[cold]
    fn is_slow(&self, id: TypeId) -> bool {
        (self.kind.type_id)() == id
    }

    /// The value, if it is a `T`.
    #[inline(always)]
    pub fn downcast_ref<T: Send + Sync + 'static>(&self) -> Option<&T> {
        if self.is::<T>() {
            // SAFETY: by the invariant, the words hold a `T`.
            Some(unsafe { &*self.words.as_ptr().cast::<T>() })
        } else {
            None
        }
    }

    /// The value, if it is a `T`.
    #[inline(always)]
    pub fn downcast_mut<T: Send + 'static>(&mut self) -> Option<&mut T> {
        if self.is::<T>() {
            // SAFETY: by the invariant, the words hold a `T`; `self` is borrowed mutably.
            Some(unsafe { &mut *self.words.as_mut_ptr().cast::<T>() })
        } else {
            None
        }
    }

    /// Gives the value back.
    ///
    /// # Errors
    ///
    /// `self`, if the value is not a `T`.
    #[inline(always)]
    pub fn into_inner<T: Send + 'static>(self) -> Result<T, Self> {
        if self.is::<T>() {
            let this = ManuallyDrop::new(self);
            // SAFETY: by the invariant, the words hold a `T`; it is read once, as `this` is
            // neither dropped nor used again.
            Ok(unsafe { this.words.as_ptr().cast::<T>().read() })
        } else {
            Err(self)
        }
    }
}

impl Drop for Erased {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: by the invariant, the words hold a value of that kind; it is not used again.
        unsafe { (self.kind.drop_in_place)(&mut self.words) }
    }
}

// SAFETY: by the invariant, the value is `Send`.
unsafe impl Send for Erased {}
// SAFETY: a shared `Erased` gives access to its value only for types that are `Sync`.
unsafe impl Sync for Erased {}
