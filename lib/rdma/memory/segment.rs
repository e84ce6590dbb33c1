// SPDX-License-Identifier: GPL-2.0

//! Local and remote memory of work requests.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{memory::pd::Pd, sys};
use core::{marker::PhantomData, ops::BitOr, ptr};

/// A piece of local memory that the device may read or write (`struct ib_sge`).
///
/// Made by [`MessageBuffers::segment`](crate::MessageBuffers::segment),
/// [`Mr::segment`](crate::Mr::segment), [`ForDevice::segment`](crate::ForDevice::segment). A
/// segment beyond the end of its memory is invalid: posting it fails with `EINVAL`.
///
/// # Invariants
///
/// `pd` is null, or it is the domain of an object that is alive for `'a` and that covers `sge`.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    sge: sys::ib_sge,
    pd: *const Pd,
    _memory: PhantomData<&'a ()>,
}

impl<'a> Segment<'a> {
    /// # Safety
    ///
    /// The caller must ensure that the object that covers `length` bytes at `addr` under the key
    /// `lkey` is alive for `'a`, belongs to `pd`, and is retired to `pd` when it is dropped while
    /// queue pairs exist; or that [`Self::or_invalid`] invalidates the segment before it is used.
    #[inline(always)]
    pub(crate) unsafe fn new(pd: &Pd, addr: u64, length: u32, lkey: u32) -> Self {
        // INVARIANT: By the function requirements.
        Self {
            sge: sys::ib_sge { addr, length, lkey },
            pd,
            _memory: PhantomData,
        }
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.sge.length
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// Returns the segment, invalid unless `good`.
    #[inline(always)]
    pub(crate) fn or_invalid(mut self, good: bool) -> Self {
        if !good {
            // INVARIANT: `pd` is null.
            self.pd = ptr::null();
        }
        self
    }

    /// Returns whether the segment is valid and may be posted on a queue pair of `pd`.
    #[inline(always)]
    pub fn belongs_to(&self, pd: &Pd) -> bool {
        ptr::eq(self.pd, pd)
    }

    /// Returns the C segment; it may be used only if it [belongs to](Self::belongs_to) the queue
    /// pair's domain.
    #[inline(always)]
    pub fn as_raw(&self) -> sys::ib_sge {
        self.sge
    }
}

/// Returns whether `length` bytes at `offset` are within `size`.
#[inline(always)]
pub(crate) fn fits(offset: u32, length: u32, size: u32) -> bool {
    u64::from(offset) + u64::from(length) <= u64::from(size)
}

/// Memory of the peer: its address and remote key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The address that the peer sent.
    pub addr: u64,
    /// The remote key that the peer sent.
    pub key: u32,
}

/// The access that a key of a memory region permits (`enum ib_access_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Local reading only.
    pub const LOCAL_READ: Self = Self(0);
    /// Local writing (by receives and RDMA reads).
    pub const LOCAL_WRITE: Self = Self(sys::ib_access_flags_IB_ACCESS_LOCAL_WRITE);
    /// Writing by the peer; needs `LOCAL_WRITE` as well, which this includes.
    pub const REMOTE_WRITE: Self = Self(
        sys::ib_access_flags_IB_ACCESS_LOCAL_WRITE | sys::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
    );
    /// Reading by the peer.
    pub const REMOTE_READ: Self = Self(sys::ib_access_flags_IB_ACCESS_REMOTE_READ);

    /// Returns whether it permits writing, by the device itself or by the peer.
    #[inline(always)]
    pub(crate) fn is_write(self) -> bool {
        self.0 & Self::REMOTE_WRITE.0 != 0
    }

    #[inline(always)]
    pub(crate) fn as_raw(self) -> u32 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The flags of a work request (`enum ib_send_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendFlags(i32);

impl SendFlags {
    /// A completion only if the request fails.
    pub const NONE: Self = Self(0);
    /// The work request has a completion when it succeeds, too.
    pub const SIGNALED: Self = Self(sys::ib_send_flags_IB_SEND_SIGNALED);
    /// Starts after earlier RDMA reads and invalidations have completed.
    pub const FENCE: Self = Self(sys::ib_send_flags_IB_SEND_FENCE);

    /// Returns [`Self::SIGNALED`] or [`Self::NONE`].
    #[inline(always)]
    pub const fn signaled(yes: bool) -> Self {
        if yes {
            Self::SIGNALED
        } else {
            Self::NONE
        }
    }

    /// Returns the C flags.
    #[inline(always)]
    pub fn as_raw(self) -> i32 {
        self.0
    }
}
