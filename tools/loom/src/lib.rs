// SPDX-License-Identifier: GPL-2.0

//! The lock-free types of `kernel_ext`, built over the atomics of [`loom`], which runs a test once
//! for each order that
//! the memory model lets the steps of its threads have: a weaker ordering fails a test here, where
//! no machine that
//! tests run on would ever show it.
//!
//! The files are the kernel's own. This crate takes the place of `kernel` and of `kernel_ext` for
//! them.

extern crate self as kernel;
#[cfg(test)]
extern crate self as kernel_ext;

// An inline module with a path names a folder.
#[path = "../../../lib/kernel_ext/sync"]
// Its calls of the kernel's C functions are unsafe; those here are not.
#[allow(unused_unsafe, dead_code)]
mod folder {
    pub mod box_cell;
    pub mod grace_arc;
    pub mod handoff;
    pub mod lent_box;
    pub mod rcu_arc;
    pub mod set_once;
    pub mod users;
}

/// A file of rtrs-client, whose orders of threads the tests below try.
#[cfg(test)]
#[path = "../../../rtrs/client/io/postponed.rs"]
mod postponed;
#[cfg(test)]
mod postponed_tests;

/// A file of rtrs-server, with the word that the paths of a session share for each chunk.
#[cfg(test)]
#[path = "../../../rtrs/server/io/carriers.rs"]
mod carriers;
#[cfg(test)]
mod fence_tests;

pub mod cpu;
pub mod percpu;
pub mod sync;
mod watched;

pub use folder::{
    box_cell::BoxCell,
    grace_arc::GraceArc,
    handoff::{Handoff, Held},
    lent_box::{Lent, LentBox, Loans},
    rcu_arc::RcuArc,
    set_once::SetOnce,
    users::Users,
};
pub use watched::Watched;

/// The names of the kernel's prelude that the files under test use.
pub mod prelude {
    pub use crate::sync::ArcExt;

    /// The flags of an allocation, which the model does not look at.
    pub struct Flags;

    /// The flags of an allocation that may sleep.
    pub const GFP_KERNEL: Flags = Flags;

    /// A box.
    pub struct KBox<T>(Box<T>);

    impl<T> KBox<T> {
        /// Allocates it.
        pub fn new(value: T, _flags: Flags) -> Result<Self> {
            Ok(Self(Box::new(value)))
        }

        /// Gives the value up to a pointer.
        pub fn into_raw(this: Self) -> *mut T {
            Box::into_raw(this.0)
        }

        /// Takes the value back from its pointer.
        ///
        /// # Safety
        ///
        /// The pointer comes from `into_raw`, and is used for this only.
        pub unsafe fn from_raw(raw: *mut T) -> Self {
            // SAFETY: By the function requirements.
            Self(unsafe { Box::from_raw(raw) })
        }
    }

    impl<T> std::ops::Deref for KBox<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    /// No call of these fails.
    pub type Result<T = (), E = std::convert::Infallible> = std::result::Result<T, E>;
}

/// Time, of which a model has none.
pub mod time {
    /// A length of time.
    pub struct Delta;

    impl Delta {
        /// Makes one; the model has no time.
        pub const fn from_micros(_micros: i64) -> Self {
            Self
        }
    }

    /// Waits.
    pub mod delay {
        /// Lets the other threads go on.
        pub fn fsleep(_time: super::Delta) {
            loom::thread::yield_now();
        }
    }
}

/// The C functions that are called.
pub mod bindings {
    pub use crate::cpu::kick_all_cpus_sync;

    /// Waits until no reader reads that did when this began.
    pub fn synchronize_rcu() {
        drop(crate::sync::rcu::READERS.write());
    }
}
