// SPDX-License-Identifier: GPL-2.0

//! The object that creates a queue pair, and destroys it.

use crate::{
    address_handle::AddressHandle,
    cm::IdCore,
    memory::pd::Pd,
    sys, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::Arc, //
};

/// The object that creates a queue pair, and destroys it.
pub(super) enum Origin {
    /// The identifier of its connection, which has one queue pair.
    Connection(Arc<IdCore>),
    /// The device, for datagrams. The handle is for the last send of a drain, which goes nowhere.
    Device(AddressHandle),
}

impl Origin {
    /// Creates a queue pair of `pd` with these attributes. Sleeps.
    pub(super) fn create(
        &self,
        pd: &Pd,
        attributes: &mut sys::ib_qp_init_attr,
    ) -> Result<NonNull<sys::ib_qp>> {
        match self {
            Self::Connection(id) => id.create_qp(pd, attributes),
            Self::Device(_) => {
                // SAFETY: The domain is valid, and the attributes name completion queues that the
                // caller holds; the name is a static string.
                let raw = from_err_ptr(unsafe {
                    sys::rdma_helper_create_qp(pd.as_raw(), attributes, crate::CALLER.as_char_ptr())
                })?;
                NonNull::new(raw).ok_or(ENOMEM)
            }
        }
    }

    /// Destroys a queue pair. Sleeps.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `self` has created the queue pair, and that it is not used any
    /// more.
    pub(super) unsafe fn destroy(&self, qp: *mut sys::ib_qp) {
        match self {
            // SAFETY: By the function requirements.
            Self::Connection(id) => unsafe { id.destroy_qp() },
            Self::Device(_) => {
                // SAFETY: By the function requirements. Nothing else refers to it, so this cannot
                // fail but for a device that is broken, which keeps it.
                let _ = unsafe { sys::ib_destroy_qp_user(qp, ptr::null_mut()) };
            }
        }
    }

    /// Handles an asynchronous event of the queue pair. Any context.
    pub(super) fn qp_event(&self, event: sys::ib_event_type) {
        if let Self::Connection(id) = self {
            id.qp_event(event);
        }
    }

    /// Returns the handle for the last send of a datagram queue pair; else null.
    pub(super) fn address_handle(&self) -> *mut sys::ib_ah {
        match self {
            Self::Connection(_) => ptr::null_mut(),
            Self::Device(handle) => handle.as_raw(),
        }
    }
}
