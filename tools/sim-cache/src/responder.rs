// SPDX-License-Identifier: GPL-2.0

//! The side of a node that is asked: as an owner, and as a holder.

use std::rc::Rc;

use proto::gfarm::cache::{
    address::NodeId,
    directory::{
        Notice,
        Question, //
    },
    excluded::Reason,
    have::Have,
    keep::{
        Keep,
        Kept, //
    },
    pages::PageSet,
    reply::{
        Answer,
        Holder,
        Reply,
        REPLY_LEN_MAX, //
    },
    request::{
        Ask,
        Request,
        RequestId,
        Role,
        Wanted, //
    },
    responder::{
        serve,
        Cached,
        Serve, //
    },
    tags::Tags, //
};

use crate::{
    faults::LANES,
    message::{
        generation,
        sum,
        Event,
        Generation,
        Transfer, //
    },
    node::Waiter,
    scenario::{
        Mutation,
        US, //
    },
    world::World, //
};

/// The time after which to ask an owner again for pages whose holders are too busy.
const PAUSE_MS: u16 = 5;

/// The fragments that arrive as one event, if nothing happens to them.
const RUN: usize = 16;

impl World {
    fn reply(&mut self, from: usize, to: usize, id: RequestId, answer: Answer, later_ns: u64) {
        self.reply_of(from, to, id, answer, later_ns, None);
    }

    /// Sends a reply, with the sums of its pages if they were asked for of a chunk.
    fn reply_of(
        &mut self,
        from: usize,
        to: usize,
        id: RequestId,
        answer: Answer,
        later_ns: u64,
        of: Option<(Generation, u64)>,
    ) {
        let size_bytes = match answer {
            Answer::Data { .. } => self.s.file_bytes(),
            _ => 0,
        };
        let reply = Reply {
            id,
            size_bytes,
            credits: self.nodes[from].admission.credits(),
            answer,
        };
        let (me, node) = (self.nodes[from].id, self.nodes[to].id);
        let mut bytes = [0; REPLY_LEN_MAX];
        let sealed = match of {
            Some((gen, chunk)) => {
                let sum = |page| sum(gen, chunk, page);
                let len = reply.seal_with_sums(me, node, &self.key, &mut bytes, sum);
                len.map(|len| bytes[..len].to_vec())
            }
            None => reply.seal(me, node, &self.key).map(Vec::from),
        };
        match sealed {
            Some(bytes) => self.send_bytes(from, to, later_ns, &bytes),
            None => self.tally.violate("a reply that no node would accept"),
        }
    }

    /// A request has come.
    pub(crate) fn asked(&mut self, n: usize, from: usize, request: Request) {
        if self.nodes[n].is_silent {
            return;
        }
        if request.ask().role == Role::Holder {
            self.asked_as_holder(n, from, request);
            return;
        }
        let answer = self.ask_owner(n, from, request.wanted(), request.ask());
        self.reply(n, from, request.id(), answer, 0);
    }

    fn holder(&self, n: usize) -> Holder {
        Holder {
            node: self.nodes[n].id,
            address: self.nodes[n].address,
        }
    }

    /// Answers a node, which may be this one, that asks for pages in the role of an owner.
    pub(crate) fn ask_owner(
        &mut self,
        n: usize,
        requester: usize,
        wanted: &Wanted,
        ask: &Ask,
    ) -> Answer {
        let is_lost = |id| ask.excluded.reason(id) == Some(Reason::NoAnswer);
        let (near, root) = self.owners(n, wanted.chunk(), requester, is_lost);
        let is_root = root == n || ask.role == Role::NamedOwner;
        let other = Answer::OtherOwner(self.holder(root));
        if near != n && !is_root && requester != n {
            return other;
        }
        let question = Question {
            requester: self.nodes[requester].id,
            group: self.nodes[requester].group,
            file: wanted.id(),
            chunk: wanted.chunk(),
            pages: wanted.pages(),
            is_retry: ask.is_retry,
            is_root,
            excluded: &ask.excluded,
        };
        let now_us = self.now_us();
        let node = &mut self.nodes[n];
        let members = node.members.as_ref();
        let is_live = |id| members.is_none_or(|members| members.is_live(id));
        let direction = node.directory.get().direct(&question, now_us, is_live);
        let fetch = direction.fetch;
        match direction.from {
            Some((id, pages)) => Answer::Redirect {
                holder: self.holder(self.by_id[&id]),
                pages,
                fetch,
            },
            // All that have them are too busy.
            None if fetch.is_empty() => Answer::Busy { wait_ms: PAUSE_MS },
            None if !is_root => other,
            None => Answer::Fetch { pages: fetch },
        }
    }

