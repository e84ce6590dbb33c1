// SPDX-License-Identifier: GPL-2.0

//! The operations that an assembly needs of the members.

/// The members, of which one IO after the other is done.
pub trait Devices {
    /// The error of an IO.
    type Error;

    /// Returns the bytes of a member.
    fn bytes(&self, member: usize) -> u64;

    /// Reads bytes of a member, whole units.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Self::Error>;

    /// Reads as [`Self::read`] does what others give as well: who limits the time of an IO waits
    /// less for it.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn read_soon(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Self::Error> {
        self.read(member, at, to)
    }

    /// Writes whole units; with `fua` they are durable then.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), Self::Error>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    ///
    /// Returns the device's error.
    fn flush(&mut self, member: usize) -> Result<(), Self::Error>;

    /// XORs the second slice into the first, which is as long: the third of three columns is made
    /// so of two that were read. Who has better instructions replaces this.
    fn xor_into(&self, to: &mut [u8], from: &[u8]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to ^= *from;
        }
    }
}
