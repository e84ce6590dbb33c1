// SPDX-License-Identifier: GPL-2.0

//! What the owner of a connection identifier, its queue pair and its event handler share.
//!
//! The last of them destroys the identifier, wherever that happens. Only `rdma_destroy_id()` must
//! not be called in the identifier's own event handler, which the C side runs under the
//! identifier's handler lock. Hence an event handler holds a reference while it runs; if that turns
//! out to be the last one, the handler's return value tells the connection manager to destroy the
//! identifier.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::{event::CmHandler, param::ConnectParam, Event, Id};
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
/// - `handler` is used by a task that runs an event handler and found `closed` to be 0, and by
///   nobody else until the task that set `closed`, or ends the event handler in which that
///   happened, takes it.
#[pin_data(PinnedDrop)]
pub(crate) struct IdCore {
    raw: *mut sys::rdma_cm_id,
    device: SetOnce<Device>,
    handling: AtomicUsize,
    closed: AtomicU32,
    handler: UnsafeCell<Option<KBox<dyn CmHandler>>>,
    // Event handlers refer to `self` while it is being dropped.
    #[pin]
    _pinned: PhantomPinned,
}

// SAFETY: An identifier may be used and destroyed by any thread; the handler is `Send`.
unsafe impl Send for IdCore {}
// SAFETY: The C functions that are called through `&self` have locks; the rest is `Sync`.
unsafe impl Sync for IdCore {}

/// The value of `handling` for the running task.
fn myself() -> usize {
    Task::current_raw() as usize
}

