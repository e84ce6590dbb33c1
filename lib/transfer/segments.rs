// SPDX-License-Identifier: GPL-2.0

//! The segments of the work requests of a transfer.

use crate::{
    proto::layout::{
        Cutter,
        Fragment,
        Layout,
        LayoutError,
        Piece, //
    },
    sys, //
};
use kernel::{
    alloc::KVVec,
    prelude::*, //
};
use kernel_ext::scatterlist::SgList;
use rdma::{
    Pd,
    Segment, //
};

/// The most segments of a fragment: what stands before it, its lead, two or three pieces of the
/// memory, its tail.
pub(super) const SEGMENTS_MAX: u32 = 5;

/// The most pages of a transfer, and fragments of one.
pub(super) const PAGES_MAX: u16 = 257;

impl From<LayoutError> for Error {
    fn from(_: LayoutError) -> Self {
        EINVAL
    }
}

/// The places of the segments of one transfer after the other.
///
/// # Invariants
///
/// `list` does not move while it has elements: its capacity is that of all segments of a transfer.
pub(super) struct Segments {
    pieces: KVVec<sys::ib_sge>,
    list: KVVec<sys::ib_sge>,
}

/// The segments of one fragment.
#[derive(Clone, Copy)]
pub(super) struct Gathered {
    pub(super) first: *mut sys::ib_sge,
    pub(super) count: c_int,
}

/// Memory that is not lent, for what a side does not have of a fragment.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) header: Segment<'a>,
    pub(super) lead: Option<Segment<'a>>,
    pub(super) tail: Option<Segment<'a>>,
}

impl Around<'_> {
    /// Returns whether queue pairs of `pd` may use all of it.
    pub(super) fn belongs_to(&self, pd: &Pd) -> bool {
        let belongs = |edge: &Option<Segment<'_>>| edge.is_none_or(|edge| edge.belongs_to(pd));
        self.header.belongs_to(pd) && belongs(&self.lead) && belongs(&self.tail)
    }
}

impl Segments {
    /// Allocates the places for transfers of at most `fragments_max` fragments. Sleeps.
    pub(super) fn new(fragments_max: u16) -> Result<Self> {
        let all = usize::from(fragments_max).saturating_mul(SEGMENTS_MAX as usize);
        // INVARIANT: The capacity is that of a whole transfer.
        Ok(Self {
            pieces: KVVec::with_capacity(usize::from(PAGES_MAX), GFP_KERNEL)?,
            list: KVVec::with_capacity(all, GFP_KERNEL)?,
        })
    }

    /// Writes the segments of each fragment of `layout`, whose memory is `memory`, mapped with the
    /// local key `key`, and calls `each` with the number of the fragment and its segments. What is
    /// around the memory comes from `around`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the memory is in more pieces than a work request or a transfer may have,
    /// or the error of `each`.
    pub(super) fn write<'a>(
        &mut self,
        layout: &Layout,
        memory: &SgList,
        key: u32,
        around: impl Fn(u16, &Fragment) -> Result<Option<Around<'a>>>,
        mut each: impl FnMut(u16, Gathered) -> Result,
    ) -> Result {
        self.gather(memory, key)?;
        self.list.clear();
        let pieces = self.pieces.iter().map(|sge| Piece {
            addr: sge.addr,
            len: sge.length,
        });
        let mut cutter = Cutter::new(pieces);
        for number in 0..layout.count() {
            let fragment = layout.fragment(number).ok_or(EINVAL)?;
            let from = self.list.len();
            let around = around(number, &fragment)?;
            if let Some(around) = &around {
                add(&mut self.list, around.header.as_raw())?;
                if let Some(lead) = &around.lead {
                    add(&mut self.list, lead.as_raw())?;
                }
            }
            let mut left = fragment.memory.end.saturating_sub(fragment.memory.start);
            while let Some(piece) = cutter.next(left) {
                left = left.saturating_sub(piece.len);
                add(
                    &mut self.list,
                    sys::ib_sge {
                        addr: piece.addr,
                        length: piece.len,
                        lkey: key,
                    },
                )?;
            }
            if let Some(tail) = around.as_ref().and_then(|around| around.tail.as_ref()) {
                add(&mut self.list, tail.as_raw())?;
            }
            let count = self.list.len().saturating_sub(from);
            if left != 0 || count > SEGMENTS_MAX as usize {
                return Err(EINVAL);
            }
            let gathered = Gathered {
                first: self.list.as_mut_ptr().wrapping_add(from),
                // CAST: At most `SEGMENTS_MAX`.
                count: count as c_int,
            };
            each(number, gathered)?;
        }
        Ok(())
    }

    /// Copies the mapped pieces of the memory.
    fn gather(&mut self, memory: &SgList, key: u32) -> Result {
        let count = memory.mapped();
        self.pieces.clear();
        if count as usize > self.pieces.capacity() {
            return Err(EINVAL);
        }
        for _ in 0..count {
            self.pieces
                .push_within_capacity(EMPTY)
                .map_err(|_| EINVAL)?;
        }
        let to = self.pieces.as_mut_ptr();
        // SAFETY: The list has this many mapped entries in one array, and so has `pieces` elements.
        unsafe { sys::rdma_helper_sg_gather(memory.as_raw(), count, to, key) };
        Ok(())
    }
}

const EMPTY: sys::ib_sge = sys::ib_sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

/// Adds a segment that is not empty.
#[inline(always)]
fn add(list: &mut KVVec<sys::ib_sge>, segment: sys::ib_sge) -> Result {
    if segment.length == 0 {
        return Ok(());
    }
    list.push_within_capacity(segment).map_err(|_| EINVAL)
}
