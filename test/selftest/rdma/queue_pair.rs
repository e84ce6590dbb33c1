// SPDX-License-Identifier: GPL-2.0

//! Tests of the end of queue pairs.

use super::{
    super::check,
    *, //
};
use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel_ext::{
    errno::ESHUTDOWN,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

/// Length of each queue.
const DEPTH: u32 = 16;

/// Turns of the test under load.
const TURNS: u32 = 40;

/// Tag of sends; the receives have those below.
const TAG_SEND: u32 = DEPTH;

/// A handler that posts each receive again, as long as it may.
struct Repost {
    memory: MessageBuffers,
    handled: AtomicU32,
    refused: AtomicU32,
    /// The queue pair whose owner the next completion drops; for handlers that may sleep.
    drops: Option<Arc<Held>>,
}

/// A place for the owner of a queue pair.
#[pin_data]
struct Held {
    #[pin]
    qp: Mutex<Option<OwnedQp<Repost>>>,
}

impl Repost {
    fn create(id: &Id, context: PollContext) -> Result<OwnedQp<Self>> {
        let config = QpConfig::new(DEPTH, DEPTH, DEPTH + 1);
        queue_pair(id, &config, context, |pd, _| {
            Ok(Repost {
                memory: MessageBuffers::new(pd, DEPTH + 1, MESSAGE_LEN)?,
                handled: AtomicU32::new(0),
                refused: AtomicU32::new(0),
                drops: match context {
                    PollContext::Direct => Some(Arc::pin_init(
                        pin_init!(Held { qp <- new_mutex!(None) }),
                        GFP_KERNEL,
                    )?),
                    _ => None,
                },
            })
        })
    }

    fn with_receives(id: &Id, context: PollContext) -> Result<OwnedQp<Self>> {
        let qp = Self::create(id, context)?;
        for tag in 0..DEPTH {
            Self::receive(&qp, tag)?;
        }
        Ok(qp)
    }

    fn receive(qp: &Qp<Self>, tag: u32) -> Result {
        qp.post_receive(tag, Some(qp.handler().memory.segment(tag, 0, MESSAGE_LEN)))
    }

    fn send(qp: &Qp<Self>) -> Result {
        let message = qp.handler().memory.segment(TAG_SEND, 0, MESSAGE_LEN);
        qp.send(TAG_SEND, [message], SendFlags::SIGNALED)
    }
}

impl QpHandler for Repost {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(qp: &Qp<Self>, tag: u32, _completion: &WorkCompletion) {
        let this = qp.handler();
        this.handled.fetch_add(1, Relaxed);
        // Flushed or not: a handler that does not look must not do harm.
        let posted = if tag == TAG_SEND {
            Self::send(qp)
        } else {
            Self::receive(qp, tag)
        };
        if posted == Err(ESHUTDOWN) {
            this.refused.fetch_add(1, Relaxed);
        }
        if let Some(held) = &this.drops {
            let owner = held.qp.lock().take();
            drop(owner);
        }
        // It is valid although its owner is gone.
        this.handled.fetch_add(1, Relaxed);
    }
}

/// Posting on a closed queue pair is refused, by its owner and by handlers.
pub(crate) fn closed(address: &SocketAddress) -> Result {
    let (active, _passive) = connect(address, |id| {
        Repost::with_receives(id, PollContext::Workqueue)
    })?;
    active.qp.close()?;
    check(
        Repost::send(&active.qp) == Err(ESHUTDOWN),
        "a send on a closed queue pair is refused",
    )?;
    check(
        Repost::receive(&active.qp, 0) == Err(ESHUTDOWN),
        "a receive on a closed queue pair is refused",
    )?;
    let this = active.qp.handler();
    let refused = this.refused.load(Relaxed);
    check(refused == DEPTH, "the handlers were refused as well")?;
    check(active.qp.close().is_ok(), "it may be closed again")
}

/// A send queue that is full, whose peer posts no receives, is drained.
pub(crate) fn full_send_queue(address: &SocketAddress) -> Result {
    let (active, _passive) = connect(address, |id| Repost::create(id, PollContext::Workqueue))?;
    let mut sends = 0;
    let full = loop {
        match Repost::send(&active.qp) {
            Ok(()) if sends < DEPTH * 8 => sends += 1,
            other => break other,
        }
    };
    check(full == Err(ENOMEM), "a full queue refuses a send")?;
    check(sends >= DEPTH, "it has the length that was asked for")?;
    check(active.qp.close().is_ok(), "a full queue is drained")?;
    let handled = active.qp.handler().handled.load(Relaxed);
    check(handled == sends * 2, "each send has completed")
}

/// Queue pairs are drained while both sides post in their handlers, and are dropped.
///
/// Both are drained before one is dropped: `rxe_resp_queue_pkt()` and `rxe_comp_queue_pkt()` use a
/// queue pair after they have queued the packet that holds its reference, so rxe warns of a queue
/// pair without references if a packet of the peer arrives while it is destroyed.
pub(crate) fn drop_under_load(address: &SocketAddress) -> Result {
    for turn in 0..TURNS {
        let create: Create<Repost> = if turn % 2 == 0 {
            |id| Repost::with_receives(id, PollContext::Workqueue)
        } else {
            |id| Repost::with_receives(id, PollContext::Softirq)
        };
        let (active, passive) = connect(address, create)?;
        for _ in 0..DEPTH / 2 {
            Repost::send(&active.qp)?;
            Repost::send(&passive.qp)?;
        }
        fsleep(Delta::from_millis(i64::from(turn % 5)));
        let (first, second) = if turn % 4 < 2 {
            (active, passive)
        } else {
            (passive, active)
        };
        first.qp.close()?;
        second.qp.close()?;
        drop(first);
        drop(second);
    }
    Ok(())
}

/// A handler drops its own queue pair, whose completions are polled: it stays valid, and is leaked.
pub(crate) fn drop_in_handler(address: &SocketAddress) -> Result {
    let create: Create<Repost> = |id| Repost::with_receives(id, PollContext::Direct);
    let (active, passive) = connect(address, create)?;
    let End { qp, id } = active;
    Repost::send(&qp)?;
    // The pointer of the owner is all that the handler needs.
    let cq = qp.send_cq().clone();
    let held = qp.handler().drops.clone().ok_or(EINVAL)?;
    *held.qp.lock() = Some(qp);
    for _ in 0..100 {
        if held.qp.lock().is_none() {
            break;
        }
        passive.qp.send_cq().poll(u32::MAX);
        cq.poll(1);
        fsleep(Delta::from_millis(10));
    }
    check(held.qp.lock().is_none(), "the handler has run")?;
    drop(id);
    drop(passive);
    // What the leaked queue pair uses is still there.
    cq.poll(u32::MAX);
    Ok(())
}

/// A handler that does not return before it is told to.
#[pin_data]
struct Slow {
    #[pin]
    entered: Completion,
    #[pin]
    go_on: Completion,
}

/// Its completion handler.
struct SlowHandler(Arc<Slow>);

impl QpHandler for SlowHandler {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(qp: &Qp<Self>, _tag: u32, _completion: &WorkCompletion) {
        let this = &qp.handler().0;
        this.entered.complete_all();
        let _ = this.go_on.wait_timeout_ms(STEP_MS * 2);
    }
}

/// A drain that failed, for a handler had not returned, is tried again and succeeds.
pub(crate) fn close_again(address: &SocketAddress) -> Result {
    let create: Create<SlowHandler> = |id| {
        let config = QpConfig::new(DEPTH, DEPTH, 1);
        queue_pair(id, &config, PollContext::Direct, |_, _| {
            let slow = pin_init!(Slow {
                entered <- Completion::new(),
                go_on <- Completion::new(),
            });
            Ok(SlowHandler(Arc::pin_init(slow, GFP_KERNEL)?))
        })
    };
    let (active, _passive) = connect(address, create)?;
    let qp = &active.qp;
    qp.post_receive(0, None)?;
    // Flushed, as `disconnect` moves the queue pair to the error state.
    active.id.disconnect()?;
    let (slow, cq) = (qp.handler().0.clone(), qp.send_cq().clone());
    let queue = WorkQueue::new(c"rdma_test", Flags::UNBOUND, 0)?;
    queue.try_spawn(GFP_KERNEL, move || {
        for _ in 0..100 {
            cq.poll(1);
            fsleep(Delta::from_millis(10));
        }
    })?;
    slow.entered.wait_timeout_ms(STEP_MS)?;
    check(qp.close().is_err(), "a handler is running")?;
    check(qp.pd().drained().is_none(), "its domain is in use")?;
    slow.go_on.complete_all();
    check(qp.close().is_ok(), "the drain is tried again")?;
    let is_drained = qp.pd().drained().is_some();
    check(is_drained, "its domain is not in use any more")
}
