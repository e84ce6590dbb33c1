// SPDX-License-Identifier: GPL-2.0

//! Lists of pieces of memory, and copying from one list to another.

use core::ops::DerefMut;

/// A contiguous piece of memory.
pub trait Piece: Copy + 'static {
    /// Returns the length in bytes.
    fn bytes(&self) -> u64;

    /// Returns `len` bytes from `offset` on; [`None`] if they are not within the piece.
    fn part(&self, offset: u64, len: u64) -> Option<Self>;
}

/// The list is too long for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// A list of pieces in memory of the user's, which limits its length.
pub struct Pieces<S> {
    places: S,
    count: usize,
    bytes: u64,
}

impl<P: Piece, S: DerefMut<Target = [Option<P>]>> Pieces<S> {
    /// Creates an empty list.
    pub fn new(places: S) -> Self {
        Self {
            places,
            count: 0,
            bytes: 0,
        }
    }

    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes = 0;
    }

    /// Returns the length of all pieces in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a piece behind the last one.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if the list is full.
    pub fn push(&mut self, piece: P) -> Result<(), TooLong> {
        let bytes = self.bytes.checked_add(piece.bytes()).ok_or(TooLong)?;
        *self.places.get_mut(self.count).ok_or(TooLong)? = Some(piece);
        self.count = self.count.saturating_add(1);
        self.bytes = bytes;
        Ok(())
    }

    /// Adds `len` bytes from `start` on, counted from the start of the first page.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if the list is full, or the bytes are not within the pages.
    pub fn push_pages(
        &mut self,
        pages: &[P],
        page_bytes: u32,
        start: u64,
        len: u64,
    ) -> Result<(), TooLong> {
        let page_bytes = u64::from(page_bytes);
        let (mut at, mut left) = (start, len);
        while left > 0 {
            let index = at.checked_div(page_bytes).ok_or(TooLong)?;
            let offset = at.checked_rem(page_bytes).ok_or(TooLong)?;
            let now = left.min(page_bytes.saturating_sub(offset));
            let index = usize::try_from(index).map_err(|_| TooLong)?;
            let piece = pages.get(index).and_then(|page| page.part(offset, now));
            self.push(piece.ok_or(TooLong)?)?;
            at = at.checked_add(now).ok_or(TooLong)?;
            left = left.saturating_sub(now);
        }
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = P> + '_ {
        self.places.iter().take(self.count).flatten().copied()
    }
}

/// Calls `copy` with the parts of both lists that belong together, for up to `len` bytes; both
/// parts of a call have the same length. Returns the bytes that are not in both lists.
pub fn copy_pieces<P: Piece, S: DerefMut<Target = [Option<P>]>>(
    from: &Pieces<S>,
    to: &Pieces<S>,
    len: u64,
    mut copy: impl FnMut(P, P),
) -> u64 {
    let (mut sources, mut targets) = (from.iter(), to.iter());
    let (mut source, mut target) = (sources.next(), targets.next());
    let (mut read, mut written, mut left) = (0, 0, len);
    while left > 0 {
        let (Some(here), Some(there)) = (source, target) else {
            break;
        };
        let room = there.bytes().saturating_sub(written);
        let now = here.bytes().saturating_sub(read).min(room).min(left);
        if let (Some(a), Some(b)) = (here.part(read, now), there.part(written, now)) {
            if now > 0 {
                copy(a, b);
            }
        }
        // None of them overflows: `now` is not longer than what is left of each.
        read = read.saturating_add(now);
        written = written.saturating_add(now);
        left = left.saturating_sub(now);
        if read == here.bytes() {
            (source, read) = (sources.next(), 0);
        }
        if written == there.bytes() {
            (target, written) = (targets.next(), 0);
        }
    }
    left
}
