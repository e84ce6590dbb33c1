// SPDX-License-Identifier: GPL-2.0

//! Segments of which the looks are counted.

use std::cell::Cell;

use seglog::segments::Segment;

thread_local! {
    /// Counts the looks of this test through the segments, or at one of them.
    pub(crate) static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// The segments, whose reads are counted.
pub(crate) struct Counted(pub(crate) Vec<Segment>);

impl AsRef<[Segment]> for Counted {
    fn as_ref(&self) -> &[Segment] {
        LOOKS.set(LOOKS.get() + 1);
        &self.0
    }
}

impl AsMut<[Segment]> for Counted {
    fn as_mut(&mut self) -> &mut [Segment] {
        &mut self.0
    }
}
