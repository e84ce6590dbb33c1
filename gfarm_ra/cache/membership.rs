// SPDX-License-Identifier: GPL-2.0

//! The membership of a node: what it tells others of itself and of those that it knows.

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};
use kernel_ext::{
    memory,
    random,
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    },
    workqueue::{
        self,
        DelayedItem,
        Flags,
        WorkQueue, //
    }, //
};

use super::{
    endpoint::{
        Endpoint,
        Incoming, //
    },
    message_pool::{
        Message, //
        MessageMemory,
        MessagePool,
    },
    now_us,
    peers::{
        Peers,
        Table, //
    },
    resolvers::Resolvers,
    secret::Secret, //
};
use crate::proto::cache::{
    address::{
        NodeId,
        Port, //
    },
    counter::Counter,
    gossip::Gossip,
    members::Outgoing,
    wire::Kind, //
};

/// The longest time between two looks at what is due, in microseconds.
const LOOK_US: u64 = 1_000_000;

/// Probes other nodes, and answers them.
#[pin_data]
pub(crate) struct Membership<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    pub(super) peers: Arc<Peers>,
    secret: Arc<Secret>,
    queue: WorkQueue,
    pool: Arc<MessagePool>,
    /// The workers that look up the addresses of messages to send.
    resolvers: Arc<Resolvers>,
    is_over: AtomicBool,
    #[pin]
    work: DelayedWork<Self>,
}

impl_has_delayed_work! {
    impl{I: Incoming} HasDelayedWork<Self> for Membership<I> { self.work }
}

impl<I: Incoming> WorkItem for Membership<I> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.is_over.load(Relaxed) {
            return;
        }
        let due_us = memory::without_io(|| {
            this.endpoint.restart_failed();
            this.poll()
        });
        let delay_us = due_us.saturating_sub(now_us()).min(LOOK_US);
        // CAST: At most a thousand.
        let delay_ms = delay_us.div_ceil(1000) as u32;
        // It is queued already if something has come meanwhile.
        let _ = workqueue::queue_delayed::<_, 0>(this, delay_ms);
    }
}

impl<I: Incoming> DelayedItem for Membership<I> {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

impl<I: Incoming> Membership<I> {
    /// Makes it. The first [`look`](Self::look) begins it. Sleeps.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<I>>,
        peers: &Arc<Peers>,
        secret: &Arc<Secret>,
    ) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_members", flags, 1)?;
        let (pool, resolvers) = (MessagePool::new()?, Resolvers::new()?);
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peers: peers.clone(),
                secret: secret.clone(),
                queue,
                pool,
                resolvers,
                is_over: AtomicBool::new(false),
                work <- new_delayed_work!("Membership::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets a worker look at what is due. Any context.
    pub(crate) fn look(self: &Arc<Self>) {
        if !self.is_over.load(Relaxed) {
            workqueue::mod_delayed::<_, 0>(self.clone(), 0);
        }
    }

    /// Greets a node that does not know this one yet: it takes no request of a stranger. Sleeps.
    pub(super) fn introduce(&self, node: NodeId) {
        if !self.peers.with(|table| table.is_stranger(node)) {
            return;
        }
        let (Some(memory), number) = (self.message_memory(), random::number()) else {
            return;
        };
        let greeting = self.peers.with(|table| {
            memory.seal(table, self.secret.key(), Kind::Hello, |table, body| {
                table.introduce(node, now_us(), number, body)
            })
        });
        // The greeting is to come before the request, so it does not wait for another worker.
        if let Some(greeting) = greeting {
            Self::send_at_once(&self.endpoint, &greeting);
        }
    }

    /// Returns memory for a message. One for which there is none is as good as lost.
    fn message_memory(&self) -> Option<MessageMemory> {
        let memory = self.pool.take();
        if memory.is_none() {
            let counters = self.endpoint.counters();
            counters.add(Counter::DroppedMemory, 1);
        }
        memory
    }

    /// Sends a message where its address is known, or has to be looked up by the caller. Sleeps.
    fn send_at_once(endpoint: &Endpoint<I>, message: &Message) {
        // One that cannot be sent is as good as lost.
        let _ = endpoint.send(&message.to(), message.bytes());
    }

    /// Sends a message, or has a worker send it that looks its address up. If all look up other
    /// ones the caller does, or, unless it `may_wait`, the message is lost. Sleeps.
    fn send(&self, message: Message, may_wait: bool) {
        if self.endpoint.knows(&message.to()) {
            return Self::send_at_once(&self.endpoint, &message);
        }
        let (endpoint, to) = (self.endpoint.clone(), message.to());
        let work = move || Self::send_at_once(&endpoint, &message);
        if let Err(work) = self.resolvers.spawn(to, work) {
            if may_wait && !self.is_over.load(Relaxed) {
                work();
            }
        }
    }

    /// Sends what is due, and returns when to look again. Sleeps.
    fn poll(&self) -> u64 {
        loop {
            let (Some(memory), number) = (self.message_memory(), random::number()) else {
                return now_us().saturating_add(LOOK_US);
            };
            let (message, due_us) = self.peers.with(|table| {
                let message = memory.seal(table, self.secret.key(), Kind::Hello, |table, body| {
                    table.poll(now_us(), number, body)
                });
                (message, table.due_us())
            });
            let Some(message) = message else {
                return due_us;
            };
            if message.is_lost() {
                self.endpoint.forget(&message.to());
            }
            self.send(message, true);
        }
    }

    /// Takes an answer to a greeting; returns whether it is one.
    pub(crate) fn answered(self: &Arc<Self>, gossip: &Gossip<'_>) -> bool {
        // What answers no probe changes nothing.
        let told = self.peers.with(|table| table.members(gossip, now_us()));
        if let Err(why) = told {
            self.endpoint.counters().dropped(why.into());
        }
        self.look();
        told.is_ok()
    }

    /// Answers a node that greets this one; `number` is that of the datagram, if it names this one.
    pub(crate) fn greeted(
        self: &Arc<Self>,
        gossip: &Gossip<'_>,
        source: (Port, u32),
        number: Option<u64>,
    ) {
        let Some(memory) = self.message_memory() else {
            return;
        };
        let mut told = Ok(());
        let answer = self.peers.with(|table| {
            memory.seal(table, self.secret.key(), Kind::Members, |table, body| {
                let answer = table.hello(gossip, source, number, now_us(), body);
                let body = answer.unwrap_or_else(|why| {
                    told = Err(why);
                    None
                })?;
                let sender = gossip.sender();
                Some(Outgoing {
                    to: sender.address,
                    node: Some(sender.node),
                    is_lost: false,
                    body,
                })
            })
        });
        if let Err(why) = told {
            self.endpoint.counters().dropped(Counter::from(why));
        }
        if let Some(answer) = answer {
            self.send(answer, false);
        }
        self.look();
    }

    /// Tells some nodes that this one leaves. Sleeps.
    pub(crate) fn leave(self: &Arc<Self>) {
        self.end();
        self.peers.with(Table::leave);
        self.poll();
    }

    /// Ends it: no worker looks any more, if nothing is heard any more. Sleeps.
    pub(crate) fn end(self: &Arc<Self>) {
        self.is_over.store(true, Relaxed);
        drop(workqueue::cancel_delayed_sync::<_, 0>(self));
        self.resolvers.end();
    }
}
