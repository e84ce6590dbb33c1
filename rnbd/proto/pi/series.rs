// SPDX-License-Identifier: GPL-2.0

//! The tuples of data that lies on a device in one piece: those of one interval after the other.

use super::{
    tuple::{
        Packed,
        Verdict,
        Wrong, //
    },
    Format,
    Tuple, //
};

/// Makes or verifies the tuples of intervals that follow each other, and counts them.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    format: Format,
    first: u64,
    /// The address of the next interval.
    reference: u64,
    not_protected: u64,
}

impl Series {
    /// Returns a series that begins with the interval at the address `first`.
    #[inline(always)]
    pub const fn new(format: Format, first: u64) -> Self {
        Self {
            format,
            first,
            reference: first,
            not_protected: 0,
        }
    }

    /// Returns the tuple of the next interval, whose data has the checksum `guard`.
    #[inline(always)]
    pub const fn make(&mut self, guard: u64) -> Packed {
        let made = Tuple::new(self.format, guard, self.reference).pack(self.format);
        self.reference = self.reference.wrapping_add(1);
        made
    }

    /// Verifies the tuple of the next interval, whose data has the checksum `guard`, as
    /// [`Tuple::verify`] does.
    ///
    /// Nearly all are those that would be made, which is a comparison or two.
    ///
    /// # Errors
    ///
    /// As [`Tuple::verify`]; the interval is not counted, and is the next one still.
    #[inline(always)]
    pub fn verify(&mut self, guard: u64, tuple: Packed) -> Result<(), Wrong> {
        let mut next = *self;
        if tuple != next.make(guard) {
            match unexpected(self.format, self.reference, guard, tuple)? {
                Verdict::Right => {}
                Verdict::NotProtected => next.not_protected = next.not_protected.wrapping_add(1),
            }
        }
        *self = next;
        Ok(())
    }

    /// Returns how many intervals had a tuple that was right, or made, so far.
    pub const fn right(&self) -> u64 {
        let all = self.reference.wrapping_sub(self.first);
        all.wrapping_sub(self.not_protected)
    }

    /// Returns how many had an escape.
    pub const fn not_protected(&self) -> u64 {
        self.not_protected
    }
}

/// Verifies a tuple that is not the one that would be made: it is an escape, has an application
/// tag, or is wrong.
#[cold]
fn unexpected(format: Format, reference: u64, guard: u64, tuple: Packed) -> Result<Verdict, Wrong> {
    tuple.unpack(format).verify(format, reference, || guard)
}
