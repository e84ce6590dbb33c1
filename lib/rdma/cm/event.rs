// SPDX-License-Identifier: GPL-2.0

//! The events of a connection.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::Id;
use crate::sys;
use core::{ptr, slice};
use kernel::{
    fmt,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// The event handler of one connection identifier.
///
/// Events of one identifier come one at a time, in process context; the handler may sleep. The
/// identifier, its owner [`CmId`](super::CmId) and its queue pair may be used and dropped in it.
pub trait CmHandler: Send + Sync + 'static {
    /// Handles an event of `id`.
    fn event(&self, id: &Id, event: Event<'_>);
}

/// Ignores all events.
impl CmHandler for () {
    fn event(&self, _id: &Id, _event: Event<'_>) {}
}

/// A closure is a handler; its errors are logged.
impl<F: Fn(&Id, Event<'_>) -> Result + Send + Sync + 'static> CmHandler for F {
    fn event(&self, id: &Id, event: Event<'_>) {
        if let Err(error) = self(id, event) {
            pr_err!("event of a connection not handled: {error:?}\n");
        }
    }
}

impl<T: CmHandler> CmHandler for Arc<T> {
    fn event(&self, id: &Id, event: Event<'_>) {
        T::event(self, id, event);
    }
}

/// An event of a connection (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// [`Id::resolve_address`] succeeded: the device is known.
    AddressResolved,
    /// [`Id::resolve_address`] failed.
    AddressError(Error),
    /// [`Id::resolve_route`] succeeded.
    RouteResolved,
    /// [`Id::resolve_route`] failed.
    RouteError(Error),
    /// The connection is up.
    Established {
        /// The private data of the acceptance, padded; empty on the passive side.
        private: &'a [u8],
    },
    /// The peer, or a node on the route to it, rejected the connection.
    Rejected {
        /// The reason of the rejection.
        reason: RejectReason,
        /// The private data of the rejection, padded, if the reason is
        /// [`RejectReason::is_consumer`].
        private: &'a [u8],
    },
    /// The peer did not answer the request or the acceptance.
    Unreachable(Error),
    /// The connection could not be set up.
    ConnectError(Error),
    /// The connection has ended, by either side. All posted work requests are flushed.
    Disconnected,
    /// The time in which late packets may arrive is over.
    TimewaitExit,
    /// The device is being removed, which waits until all objects on it are dropped.
    DeviceRemoval,
    /// The local address moved to another port or device; the connection goes on.
    AddressChange,
    /// An event that connections do not have.
    Other(u32),
}

/// Prints the event for a log line, without private data.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::AddressResolved => f.write_str("address resolved"),
            Event::AddressError(e) => f.write_fmt(fmt!("address resolution failed ({e:?})")),
            Event::RouteResolved => f.write_str("route resolved"),
            Event::RouteError(e) => f.write_fmt(fmt!("route resolution failed ({e:?})")),
            Event::Established { .. } => f.write_str("connected"),
            Event::Rejected { reason, .. } => f.write_fmt(fmt!("connection rejected: {reason}")),
            Event::Unreachable(e) => f.write_fmt(fmt!("peer does not answer ({e:?})")),
            Event::ConnectError(e) => f.write_fmt(fmt!("connection cannot be set up ({e:?})")),
            Event::Disconnected => f.write_str("disconnected"),
            Event::TimewaitExit => f.write_str("the connection's last packets are past"),
            Event::DeviceRemoval => f.write_str("device is being removed"),
            Event::AddressChange => f.write_str("local address moved to another device"),
            Event::Other(kind) => f.write_fmt(fmt!("event {kind} of the connection manager")),
        }
    }
}

/// The reason of a rejection: a number of the connection manager (`enum ib_cm_rej_reason`).
///
/// [`Display`](fmt::Display) writes the kernel's text for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason {
    code: i32,
    message: &'static CStr,
    consumer: bool,
}

impl RejectReason {
    /// Returns whether the peer's consumer rejected the connection, and not its connection manager.
    pub fn is_consumer(&self) -> bool {
        self.consumer
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.message, f)
    }
}

/// Returns the error of an event that failed; its status is a negative errno.
fn error(status: i32) -> Error {
    if status < 0 {
        Error::from_errno(status)
    } else {
        EIO
    }
}

/// # Safety
///
/// The caller must ensure that `data` is null or points to `length` bytes that stay unchanged for
/// `'a`.
unsafe fn bytes<'a>(data: *const kernel::ffi::c_void, length: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: By the function requirements.
    unsafe { slice::from_raw_parts(data.cast::<u8>(), usize::from(length)) }
}

impl<'a> Event<'a> {
    /// # Safety
    ///
    /// The caller must ensure that `id` and `raw` are what the connection manager passed to an
    /// event handler that runs for `'a`.
    pub(super) unsafe fn from_raw(id: *mut sys::rdma_cm_id, raw: &'a sys::rdma_cm_event) -> Self {
        match raw.event {
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => {
                Self::AddressError(error(raw.status))
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => {
                Self::RouteError(error(raw.status))
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => Self::Established {
                // SAFETY: By the function requirements; this event has connection parameters.
                private: unsafe { connection_data(raw) },
            },
            // SAFETY: By the function requirements.
            sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => unsafe { Self::rejected(id, raw) },
            sys::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => {
                Self::Unreachable(error(raw.status))
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => {
                Self::ConnectError(error(raw.status))
            }
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            sys::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => Self::AddressChange,
            other => Self::Other(other),
        }
    }

    /// # Safety
    ///
    /// As for [`Self::from_raw`]; the event is a rejection.
    unsafe fn rejected(id: *mut sys::rdma_cm_id, raw: &'a sys::rdma_cm_event) -> Self {
        let mut length = 0;
        // SAFETY: By the function requirements; all three return static data or data of the event.
        let (message, data) = unsafe {
            let event = ptr::from_ref(raw).cast_mut();
            (
                CStr::from_char_ptr(sys::rdma_reject_msg(id, raw.status)),
                sys::rdma_consumer_reject_data(id, event, &mut length),
            )
        };
        Self::Rejected {
            reason: RejectReason {
                code: raw.status,
                message,
                consumer: !data.is_null(),
            },
            // SAFETY: The data is in the event and has `length` bytes.
            private: unsafe { bytes(data, length) },
        }
    }
}

/// Returns the private data of an event with connection parameters.
///
/// # Safety
///
/// The caller must ensure that `raw` is such an event, and that its private data stays unchanged
/// while `raw` is borrowed.
pub(super) unsafe fn connection_data(raw: &sys::rdma_cm_event) -> &[u8] {
    // SAFETY: By the function requirements, `conn` is the member in use.
    unsafe { bytes(raw.param.conn.private_data, raw.param.conn.private_data_len) }
}
