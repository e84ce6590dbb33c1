// SPDX-License-Identifier: GPL-2.0

//! The side of a node that wants pages.

use proto::gfarm::cache::{
    excluded::{
        Excluded,
        Reason, //
    },
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
        MS,
        S, //
    },
    world::World, //
};

/// The time after which a read gives other nodes up.
const LIMIT_NS: u64 = 30 * S;

/// The number of nodes between a holder and a file server from which on they wait in a circle.
const DEPTH_MAX: u8 = 32;

/// The time for which fragments are waited for that are behind their reply.
const GRACE_NS: u64 = MS;

impl World {
    /// The reader goes on: it begins as many reads as it may have in flight.
    pub(crate) fn read_on(&mut self, n: usize) {
        while self.nodes[n].reads.len() < self.nodes[n].depth {
            let node = &mut self.nodes[n];
            let Some((chunk, pages)) = node.plan.pop_front() else {
                break;
            };
            let gen = node.gen;
            let there = node.cached(chunk, gen);
            let missing = pages.difference(there);
            if missing.is_empty() {
                node.keep(chunk, gen, PageSet::EMPTY, 0);
                continue;
            }
            self.begin(n, chunk, gen, missing);
        }
        let node = &mut self.nodes[n];
        if node.reads.is_empty() && node.plan.is_empty() && node.done_ns.is_none() {
            node.done_ns = Some(self.now_ns);
            self.tally.readers_left -= 1;
        }
    }

    fn begin(&mut self, n: usize, chunk: u64, gen: Generation, pages: PageSet) {
        let read = self.next_read;
        self.next_read += 1;
        let began_ns = self.now_ns;
        self.nodes[n].reads.insert(
            read,
            Read {
                chunk,
                gen,
                pages,
                missing: pages,
                step: Step::FileServer,
                began_ns,
                attempt: 0,
                tries: 0,
                depth: 0,
                arrived: PageSet::EMPTY,
                is_replied: false,
                fetch: PageSet::EMPTY,
                round: 0,
                silent: 0,
                is_forwarded: false,
                owners: Vec::new(),
                excluded: Excluded::NONE,
            },
        );
        if self.has_cache() {
            self.ask_owner(n, read, None);
        } else {
            self.ask_file_server(n, read);
        }
    }

    fn ask_file_server(&mut self, n: usize, read: u64) {
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        r.step = Step::FileServer;
        r.round += 1;
        let (gen, missing) = (r.gen, r.missing);
        self.fetch(n, read, gen, missing);
    }

    /// Asks the owner, or the node that another one has named as the owner.
    fn ask_owner(&mut self, n: usize, read: u64, named: Option<usize>) {
        let Some(r) = self.nodes[n].reads.get(&read) else {
            return;
        };
        let (excluded, chunk) = (r.excluded, r.chunk);
        let lost = |id| excluded.reason(id) == Some(Reason::NoAnswer);
        let owner = named.unwrap_or_else(|| self.owners(n, chunk, n, lost).0);
        self.ask(n, read, Step::Owner(owner));
    }

    /// Sends a request, or asks the own directory.
    fn ask(&mut self, n: usize, read: u64, step: Step) {
        let (limit, now_ns) = (self.s.attempts, self.now_ns);
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        let has_time = now_ns - r.began_ns < LIMIT_NS;
        // Each attempt is an exchange with the owner and one with a holder.
        if r.tries >= 2 * limit || !has_time {
            self.tally.gave_up += 1;
            self.ask_file_server(n, read);
            return;
        }
        (r.step, r.arrived, r.is_replied, r.depth) = (step, PageSet::EMPTY, false, 0);
        r.attempt += 1;
        r.tries += 1;
        let (to, pages, at_holder) = match step {
            Step::Owner(owner) => (owner, r.missing, false),
            Step::Holder(holder, pages) => (holder, pages.intersection(r.missing), true),
            Step::FileServer => return,
        };
        let is_retry = r.owners.contains(&to);
        if !at_holder && !is_retry {
            r.owners.push(to);
        }
        let request = Request {
            from: n,
            read,
            attempt: r.attempt,
            gen: r.gen,
            chunk: r.chunk,
            pages,
            at_holder,
            is_forwarded: r.is_forwarded,
            is_retry,
            fetch: PageSet::EMPTY,
            excluded: r.excluded,
        };
        let silent = r.silent;
        if to == n {
            self.asked_as_owner(n, request);
            return;
        }
        let (now_us, id) = (self.now_us(), self.nodes[to].id);
        if let Some(members) = &mut self.nodes[n].members {
            members.introduce(id, now_us);
            self.poll(n);
        }
        self.send(n, to, 0, Message::Request(request));
        self.set_timer(n, read, self.s.timer_ns << silent.min(2));
    }

    /// Sets the timer of a read; the one that was set before is void.
    fn set_timer(&mut self, n: usize, read: u64, delay_ns: u64) {
        if self.s.mutation == Some(Mutation::WaitsForEver) {
            return;
        }
        let life = self.nodes[n].life;
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        r.round += 1;
        let (node, attempt, round) = (n, r.attempt, r.round);
        let event = Event::Timer {
            node,
            life,
            read,
            attempt,
            round,
        };
        self.after(delay_ns, event);
    }

