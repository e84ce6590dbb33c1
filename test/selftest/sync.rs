// SPDX-License-Identifier: GPL-2.0

//! Tests of the module `sync`.

use super::check;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use kernel_ext::{
    cpu::irqs_disabled,
    sync::{
        new_irq_lock,
        new_rw_sem,
        new_wait_queue,
        BoxCell,
        Completion,
        Global,
        GraceArc,
        Handoff,
        IrqLock,
        LentBox,
        Loans,
        RcuArc,
        RwSem,
        SetOnce,
        Users,
        WaitQueue, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

/// Checks the three states and their transitions.
pub(super) fn handoff() -> Result {
    let slot = Handoff::new(1u32);
    check(slot.claim().is_none(), "a free slot cannot be claimed")?;
    let mut held = slot.acquire().ok_or(EINVAL)?;
    check(slot.acquire().is_none(), "a held slot cannot be acquired")?;
    check(slot.claim().is_none(), "a held slot cannot be claimed")?;
    *held += 1;
    held.arm();
    check(slot.is_armed() && !slot.is_free(), "an armed slot is armed")?;
    check(slot.acquire().is_none(), "an armed slot cannot be acquired")?;
    let held = slot.claim().ok_or(EINVAL)?;
    check(
        slot.claim().is_none(),
        "a claimed slot cannot be claimed again",
    )?;
    check(*held == 2, "the value is that of the one before")?;
    drop(held);
    check(slot.is_free(), "a slot that was let go is free")
}

/// Checks that a response and an event end a request in either order, and that the second one gets
/// the value.
pub(super) fn handoff_note() -> Result {
    let slot = Handoff::new(1u32);
    check(slot.signal().is_none(), "a free slot forgets an event")?;
    slot.acquire().ok_or(EINVAL)?.arm();
    check(slot.signal().is_none(), "the event first: it gets nothing")?;
    let (held, signaled) = slot.claim_signaled().ok_or(EINVAL)?;
    check(signaled, "the answer second: it knows of the event")?;
    drop(held);

    slot.acquire().ok_or(EINVAL)?.arm();
    let (held, signaled) = slot.claim_signaled().ok_or(EINVAL)?;
    check(!signaled, "the answer first")?;
    check(held.await_signal().is_none(), "it waits for the event")?;
    check(
        slot.claim_signaled().is_none(),
        "a second answer gets nothing",
    )?;
    let held = slot.signal().ok_or(EINVAL)?;
    check(slot.signal().is_none(), "the event is taken once")?;
    drop(held);

    slot.acquire().ok_or(EINVAL)?.arm();
    let (held, _) = slot.claim_signaled().ok_or(EINVAL)?;
    check(!held.was_signaled(), "there was no event")?;
    check(slot.signal().is_none(), "a held slot is not taken")?;
    check(held.was_signaled(), "its holder can see the event")?;
    let held = held.await_signal().ok_or(EINVAL)?;
    check(held.await_signal().is_none(), "a note counts once")?;
    drop(slot.claim().ok_or(EINVAL)?);
    check(slot.is_free(), "a teardown ends what waits")
}

/// Checks that a value is set once and dropped once.
pub(super) fn set_once() -> Result {
    let drops = Arc::new((), GFP_KERNEL)?;
    let cell = SetOnce::new();
    check(cell.as_ref().is_none(), "nothing is set at first")?;
    check(cell.populate(drops.clone()), "the first value is taken")?;
    check(!cell.populate(drops.clone()), "the second is not")?;
    check(
        cell.as_ref().is_some_and(|set| Arc::ptr_eq(set, &drops)),
        "the value is found",
    )?;
    drop(cell);
    check(
        Arc::into_unique_or_drop(drops).is_some(),
        "the value was dropped with the cell",
    )
}

/// Checks that a box is taken once.
pub(super) fn box_cell() -> Result {
    let cell = BoxCell::new(KBox::new(7u32, GFP_KERNEL)?);
    let parked = cell.take().ok_or(EINVAL)?;
    check(
        cell.take().is_none() && cell.is_empty(),
        "a box is taken once",
    )?;
    check(cell.put(parked).is_ok(), "an empty place takes a box")?;
    let second = cell.put(KBox::new(8, GFP_KERNEL)?);
    check(
        second.is_err_and(|second| *second == 8),
        "a taken place gives the box back",
    )?;
    check(
        BoxCell::<u32>::empty().take().is_none(),
        "an empty place is empty",
    )
}

/// Checks that interrupts are off exactly while the lock is held.
pub(super) fn irq_lock() -> Result {
    #[pin_data]
    struct Locked {
        #[pin]
        value: IrqLock<u32>,
    }
    let init = pin_init!(Locked {
        value <- new_irq_lock!(1, "selftest")
    });
    let locked = KBox::pin_init(init, GFP_KERNEL)?;
    let mut guard = locked.value.lock();
    *guard += 1;
    check(
        locked.value.try_lock().is_none(),
        "a held lock cannot be taken",
    )?;
    let off = irqs_disabled();
    drop(guard);
    check(off, "interrupts are off under the lock")?;
    check(!irqs_disabled(), "interrupts are on after the lock")?;
    check(
        locked.value.try_lock().is_some_and(|guard| *guard == 2),
        "a free lock is taken",
    )?;
    check(
        !irqs_disabled(),
        "interrupts are on after the lock that was tried",
    )?;
    let other = KBox::pin_init(new_irq_lock!((), "selftest"), GFP_KERNEL)?;
    let (first, second) = (locked.value.lock(), other.lock());
    drop(first);
    let off = irqs_disabled();
    drop(second);
    check(off, "interrupts are off until the last guard is dropped")?;
    check(!irqs_disabled(), "interrupts are on after both")
}

/// Checks that two tasks read at a time, and that who writes does so alone.
pub(super) fn rw_sem() -> Result {
    #[pin_data]
    struct Shared {
        #[pin]
        value: RwSem<u32>,
        #[pin]
        read: Completion,
        #[pin]
        written: Completion,
    }
    let init = pin_init!(Shared {
        value <- new_rw_sem!(1, "selftest"),
        read <- Completion::new(),
        written <- Completion::new(),
    });
    let shared = Arc::pin_init(init, GFP_KERNEL)?;
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::UNBOUND, 0)?;
    let (reader, writer) = (shared.clone(), shared.clone());
    let reading = shared.value.read();
    queue.try_spawn(GFP_KERNEL, move || {
        if *reader.value.read() == 1 {
            reader.read.complete_all();
        }
    })?;
    shared.read.wait_timeout_ms(10_000)?;
    queue.try_spawn(GFP_KERNEL, move || {
        *writer.value.write() += 1;
        writer.written.complete_all();
    })?;
    fsleep(Delta::from_millis(20));
    check(
        *reading == 1 && !shared.written.is_done(),
        "who writes waits for those that read",
    )?;
    drop(reading);
    shared.written.wait_timeout_ms(10_000)?;
    let written = *shared.value.read();
    check(written == 2, "what was written is read")
}

/// Checks that the value persists between locks.
pub(super) fn global() -> Result {
    static LIST: Global<KVec<u32>> = Global::new(KVec::new());
    LIST.lock().push(1, GFP_KERNEL)?;
    LIST.lock().push(2, GFP_KERNEL)?;
    let list = core::mem::take(&mut *LIST.lock());
    check(list.iter().sum::<u32>() == 3, "a global keeps its value")
}

/// Checks that readers see the current value.
pub(super) fn rcu_arc() -> Result {
    static EMPTY: RcuArc<u32> = RcuArc::empty();
    check(EMPTY.get().is_none(), "an empty one is empty")?;
    let arc = RcuArc::new(Some(Arc::new(1u32, GFP_KERNEL)?));
    let kept = arc.get().ok_or(EINVAL)?;
    let guard = rcu::read_lock();
    let seen = arc.read(&guard) == Some(&1);
    drop(guard);
    check(seen, "a reader sees the value")?;
    let old = arc.replace(Some(Arc::new(2, GFP_KERNEL)?));
    check(
        old.is_some_and(|old| *old == 1) && *kept == 1,
        "the old value comes back",
    )?;
    check(
        arc.get_with(&rcu::read_lock()).is_some_and(|new| *new == 2),
        "the new one is seen",
    )
}

/// Checks that a section of RCU can use what it has given away the reference to.
pub(super) fn grace_arc() -> Result {
    let arc = GraceArc::new(1u32)?;
    let other = arc.clone();
    let guard = rcu::read_lock();
    let value = other.under(&guard);
    drop(other);
    let seen = *value == 1;
    drop(guard);
    check(seen && *arc == 1, "the value stays")
}

/// Checks that the drop of a box waits for what was lent.
pub(super) fn lent_box() -> Result {
    let number = LentBox::new(AtomicU32::new(0))?;
    let seen = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::UNBOUND, 0)?;
    let (loan, its_end) = (number.lend(), seen.clone());
    queue.try_spawn(GFP_KERNEL, move || {
        fsleep(Delta::from_millis(50));
        its_end.store(loan.load(Ordering::Relaxed), Ordering::Relaxed);
        drop(loan);
    })?;
    number.lend().store(7, Ordering::Relaxed);
    let mut loans = Loans::new();
    let put = [number.lend(), number.lend()].map(|loan| loans.put(loan).is_ok());
    check(put == [true, true], "loans are put by")?;
    check(loans.take().is_some(), "and taken")?;
    drop(loans);
    drop(number);
    check(seen.load(Ordering::Relaxed) == 7, "it waits for the end")
}

