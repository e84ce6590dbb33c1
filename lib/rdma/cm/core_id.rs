// SPDX-License-Identifier: GPL-2.0

//! The state that the owner of a connection identifier, its queue pair and its event handler share.
//!
//! Dropping the last reference destroys the identifier. `rdma_destroy_id()` must not be called in
//! the identifier's own event handler, which the connection manager runs under the identifier's
//! handler lock. Hence an event handler holds a reference while it runs; if that is the last one,
//! the return value of the handler tells the connection manager to destroy the identifier.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::{
    address::{
        SocketAddress,
        Storage, //
    },
    event::CmHandler,
    param::ConnectParam,
    Event,
    Id, //
};
use crate::{device::Device, memory::pd::Pd, sys};
use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SetOnce,
        UniqueArc, //
    },
    task::Task,
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    AtomicUsize,
    Ordering::Relaxed, //
};

/// A connection identifier.
///
/// # Invariants
///
/// - `raw` is null, or an identifier that `self` owns and whose context is `self`.
/// - `handling` is the address of the task that runs an event handler of the identifier, or 0.
/// - `closed` changes once, to 1, under the handler lock.
/// - The functions of the connection manager that set the address, the route or the queue pair of
///   the identifier are called under the handler lock: by [`IdCore::locked`], or in an event
///   handler.
/// - Only a task that runs an event handler and read 0 from `closed` uses `handler`. Afterwards the
///   task that set `closed`, or that ends the event handler in which `closed` was set, takes it.
#[pin_data(PinnedDrop)]
pub(crate) struct IdCore {
    raw: *mut sys::rdma_cm_id,
    device: SetOnce<Device>,
    ends: SetOnce<Ends>,
    handling: AtomicUsize,
    closed: AtomicU32,
    handler: UnsafeCell<Option<KBox<dyn CmHandler>>>,
    // Event handlers refer to `self` while it is being dropped.
    #[pin]
    _pinned: PhantomPinned,
}

// SAFETY: Any thread may use and destroy an identifier; the handler is `Send`.
unsafe impl Send for IdCore {}
// SAFETY: By the type invariants, the C functions that change the identifier and are called through
// `&self` have its handler lock. `rdma_disconnect`, `rdma_notify` and the destruction of the queue
// pair have locks of their own. What is read of the identifier was copied; the other fields are
// `Sync`.
unsafe impl Sync for IdCore {}

/// The ends of a connection, copied when the connection manager has resolved them.
pub(super) struct Ends {
    pub(super) local: Option<SocketAddress>,
    pub(super) peer: Option<SocketAddress>,
    pub(super) port: u32,
}

impl Ends {
    /// Copies the ends of an identifier that is bound to its device.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `id` is such an identifier, and must hold its handler lock.
    pub(super) unsafe fn copy(id: *mut sys::rdma_cm_id) -> Self {
        // SAFETY: By the function requirements; nothing changes the addresses under the lock.
        unsafe {
            let address = &raw const (*id).route.addr;
            Self {
                local: Storage::read(&raw const (*address).src_addr).to_address(),
                peer: Storage::read(&raw const (*address).dst_addr).to_address(),
                port: (*id).port_num,
            }
        }
    }
}

/// Returns the value of `handling` for the current task.
fn myself() -> usize {
    Task::current_raw() as usize
}

