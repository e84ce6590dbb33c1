// SPDX-License-Identifier: GPL-2.0

//! Type-erased owned values, without an allocation.
//!
//! A library that keeps a value of its user until later (a request in flight) and that is not
//! generic over the user stores an [`Erased`]. The value is stored inline and has at most one word,
//! which fits a box, an `Arc` or an owned block request. The `D` is the table of operations on the
//! value, so that both fit in two registers.
//!
//! # Examples
//!
//! ```
//! use kernel_ext::erased::{Erased, Kind};
//!
//! static NUMBER: Kind<u32, &str> = Kind::new("a number");
//! static LETTER: Kind<char, &str> = Kind::new("a letter");
//!
//! let erased = Erased::new(7u32, &NUMBER);
//! assert_eq!(*erased.ops(), "a number");
//! let erased = erased.into_inner(&LETTER).unwrap_err();
//! assert_eq!(erased.into_inner(&NUMBER).ok(), Some(7));
//! ```

use core::{
    any::TypeId,
    marker::PhantomData,
    mem::{self, ManuallyDrop, MaybeUninit},
    ptr,
};

/// Storage for a value.
type Word = MaybeUninit<usize>;

/// The type-independent part of a [`Kind`].
struct RawKind<D> {
    type_id: fn() -> TypeId,
    drop_in_place: unsafe fn(*mut Word),
    ops: D,
}

/// The type `T` and the operations on its values.
///
/// # Invariants
///
/// The functions of `raw` are those for `T`.
#[repr(transparent)]
pub struct Kind<T, D> {
    raw: RawKind<D>,
    _type: PhantomData<fn(T) -> T>,
}

impl<T: Send + 'static, D> Kind<T, D> {
    /// Creates the kind of `T`, with `ops` as the operations on its values.
    pub const fn new(ops: D) -> Self {
        // INVARIANT: The functions are those for `T`.
        Self {
            raw: RawKind {
                type_id: TypeId::of::<T>,
                drop_in_place: |word| {
                    // SAFETY: By the invariant of `Erased`, the word holds a `T`; `Drop` runs this
                    // once.
                    unsafe { ptr::drop_in_place(word.cast::<T>()) }
                },
                ops,
            },
            _type: PhantomData,
        }
    }
}

/// An owned value of an erased type.
///
/// # Invariants
///
/// `word` holds an initialised value of exactly the type for which `kind` was made; that type is
/// `Send` and `'static`.
pub struct Erased<D: 'static> {
    word: Word,
    kind: &'static RawKind<D>,
}

impl<D> Erased<D> {
    /// The maximum size of a value in bytes.
    pub const SIZE: usize = mem::size_of::<Word>();

    /// Erases the type of `value`.
    ///
    /// A type that does not fit is rejected at compile time.
    #[inline(always)]
    pub fn new<T: Send + 'static>(value: T, kind: &'static Kind<T, D>) -> Self {
        const {
            assert!(mem::size_of::<T>() <= mem::size_of::<Word>());
            assert!(mem::align_of::<T>() <= mem::align_of::<Word>());
        }
        let mut word = Word::uninit();
        // SAFETY: The word is large and aligned enough, which was checked above.
        unsafe { word.as_mut_ptr().cast::<T>().write(value) };
        // INVARIANT: `T` was just written, and the kind is that of `T`.
        Self {
            word,
            kind: &kind.raw,
        }
    }

    /// Returns the operations on the value.
    #[inline(always)]
    pub fn ops(&self) -> &'static D {
        &self.kind.ops
    }

    /// Returns whether the value is a `T`.
    #[inline(always)]
    pub fn is<T: Send + 'static>(&self, kind: &'static Kind<T, D>) -> bool {
        // Two types never share a kind. One type may have several kinds, hence the comparison by
        // `TypeId`.
        ptr::eq(self.kind, &kind.raw) || self.is_slow(TypeId::of::<T>())
    }

    #[cold]
    fn is_slow(&self, id: TypeId) -> bool {
        (self.kind.type_id)() == id
    }

    /// Returns a reference to the value, if it is a `T`.
    #[inline(always)]
    pub fn downcast_mut<T: Send + 'static>(&mut self, kind: &'static Kind<T, D>) -> Option<&mut T> {
        if self.is(kind) {
            // SAFETY: By the invariant, the word holds a `T`; `self` is borrowed mutably.
            Some(unsafe { &mut *self.word.as_mut_ptr().cast::<T>() })
        } else {
            None
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// Returns `self` if the value is not a `T`.
    #[inline(always)]
    pub fn into_inner<T: Send + 'static>(self, kind: &'static Kind<T, D>) -> Result<T, Self> {
        if self.is(kind) {
            let this = ManuallyDrop::new(self);
            // SAFETY: By the invariant, the word holds a `T`; it is read once, as `this` is
            // neither dropped nor used again.
            Ok(unsafe { this.word.as_ptr().cast::<T>().read() })
        } else {
            Err(self)
        }
    }
}

impl<D> Drop for Erased<D> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the invariant, the word holds a value of that kind; it is not used again.
        unsafe { (self.kind.drop_in_place)(&mut self.word) }
    }
}

// SAFETY: By the type invariants, the value is `Send`; `D` is only accessed through a shared
// reference.
unsafe impl<D: Sync> Send for Erased<D> {}
// SAFETY: A shared `Erased` gives no access to its value; `D` is only accessed through a shared
// reference.
unsafe impl<D: Sync> Sync for Erased<D> {}