/// Checks timeouts, and completion by another thread.
pub(super) fn completion() -> Result {
    let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
    check(done.wait_timeout_ms(10) == Err(ETIMEDOUT), "it times out")?;
    check(
        done.wait_killable_timeout_ms(10) == Err(ETIMEDOUT),
        "it times out, killable",
    )?;
    let other = done.clone();
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::UNBOUND, 0)?;
    queue.try_spawn(GFP_KERNEL, move || other.complete_all())?;
    done.wait_killable_timeout_ms(10_000)?;
    done.wait();
    done.wait_killable()?;
    check(done.is_done(), "it is done")?;
    done.reinit();
    check(!done.is_done(), "it is not done any more")
}

/// Checks timeouts, and a condition that another thread makes true.
pub(super) fn wait_queue() -> Result {
    #[pin_data]
    struct Gate {
        open: AtomicBool,
        looks: AtomicU32,
        #[pin]
        queue: WaitQueue,
    }
    let init = pin_init!(Gate {
        open: AtomicBool::new(false),
        looks: AtomicU32::new(0),
        queue <- new_wait_queue!("selftest"),
    });
    let gate = Arc::pin_init(init, GFP_KERNEL)?;
    let is_open = || {
        gate.looks.fetch_add(1, Ordering::Relaxed);
        gate.open.load(Ordering::Acquire)
    };
    check(
        gate.queue.wait_until_timeout_ms(is_open, 10) == Err(ETIMEDOUT),
        "it times out",
    )?;
    check(
        gate.looks.load(Ordering::Relaxed) < 10,
        "a waiter does not spin",
    )?;
    let other = gate.clone();
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::UNBOUND, 0)?;
    queue.try_spawn(GFP_KERNEL, move || {
        other.open.store(true, Ordering::Release);
        other.queue.wake_all();
    })?;
    gate.queue.wait_until_killable_timeout_ms(is_open, 10_000)?;
    gate.queue.wait_until_killable(is_open)?;
    gate.queue.wait_until(is_open);
    Ok(())
}