impl IdCore {
    /// Creates a core without an identifier.
    pub(super) fn empty(handler: KBox<dyn CmHandler>) -> Result<Pin<UniqueArc<Self>>> {
        UniqueArc::pin_init(
            pin_init!(IdCore {
                raw: ptr::null_mut(),
                device: SetOnce::new(),
                ends: SetOnce::new(),
                handling: AtomicUsize::new(0),
                closed: AtomicU32::new(0),
                handler: UnsafeCell::new(Some(handler)),
                _pinned: PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    /// Gives `core` an identifier that was created for it, and if it is bound already, its device
    /// and ends.
    ///
    /// # Safety
    ///
    /// The caller must own the identifier, and must ensure that no event of it has `core` as its
    /// context yet.
    pub(super) unsafe fn attach(
        mut core: Pin<UniqueArc<Self>>,
        raw: NonNull<sys::rdma_cm_id>,
        bound: Option<(Device, Ends)>,
        handling: bool,
    ) -> Arc<Self> {
        let context = ptr::from_ref(&*core).cast_mut();
        // SAFETY: The caller owns the identifier.
        unsafe {
            (*raw.as_ptr()).context = context.cast();
            (*raw.as_ptr()).event_handler = Some(handle);
        }
        if let Some((device, ends)) = bound {
            core.device.populate(device);
            core.ends.populate(ends);
        }
        if handling {
            core.handling.store(myself(), Relaxed);
        }
        // INVARIANT: The ownership goes to `core`, whose address is the context.
        *core.as_mut().project().raw = raw.as_ptr();
        core.into()
    }

    /// Returns the C identifier, which is valid as long as `self` is borrowed.
    #[inline(always)]
    pub(super) fn as_raw(&self) -> *mut sys::rdma_cm_id {
        self.raw
    }

    /// Returns the function that the connection manager calls for an identifier of a core.
    pub(super) fn entry() -> sys::rdma_cm_event_handler {
        Some(handle)
    }

    /// Returns the device, once the address has been resolved.
    pub(super) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Returns the ends, once the address has been resolved.
    pub(super) fn ends(&self) -> Option<&Ends> {
        self.ends.as_ref()
    }

    /// Calls `with` with the identifier, under its handler lock: no other thread changes it and no
    /// event handler of it runs meanwhile, except that of the caller. Sleeps.
    pub(super) fn locked<R>(&self, with: impl FnOnce(*mut sys::rdma_cm_id) -> R) -> R {
        if self.is_handling() {
            return with(self.raw);
        }
        // SAFETY: The identifier is valid, and the task does not hold its lock.
        unsafe { sys::rdma_lock_handler(self.raw) };
        let result = with(self.raw);
        // SAFETY: This task took the lock above.
        unsafe { sys::rdma_unlock_handler(self.raw) };
        result
    }

    /// Calls `with` as an event handler of the identifier. Sleeps.
    pub(super) fn handle_with<R>(core: Arc<Self>, with: impl FnOnce() -> R) -> R {
        if core.is_handling() {
            return with();
        }
        core.locked(|_| {
            // INVARIANT: The lock excludes all event handlers, and this task does as one of them.
            core.handling.store(myself(), Relaxed);
            let result = with();
            if core.closed.load(Relaxed) != 0 {
                core.drop_handler();
            }
            core.handling.store(0, Relaxed);
            result
        })
        // The last reference may be dropped here, without the lock.
    }

    /// Returns whether the current task runs an event handler of the identifier.
    fn is_handling(&self) -> bool {
        self.handling.load(Relaxed) == myself()
    }

    /// Stops events: no event is passed on after the return, except one that the caller itself is
    /// handling. The handler is dropped before the return, or when the caller's event handler
    /// returns. Called once.
    pub(super) fn close(&self) {
        if self.is_handling() {
            // INVARIANT: The task holds the handler lock.
            self.closed.store(1, Relaxed);
            return;
        }
        // INVARIANT: The task holds the handler lock.
        self.locked(|_| self.closed.store(1, Relaxed));
        self.drop_handler();
    }

    /// Drops the handler, which may own the queue pair on this identifier.
    fn drop_handler(&self) {
        // SAFETY: By the type invariants, the access is exclusive, as the caller has set `closed`
        // or ends the event handler in which it was set.
        let handler = unsafe { (*self.handler.get()).take() };
        drop(handler);
    }

    /// Sends a connection request with the private data `private` to the peer. Sleeps; the caller
    /// must not hold a lock that the event handler takes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the private data are too long, and those of `rdma_connect()`.
    pub(super) fn connect(&self, param: &ConnectParam, private: &[u8]) -> Result {
        let mut raw = param.to_raw(private)?;
        self.locked(|id| {
            // SAFETY: The identifier is valid, and its handler lock is held; the parameter and the
            // private data live until the call returns.
            to_result(unsafe { sys::rdma_connect_locked(id, &mut raw) })
        })
    }

    /// Creates a queue pair on the identifier. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pd` is of another device, `EEXIST` if the identifier has a queue pair, and
    /// those of `rdma_create_qp()`.
    pub(crate) fn create_qp(
        &self,
        pd: &Pd,
        attributes: &mut sys::ib_qp_init_attr,
    ) -> Result<NonNull<sys::ib_qp>> {
        if self.device() != Some(pd.device()) {
            return Err(EINVAL);
        }
        self.locked(|id| {
            // SAFETY: The identifier is bound to the domain's device and lives as long as `self`.
            // Only holders of its handler lock give it a queue pair.
            unsafe {
                if !(*id).qp.is_null() {
                    return Err(EEXIST);
                }
                to_result(sys::rdma_create_qp(id, pd.as_raw(), attributes))?;
                NonNull::new((*id).qp).ok_or(ENOMEM)
            }
        })
    }

    /// Destroys the identifier's queue pair.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the identifier has a queue pair which is not used any more.
    pub(crate) unsafe fn destroy_qp(&self) {
        self.locked(|id| {
            // SAFETY: By the function requirements.
            unsafe { sys::rdma_destroy_qp(id) };
        });
    }

    /// Handles an asynchronous event of the queue pair. Any context.
    pub(crate) fn qp_event(&self, event: sys::ib_event_type) {
        if event == sys::ib_event_type_IB_EVENT_COMM_EST {
            // The peer's first message arrived before the last message of the handshake.
            // SAFETY: The identifier is valid; an error means that it is established already.
            let _ = unsafe { sys::rdma_notify(self.raw, event) };
        }
    }

    /// Drops the reference of an event handler. Returns the handler's return value: not 0 if this
    /// was the last reference, so that the connection manager destroys the identifier.
    pub(super) fn end_handling(core: Arc<Self>) -> c_int {
        if core.closed.load(Relaxed) != 0 {
            core.drop_handler();
        }
        core.handling.store(0, Relaxed);
        match Arc::into_unique_or_drop(core) {
            Some(mut last) => {
                // INVARIANT: The return value passes the ownership to the connection manager.
                *last.as_mut().project().raw = ptr::null_mut();
                1
            }
            None => 0,
        }
    }
}

#[pinned_drop]
impl PinnedDrop for IdCore {
    fn drop(self: Pin<&mut Self>) {
        if !self.raw.is_null() {
            // SAFETY: By the type invariants, `self` owns the identifier. This task runs none of
            // its event handlers, and its queue pair is destroyed, since each holds a reference.
            // The function waits for the handler lock and delivers no further events.
            unsafe { sys::rdma_destroy_id(self.raw) };
        }
    }
}

/// Handles the events of every identifier that has a core.
///
/// # Safety
///
/// Must only be called by the connection manager, for an identifier whose context is its core, with
/// its lock held.
unsafe extern "C" fn handle(id: *mut sys::rdma_cm_id, raw: *mut sys::rdma_cm_event) -> c_int {
    // SAFETY: The context of an identifier with this handler is its core, which destroys the
    // identifier, and thus waits for this function, before it goes away.
    let (core, raw) = unsafe { (&*(*id).context.cast::<IdCore>(), &*raw) };
    let disconnected = raw.event == sys::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED;
    if core.closed.load(Relaxed) != 0 {
        if disconnected {
            answer_disconnect(id);
        }
        return 0;
    }
    // SAFETY: A core is always in an `Arc`. It is not closed, so its owner has a reference, which
    // it drops only after it took the handler lock, which is held here.
    let core: Arc<IdCore> = unsafe { ArcBorrow::from_raw(ptr::from_ref(core)) }.into();
    core.handling.store(myself(), Relaxed);
    // SAFETY: The identifier and the event are those of this call.
    let mut event = unsafe { Event::from_raw(id, raw) };
    if matches!(event, Event::AddressResolved) {
        // SAFETY: The identifier has just been bound to its device, and its lock is held.
        match unsafe { Device::try_get((*id).device) } {
            Some(device) => {
                // SAFETY: As above.
                core.ends.populate(unsafe { Ends::copy(id) });
                core.device.populate(device);
            }
            None => event = Event::DeviceRemoval,
        }
    }
    let id_ref = Id::new(core);
    // SAFETY: By the type invariants, as this is an event handler that read 0 from `closed`.
    if let Some(handler) = unsafe { &*id_ref.core().handler.get() } {
        handler.event(&id_ref, event);
    }
    if disconnected {
        answer_disconnect(id);
    }
    IdCore::end_handling(id_ref.into_core())
}

/// Answers the peer's disconnect request; without an answer the peer's side would time out. No
/// effect on the side that sent the request.
fn answer_disconnect(id: *mut sys::rdma_cm_id) {
    // SAFETY: Called by the event handler of the identifier.
    let _ = unsafe { sys::rdma_disconnect(id) };
}
