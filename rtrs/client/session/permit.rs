// SPDX-License-Identifier: GPL-2.0

//! The chunk ids of admin messages, which wait for one another. IO brings its own: block tags.

use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    new_wait_queue,
    sync::WaitQueue, //
};

/// Which of a session's admin ids are taken.
#[pin_data]
pub(crate) struct AdminIds {
    /// One bit an id; `proto::permit` has at most 8.
    taken: AtomicU32,
    #[pin]
    freed: WaitQueue,
}

impl AdminIds {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken: AtomicU32::new(0),
            freed <- new_wait_queue!("AdminIds::freed"),
        })
    }

    /// Takes the lowest free id below `count`.
    fn try_take(&self, count: u16) -> Option<u16> {
        (0..count.min(31)).find(|id| {
            let bit = 1u32.wrapping_shl((*id).into());
            self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0
        })
    }

    fn give_back(&self, id: u16) {
        let bit = 1u32.wrapping_shl(id.into());
        self.taken.fetch_and(!bit, Ordering::AcqRel);
        self.freed.wake_all();
    }
}

/// An admin id that is in use. It belongs to the message under way, not to the one who waits for
/// its answer: after a timeout it stays taken until the answer comes or the path goes away.
pub(crate) struct AdminPermit {
    ids: Arc<AdminIds>,
    id: u16,
}

impl AdminPermit {
    /// Takes one of the lowest `count` ids; waits for it at most `timeout_ms`, sleeps, and can be
    /// killed.
    pub(crate) fn take(ids: &Arc<AdminIds>, count: u16, timeout_ms: u32) -> Result<Self> {
        let mut taken = None;
        ids.freed.wait_until_killable_timeout_ms(
            || {
                taken = ids.try_take(count);
                taken.is_some()
            },
            timeout_ms,
        )?;
        // The condition has held.
        let id = taken.ok_or(EBUSY)?;
        Ok(Self {
            ids: ids.clone(),
            id,
        })
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        self.ids.give_back(self.id);
    }
}
