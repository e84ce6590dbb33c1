// SPDX-License-Identifier: GPL-2.0

//! Makes and verifies the tuples of data in memory, the same way on both ends.

use kernel::prelude::*;
use kernel_ext::{
    crc::{
        Checksum,
        Intervals, //
    },
    pages::Cursor, //
};

use crate::proto::pi::{
    tuple::{
        Packed,
        Wrong, //
    },
    Format,
    Geometry,
    Series, //
};

/// Data in memory, and the place of its tuples.
pub(crate) struct Protected<'a, D: ?Sized> {
    pub(crate) data: &'a D,
    /// The bytes of data, whole intervals.
    pub(crate) len_bytes: u32,
    /// The address of the first interval.
    pub(crate) first: u64,
    pub(crate) tuples: Cursor<'a>,
    pub(crate) geometry: Geometry,
}

/// The intervals that were verified, and the result.
pub(crate) struct Verified {
    /// The intervals, up to one that is wrong.
    pub(crate) series: Series,
    /// The fault of the first interval that is wrong, if there is one.
    pub(crate) result: Result<(), Wrong>,
}

/// Returns the checksum of the guards of a format.
#[inline(always)]
const fn checksum_of(format: Format) -> Checksum {
    match format {
        Format::Crc64 => Checksum::Crc64Nvme,
        Format::T10 => Checksum::CrcT10Dif,
    }
}

impl<D: Intervals + ?Sized> Protected<'_, D> {
    /// Makes the tuples; returns what `and` makes of `nothing` and the checksums of the intervals.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if data or tuples are longer than their memory.
    #[inline]
    pub(crate) fn make<T>(self, nothing: T, and: impl Fn(T, u64) -> T) -> Result<T>
    where
        T: Copy,
    {
        // A loop for each format: in it the format is a constant.
        match self.geometry.format() {
            Format::Crc64 => self.make_as(Format::Crc64, nothing, and),
            Format::T10 => self.make_as(Format::T10, nothing, and),
        }
    }

    #[inline(always)]
    fn make_as<T: Copy>(
        mut self,
        format: Format,
        nothing: T,
        and: impl Fn(T, u64) -> T,
    ) -> Result<T> {
        let (mut series, mut made) = (Series::new(format, self.first), nothing);
        self.data.checksums(
            checksum_of(format),
            self.geometry.interval_bytes(),
            self.len_bytes,
            #[inline(always)]
            |guard| {
                made = and(made, guard);
                let tuple = series.make(guard);
                tuple.store(format, |bytes| self.tuples.copy_in(bytes))
            },
        )?;
        Ok(made)
    }

    /// Verifies the data by the tuples, up to the first interval that is wrong.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if data or tuples are longer than their memory.
    #[inline]
    pub(crate) fn verify(self) -> Result<Verified> {
        // As in `make`.
        match self.geometry.format() {
            Format::Crc64 => self.verify_as(Format::Crc64),
            Format::T10 => self.verify_as(Format::T10),
        }
    }

    #[inline(always)]
    fn verify_as(mut self, format: Format) -> Result<Verified> {
        let mut series = Series::new(format, self.first);
        let mut result = Ok(());
        let walked = self.data.checksums(
            checksum_of(format),
            self.geometry.interval_bytes(),
            self.len_bytes,
            #[inline(always)]
            |guard| {
                let tuple = Packed::load(format, |bytes| self.tuples.copy_out(bytes))?;
                result = series.verify(guard, tuple);
                // Any error ends the walk.
                result.map_err(|_| EIO)
            },
        );
        match (walked, result) {
            (Err(error), Ok(())) => Err(error),
            _ => Ok(Verified { series, result }),
        }
    }
}
