// SPDX-License-Identifier: GPL-2.0

//! A driver with memory in which each fragment can be recognised. It checks what must hold at each
//! step, of any read.

use proto::gfarm::cache::{
    address::{
        Address,
        NodeId, //
    },
    fragment::{
        FragmentId,
        FragmentLen, //
    },
    pages::PageSet,
    reassembly::{
        Move,
        Place, //
    },
    reply::{
        Answer,
        Holder,
        Reply,
        Sums,
        REPLY_LEN_MAX, //
    },
    request::{
        RequestId,
        Role,
        Wanted, //
    },
    requester::{
        event::{
            Asking,
            Effect,
            Event,
            Heard,
            Landed,
            Whom, //
        },
        Requester,
        ASKS_MAX,
        READ_US,
        READ_US_MAX, //
    },
    rtt::Timing,
    wire::open, //
};

use super::super::message::{
    key,
    node,
    wanted, //
};

/// The node that reads.
pub(super) const ME: u64 = 1;
/// The owner of the chunk.
pub(super) const OWNER: u64 = 2;
/// A holder that the owner names.
pub(super) const HOLDER: u64 = 3;

pub(super) const TIMING: Timing = Timing {
    timeout_us: 50_000,
    again_us: 12_500,
    grace_us: 1_000,
};

pub(super) fn holder(number: u64) -> Holder {
    // CAST: At most 15.
    Holder {
        node: node(number),
        address: Address::new([0; 16], number as u16, 0x11, 111, 0).unwrap(),
    }
}

pub(super) fn redirect(number: u64, pages: PageSet) -> Answer {
    Answer::Redirect {
        holder: holder(number),
        pages,
        fetch: PageSet::EMPTY,
    }
}

/// The content of the memory of a fragment: a page, and which of its fragments.
type Cell = Option<(u8, usize)>;

/// Marks the number of a fragment in which a bit is wrong: it is higher by this.
const DAMAGE: usize = 100;

/// The sum that a page has as the file server has sent it.
pub(super) fn sum(page: u8) -> u32 {
    0x5151_0000 | u32::from(page)
}

/// The driver of one read.
pub(super) struct Driver {
    pub(super) requester: Requester,
    pub(super) now_us: u64,
    pub(super) wanted: Wanted,
    len: FragmentLen,
    /// The last question, until it is sent.
    pub(super) asking: Option<Asking>,
    /// All that was asked.
    pub(super) asked: Vec<Asking>,
    /// The request that was sent last.
    pub(super) id: RequestId,
    pub(super) to: NodeId,
    /// Whether that node was told that it was asked as an owner before.
    pub(super) is_retry: bool,
    /// The number of times that it was sent.
    pub(super) sends: u32,
    /// The pages over which receives are posted, and the number of receives that were used.
    pages: PageSet,
    pub(super) used: usize,
    pub(super) is_posted: bool,
    cells: Vec<Cell>,
    spare: Cell,
    /// The pages of the file, as the moves have left them.
    memory: Vec<Cell>,
    pub(super) timer_us: Option<u64>,
    pub(super) is_stopping: bool,
    pub(super) over: Option<PageSet>,
    pub(super) heard: Vec<(NodeId, Heard)>,
    /// Whether replies have sums, and the pages that are sent with a wrong bit.
    pub(super) tells_sums: bool,
    pub(super) damaged: PageSet,
}

impl Driver {
    pub(super) fn new(len_bytes: u32) -> Self {
        let len = FragmentLen::new(len_bytes).unwrap();
        let wanted = wanted();
        Self {
            requester: Requester::new(node(ME), wanted, len).unwrap(),
            now_us: 7_000_000,
            wanted,
            len,
            asking: None,
            asked: Vec::new(),
            id: RequestId { tag: 0, cookie: 0 },
            to: node(ME),
            is_retry: false,
            sends: 0,
            pages: PageSet::EMPTY,
            used: 0,
            is_posted: false,
            cells: Vec::new(),
            spare: None,
            memory: vec![None; 256 * len.per_page()],
            timer_us: None,
            is_stopping: false,
            over: None,
            heard: Vec::new(),
            tells_sums: false,
            damaged: PageSet::EMPTY,
        }
    }

    /// A read that has begun, and asks the owner.
    pub(super) fn started(len_bytes: u32) -> Self {
        let mut driver = Self::new(len_bytes);
        let effect = driver.step(Event::Start);
        assert!(matches!(effect, Effect::Ask(_)));
        driver
    }

    /// A read that has asked a holder for all pages; the request is sent.
    pub(super) fn at_holder(len_bytes: u32) -> Self {
        Self::at_holder_within(READ_US, len_bytes)
    }

