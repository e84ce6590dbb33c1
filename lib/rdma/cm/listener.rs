// SPDX-License-Identifier: GPL-2.0

//! The passive side: listeners, and connection requests.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::{
    address::{SocketAddress, Storage},
    core_id::{Ends, IdCore},
    event::{connection_data, CmHandler},
    id::{CmId, Id},
    param::ConnectParam, //
};
use crate::{device::Device, sys};
use core::{
    cell::RefCell,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
    task::Task,
};
use kernel_ext::sync::atomic::{
    AtomicUsize,
    Ordering::Relaxed, //
};

/// The handler of a [`Listener`]'s connection requests.
pub trait ListenHandler: Send + Sync + 'static {
    /// Handles a connection request. Process context; may sleep. Requests at one device come one at
    /// a time; a listener at an unspecified address may get those at several devices concurrently.
    ///
    /// A request that is dropped without an answer is rejected. The handler must not drop the
    /// listener.
    fn request(&self, request: ConnectRequest<'_>);
}

/// A closure is a handler; its errors are logged.
impl<F: Fn(ConnectRequest<'_>) -> Result + Send + Sync + 'static> ListenHandler for F {
    fn request(&self, request: ConnectRequest<'_>) {
        if let Err(error) = self(request) {
            pr_err!("connection request not accepted: {error:?}\n");
        }
    }
}

impl<T: ListenHandler> ListenHandler for Arc<T> {
    fn request(&self, request: ConnectRequest<'_>) {
        T::request(self, request);
    }
}

/// A listener. Dropping it waits for [`ListenHandler::request`] to return.
///
/// A listener at one address of a device prevents the removal of that device; one at an unspecified
/// address listens on all devices, also on those that are added later.
///
/// # Invariants
///
/// `raw` is an identifier that `self` owns and whose context is `core`.
pub struct Listener {
    raw: NonNull<sys::rdma_cm_id>,
    core: Pin<KBox<ListenCore>>,
}

/// The context of a listener's event handler.
struct ListenCore {
    handling: AtomicUsize,
    handler: KBox<dyn ListenHandler>,
}

// SAFETY: Any thread may use and destroy an identifier; the handler is `Send`.
unsafe impl Send for Listener {}
// SAFETY: The methods of a shared listener only read the bound address; the handler is `Sync`.
unsafe impl Sync for Listener {}

impl Listener {
    /// Listens at `address`, on all devices if that is unspecified (`rdma_listen()`). Sleeps.
    ///
    /// [`SocketAddress::any_ip`] accepts requests to IPv4 and IPv6 addresses. `backlog` is the
    /// number of requests that may wait. Returns `EADDRINUSE` if the port is in use.
    pub fn new(address: &SocketAddress, backlog: u32, handler: impl ListenHandler) -> Result<Self> {
        let handler: KBox<dyn ListenHandler> = KBox::new(handler, GFP_KERNEL)?;
        let core = KBox::pin(
            ListenCore {
                handling: AtomicUsize::new(0),
                handler,
            },
            GFP_KERNEL,
        )?;
        let context = ptr::from_ref(&*core).cast_mut();
        // SAFETY: The network name space is a static, and the context lives as long as the
        // listener.
        let raw = from_err_ptr(unsafe {
            sys::__rdma_create_kernel_id(
                &raw mut kernel::bindings::init_net,
                Some(handle),
                context.cast(),
                address.address.port_space().as_raw(),
                sys::ib_qp_type_IB_QPT_RC,
                crate::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The identifier was just created. From here on dropping `listener` destroys it.
        let listener = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            core,
        };
        let mut storage = address.to_storage();
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        // SAFETY: The identifier is valid; the address lives until the calls return.
        unsafe {
            to_result(sys::rdma_bind_addr(raw, storage.as_mut_ptr()))?;
            to_result(sys::rdma_listen(raw, backlog))?;
        }
        Ok(listener)
    }

    /// Returns the address of the listener, with the port that the kernel chose if the given one
    /// was 0.
    pub fn address(&self) -> Option<SocketAddress> {
        // SAFETY: By the type invariants, `raw` is valid; a bound address does not change.
        unsafe { Storage::read(&raw const (*self.raw.as_ptr()).route.addr.src_addr) }.to_address()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.core.handling.load(Relaxed) == Task::current_raw() as usize {
            // `rdma_destroy_id()` would wait for this handler.
            pr_err!("a listener was dropped in its own handler: the task hangs\n");
        }
        // SAFETY: By the type invariants, `self` owns the identifier. Afterwards the handler is not
        // called any more, so `core` may be dropped.
        unsafe { sys::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// The result of a request: the core of its identifier, if the handler prepared it.
type Prepared = RefCell<Option<Arc<IdCore>>>;

/// A connection request of a peer.
pub struct ConnectRequest<'a> {
    raw: NonNull<sys::rdma_cm_id>,
    event: &'a sys::rdma_cm_event,
    device: Device,
    prepared: &'a Prepared,
}

impl<'a> ConnectRequest<'a> {
    /// Returns the private data of the request, padded by the connection manager to the size of the
    /// message's field (56 bytes for IP addresses).
    pub fn private(&self) -> &'a [u8] {
        // SAFETY: A connection request has connection parameters, which stay unchanged until the
        // event handler returns.
        unsafe { connection_data(self.event) }
    }

    /// Returns the device at which the request arrived.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the device's port.
    pub fn port_number(&self) -> u32 {
        // SAFETY: The identifier is valid while the request is handled.
        unsafe { (*self.raw.as_ptr()).port_num }
    }

    /// Returns the address that the peer connects to.
    pub fn local_address(&self) -> Option<SocketAddress> {
        // SAFETY: The identifier is valid while the request is handled.
        unsafe { Storage::read(&raw const (*self.raw.as_ptr()).route.addr.src_addr) }.to_address()
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> Option<SocketAddress> {
        // SAFETY: The identifier is valid while the request is handled.
        unsafe { Storage::read(&raw const (*self.raw.as_ptr()).route.addr.dst_addr) }.to_address()
    }

    /// Rejects the request, with the private data `private` (at most 148 bytes). Called by
    /// [`ListenHandler::request`] only, in process context; may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the private data are too long, and those of `rdma_reject()`.
    pub fn reject(self, private: &[u8]) -> Result {
        reject(self.raw, private)
    }

    /// Sets the handler of the connection's identifier, the first step of accepting it. That may be
    /// done later, by another thread; events come after [`ListenHandler::request`] has returned.
    ///
    /// An error rejects the request.
    pub fn prepare(self, handler: impl CmHandler) -> Result<Pending> {
        let handler: KBox<dyn CmHandler> = KBox::new(handler, GFP_KERNEL)?;
        let core = IdCore::empty(handler)?;
        // SAFETY: The identifier of a request is bound to its device. Its handler lock is held
        // until the request has been handled.
        let ends = unsafe { Ends::copy(self.raw.as_ptr()) };
        let bound = Some((self.device.clone(), ends));
        // SAFETY: The identifier was created for this request, and the core takes its ownership.
        // Its events wait for the handler lock.
        let core = unsafe { IdCore::attach(core, self.raw, bound, true) };
        *self.prepared.borrow_mut() = Some(core.clone());
        Ok(Pending {
            id: Some(Id::new(core)),
        })
    }
}

/// A connection that is about to be accepted. Dropping it rejects the request.
pub struct Pending {
    id: Option<Id>,
}

impl Pending {
    /// Returns the identifier of the connection, for its queue pair. It is there until
    /// [`accept`](Self::accept). Any context.
    pub fn id(&self) -> Result<&Id> {
        self.id.as_ref().ok_or(EINVAL)
    }

    /// Accepts the connection (`rdma_accept()`). `private` is for the peer's
    /// [`Event::Established`](super::Event::Established), at most 196 bytes.
    ///
    /// Events follow after [`ListenHandler::request`] has returned; completions may precede it. An
    /// error, as of a request that the peer has given up, rejects the request.
    pub fn accept(mut self, param: &ConnectParam, private: &[u8]) -> Result<CmId> {
        let mut raw = param.to_raw(private)?;
        self.id()?.core().locked(|id| {
            // SAFETY: The identifier is valid, and its handler lock is held.
            to_result(unsafe { sys::rdma_accept(id, &mut raw) })
        })?;
        self.id.take().map(CmId::from_id).ok_or(EINVAL)
    }

    /// Rejects the request, with the private data `private` (at most 148 bytes). Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the private data are too long, and those of `rdma_reject()`; the drop has
    /// rejected the request then.
    pub fn reject(self, private: &[u8]) -> Result {
        self.id()?
            .core()
            .locked(|id| reject(NonNull::new(id).ok_or(EINVAL)?, private))
    }

    /// Calls `with` as an event handler of the connection is called: under its lock, and no event
    /// is handled meanwhile. Sleeps. Without an error `with` was called once.
    pub fn handle<R>(self, with: impl FnOnce(Self) -> R) -> Result<R> {
        let core = self.id()?.core().clone();
        Ok(IdCore::handle_with(core, || with(self)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            id.core().close();
        }
    }
}

fn reject(id: NonNull<sys::rdma_cm_id>, private: &[u8]) -> Result {
    let length = private.len().try_into()?;
    let reason = sys::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
    // SAFETY: The identifier is that of a request that was not answered, and is valid.
    to_result(unsafe { sys::rdma_reject(id.as_ptr(), private.as_ptr().cast(), length, reason) })
}

/// Handles the events of listeners, and of identifiers that are not prepared yet.
///
/// # Safety
///
/// Must only be called by the connection manager, for an identifier whose context is the
/// [`ListenCore`] of a listener that is alive, with the locks of both held.
unsafe extern "C" fn handle(id: *mut sys::rdma_cm_id, event: *mut sys::rdma_cm_event) -> c_int {
    // SAFETY: The context is the listener's core, also for an identifier that was just created for
    // a request. The listener's drop waits for this function.
    let (core, event) = unsafe { (&*(*id).context.cast::<ListenCore>(), &*event) };
    if event.event != sys::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        // The owner of a listener destroys its identifier.
        return 0;
    }
    // SAFETY: The identifier of a request is bound to its device.
    let device = unsafe { Device::try_get((*id).device) };
    let (Some(raw), Some(device)) = (NonNull::new(id), device) else {
        return 1;
    };
    let prepared = Prepared::new(None);
    core.handling.store(Task::current_raw() as usize, Relaxed);
    core.handler.request(ConnectRequest {
        raw,
        event,
        device,
        prepared: &prepared,
    });
    core.handling.store(0, Relaxed);
    // Without a core the connection manager destroys the identifier, which rejects the request.
    prepared.into_inner().map_or(1, IdCore::end_handling)
}
