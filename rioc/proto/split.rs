// SPDX-License-Identifier: GPL-2.0

//! Bytes that are too many for one operation, in parts.

use super::span::{
    Span,
    BLOCK_BYTES, //
};

/// The parts of a read or a write. Each but the last ends where a block does, so that none of them
/// shares a block with the next one.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    left: Option<Span>,
    io_bytes_max: u64,
}

impl Parts {
    /// Begins; `io_bytes_max` is at least 1, and at most what one operation may have.
    pub fn new(span: Span, io_bytes_max: u32) -> Self {
        Self {
            left: Some(span),
            io_bytes_max: io_bytes_max.max(1).into(),
        }
    }
}

impl Iterator for Parts {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let left = self.left?;
        let most = left.offset().saturating_add(self.io_bytes_max);
        let whole = most.saturating_sub(most % BLOCK_BYTES);
        let end = if most >= left.end() {
            left.end()
        } else if whole > left.offset() {
            whole
        } else {
            most
        };
        self.left = Span::new(end, left.end().saturating_sub(end));
        Span::new(left.offset(), end.saturating_sub(left.offset()))
    }
}

/// The parts of a copy: all at once, or in halves as long as the server says that these have too
/// many ranges.
#[derive(Clone, Copy, Debug)]
pub struct CopyParts {
    left: Option<Span>,
    to: u64,
    most: u64,
}

impl CopyParts {
    /// Begins; the destination is possible.
    pub const fn new(span: Span, to: u64) -> Self {
        Self {
            left: Some(span),
            to,
            most: span.bytes(),
        }
    }

    /// Returns what is copied next, and to where; `None` if all is done.
    pub fn next(&self) -> Option<(Span, u64)> {
        let left = self.left?;
        let span = Span::new(left.offset(), left.bytes().min(self.most))?;
        Some((span, self.to))
    }

    /// Returns how many bytes are not copied yet.
    pub fn left_bytes(&self) -> u64 {
        self.left.map_or(0, |left| left.bytes())
    }

    /// Goes on behind what was copied next.
    pub fn done(&mut self) {
        if let (Some(left), Some((span, _))) = (self.left, self.next()) {
            self.to = self.to.saturating_add(span.bytes());
            self.left = Span::new(span.end(), left.end().saturating_sub(span.end()));
        }
    }

    /// Takes less next, which was too much. Returns whether less is possible: a part but the last
    /// ends where a block of the source does.
    pub fn halve(&mut self) -> bool {
        let Some((span, _)) = self.next() else {
            return false;
        };
        let middle = span.offset().saturating_add(span.bytes() / 2);
        let middle = middle.saturating_sub(middle % BLOCK_BYTES);
        if middle <= span.offset() {
            return false;
        }
        self.most = middle.saturating_sub(span.offset());
        true
    }
}
