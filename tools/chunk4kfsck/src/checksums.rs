// SPDX-License-Identifier: GPL-2.0

//! The checksums of the host.

use chunk4k::Checksums;

/// Checksums by the CPU's instructions where it has them.
#[derive(Debug)]
pub struct Fast;

impl Checksums for Fast {
    fn crc32(before: u32, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(bytes);
        hasher.finalize()
    }

    fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(before, bytes)
    }
}
