// SPDX-License-Identifier: GPL-2.0

//! Copies of the data of requests, without a scatter list.

use super::{
    Operations,
    Request, //
};
use crate::Op;
use kernel::{
    bindings,
    prelude::*, //
};
use kernel_ext::pages::PageBlock;

impl<T: Operations> Request<T> {
    /// Copies from byte `offset` of `pages` on to all of the data of a read. Any context; a device
    /// may change the pages meanwhile.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` if it is no read, `EINVAL` if the pages are too short.
    #[inline(always)]
    pub fn copy_in(&mut self, pages: &PageBlock, offset: usize) -> Result {
        if self.op() != Op::Read {
            return Err(EPERM);
        }
        let (mut at, mut next) = (offset, self.first_bio());
        while !next.is_null() {
            // SAFETY: The bios of a request live until it ends, and these fields do not change
            // while the driver owns it.
            let (pieces, iter) = unsafe { ((*next).bi_io_vec, (*next).bi_iter) };
            // Of a bio that was split, the memory begins and ends within pieces.
            let (mut done, mut left) = (iter.bi_bvec_done, iter.bi_size);
            let mut piece = pieces.wrapping_add(iter.bi_idx as usize);
            while left != 0 {
                // SAFETY: A bio has the pieces of the bytes that are left.
                let bindings::bio_vec {
                    bv_page,
                    bv_len,
                    bv_offset,
                } = unsafe { *piece };
                let len = left.min(bv_len.wrapping_sub(done));
                let start = bv_offset.wrapping_add(done) as usize;
                // SAFETY: The piece is memory of the request, which is to be read into.
                unsafe { pages.copy_out_to_page(at, bv_page, start, len as usize) }?;
                at = at.wrapping_add(len as usize);
                (done, left) = (0, left.wrapping_sub(len));
                piece = piece.wrapping_add(1);
            }
            // SAFETY: As above.
            next = unsafe { (*next).bi_next };
        }
        Ok(())
    }
}