    /// A node has told that it has pages.
    pub(crate) fn told_of(&mut self, n: usize, node: NodeId, have: &Have) {
        let notice = Notice {
            node,
            group: self.nodes[self.by_id[&node]].group,
            file: have.id(),
            chunk: have.chunk(),
            pages: have.pages(),
        };
        let now_us = self.now_us();
        self.nodes[n].directory.get().done(&notice, now_us);
    }

    fn asked_as_holder(&mut self, n: usize, from: usize, request: Request) {
        self.forget(n, |w| {
            let lane = |of: &Request| Tags::qp_index(of.id().tag, LANES);
            w.from == from && lane(&w.request) == lane(&request)
        });
        let (now_us, len) = (self.now_us(), request.wanted().pages().len() as u64 * 4096);
        let node = &mut self.nodes[n];
        let load = &mut node.contacts.entry(from).or_default().load;
        if let Err(answer) = node.admission.admit(load, len, now_us) {
            self.reply(n, from, request.id(), answer, 0);
            return;
        }
        let waiter = Waiter {
            from,
            request,
            keep: Keep::new(now_us),
        };
        self.decide(n, waiter);
    }

    /// Drops requests that are kept.
    fn forget(&mut self, n: usize, is_it: impl Fn(&Waiter) -> bool) {
        let waiters = std::mem::take(&mut self.nodes[n].waiters);
        let (gone, left) = waiters.into_iter().partition(|w| is_it(w));
        self.nodes[n].waiters = left;
        let gone: Vec<Waiter> = gone;
        for waiter in gone {
            self.release(n, waiter.from);
        }
    }

    /// A request that was admitted is served.
    pub(crate) fn release(&mut self, n: usize, from: usize) {
        let node = &mut self.nodes[n];
        let load = &mut node.contacts.entry(from).or_default().load;
        node.admission.release(load);
    }

    /// Returns what a node has of what is asked for, and of which generation.
    fn content(&self, n: usize, from: usize, wanted: &Wanted) -> Option<(Cached, Generation)> {
        let (node, asker) = (&self.nodes[n], self.nodes[from].id);
        let serves_any = self.s.mutation == Some(Mutation::ServesOtherGenerations);
        let gen = if serves_any {
            node.gen
        } else {
            generation(&wanted.id())
        };
        if node.gen != gen {
            return None;
        }
        let chunk = wanted.chunk();
        let cached = Cached {
            size_bytes: self.s.file_bytes(),
            held: node.cached(chunk, gen),
            fetching: node.coming(chunk, gen, wanted.pages(), asker),
        };
        Some((cached, gen))
    }

    /// Serves a request that was admitted, or keeps it.
    fn decide(&mut self, n: usize, waiter: Waiter) {
        let (from, id) = (waiter.from, waiter.request.id());
        let content = self.content(n, from, waiter.request.wanted());
        let cached = content.map(|(cached, _)| cached);
        match serve(&waiter.request, cached.as_ref(), self.fragment_len) {
            Serve::Say(answer) => {
                self.release(n, from);
                self.reply(n, from, id, answer, 0);
            }
            Serve::Keep(_) => {
                self.nodes[n].waiters.push(waiter);
                self.keep_alive(n);
            }
            Serve::Send(held) => {
                let gen = content.map_or(0, |(_, gen)| gen);
                self.give(n, &waiter, held, gen);
            }
        }
    }