/// Checks that no use goes on when a close returns, while two others come and go.
pub(super) fn users() -> Result {
    const ROUNDS: usize = 40;
    struct Round {
        users: Users,
        is_over: AtomicBool,
    }
    let mut rounds = KVec::with_capacity(ROUNDS, GFP_KERNEL)?;
    for _ in 0..ROUNDS {
        let (users, is_over) = (Users::new()?, AtomicBool::new(false));
        rounds.push(Round { users, is_over }, GFP_KERNEL)?;
    }
    let rounds = Arc::new(rounds, GFP_KERNEL)?;
    let came = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    let late = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::UNBOUND, 0)?;
    for _ in 0..2 {
        let (rounds, came, late) = (rounds.clone(), came.clone(), late.clone());
        let visit = move |round: &Round| {
            let Some(_user) = round.users.enter() else {
                return false;
            };
            came.fetch_add(1, Ordering::Relaxed);
            let is_over = round.is_over.load(Ordering::Relaxed);
            late.fetch_add(is_over.into(), Ordering::Relaxed);
            true
        };
        queue.try_spawn(GFP_KERNEL, move || {
            for round in rounds.iter() {
                while (0..50).all(|_| visit(round)) {
                    // A machine may have one processor.
                    fsleep(Delta::from_micros(1));
                }
            }
        })?;
    }
    for round in rounds.iter() {
        let before = came.load(Ordering::Relaxed);
        for _ in 0..100 {
            if came.load(Ordering::Relaxed) != before {
                break;
            }
            fsleep(Delta::from_micros(50));
        }
        round.users.close();
        round.is_over.store(true, Ordering::Relaxed);
    }
    drop(queue);
    check(came.load(Ordering::Relaxed) != 0, "somebody came in")?;
    check(
        late.load(Ordering::Relaxed) == 0,
        "no use goes on in what is closed",
    )
}
