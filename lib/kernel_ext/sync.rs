// SPDX-License-Identifier: GPL-2.0

//! Synchronisation primitives that `kernel::sync` lacks.

pub mod atomic;
pub mod box_cell;
pub mod completion;
pub mod global;
pub mod grace_arc;
pub mod handoff;
pub mod irq_lock;
pub mod lent_box;
pub mod rcu_arc;
pub mod rcu_lent;
pub mod rw_sem;
pub mod set_once;
pub mod turns;
pub mod users;
pub mod wait_queue;

pub use box_cell::BoxCell;
pub use completion::{CompleteOnDrop, Completion};
pub use global::{Global, GlobalGuard};
pub use grace_arc::GraceArc;
pub use handoff::{Handoff, Held};
pub use irq_lock::{IrqLock, IrqLockGuard};
pub use lent_box::{Lent, LentBox, Loans};
pub use rcu_arc::RcuArc;
pub use rcu_lent::RcuLent;
pub use rw_sem::RwSem;
pub use set_once::SetOnce;
pub use turns::{Turn, Turns};
pub use users::{User, Users};
pub use wait_queue::WaitQueue;

pub use crate::{
    new_irq_lock,
    new_rw_sem,
    new_turns,
    new_wait_queue, //
};

/// Waits for an RCU grace period. Sleeps.
///
/// C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)
pub fn synchronize_rcu() {
    // SAFETY: The called function has no safety requirements; the caller may sleep.
    unsafe { kernel::bindings::synchronize_rcu() };
}
