// SPDX-License-Identifier: GPL-2.0

//! The side of a node that is asked: as the owner of a chunk, or as a holder of pages.

use proto::gfarm::cache::{
    directory::{
        Directory,
        Question, //
    },
    excluded::Reason,
    pages::PageSet, //
};

use crate::{
    message::{
        Answer,
        Event,
        Generation,
        Message,
        Request, //
    },
    node::{
        Read,
        Step, //
    },
    scenario::{
        Mutation,
        Waiting,
        MS, //
    },
    world::World, //
};

/// The time after which a node that has kept a request is lost if it is silent.
const WAIT_NS: u64 = 100 * MS;

/// The time for which the owner keeps a request before it sends it to the holder nevertheless.
const KEPT_NS: u64 = 200 * MS;

/// The number of requests that a node keeps.
const WAITERS_MAX: usize = 64;

/// The bytes that a node may owe before it is too busy.
const BACKLOG_LEN: u64 = 64 << 20;

/// The time after which to ask again for pages whose holders are too busy.
const PAUSE_NS: u64 = 5 * MS;

impl World {
    fn reply(&mut self, from: usize, request: &Request, later_ns: u64, answer: Answer) {
        let (to, read, attempt) = (request.from, request.read, request.attempt);
        if to == from {
            self.replied(to, from, read, attempt, answer);
            return;
        }
        let message = Message::Reply {
            from,
            read,
            attempt,
            answer,
        };
        self.send(from, to, later_ns, message);
    }

    pub(crate) fn asked_as_owner(&mut self, n: usize, request: Request) {
        let (chunk, excluded) = (request.chunk, request.excluded);
        let lost = |id| excluded.reason(id) == Some(Reason::NoAnswer);
        let (near, root) = self.owners(n, chunk, request.from, lost);
        if near != n && root != n && !request.is_forwarded && request.from != n {
            self.tally.forwards += 1;
            self.reply(n, &request, 0, Answer::OtherOwner(root));
            return;
        }
        let question = Question {
            requester: self.nodes[request.from].id,
            file: self.file(request.gen),
            chunk,
            pages: request.pages,
            is_retry: request.is_retry,
            is_root: root == n || request.is_forwarded,
            excluded: &excluded,
        };
        let now_us = self.now_us();
        let node = &mut self.nodes[n];
        let members = node.members.as_ref();
        let is_live = |id| members.is_none_or(|members| members.is_live(id));
        let direction = Directory::new(&mut node.directory).direct(&question, now_us, is_live);
        let fetch = direction.fetch;
        match direction.from {
            None if root != n && !request.is_forwarded && !fetch.is_empty() => {
                self.reply(n, &request, 0, Answer::OtherOwner(root));
            }
            // All that have them are too busy.
            None if fetch.is_empty() => self.reply(n, &request, 0, Answer::Later(PAUSE_NS)),
            None => self.reply(n, &request, 0, Answer::Fetch),
            Some((id, pages)) if id == self.nodes[n].id => {
                let request = Request {
                    pages,
                    fetch,
                    ..request
                };
                self.asked_as_holder(n, request);
            }
            Some((id, pages)) => {
                let holder = self.by_id[&id];
                let answer = Answer::Redirect {
                    holder,
                    pages,
                    fetch,
                };
                if self.s.waiting == Waiting::AtOwner {
                    let is_complete = self.nodes[n].complete.contains(&(chunk, holder));
                    if !is_complete {
                        self.keep(n, holder, request);
                        return;
                    }
                }
                self.reply(n, &request, 0, answer);
            }
        }
    }

    /// The owner keeps a request until the holder has told that it has the pages.
    fn keep(&mut self, n: usize, holder: usize, request: Request) {
        let depth = 0;
        self.reply(n, &request, 0, Answer::Wait(WAIT_NS, depth));
        self.set_keeping(n);
        let now_ns = self.now_ns;
        self.nodes[n].kept.push((holder, now_ns, request));
    }

    /// A node has told that it has pages.
    pub(crate) fn told_of(
        &mut self,
        n: usize,
        from: usize,
        gen: Generation,
        chunk: u64,
        pages: PageSet,
    ) {
        let (file, id) = (self.file(gen), self.nodes[from].id);
        Directory::new(&mut self.nodes[n].directory).done(id, file, chunk, pages);
        if self.s.waiting != Waiting::AtOwner {
            return;
        }
        self.nodes[n].complete.push((chunk, from));
        let kept = std::mem::take(&mut self.nodes[n].kept);
        for (holder, since_ns, request) in kept {
            if holder == from && request.chunk == chunk {
                self.release(n, holder, &request);
            } else {
                self.nodes[n].kept.push((holder, since_ns, request));
            }
        }
    }

    fn release(&mut self, n: usize, holder: usize, request: &Request) {
        let answer = Answer::Redirect {
            holder,
            pages: request.pages,
            fetch: PageSet::EMPTY,
        };
        self.reply(n, request, 0, answer);
    }

