// SPDX-License-Identifier: GPL-2.0

//! Operations that a service serves later.

use kernel::prelude::*;
use kernel_ext::{
    new_irq_lock,
    sync::IrqLock, //
};

use crate::server::io::{
    operation::Operation,
    send_queue::RequestList, //
};

/// Operations in the order in which they were added.
///
/// It holds any number of them and allocates nothing: each has the link to the next. A session has
/// one operation for each chunk, so that is the most that it can hold. Operations that are left
/// when it is dropped are answered with `EIO`.
#[pin_data(PinnedDrop)]
pub struct OperationQueue {
    #[pin]
    waiting: IrqLock<RequestList>,
}

impl OperationQueue {
    /// Returns an empty queue.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_irq_lock!(RequestList::new(), "OperationQueue::waiting"),
        })
    }

    /// Appends `operation`. Any context.
    pub fn push(&self, operation: Operation) {
        if let Some(context) = operation.into_context() {
            self.waiting.lock().push(context);
        }
    }

    /// Takes the operation that was added first. Any context.
    pub fn pop(&self) -> Option<Operation> {
        self.waiting.lock().pop().map(Operation::new)
    }
}

#[pinned_drop]
impl PinnedDrop for OperationQueue {
    fn drop(self: Pin<&mut Self>) {
        // Dropping an operation answers it.
        while self.pop().is_some() {}
    }
}
