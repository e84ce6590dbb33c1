// SPDX-License-Identifier: GPL-2.0

//! How a node stays a member: what it tells others of itself and of those that it knows.

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
    now_us,
    peers::{
        Peers,
        Table, //
    },
    resolvers::Resolvers, //
};
use crate::proto::cache::{
    address::{
        Address,
        NodeId,
        Port, //
    },
    counter::Counter,
    gossip::{
        Gossip,
        BODY_LEN_MAX, //
    },
    members::Outgoing,
    wire::{
        self,
        Datagram,
        Head,
        Key,
        Kind,
        DATAGRAM_LEN_MAX, //
    }, //
};

/// The longest time between two looks at what is due, in microseconds.
const LOOK_US: u64 = 1_000_000;

/// A message that is ready to be sent.
#[derive(Clone)]
struct Sealed {
    to: Address,
    bytes: [u8; DATAGRAM_LEN_MAX],
    len: usize,
}

impl Sealed {
    fn new(
        table: &mut Table,
        key: &Key,
        kind: Kind,
        to: (Address, Option<NodeId>),
        body: &[u8],
    ) -> Option<Self> {
        let (address, node) = to;
        let head = Head {
            kind,
            from: table.me().node,
            to: node,
            sequence: table.next_sequence(node, now_us()),
        };
        let mut bytes = [0; DATAGRAM_LEN_MAX];
        let len = wire::seal(&head, body, key, &mut bytes)?;
        Some(Self {
            to: address,
            bytes,
            len,
        })
    }

    fn send<I: Incoming>(&self, endpoint: &Endpoint<I>) {
        if let Some(bytes) = self.bytes.get(..self.len) {
            // One that cannot be sent is as good as lost, which happens.
            let _ = endpoint.send(&self.to, bytes);
        }
    }
}

/// Probes other nodes, and answers them.
#[pin_data]
pub(crate) struct Membership<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    pub(super) peers: Arc<Peers>,
    key: Key,
    queue: WorkQueue,
    /// They look up the addresses of messages that are to be sent.
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
        key: Key,
    ) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_members", flags, 1)?;
        let resolvers = Resolvers::new()?;
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peers: peers.clone(),
                key,
                queue,
                resolvers,
                is_over: AtomicBool::new(false),
                work <- new_delayed_work!("Membership::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a worker look at what is due. Any context.
    pub(crate) fn look(self: &Arc<Self>) {
        if !self.is_over.load(Relaxed) {
            workqueue::mod_delayed::<_, 0>(self.clone(), 0);
        }
    }

    /// Greets a node that does not know this one yet: it takes no request of a stranger. Sleeps.
    // A frame of its own, which ends before the answer is waited for.
    #[inline(never)]
    pub(super) fn introduce(&self, node: NodeId) {
        let (mut body, number) = ([0; BODY_LEN_MAX], random::number());
        let sealed = self.peers.with(|table| {
            let hello = table.introduce(node, now_us(), number, &mut body)?;
            self.seal_hello(table, &hello)
        });
        // The greeting is to come before the request, so it does not wait for another worker.
        if let Some(sealed) = sealed {
            sealed.send(&self.endpoint);
        }
    }

    fn seal_hello(&self, table: &mut Table, hello: &Outgoing<'_>) -> Option<Sealed> {
        let to = (hello.to, hello.node);
        Sealed::new(table, &self.key, Kind::Hello, to, hello.body)
    }

    /// Sends a message, or has a worker send it that looks its address up; returns `false` if all
    /// look up other ones.
    fn send(&self, message: &Sealed) -> bool {
        if self.endpoint.knows(&message.to) {
            message.send(&self.endpoint);
            return true;
        }
        let (endpoint, message) = (self.endpoint.clone(), message.clone());
        let (to, work) = (message.to, move || message.send(&endpoint));
        self.resolvers.spawn(to, work)
    }

    /// Sends what is due, and returns when to look again. Sleeps.
    fn poll(&self) -> u64 {
        loop {
            let (mut body, number) = ([0; BODY_LEN_MAX], random::number());
            let (sealed, due_us) = self.peers.with(|table| {
                let hello = table.poll(now_us(), number, &mut body);
                let sealed =
                    hello.and_then(|hello| Some((self.seal_hello(table, &hello)?, hello.is_lost)));
                (sealed, table.due_us())
            });
            match sealed {
                Some((sealed, is_lost)) => {
                    if is_lost {
                        self.endpoint.forget(&sealed.to);
                    }
                    if !self.send(&sealed) && !self.is_over.load(Relaxed) {
                        // All workers look addresses up: so does this one.
                        sealed.send(&self.endpoint);
                    }
                }
                None => return due_us,
            }
        }
    }

    /// Takes a message of another node, which has the key, and answers it.
    pub(crate) fn heard(self: &Arc<Self>, datagram: &Datagram<'_>, from: Port, qpn: u32) {
        let dropped = |why| self.endpoint.counters().dropped(why);
        let Ok(gossip) = Gossip::parse(datagram.body, datagram.head.from) else {
            dropped(Counter::DroppedBody);
            return;
        };
        let names_me = datagram.head.to == Some(self.peers.me().node);
        match datagram.head.kind {
            Kind::Hello => {
                let mut body = [0; BODY_LEN_MAX];
                let answer = self.peers.with(|table| {
                    let source = (from, qpn);
                    let body = table.hello(&gossip, source, names_me, now_us(), &mut body);
                    let sender = gossip.sender();
                    let to = (sender.address, Some(sender.node));
                    let seal = |body: &[u8]| Sealed::new(table, &self.key, Kind::Members, to, body);
                    body.map(|body| body.and_then(seal))
                });
                match answer {
                    // One that no worker can send is as good as lost.
                    Ok(Some(answer)) => drop(self.send(&answer)),
                    Ok(None) => {}
                    Err(why) => dropped(Counter::from(why)),
                }
            }
            Kind::Members if names_me => {
                // What answers no probe changes nothing.
                if let Err(why) = self.peers.with(|table| table.members(&gossip, now_us())) {
                    dropped(why.into());
                }
            }
            _ => {
                dropped(Counter::DroppedReceiver);
                return;
            }
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
