// SPDX-License-Identifier: GPL-2.0

//! The target: its store, its connections and its figures.

mod connection;
mod exchange;
pub(crate) mod store;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    ratelimit::RateLimit,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    },
    sysfs::{
        Attribute,
        ShowBuffer, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    },
};
use rdma::cm::{
    ConnectRequest,
    ListenHandler, //
};

use crate::{
    proto::connect::{
        Hello,
        Welcome, //
    },
    CONNECTIONS_MAX, //
};
use connection::{
    Connection,
    DEPTH, //
};
use store::Store;

/// Lines about what a peer has done wrong.
pub(crate) static LOG_LIMIT: RateLimit = RateLimit::new(5000, 20);
/// Lines about peers that come and go: however many do, what one has done wrong is said.
pub(crate) static EVENT_LIMIT: RateLimit = RateLimit::new(5000, 20);

/// Counts of what the target has done since the module was loaded.
#[derive(Default)]
pub(crate) struct Figures {
    /// Chunks that were written.
    pub(crate) written_chunks: AtomicU64,
    /// Chunks that were read, and were good.
    pub(crate) read_chunks: AtomicU64,
    /// Requests whose data had another checksum.
    pub(crate) bad_payloads: AtomicU64,
    /// Chunks on the medium that a request to read found bad.
    pub(crate) bad_chunks: AtomicU64,
    /// Connections that ended because of what the peer sent.
    pub(crate) violations: AtomicU64,
}

/// The target.
#[pin_data]
pub(crate) struct Target {
    #[pin]
    store: Store,
    figures: Figures,
    /// Ends connections: neither their handlers nor events can.
    queue: WorkQueue,
    #[pin]
    connections: Mutex<Connections>,
}

/// The connections, and whether there may be more.
struct Connections {
    all: KVec<Connection>,
    next_number: u64,
    is_closed: bool,
}

impl Target {
    /// Creates a target without connections. Sleeps.
    pub(crate) fn new(store: impl PinInit<Store>) -> Result<Arc<Self>> {
        let connections = Connections {
            all: KVec::new(),
            next_number: 1,
            is_closed: false,
        };
        let queue = WorkQueue::new(c"crc32_umr_target", Flags::UNBOUND, 0)?;
        Arc::pin_init(
            pin_init!(Self {
                store <- store,
                figures: Figures::default(),
                queue,
                connections <- new_mutex!(connections),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the chunks.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the figures.
    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Ends connection `number` soon, if it is still there. Any process context.
    fn end_later(self: &Arc<Self>, number: u64) {
        let this = self.clone();
        let queued = self.queue.try_spawn(GFP_KERNEL, move || this.end(number));
        if let Err(error) = queued {
            pr_err!("connection {number}: stays until the module is unloaded: {error:?}\n");
        }
    }

    /// Ends connection `number`. Sleeps; not in its handlers.
    fn end(&self, number: u64) {
        let ended = {
            let mut connections = self.connections.lock();
            let all = &mut connections.all;
            let found = all.iter().position(|one| one.number() == number);
            found.and_then(|index| all.remove(index).ok())
        };
        // Outside the lock, which the handler of connection requests takes.
        drop(ended);
    }

    /// Refuses new connections, ends all, and waits until nothing runs any more. Sleeps.
    pub(crate) fn close(&self) {
        self.connections.lock().is_closed = true;
        loop {
            let ended = self.connections.lock().all.pop();
            if ended.is_none() {
                break;
            }
        }
        self.queue.flush();
    }

    /// Accepts a connection request, or says why not.
    fn accept(self: &Arc<Self>, request: ConnectRequest<'_>) -> Result {
        if let Err(violation) = Hello::check(request.private()) {
            self.figures.violations.fetch_add(1, Relaxed);
            if LOG_LIMIT.allow().is_some() {
                pr_err!("connection refused: {violation}\n");
            }
            return request.reject(b"");
        }
        let mut connections = self.connections.lock();
        if connections.is_closed || connections.all.len() >= usize::from(CONNECTIONS_MAX.get()) {
            if LOG_LIMIT.allow().is_some() {
                pr_err!("connection refused: there are {}\n", connections.all.len());
            }
            return request.reject(b"");
        }
        let number = connections.next_number;
        connections.next_number = number.wrapping_add(1);
        connections.all.reserve(1, GFP_KERNEL)?;
        let welcome = Welcome::new(DEPTH, self.store.chunks());
        let connection = Connection::accept(self, number, request, welcome.as_bytes())?;
        // There is room.
        let _ = connections.all.push_within_capacity(connection);
        Ok(())
    }
}

/// The handler of connection requests.
pub(crate) struct Door(pub(crate) Arc<Target>);

impl ListenHandler for Door {
    fn request(&self, request: ConnectRequest<'_>) {
        if let Err(error) = self.0.accept(request) {
            pr_err!("connection refused: {error:?}\n");
        }
    }
}

/// `/sys/class/crc32_umr_target/store`.
pub(crate) static FILES: [Attribute<Target>; 7] = [
    Attribute::ro(c"chunks", |target, page| show(page, target.store.chunks())),
    Attribute::ro(c"connections", |target, page| {
        show(page, target.connections.lock().all.len() as u64)
    }),
    Attribute::ro(c"written_chunks", |target, page| {
        show(page, target.figures.written_chunks.load(Relaxed))
    }),
    Attribute::ro(c"read_chunks", |target, page| {
        show(page, target.figures.read_chunks.load(Relaxed))
    }),
    Attribute::ro(c"bad_payloads", |target, page| {
        show(page, target.figures.bad_payloads.load(Relaxed))
    }),
    Attribute::ro(c"bad_chunks", |target, page| {
        show(page, target.figures.bad_chunks.load(Relaxed))
    }),
    Attribute::ro(c"violations", |target, page| {
        show(page, target.figures.violations.load(Relaxed))
    }),
];

fn show(page: &mut ShowBuffer<'_>, value: u64) -> Result {
    writeln!(page, "{value}")
}
