// SPDX-License-Identifier: GPL-2.0

//! The checksum of the host.

use seglog::Checksum;

/// CRC-32C by the CPU's instructions where it has them.
#[derive(Clone, Copy, Debug)]
pub struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}