    /// The same, of a reader that goes to the file server after this time.
    pub(super) fn at_holder_within(limit_us: u64, len_bytes: u32) -> Self {
        let mut driver = Self::new(len_bytes);
        driver.requester.set_limit(limit_us);
        driver.step(Event::Start);
        driver.send(OWNER);
        driver.reply(redirect(HOLDER, driver.wanted.pages()));
        driver.send(HOLDER);
        driver
    }

    /// Makes a driver of a reader that compares pages with their sums.
    pub(super) fn comparing(len_bytes: u32) -> Self {
        let mut driver = Self::new(len_bytes);
        driver.requester.compare();
        driver.tells_sums = true;
        driver.step(Event::Start);
        driver.send(OWNER);
        driver.reply(redirect(HOLDER, driver.wanted.pages()));
        driver.send(HOLDER);
        driver
    }

    /// Gives an event to the requester, and checks the effect.
    pub(super) fn step(&mut self, event: Event<'_>) -> Effect {
        let step = self.requester.step(event, self.now_us);
        self.heard.extend(step.note);
        let is_begun = !matches!(event, Event::Start) || self.over.is_some();
        if self.over.is_some() && is_begun {
            assert_eq!(step.effect, Effect::Wait, "it ends once");
        }
        match step.effect {
            Effect::Wait => {}
            Effect::Again { at_us } => {
                assert!(!self.is_posted, "a holder would send the pages twice");
                self.is_retry = self.requester.ask_of(self.to).is_retry;
                self.sends += 1;
                self.timer_us = Some(at_us);
            }
            Effect::Ask(asking) => self.ask(&asking),
            Effect::Timer { at_us } => {
                assert!(
                    at_us <= 7_000_000 + READ_US_MAX,
                    "a read takes 30 s at most"
                );
                self.timer_us = Some(at_us);
            }
            Effect::Stop => {
                assert!(self.is_posted && !self.is_stopping);
                self.is_stopping = true;
                self.timer_us = None;
            }
            Effect::Settle { complete } => {
                assert!(!self.is_posted && !complete.is_empty());
                assert!(complete.is_subset(self.pages));
            }
            Effect::Over { got } => {
                assert!(!self.is_posted, "the device may write to pages");
                self.check(got);
                self.over = Some(got);
                self.timer_us = None;
            }
        }
        step.effect
    }

    fn ask(&mut self, asking: &Asking) {
        assert!(!self.is_posted);
        assert!(!asking.pages.is_empty());
        assert!(asking.pages.is_subset(self.wanted.pages()));
        assert_eq!(asking.role == Role::Owner, asking.whom == Whom::Owner);
        assert!(asking.whom != Whom::Named(holder(ME)) || asking.role == Role::NamedOwner);
        self.asking = Some(*asking);
        self.asked.push(*asking);
        assert!(self.asked.len() <= usize::from(ASKS_MAX));
        self.timer_us = None;
    }

    /// Checks that pages hold their bytes.
    fn check(&self, got: PageSet) {
        assert!(got.is_subset(self.wanted.pages()));
        for page in got.iter() {
            let cells = self.len.of_page(page.into());
            let held = self.memory[cells].iter().copied();
            let expected = (0..self.len.per_page()).map(|part| Some((page, part)));
            assert!(held.eq(expected), "page {page} has other bytes");
        }
    }

    /// Sends what is to be asked to a node.
    pub(super) fn send(&mut self, to: u64) {
        let asking = self.asking.take().unwrap();
        self.id = RequestId {
            tag: self.id.tag.wrapping_add(1),
            cookie: self.id.cookie.wrapping_add(0x1234_5678_9abc_def1),
        };
        self.to = node(to);
        let ask = self.requester.ask_of(self.to);
        assert_eq!((ask.role, ask.excluded), (asking.role, asking.excluded));
        self.is_retry = ask.is_retry;
        self.sends = 1;
        self.pages = asking.pages;
        self.used = 0;
        self.is_posted = asking.role == Role::Holder;
        self.cells = vec![None; asking.pages.len() * self.len.per_page()];
        let effect = self.step(Event::Sending {
            node: self.to,
            id: self.id,
            timing: TIMING,
        });
        assert!(matches!(effect, Effect::Timer { .. }));
    }

    /// Makes a reply to what was sent last.
    pub(super) fn reply_of(&self, answer: Answer) -> Reply {
        let has_size = matches!(answer, Answer::Data { .. });
        Reply {
            id: self.id,
            size_bytes: if has_size {
                self.wanted.size_bytes()
            } else {
                0
            },
            credits: 16,
            answer,
        }
    }

    /// The node that was asked replies.
    pub(super) fn reply(&mut self, answer: Answer) -> Effect {
        self.replied(self.to, &self.reply_of(answer))
    }