    pub(crate) fn replied(
        &mut self,
        n: usize,
        from: usize,
        read: u64,
        attempt: u32,
        answer: Answer,
    ) {
        let id = self.nodes[from].id;
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        if r.attempt != attempt || r.step == Step::FileServer {
            return;
        }
        r.silent = 0;
        match answer {
            Answer::Data { pages, fetch } => {
                (r.is_replied, r.fetch) = (true, r.fetch.union(fetch));
                r.step = Step::Holder(from, pages);
                self.settle(n, read);
                self.set_again(n, read, attempt, GRACE_NS);
            }
            Answer::Redirect {
                holder,
                pages,
                fetch,
            } => {
                r.fetch = r.fetch.union(fetch);
                self.ask(n, read, Step::Holder(holder, pages));
            }
            Answer::Fetch => self.ask_file_server(n, read),
            Answer::OtherOwner(owner) => {
                r.is_forwarded = true;
                self.ask_owner(n, read, Some(owner));
            }
            Answer::Wait(ns, depth) => {
                self.tally.waits += 1;
                r.depth = depth;
                // They wait for each other.
                if depth >= DEPTH_MAX || self.now_ns - r.began_ns > LIMIT_NS {
                    self.tally.gave_up += 1;
                    self.ask_file_server(n, read);
                } else {
                    self.set_timer(n, read, ns);
                }
            }
            Answer::Later(ns) => {
                if matches!(r.step, Step::Holder(..)) {
                    r.tries -= 1;
                }
                self.set_timer(n, read, ns + self.s.timer_ns);
                self.set_again(n, read, attempt, ns);
            }
            Answer::Busy => {
                self.tally.busy += 1;
                r.is_forwarded = false;
                r.excluded.add(id, Reason::Busy);
                self.ask_owner(n, read, None);
            }
            Answer::Miss => {
                self.tally.misses += 1;
                r.is_forwarded = false;
                r.excluded.add(id, Reason::NotHere);
                self.ask_owner(n, read, None);
            }
        }
    }

    fn set_again(&mut self, n: usize, read: u64, attempt: u32, delay_ns: u64) {
        let life = self.nodes[n].life;
        let event = Event::Again {
            node: n,
            life,
            read,
            attempt,
        };
        self.after(delay_ns, event);
    }

    /// Asks again for what has not come.
    pub(crate) fn again(&mut self, n: usize, read: u64, attempt: u32) {
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        if r.attempt != attempt || r.step == Step::FileServer {
            return;
        }
        r.is_forwarded = false;
        match r.step {
            // Some fragments were lost, or the holder has nothing yet.
            Step::Holder(_, pages) if !r.missing.intersection(pages).is_empty() => {
                let step = r.step;
                self.ask(n, read, step);
            }
            _ if r.missing.is_subset(r.fetch) => self.ask_file_server(n, read),
            _ => self.ask_owner(n, read, None),
        }
    }

    pub(crate) fn timer(&mut self, n: usize, read: u64, attempt: u32, round: u32) {
        let now_us = self.now_us();
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        if r.attempt != attempt || r.round != round || r.is_replied {
            return;
        }
        self.tally.timeouts += 1;
        r.silent += 1;
        let step = r.step;
        let (Step::Owner(to) | Step::Holder(to, _)) = step else {
            return;
        };
        let id = self.nodes[to].id;
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        if r.silent < 2 {
            self.ask(n, read, step);
            return;
        }
        (r.silent, r.is_forwarded) = (0, false);
        r.excluded.add(id, Reason::NoAnswer);
        if let Some(members) = &mut self.nodes[n].members {
            members.unanswered(id, now_us);
            self.poll(n);
        }
        self.ask_owner(n, read, None);
    }

    /// The last fragment of an answer has come.
    pub(crate) fn bulk(
        &mut self,
        n: usize,
        read: u64,
        attempt: u32,
        gen: Generation,
        pages: PageSet,
    ) {
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        // Another attempt has another key: the adapter drops what comes late.
        if r.attempt != attempt || r.step == Step::FileServer {
            return;
        }
        if gen != r.gen {
            self.tally.violate("pages of another generation were given");
            return;
        }
        r.arrived = r.arrived.union(pages);
        if r.is_replied {
            self.settle(n, read);
        }
    }

    pub(crate) fn fetched(&mut self, n: usize, read: u64, gen: Generation, pages: PageSet) {
        let Some(r) = self.nodes[n].reads.get_mut(&read) else {
            return;
        };
        if gen != r.gen {
            return;
        }
        r.arrived = pages;
        self.settle(n, read);
    }

    /// Takes what has arrived into the page cache, if the file is still the same.
    fn settle(&mut self, n: usize, read: u64) {
        let keeps_old = self.s.mutation == Some(Mutation::KeepsOldPages);
        let (room, now_ns) = (self.s.cache_chunks, self.now_ns);
        let node = &mut self.nodes[n];
        let Some(r) = node.reads.get_mut(&read) else {
            return;
        };
        let (chunk, gen) = (r.chunk, r.gen);
        if gen != node.gen && !keeps_old {
            return;
        }
        let new = r.arrived.intersection(r.missing);
        r.missing = r.missing.difference(new);
        self.tally.pages += new.len() as u64;
        let is_done = r.missing.is_empty();
        if node.gen != gen && !new.is_empty() {
            self.tally
                .violate("pages of an old generation are in the cache");
        }
        let began_ns = r.began_ns;
        node.keep(chunk, gen, new, room);
        let done = is_done.then(|| node.reads.remove(&read)).flatten();
        self.serve_waiters(n, chunk);
        if let Some(done) = done {
            self.tally.latency(now_ns - began_ns);
            self.tell_owners(n, &done);
            self.read_on(n);
        }
    }

    /// Tells the owners that this node has its pages.
    fn tell_owners(&mut self, n: usize, r: &Read) {
        if !self.s.has_notices {
            return;
        }
        let (chunk, gen, pages) = (r.chunk, r.gen, r.pages);
        for owner in &r.owners {
            if *owner == n {
                self.told_of(n, n, gen, chunk, pages);
                continue;
            }
            let message = Message::Have {
                from: n,
                gen,
                chunk,
                pages,
            };
            self.send(n, *owner, 0, message);
        }
    }
}
