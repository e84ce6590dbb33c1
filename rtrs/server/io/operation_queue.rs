// SPDX-License-Identifier: GPL-2.0

//! Operations that a service cannot serve at once.

use kernel::prelude::*;
use kernel_ext::{
    new_irq_lock,
    sync::IrqLock, //
};

use crate::server::io::{
    operation::Operation,
    send_queue::RequestList, //
};

/// Operations in the order in which they came.
///
/// It takes any number of them and allocates nothing: each carries the link to the next. A session
/// has one operation for each chunk, so that is the most that it can hold. Operations that are left
/// when it is dropped are answered with `EIO`.
#[pin_data(PinnedDrop)]
pub struct OperationQueue {
    #[pin]
    waiting: IrqLock<RequestList>,
}

impl OperationQueue {
    /// An empty queue.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            waiting <- new_irq_lock!(RequestList::new(), "OperationQueue::waiting"),
        })
    }

    /// Appends `operation`. Any context.
    pub fn push(&self, operation: Operation) {
        if let Some(context) = operation.into_slot() {
            self.waiting.lock().push(context);
        }
    }

    /// Takes the operation that came first. Any context.
    pub fn pop(&self) -> Option<Operation> {
        self.waiting.lock().pop().map(Operation::new)
    }
}

#[pinned_drop]
impl PinnedDrop for OperationQueue {
    fn drop(self: Pin<&mut Self>) {
        // An operation that is dropped is answered.
        while self.pop().is_some() {}
    }
}