    /// Tells those that wait that this node lives.
    pub(crate) fn keep_alive(&mut self, n: usize) {
        let (now_us, mut next_us) = (self.now_us(), u64::MAX);
        let waiters = std::mem::take(&mut self.nodes[n].waiters);
        for mut waiter in waiters {
            let (from, wanted) = (waiter.from, *waiter.request.wanted());
            let (chunk, gen) = (wanted.chunk(), generation(&wanted.id()));
            let depth = self.nodes[n].depth_of(chunk, gen, wanted.pages());
            match waiter.keep.look(now_us, depth) {
                Kept::Forget => {
                    self.release(n, from);
                    continue;
                }
                Kept::Until(at_us) => next_us = next_us.min(at_us),
                Kept::Say(answer, at_us) => {
                    next_us = next_us.min(at_us);
                    self.reply(n, from, waiter.request.id(), answer, 0);
                }
            }
            self.nodes[n].waiters.push(waiter);
        }
        let node = &mut self.nodes[n];
        let at_ns = next_us.saturating_mul(US);
        if next_us != u64::MAX && (at_ns < node.look_ns || node.look_ns <= self.now_ns) {
            node.look_ns = at_ns;
            let life = node.life;
            self.agenda.push(at_ns, Event::KeepAlive { node: n, life });
        }
    }

    /// Looks at the requests again that wait for pages of a chunk.
    pub(crate) fn serve_waiters(&mut self, n: usize, chunk: u64) {
        let waiters = std::mem::take(&mut self.nodes[n].waiters);
        let is_it = |w: &Waiter| w.request.wanted().chunk() == chunk;
        let (of_chunk, others): (Vec<_>, Vec<_>) = waiters.into_iter().partition(is_it);
        self.nodes[n].waiters = others;
        for waiter in of_chunk {
            self.decide(n, waiter);
        }
    }

    /// Sends pages, and the reply behind them.
    fn give(&mut self, n: usize, waiter: &Waiter, held: PageSet, gen: Generation) {
        let (to, request) = (waiter.from, &waiter.request);
        let (wanted, id) = (request.wanted(), request.id());
        let Some(landing) = request.landing() else {
            return;
        };
        let transfer = Rc::new(Transfer {
            from: n,
            to,
            life: self.nodes[to].life,
            lane: landing.qpn() as usize - 0x100,
            qkey: landing.qkey(),
            tag: id.tag,
            gen,
            chunk: wanted.chunk(),
            pages: wanted.pages().iter().collect(),
            damaged: self.nodes[n].damaged(wanted.chunk()),
        });
        let (first_ns, last_ns) = self.send_pages(n, to, held.len() as u64 * 4096);
        let len = landing.fragment_len();
        let ranks = transfer.pages.iter().enumerate();
        let sent = ranks.filter(|(_, page)| held.contains(**page));
        let sent: Vec<u8> = sent
            .flat_map(|(rank, _)| len.of_page(rank))
            // CAST: At most 256 fragments.
            .map(|number| number as u8)
            .collect();
        let count = sent.len() as u64;
        for (at, numbers) in sent.chunks(RUN).enumerate() {
            let behind = ((at * RUN + numbers.len()) as u64).min(count);
            let at_ns = first_ns + (last_ns - first_ns) * behind / count;
            self.fragments_under_way(&transfer, numbers, at_ns);
        }
        let life = self.nodes[n].life;
        let (node, peer) = (n, to);
        let out_ns = self.nodes[n].out_free_ns;
        self.agenda
            .push(out_ns, Event::Released { node, life, peer });
        // The reply is behind the fragments on the same way.
        let later_ns = last_ns - self.s.latency_ns - self.now_ns;
        let of = (gen, wanted.chunk());
        let of = Some(of).filter(|_| request.ask().wants_sums);
        self.reply_of(n, to, id, Answer::Data { pages: held }, later_ns, of);
    }
}
