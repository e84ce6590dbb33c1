// SPDX-License-Identifier: GPL-2.0

//! The protection information of requests.
//!
//! The tuples of a request lie behind its data in a list that has no gaps. They are in a buffer of
//! the driver, and so is the end of data that does not end at a page: `bounce`.
//!
//! C header: [`include/linux/bio-integrity.h`](srctree/include/linux/bio-integrity.h)

use super::{
    Operations,
    Request, //
};
use crate::Op;
use block_ext_sys as raw;
use core::ptr;
use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    scatterlist::Tail, //
};

/// The memory behind the data of a request.
#[derive(Default)]
pub(super) struct Bounce {
    /// Kept until the request has another one, as the scatter list describes it.
    buffer: Option<Arc<PageBlock>>,
    /// The end of the data whose content is at the start of the buffer.
    tail: Option<Tail>,
}

/// The direction in which tuples are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The direction from the request.
    Out,
    /// The direction to the request.
    In,
}

const INTEGRITY: u32 = 1 << bindings::req_flag_bits___REQ_INTEGRITY;

impl<T: Operations> Request<T> {
    /// Maps the list as [`Self::map_sg`] does, followed by `extra_bytes` of `buffer`; returns their
    /// offset in it. What is in front of them is the end of the data, if that does not end at a
    /// page: that of a write was copied, and that of a read is copied back by
    /// [`Self::finish_bounce`].
    ///
    /// Any context. Returns `EIO` if the list or the buffer has no room, else as [`Self::map_sg`].
    pub fn map_sg_with(&mut self, buffer: &Arc<PageBlock>, extra_bytes: u32) -> Result<u32> {
        self.map_sg()?;
        let (is_write, payload) = (self.op() == Op::Write, self.payload());
        let sg = self.sg_mut();
        if sg.nents() >= sg.capacity() {
            return Err(EIO);
        }
        let tail = sg.cut_tail()?;
        let at = tail.map_or(0, |tail| tail.len_bytes);
        let total = at.checked_add(extra_bytes).ok_or(EIO)?;
        if total as usize > buffer.len_bytes() {
            return Err(EIO);
        }
        if let (Some(tail), true) = (tail, is_write) {
            // SAFETY: The tail is memory of the request, which has not ended, and fits the buffer,
            // which is the request's. A user may change the data meanwhile.
            unsafe { bindings::memcpy(buffer.as_ptr().cast(), tail.address.cast(), at as usize) };
        }
        let writable = sg.is_writable();
        // SAFETY: The buffer has `total` bytes, and stays as long as the list has the entry: it is
        // kept below. It may be written to; the rest of the list as before.
        unsafe { sg.push_entry(buffer.as_page(), 0, total, writable) }?;
        // SAFETY: By the type invariants, the payload is initialized, and this handle, which is
        // borrowed exclusively, is the only one.
        unsafe {
            (*payload).bounce = Bounce {
                buffer: Some(buffer.clone()),
                tail,
            };
        }
        Ok(at)
    }

    /// Returns how much of the data lies at the start of the buffer of [`Self::map_sg_with`].
    pub fn bounced_bytes(&self) -> u32 {
        // SAFETY: By the type invariants, the payload is initialized, and only the owner of this
        // handle accesses it.
        unsafe { (*self.payload()).bounce.tail }.map_or(0, |tail| tail.len_bytes)
    }

    /// Copies the end of a read's data from the buffer of [`Self::map_sg_with`] to where it
    /// belongs. The list is not mapped any more. Any context.
    pub fn finish_bounce(&mut self) {
        // SAFETY: By the type invariants, the payload is initialized, and this handle, which is
        // borrowed exclusively, is the only one.
        let bounce = unsafe { &mut (*self.payload()).bounce };
        if let (Some(tail), Some(buffer)) = (bounce.tail.take(), &bounce.buffer) {
            // SAFETY: The tail is memory of this request, which has not ended; it is as long as
            // what `map_sg_with` has placed in the buffer.
            unsafe {
                bindings::memcpy(
                    tail.address.cast(),
                    buffer.as_ptr().cast(),
                    tail.len_bytes as usize,
                )
            };
        }
    }

    /// Returns whether the request has tuples, or memory for them: of its user, or of the block
    /// layer, if that makes or verifies them. For all others the driver does.
    #[inline]
    pub fn has_tuples(&self) -> bool {
        // SAFETY: By the type invariants, the driver owns the request.
        unsafe { (*self.raw.as_ptr()).cmd_flags & INTEGRITY != 0 }
    }