    pub(crate) fn asked_as_holder(&mut self, n: usize, request: Request) {
        let serves_any = self.s.mutation == Some(Mutation::ServesOtherGenerations);
        let node = &self.nodes[n];
        let gen = if serves_any { node.gen } else { request.gen };
        if node.gen != gen {
            self.reply(n, &request, 0, Answer::Miss);
            return;
        }
        let there = node.cached(request.chunk, gen).intersection(request.pages);
        let coming = node.coming(request.chunk, gen).intersection(request.pages);
        // Two that wait for each other would wait for ever.
        let asks = |r: &Read| match r.step {
            Step::Holder(of, pages) => {
                (of, r.chunk) == (request.from, request.chunk) && !pages.is_disjoint(request.pages)
            }
            _ => false,
        };
        if node.reads.values().any(asks) {
            self.reply(n, &request, 0, Answer::Miss);
        } else if !coming.difference(there).is_empty() {
            self.wait(n, request);
        } else if there.is_empty() {
            self.reply(n, &request, 0, Answer::Miss);
        } else if self.backlog(n) > BACKLOG_LEN {
            self.reply(n, &request, 0, Answer::Busy);
        } else {
            self.give(n, &request, there);
        }
    }

    fn wait(&mut self, n: usize, request: Request) {
        if let Waiting::AskAgain(ns) = self.s.waiting {
            self.reply(n, &request, 0, Answer::Later(ns));
            return;
        }
        let node = &mut self.nodes[n];
        let is_same = |r: &Request| (r.from, r.read) == (request.from, request.read);
        node.waiters.retain(|waiter| !is_same(waiter));
        if node.waiters.len() >= WAITERS_MAX {
            self.reply(n, &request, 0, Answer::Busy);
            return;
        }
        self.set_keeping(n);
        let depth = self.nodes[n].depth_of(request.chunk, request.pages);
        self.nodes[n].waiters.push(request.clone());
        self.reply(n, &request, 0, Answer::Wait(WAIT_NS, depth));
    }

    /// Tells those that wait that this node lives.
    pub(crate) fn keep_alive(&mut self, n: usize) {
        let now_ns = self.now_ns;
        let waiters = self.nodes[n].waiters.clone();
        for request in &waiters {
            let depth = self.nodes[n].depth_of(request.chunk, request.pages);
            self.reply(n, request, 0, Answer::Wait(WAIT_NS, depth));
        }
        for (holder, since_ns, request) in std::mem::take(&mut self.nodes[n].kept) {
            if now_ns - since_ns > KEPT_NS {
                self.release(n, holder, &request);
            } else {
                self.reply(n, &request, 0, Answer::Wait(WAIT_NS, 0));
                self.nodes[n].kept.push((holder, since_ns, request));
            }
        }
        self.nodes[n].is_keeping = false;
        if !self.nodes[n].waiters.is_empty() || !self.nodes[n].kept.is_empty() {
            self.set_keeping(n);
        }
    }

    fn set_keeping(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let life = node.life;
        if !std::mem::replace(&mut node.is_keeping, true) {
            self.after(WAIT_NS / 2, Event::KeepAlive { node: n, life });
        }
    }

    /// Answers those that have waited for pages of a chunk that are not coming any more.
    pub(crate) fn serve_waiters(&mut self, n: usize, chunk: u64) {
        let waiters = std::mem::take(&mut self.nodes[n].waiters);
        for request in waiters {
            let node = &mut self.nodes[n];
            let coming = node.coming(chunk, request.gen);
            if request.chunk != chunk || !coming.is_disjoint(request.pages) {
                node.waiters.push(request);
                continue;
            }
            let there = node.cached(chunk, request.gen).intersection(request.pages);
            if there.is_empty() || node.gen != request.gen {
                self.reply(n, &request, 0, Answer::Miss);
            } else {
                self.give(n, &request, there);
            }
        }
    }

    /// Sends pages, and the reply behind them.
    fn give(&mut self, n: usize, request: &Request, pages: PageSet) {
        let (to, read, attempt) = (request.from, request.read, request.attempt);
        let gen = self.nodes[n].cache.get(&request.chunk).map(|c| c.gen);
        let arriving = self.survivors(pages);
        let there_ns = self.send_pages(n, to, pages.len() as u64 * 4096);
        let life = self.nodes[to].life;
        let event = Event::Bulk {
            to,
            life,
            read,
            attempt,
            gen: gen.unwrap_or(0),
            pages: arriving,
        };
        self.agenda.push(there_ns, event);
        let fetch = request.fetch;
        // The reply is behind the fragments on the same way.
        let later_ns = there_ns - self.s.latency_ns - self.now_ns;
        self.reply(n, request, later_ns, Answer::Data { pages, fetch });
    }
}
