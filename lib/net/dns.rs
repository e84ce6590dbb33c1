// SPDX-License-Identifier: GPL-2.0

//! Names of hosts, which a program of user space resolves (`key.dns_resolver` of keyutils), and the
//! kernel's keys remember, as for AFS and CIFS.
//!
//! C header: [`include/linux/dns_resolver.h`](srctree/include/linux/dns_resolver.h)

use core::{
    net::IpAddr,
    ptr, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::CStrExt, //
};
use net_ext_sys as raw;

use crate::Namespace;

/// Returns whether this can be the name of a host: 3 to 255 letters, digits and `.-_`.
pub fn is_name(name: &[u8]) -> bool {
    let is_valid = |c: &u8| c.is_ascii_alphanumeric() || b".-_".contains(c);
    (3..=255).contains(&name.len()) && name.iter().all(is_valid)
}

/// Returns an address of the host `name`. Sleeps, not killable, for as long as the program takes:
/// its own time-outs are some seconds.
///
/// # Errors
///
/// Returns `EINVAL` if this is [no name](is_name), or if the answer is no address; otherwise what
/// the program says, mostly `ENOKEY`.
pub fn resolve(namespace: &Namespace, name: &[u8]) -> Result<IpAddr> {
    if !is_name(name) {
        return Err(EINVAL);
    }
    let mut answer = ptr::null_mut();
    // SAFETY: The name is readable for its length during the call, as is the namespace; without a
    // type the function asks for an address.
    let len = unsafe {
        raw::dns_query(
            namespace.as_raw(),
            ptr::null(),
            name.as_ptr().cast(),
            name.len(),
            ptr::null(),
            &mut answer,
            ptr::null_mut(),
            false,
        )
    };
    to_result(len)?;
    // SAFETY: On success the function has set `answer` to a string with a NUL behind it, which was
    // allocated for the caller.
    let text = unsafe { CStr::from_char_ptr(answer) }.to_str();
    let address = text.ok().and_then(|text| text.parse().ok());
    // SAFETY: The string belongs to this function and is not used any more.
    unsafe { bindings::kfree(answer.cast()) };
    address.ok_or(EINVAL)
}
