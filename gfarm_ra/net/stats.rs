// SPDX-License-Identifier: GPL-2.0

//! The counters of what the connections of a mount have done, and the tracepoints beside them.

use kernel::{
    fmt,
    prelude::*, //
};
use kernel_ext::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};
use vfs_ext::trace;

use crate::proto::request::{
    Request,
    Server, //
};

/// The requests of one kind.
#[derive(Default)]
struct Requests {
    /// The requests that were answered.
    count: AtomicU64,
    /// The time that they took, in microseconds.
    us: AtomicU64,
    /// The longest one.
    us_max: AtomicU64,
}

/// The connections to one kind of server.
#[derive(Default)]
struct Connections {
    /// The connections that were made.
    made: AtomicU64,
    /// The repetitions: at gfmd requests that were sent again, at gfsds files that were opened
    /// again, by another replica or after a restart.
    again: AtomicU64,
}

/// Counters of a mount.
#[derive(Default)]
pub(crate) struct Stats {
    requests: [Requests; Request::COUNT],
    gfmd: Connections,
    gfsd: Connections,
    /// Bytes that gfsds have sent.
    gfsd_bytes: AtomicU64,
}

impl Stats {
    /// Counts a request that was answered `us` microseconds after it was sent, with an error or
    /// not. Any context.
    pub(super) fn answered(&self, request: Request, us: u64, result: Result) {
        if let Some(requests) = self.requests.get(request.index()) {
            requests.count.fetch_add(1, Relaxed);
            requests.us.fetch_add(us, Relaxed);
            requests.us_max.fetch_max(us, Relaxed);
        }
        trace::request(request.name(), us, result);
    }

    /// Counts a connection that is authenticated. Any context.
    pub(super) fn connected(&self, server: Server) {
        self.of(server).made.fetch_add(1, Relaxed);
        trace::connected(server.name());
    }

    /// Counts requests that have to be made again because of `error`. Any context.
    pub(super) fn again(&self, server: Server, requests: usize, error: Error) {
        if requests == 0 {
            return;
        }
        // CAST: From 64 bits to 64.
        let requests = requests as u64;
        self.of(server).again.fetch_add(requests, Relaxed);
        trace::again(server.name(), requests, error);
    }

    /// Counts `bytes` of a file from `position` on. Any context.
    pub(super) fn received(&self, position: u64, bytes: usize) {
        // CAST: From 64 bits to 64.
        let bytes = bytes as u64;
        self.gfsd_bytes.fetch_add(bytes, Relaxed);
        trace::received(position, bytes);
    }

    /// Passes a line with name and value for each counter: the sums first, then those of each kind
    /// of request that was made.
    pub(crate) fn for_each(&self, line: &mut dyn FnMut(fmt::Arguments<'_>)) {
        for server in [Server::Gfmd, Server::Gfsd] {
            let (name, connections) = (server.name(), self.of(server));
            let (mut count, mut us) = (0u64, 0u64);
            for (request, requests) in Request::ALL.iter().zip(&self.requests) {
                if request.server() == server {
                    count = count.wrapping_add(requests.count.load(Relaxed));
                    us = us.wrapping_add(requests.us.load(Relaxed));
                }
            }
            line(fmt!("{name}_requests {count}"));
            line(fmt!("{name}_us {us}"));
            line(fmt!("{name}_retries {}", connections.again.load(Relaxed)));
            line(fmt!("{name}_connects {}", connections.made.load(Relaxed)));
        }
        line(fmt!("gfsd_bytes {}", self.gfsd_bytes.load(Relaxed)));
        for (request, requests) in Request::ALL.iter().zip(&self.requests) {
            let (name, count) = (request.name(), requests.count.load(Relaxed));
            if count != 0 {
                line(fmt!("{name} {count}"));
                line(fmt!("{name}_us {}", requests.us.load(Relaxed)));
                line(fmt!("{name}_us_max {}", requests.us_max.load(Relaxed)));
            }
        }
    }

    fn of(&self, server: Server) -> &Connections {
        match server {
            Server::Gfmd => &self.gfmd,
            Server::Gfsd => &self.gfsd,
        }
    }
}
