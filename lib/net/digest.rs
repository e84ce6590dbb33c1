// SPDX-License-Identifier: GPL-2.0

//! Digests that protocols need which are older than the kernel's key types.
//!
//! C header: [`include/crypto/md5.h`](srctree/include/crypto/md5.h)

use net_ext_sys as raw;

/// The length of an MD5 digest, in bytes.
pub const MD5_LEN: usize = 16;

/// Returns the MD5 digest of `data`. Any context.
///
/// MD5 does not resist collisions. It is here for servers that speak nothing else.
pub fn md5(data: &[u8]) -> [u8; MD5_LEN] {
    let mut digest = [0; MD5_LEN];
    // SAFETY: `data` is readable for its length; `digest` is writable for the length of a digest.
    unsafe { raw::md5(data.as_ptr(), data.len(), digest.as_mut_ptr()) };
    digest
}