    /// A reply comes, with the sums of its pages if this is one that tells them.
    pub(super) fn replied(&mut self, from: NodeId, reply: &Reply) -> Effect {
        let mut bytes = [0; REPLY_LEN_MAX];
        let (to, key) = (node(ME), key());
        let sealed = reply.seal_with_sums(from, to, &key, &mut bytes, sum);
        let Some(len) = sealed.filter(|_| self.tells_sums) else {
            let sums = Sums::NONE;
            return self.step(Event::Replied { from, reply, sums });
        };
        let datagram = open(&bytes[..len], &key).unwrap();
        let (reply, sums) = Reply::parse(datagram.body).unwrap();
        let reply = &reply;
        self.step(Event::Replied { from, reply, sums })
    }

    /// The number of fragments that were asked for.
    pub(super) fn count(&self) -> usize {
        self.cells.len()
    }

    /// A fragment arrives: the device writes it to the next slot, if there is one.
    pub(super) fn fragment(&mut self, index: usize) -> Effect {
        self.datagram(self.id.tag, index)
    }

    /// A datagram arrives with this tag and index.
    pub(super) fn datagram(&mut self, tag: u16, index: usize) -> Effect {
        let per_page = self.len.per_page();
        let page = self.pages.nth(index / per_page);
        let is_ours = tag == self.id.tag;
        if !self.is_posted || self.used >= self.cells.len() {
            return Effect::Wait;
        }
        let slot = self.used;
        self.used += 1;
        self.cells[slot] = page.filter(|_| is_ours).map(|page| {
            let harm = if self.damaged.contains(page) {
                DAMAGE
            } else {
                0
            };
            (page, index % per_page + harm)
        });
        // CAST: At most 256 fragments.
        let imm = FragmentId {
            tag,
            index: index as u16,
        };
        let imm = Some(imm.to_imm());
        let len_bytes = self.len.bytes();
        self.step(Event::Arrived(Landed {
            slot: slot as u8,
            imm,
            len_bytes,
        }))
    }

    /// All fragments arrive but these.
    pub(super) fn fragments_but(&mut self, lost: &[usize]) {
        for index in (0..self.count()).filter(|index| !lost.contains(index)) {
            self.fragment(index);
        }
    }

    /// The queue pair has stopped; moves are made.
    pub(super) fn stop(&mut self) -> Effect {
        assert!(self.is_stopping);
        self.is_stopping = false;
        self.is_posted = false;
        let effect = self.step(Event::Stopped);
        let Effect::Settle { complete } = effect else {
            return effect;
        };
        while let Some(Move { from, to }) = self.requester.next_move() {
            let cell = match from {
                Place::Slot(slot) => self.cells[usize::from(slot)],
                Place::Spare => self.spare,
            };
            match to {
                Place::Slot(slot) => self.cells[usize::from(slot)] = cell,
                Place::Spare => self.spare = cell,
            }
        }
        let per_page = self.len.per_page();
        for (rank, page) in self.pages.iter().enumerate() {
            for part in 0..per_page {
                let cell = self.cells[rank * per_page + part];
                self.memory[usize::from(page) * per_page + part] = cell;
            }
        }
        let is_sound = |page: u8| {
            let cells = self.memory[self.len.of_page(page.into())].iter();
            cells.flatten().all(|(_, part)| *part < DAMAGE)
        };
        let mut damaged = PageSet::EMPTY;
        for page in complete.iter() {
            let found = if is_sound(page) { sum(page) } else { 0xbad };
            if self.requester.sum(page).is_some_and(|sum| sum != found) {
                damaged.insert(page);
            }
        }
        self.step(Event::Settled { damaged })
    }

    /// Lets the timer expire at its time.
    /// The timer expires, until something else follows than that a request is sent once more.
    pub(super) fn expire(&mut self) -> Effect {
        loop {
            let effect = self.expire_once();
            if !matches!(effect, Effect::Again { .. }) {
                return effect;
            }
        }
    }

    pub(super) fn expire_once(&mut self) -> Effect {
        self.now_us = self.now_us.max(self.timer_us.take().unwrap());
        self.step(Event::TimerFired)
    }

    pub(super) fn last(&self) -> &Asking {
        self.asked.last().unwrap()
    }
}

pub(super) const OVER_WITH_NOTHING: Effect = Effect::Over {
    got: PageSet::EMPTY,
};

pub(super) fn all() -> PageSet {
    wanted().pages()
}

pub(super) fn wait(wait_ms: u16) -> Answer {
    Answer::Wait { wait_ms, depth: 31 }
}

pub(super) fn data(pages: PageSet) -> Answer {
    Answer::Data { pages }
}
