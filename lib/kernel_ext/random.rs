// SPDX-License-Identifier: GPL-2.0

//! Random bytes.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use kernel::bindings;

/// Fills `buffer` with random bytes of cryptographic quality. Never sleeps.
pub fn fill(buffer: &mut [u8]) {
    // SAFETY: The buffer is writable for its length.
    unsafe { bindings::get_random_bytes(buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// Returns a random number of cryptographic quality. Never sleeps.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Returns a random (version 4) UUID in the order of RFC 9562. Never sleeps.
pub fn uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    // SAFETY: The function writes 16 bytes.
    unsafe { bindings::generate_random_uuid(uuid.as_mut_ptr()) };
    uuid
}
