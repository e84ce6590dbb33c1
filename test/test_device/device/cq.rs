// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{
    network::Network,
    qp::Qp, //
};
use crate::proto::{
    counts::Counter,
    engine::cpu_of,
    fault::Place,
    ring::Ring, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    cpu::num_online_cpus,
    sync::{
        new_irq_lock,
        IrqLock, //
    },
    workqueue, //
};
use verbs_provider::{
    Completion,
    CqHandle, //
};

/// A completion, and the number of sends whose places in their queue it frees.
struct Entry {
    qp: Arc<Qp>,
    completion: Completion,
    frees: u32,
}

/// The completions that the consumer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    /// Completions for which the peer has asked, and errors.
    Solicited,
    Any,
}

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    handle: Arc<CqHandle>,
    network: Arc<Network>,
    vector: u32,
    /// The CPU that serves the vector.
    cpu: u32,
    #[pin]
    queue: IrqLock<Queue>,
    /// Notifies the consumer, on `cpu`.
    #[pin]
    interrupt: Work<Cq>,
}

impl_has_work! {
    impl HasWork<Self> for Cq { self.interrupt }
}

impl WorkItem for Cq {
    type Pointer = Arc<Cq>;

    fn run(this: Arc<Cq>) {
        this.handle.notify();
        this.count(Passed::Told);
    }
}

/// A kind of event at a completion vector that is counted.
#[derive(Clone, Copy)]
pub(super) enum Passed {
    /// Notifications of the consumer.
    Told,
    /// Ends of a connection's receives, which the consumer has taken.
    Taken,
}

struct Queue {
    ring: Ring,
    /// An entry for each place of the ring.
    entries: KVec<Option<Entry>>,
    armed: Armed,
    is_overrun: bool,
}

impl Queue {
    /// Returns whether the first completion is kept back. A device that fails keeps none.
    fn is_held(&self) -> bool {
        let place = self.ring.first();
        let first = place.and_then(|place| self.entries.get(place)?.as_ref());
        first.is_some_and(|Entry { qp, completion, .. }| {
            completion.completed.is_receive()
                && qp.lasting_fault(Place::Poll).is_some()
                && qp.network.check_alive().is_ok()
        })
    }
}

impl Cq {
    pub(super) fn new(
        handle: Arc<CqHandle>,
        network: Arc<Network>,
        entries: u32,
        vector: u32,
    ) -> Result<Arc<Self>> {
        let places = usize::try_from(entries).map_err(|_| EINVAL)?;
        let mut list = KVec::with_capacity(places, GFP_KERNEL)?;
        for _ in 0..places {
            list.push(None, GFP_KERNEL)?;
        }
        let cpu = cpu_of(vector, num_online_cpus());
        Arc::pin_init(
            pin_init!(Self {
                handle,
                network,
                vector,
                cpu,
                queue <- new_irq_lock!(Queue {
                    ring: Ring::new(places),
                    entries: list,
                    armed: Armed::No,
                    is_overrun: false,
                }),
                interrupt <- new_work!("rdma_test_device::Cq::interrupt"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a completion and notifies the consumer if it waits for one. One that finds the queue
    /// full is lost.
    pub(super) fn push(self: &Arc<Self>, qp: Arc<Qp>, completion: Completion, solicited: bool) {
        qp.count(match completion.completed.is_receive() {
            true => Counter::ReceiveCompletions,
            false => Counter::SendCompletions,
        });
        let consumer = qp.clone();
        let frees = match completion.completed.is_receive() {
            true => 0,
            false => qp.inner.lock().report(),
        };
        let mut queue = self.queue.lock();
        let queue_ref = &mut *queue;
        let place = queue_ref.ring.push();
        match place.and_then(|place| queue_ref.entries.get_mut(place)) {
            Some(entry) => {
                *entry = Some(Entry {
                    qp,
                    completion,
                    frees,
                })
            }
            None => {
                drop(queue);
                self.overrun();
                return;
            }
        }
        let wakes = match queue_ref.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => solicited || completion.status != 0,
        };
        if wakes {
            queue_ref.armed = Armed::No;
        }
        drop(queue);
        if wakes {
            consumer.count(Counter::Events);
            self.interrupt();
        }
    }

    /// Notifies the consumer on the CPU of the vector.
    fn interrupt(self: &Arc<Self>) {
        if self.handle.notify_on(self.cpu) {
            // This thread may be on another CPU by now.
            self.network
                .count_of_vector(self.vector, Passed::Told, true);
            return;
        }
        // If it is queued already, that notification is still to come.
        let work = &self.network.interrupts;
        let _ = work.enqueue_on::<_, 0>(self.cpu, self.clone());
    }

    /// Counts what the current CPU does for the vector.
    fn count(&self, what: Passed) {
        let is_own = CpuId::current().as_u32() == self.cpu;
        self.network.count_of_vector(self.vector, what, is_own);
    }

    /// Ends its notifications.
    pub(super) fn close(self: &Arc<Self>) {
        drop(workqueue::cancel_sync::<_, 0>(self));
    }

    /// Tells the consumer, once, that a completion is lost.
    pub(super) fn overrun(&self) {
        let was_overrun = core::mem::replace(&mut self.queue.lock().is_overrun, true);
        if !was_overrun {
            pr_err!("a completion queue is full: completions are lost\n");
            self.handle.report_overrun();
        }
    }

    /// Takes the first completion that is not of a closed queue pair.
    pub(super) fn poll(&self) -> Option<(Arc<Qp>, Completion)> {
        let mut queue = self.queue.lock();
        if queue.is_held() {
            return None;
        }
        loop {
            let place = queue.ring.pop()?;
            let taken = queue.entries.get_mut(place).and_then(Option::take);
            let Some(Entry {
                qp,
                completion,
                frees,
            }) = taken
            else {
                continue;
            };
            if qp.is_connected() && completion.completed.is_receive() {
                self.count(Passed::Taken);
            }
            drop(queue);
            qp.inner.lock().free(frees);
            return Some((qp, completion));
        }
    }

    /// Asks for one notification; returns whether completions are there.
    pub(super) fn arm(&self, solicited: bool) -> bool {
        let mut queue = self.queue.lock();
        if !solicited {
            queue.armed = Armed::Any;
        } else if queue.armed == Armed::No {
            queue.armed = Armed::Solicited;
        }
        !queue.ring.is_empty() && !queue.is_held()
    }

    /// Notifies a consumer that waits of completions that were kept back.
    pub(super) fn release(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        let wakes = !queue.ring.is_empty() && queue.armed != Armed::No;
        if wakes {
            queue.armed = Armed::No;
        }
        drop(queue);
        if wakes {
            self.interrupt();
        }
    }

    /// Removes the completions of a queue pair.
    pub(super) fn purge(&self, qp: &Arc<Qp>) {
        let mut index = 0;
        loop {
            let mut queue = self.queue.lock();
            let Some(place) = queue.ring.nth(index) else {
                return;
            };
            let entry = queue.entries.get_mut(place);
            let removed = entry.and_then(|entry| entry.take_if(|entry| Arc::ptr_eq(&entry.qp, qp)));
            drop(queue);
            drop(removed);
            index += 1;
        }
    }
}
