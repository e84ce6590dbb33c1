// SPDX-License-Identifier: GPL-2.0

//! The owner of a queue pair, whose drop is its end.

use super::{
    Qp,
    QpHandler, //
};
use core::{
    mem::ManuallyDrop,
    ops::Deref, //
};
use kernel::prelude::*;

/// The owner of a queue pair, made with it.
///
/// Dropping it [closes](Qp::close) and destroys the queue pair. Handlers that run meanwhile have a
/// valid [`Qp`], on which posting fails.
///
/// The drop sleeps. In a handler of the same queue pair it cannot end, since it waits for that
/// handler: after a while the queue pair is leaked instead, with all that it uses and the module
/// of its handler, and one line in the log. The same happens if the device does not flush it.
///
/// # Invariants
///
/// The queue pair is not destroyed.
pub struct OwnedQp<H: QpHandler>(ManuallyDrop<Pin<KBox<Qp<H>>>>);

impl<H: QpHandler> OwnedQp<H> {
    /// Takes a queue pair that was created.
    pub(super) fn new(qp: Pin<KBox<Qp<H>>>) -> Self {
        Self(ManuallyDrop::new(qp))
    }

    /// Permits posts to a queue pair that was closed and has been started again. Any context.
    pub(super) fn permit_posts(&mut self) {
        self.0.posters.open();
    }
}

impl<H: QpHandler> Deref for OwnedQp<H> {
    type Target = Qp<H>;

    #[inline(always)]
    fn deref(&self) -> &Qp<H> {
        &self.0
    }
}

impl<H: QpHandler> Drop for OwnedQp<H> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            // The device, or a handler further up the stack, still uses it.
            pr_err!(
                "queue pair {} could not be drained ({error:?}), leaking it\n",
                self.number()
            );
            // SAFETY: The module exists: its code is on the stack, or has the type `H` in use.
            unsafe { kernel::bindings::__module_get(H::MODULE.as_ptr()) };
            return;
        }
        // SAFETY: By the type invariants, the queue pair is one of `origin`. All work requests have
        // completed, and no more can be posted. No reference is left, for all are borrowed from
        // `self`, or from a handler, and handlers have returned.
        unsafe { self.origin.destroy(self.raw) };
        self.pd.queue_pair_destroyed();
        // SAFETY: `self.0` is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