    /// Copies the tuples, of which there are `len_bytes`, to `offset` of `block`. Any context.
    ///
    /// Returns `EIO` if the request has another number of them, `EINVAL` if they do not fit.
    pub fn tuples_out(&self, block: &PageBlock, offset: usize, len_bytes: usize) -> Result {
        self.copy_tuples(block, offset, len_bytes, Way::Out)
    }

    /// Copies the tuples of a read, of which there are `len_bytes`, from `offset` of `block`. Any
    /// context. The errors are those of [`Self::tuples_out`].
    pub fn tuples_in(&mut self, block: &PageBlock, offset: usize, len_bytes: usize) -> Result {
        self.copy_tuples(block, offset, len_bytes, Way::In)
    }

    fn copy_tuples(&self, block: &PageBlock, offset: usize, len_bytes: usize, way: Way) -> Result {
        let end = offset.checked_add(len_bytes).ok_or(EINVAL)?;
        if end > block.len_bytes() {
            return Err(EINVAL);
        }
        let mut at = offset;
        self.each_payload(|payload| {
            // SAFETY: The payloads of a request's bios live until it ends.
            let (pieces, iter) = unsafe { ((*payload).bip_vec, (*payload).bip_iter) };
            let (mut left, mut skip) = (iter.bi_size as usize, iter.bi_bvec_done as usize);
            let mut index = iter.bi_idx as usize;
            while left != 0 {
                // SAFETY: As long as bytes are left there are pieces.
                let piece = unsafe { &*pieces.add(index) };
                let len = (piece.bv_len as usize).saturating_sub(skip).min(left);
                if len > end.saturating_sub(at) {
                    return Err(EIO);
                }
                // SAFETY: A piece lies in allocated memory; there is no high memory.
                let memory = unsafe { raw::block_ext_helper_page_address(piece.bv_page) };
                let memory = memory.wrapping_byte_add(piece.bv_offset as usize + skip);
                let buffer = block.as_ptr().wrapping_add(at).cast::<c_void>();
                let (target, source) = match way {
                    Way::Out => (buffer, memory),
                    Way::In => (memory, buffer),
                };
                // SAFETY: Both ranges were checked. The block gives copies only, and the tuples are
                // the driver's until the request ends.
                unsafe { bindings::memcpy(target, source.cast_const(), len) };
                (at, left, skip) = (at.wrapping_add(len), left.wrapping_sub(len), 0);
                index = index.wrapping_add(1);
            }
            Ok(())
        })?;
        if at != end {
            return Err(EIO);
        }
        Ok(())
    }

    /// Records that the driver has verified the tuples of a read, so the block layer does not do it
    /// once more. Those that a user of the disk has attached are verified by the user.
    pub fn set_verified(&mut self) {
        const CHECKS: u32 = raw::bip_flags_BIP_CHECK_GUARD
            | raw::bip_flags_BIP_CHECK_REFTAG
            | raw::bip_flags_BIP_CHECK_APPTAG;
        // It never fails.
        let _ = self.each_payload(|payload| {
            // SAFETY: The payloads of a request's bios live until it ends, and until then only the
            // driver accesses their flags.
            unsafe {
                if u32::from((*payload).bip_flags) & raw::bip_flags_BIP_BLOCK_INTEGRITY != 0 {
                    // CAST: These flags are in the lower 16 bits.
                    (*payload).bip_flags &= !(CHECKS as u16);
                }
            }
            Ok(())
        });
    }

    /// Calls `each` with the tuples of each bio of a request that [has](Self::has_tuples) some.
    fn each_payload(
        &self,
        mut each: impl FnMut(*mut raw::bio_integrity_payload) -> Result,
    ) -> Result {
        // SAFETY: By the type invariants, the driver owns the request, so its bios live.
        let mut bio = unsafe { (*self.raw.as_ptr()).bio };
        while let Some(this) = ptr::NonNull::new(bio) {
            // SAFETY: As above; the block layer does not change the list meanwhile.
            let this = unsafe { this.as_ref() };
            if this.bi_opf & INTEGRITY != 0 && !this.bi_integrity.is_null() {
                each(this.bi_integrity.cast())?;
            }
            bio = this.bi_next;
        }
        Ok(())
    }
}
