// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::NonNull, //
};
use kernel::bindings;
use net_ext_sys as raw;

use super::tcp::raw_address;

/// A reference to a network namespace, which exists as long as this value.
///
/// # Invariants
///
/// `net` is a namespace of which this value owns a reference.
pub struct Namespace {
    net: NonNull<bindings::net>,
}

// SAFETY: A reference to a namespace is not tied to a thread.
unsafe impl Send for Namespace {}
// SAFETY: A shared reference gives the address only, and C counts references atomically.
unsafe impl Sync for Namespace {}

impl Namespace {
    /// Returns the namespace of the current task. Process context.
    pub fn of_current() -> Self {
        // SAFETY: The called function has no safety requirements in process context; it takes a
        // reference for the caller.
        let net = unsafe { raw::net_ext_helper_current_net() };
        // SAFETY: A task that runs has a namespace.
        let net = unsafe { NonNull::new_unchecked(net) };
        // INVARIANT: The reference was just taken.
        Self { net }
    }

    /// Takes a reference to the namespace `net`.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `net` is a namespace with a reference that lasts during the
    /// call.
    pub unsafe fn from_raw(net: NonNull<bindings::net>) -> Self {
        // SAFETY: By the function requirements, the namespace exists.
        unsafe { raw::net_ext_helper_get_net(net.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Self { net }
    }

    /// Returns whether an address is one of the namespace's own. Does not sleep.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        let address = raw_address(SocketAddr::new(ip, 0));
        // SAFETY: By the type invariants, the namespace exists; `address` is readable.
        unsafe { raw::net_ext_helper_is_local(self.as_raw(), &address) }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.net.as_ptr()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is owned; it is given back once, here.
        unsafe { raw::net_ext_helper_put_net(self.as_raw()) };
    }
}