impl IdCore {
    /// A core for an identifier that is not there yet.
    pub(super) fn empty(handler: KBox<dyn CmHandler>) -> Result<Pin<UniqueArc<Self>>> {
        UniqueArc::pin_init(
            pin_init!(IdCore {
                raw: ptr::null_mut(),
                device: SetOnce::new(),
                handling: AtomicUsize::new(0),
                closed: AtomicU32::new(0),
                handler: UnsafeCell::new(Some(handler)),
                _pinned: PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    /// Gives `core` an identifier that was made for it, and whose device may be known.
    ///
    /// # Safety
    ///
    /// The caller owns the identifier, and no event of it has `core` as its context yet.
    pub(super) unsafe fn attach(
        mut core: Pin<UniqueArc<Self>>,
        raw: NonNull<sys::rdma_cm_id>,
        device: Option<Device>,
        handling: bool,
    ) -> Arc<Self> {
        let context = ptr::from_ref(&*core).cast_mut();
        // SAFETY: The caller owns the identifier.
        unsafe {
            (*raw.as_ptr()).context = context.cast();
            (*raw.as_ptr()).event_handler = Some(handle);
        }
        if let Some(device) = device {
            core.device.populate(device);
        }
        if handling {
            core.handling.store(myself(), Relaxed);
        }
        // INVARIANT: The ownership goes to `core`, whose address is the context.
        *core.as_mut().project().raw = raw.as_ptr();
        core.into()
    }

    /// The C identifier, which is valid as long as `self` is borrowed.
    #[inline(always)]
    pub(super) fn as_raw(&self) -> *mut sys::rdma_cm_id {
        self.raw
    }

    /// The function that the connection manager is to call for an identifier of a core.
    pub(super) fn entry() -> sys::rdma_cm_event_handler {
        Some(handle)
    }

    /// The device, once the address has been resolved.
    pub(super) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Whether the running task is in an event handler of the identifier.
    fn is_handling(&self) -> bool {
        self.handling.load(Relaxed) == myself()
    }

    /// No event is passed on after this has returned, except the one that is being handled by the
    /// caller itself. The handler is dropped now, or when it returns. Called once.
    pub(super) fn close(&self) {
        if self.is_handling() {
            // INVARIANT: The task holds the handler lock.
            self.closed.store(1, Relaxed);
            return;
        }
        // SAFETY: The identifier is valid, and the task does not hold its lock.
        unsafe { sys::rdma_lock_handler(self.raw) };
        // INVARIANT: Under the lock.
        self.closed.store(1, Relaxed);
        // SAFETY: Locked above.
        unsafe { sys::rdma_unlock_handler(self.raw) };
        self.drop_handler();
    }

    /// Drops the handler, which may own the queue pair on this identifier.
    fn drop_handler(&self) {
        // SAFETY: By the type invariant, since the caller has set `closed` or ends the event
        // handler in which that happened.
        let handler = unsafe { (*self.handler.get()).take() };
        drop(handler);
    }

    /// Asks the peer for a connection. Sleeps.
    pub(super) fn connect(&self, param: &ConnectParam, private: &[u8]) -> Result {
        let mut raw = param.to_raw(private)?;
        // SAFETY: The identifier is valid; the parameter and what it refers to live until the call
        // returns. The variant for holders of the handler lock is for those that hold it.
        to_result(unsafe {
            if self.is_handling() {
                sys::rdma_connect_locked(self.raw, &mut raw)
            } else {
                sys::rdma_connect(self.raw, &mut raw)
            }
        })
    }

    /// Makes a queue pair on the identifier.
    pub(crate) fn create_qp(
        &self,
        pd: &Pd,
        attributes: &mut sys::ib_qp_init_attr,
    ) -> Result<NonNull<sys::ib_qp>> {
        if self.device() != Some(pd.device()) {
            return Err(EINVAL);
        }
        // SAFETY: The identifier is bound to the domain's device and lives as long as `self`.
        unsafe {
            if !(*self.raw).qp.is_null() {
                return Err(EEXIST);
            }
            to_result(sys::rdma_create_qp(self.raw, pd.as_raw(), attributes))?;
            NonNull::new((*self.raw).qp).ok_or(ENOMEM)
        }
    }

    /// Destroys the identifier's queue pair.
    ///
    /// # Safety
    ///
    /// There is one, and nothing uses it any more.
    pub(crate) unsafe fn destroy_qp(&self) {
        // SAFETY: By the safety requirement.
        unsafe { sys::rdma_destroy_qp(self.raw) };
    }

    /// Takes note of an asynchronous event of the queue pair. Any context.
    pub(crate) fn qp_event(&self, event: sys::ib_event_type) {
        if event == sys::ib_event_type_IB_EVENT_COMM_EST {
            // The peer's first message came before the last message of the handshake.
            // SAFETY: The identifier is valid; an error means that it is established already.
            let _ = unsafe { sys::rdma_notify(self.raw, event) };
        }
    }

    /// Ends a reference that an event handler held. Returns what the handler must return: not 0 if
    /// that was the last reference, and the connection manager has to destroy the identifier.
    pub(super) fn end_handling(core: Arc<Self>) -> c_int {
        if core.closed.load(Relaxed) != 0 {
            core.drop_handler();
        }
        core.handling.store(0, Relaxed);
        match Arc::into_unique_or_drop(core) {
            Some(mut last) => {
                // INVARIANT: The caller passes the ownership to the connection manager.
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
            // SAFETY: By the type invariant the identifier is owned. The task is in none of its
            // event handlers, since those hold a reference. Its queue pair is gone, since that
            // holds a reference. Handlers that are still waiting for the lock are called off.
            unsafe { sys::rdma_destroy_id(self.raw) };
        }
    }
}

/// Takes the events of every identifier that has a core.
///
/// # Safety
///
/// Called by the connection manager for an identifier whose context is its core, with its lock
/// held.
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
    // SAFETY: A core is always in an `Arc`. It is not closed, so its owner has not let it go; and
    // the owner waits for the lock, which is held here, before it does.
    let core: Arc<IdCore> = unsafe { ArcBorrow::from_raw(ptr::from_ref(core)) }.into();
    core.handling.store(myself(), Relaxed);
    // SAFETY: The identifier and the event are those of this call.
    let mut event = unsafe { Event::from_raw(id, raw) };
    if matches!(event, Event::AddressResolved) {
        // SAFETY: The identifier has just been bound to its device, and its lock is held.
        match unsafe { Device::try_get((*id).device) } {
            Some(device) => drop(core.device.populate(device)),
            None => event = Event::DeviceRemoval,
        }
    }
    let id_ref = Id::new(core);
    // SAFETY: By the type invariant: this is an event handler, and `closed` was 0.
    if let Some(handler) = unsafe { &*id_ref.core().handler.get() } {
        handler.event(&id_ref, event);
    }
    if disconnected {
        answer_disconnect(id);
    }
    IdCore::end_handling(id_ref.into_core())
}

/// Answers the peer's wish to disconnect, without which the peer's side would have to time out. For
/// the side that began it does nothing.
fn answer_disconnect(id: *mut sys::rdma_cm_id) {
    // SAFETY: Called by the event handler of the identifier.
    let _ = unsafe { sys::rdma_disconnect(id) };
}
