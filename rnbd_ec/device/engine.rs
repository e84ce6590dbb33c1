// SPDX-License-Identifier: GPL-2.0

//! Carries out what the pure array decides, in one work item.

use block_ext::{
    mq::Request,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno;
use seglog::{
    collect::Purpose,
    layout::Layout,
    members::{
        Members,
        MEMBERS, //
    },
};

use super::{
    acting::{
        Acting,
        Means,
        Told, //
    },
    core::{
        Core,
        Ended,
        Event, //
    },
    memory::{
        Crc,
        InKernel, //
    },
    queue::Queue,
    reads::Reads,
    stats::Stat,
    tags::{
        Tags,
        DEPTH, //
    },
    writes::Writes, //
};
use crate::proto::{
    array::{
        Array,
        Io,
        Need,
        News, //
    },
    geometry::BLOCK_BYTES,
    progress::Progress,
};

/// The requests that have come and have not ended, by their tags.
pub(super) struct Requests(KVec<Option<Request<Queue>>>);

impl Requests {
    fn new() -> Result<Self> {
        let mut all = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            all.push(None, GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// Returns one.
    pub(super) fn get(&mut self, tag: usize) -> Option<&mut Request<Queue>> {
        self.0.get_mut(tag).and_then(Option::as_mut)
    }

    /// Takes one.
    pub(super) fn take(&mut self, tag: usize) -> Option<Request<Queue>> {
        self.0.get_mut(tag).and_then(Option::take)
    }

    /// Puts one back.
    pub(super) fn put(&mut self, tag: usize, request: Request<Queue>) {
        if let Some(place) = self.0.get_mut(tag) {
            *place = Some(request);
        }
    }

    /// Ends one.
    pub(super) fn end(&mut self, tag: usize, result: Result) {
        if let Some(request) = self.take(tag) {
            request.end(result);
        }
    }
}

/// Returns the first block of a request and how many it has.
pub(super) fn blocks(request: &Request<Queue>) -> (u64, u32) {
    let sectors = BLOCK_BYTES as u64 / u64::from(block_ext::SECTOR_BYTES);
    let first = request.sector() / sectors.max(1);
    (first, request.len_bytes() / BLOCK_BYTES as u32)
}

/// The state of an array.
pub(super) struct Engine {
    pub(super) array: KBox<Array<InKernel>>,
    pub(super) means: Means,
    pub(super) told: Told,
    pub(super) news: News,
    pub(super) requests: Requests,
    pub(super) writes: Writes,
    pub(super) reads: Reads,
    arrived: KVec<Request<Queue>>,
    /// Flushes that wait for the one in flight, and those that end with it.
    waiting_flushes: Tags,
    begun_flushes: Tags,
    /// The progress of the array's own IO, and of parts of reads.
    own_progress: Progress,
    read_progress: Progress,
}

impl Engine {
    /// Allocates the state of an array that was assembled. Sleeps.
    #[inline(never)]
    pub(super) fn new(array: KBox<Array<InKernel>>, means: Means) -> Result<KBox<Self>> {
        let layout = *array.layout();
        let engine = Self {
            array,
            means,
            told: Told::default(),
            news: News::default(),
            requests: Requests::new()?,
            writes: Writes::new()?,
            reads: Reads::new(&layout)?,
            arrived: KVec::with_capacity(DEPTH, GFP_KERNEL)?,
            waiting_flushes: Tags::NONE,
            begun_flushes: Tags::NONE,
            own_progress: Progress::default(),
            read_progress: Progress::default(),
        };
        Ok(KBox::new(engine, GFP_KERNEL)?)
    }

    /// Returns the layout.
    pub(super) fn layout(&self) -> Layout {
        *self.array.layout()
    }

    /// Does all that can be done now.
    pub(super) fn run(&mut self, core: &Arc<Core>) {
        while let Some(ended) = core.next_ended() {
            self.ended(core, &ended);
        }
        core.take_arrived(&mut self.arrived);
        while let Some(request) = self.arrived.pop() {
            self.arrive(core, request);
        }
        self.go_on_with_preparing(core);
        if core.take_tick() {
            self.look_at_members(core);
            if core.settings.hedge_ms > 0 {
                self.hedge_reads(core);
            }
        }
        self.settle(core);
        self.go_on_with_reads(core);
        let is_blocked = self.begin_batches(core, Purpose::Write);
        if is_blocked {
            self.begin_zeroes(core);
        }
        self.begin_flush();
        self.make_room(core, is_blocked);
        self.settle(core);
        if self.array.is_stopped() {
            self.fail_waiting();
        }
        self.note_ios(core);
        if core.is_stopping() {
            self.drain(core);
        }
    }

    /// Calls the array with what it begins IOs by.
    pub(super) fn act<R>(
        &mut self,
        call: impl FnOnce(&mut Array<InKernel>, &mut Acting<'_>) -> R,
    ) -> R {
        let mut acting = Acting {
            means: &mut self.means,
            told: &mut self.told,
        };
        call(&mut self.array, &mut acting)
    }

    /// Does what follows by itself, and ends what is acknowledged.
    pub(super) fn settle(&mut self, core: &Arc<Core>) {
        self.act(|array, acting| array.settle(acting, &Crc));
        let told = core::mem::take(&mut self.told);
        for slot in 0..u32::BITS {
            if told.acknowledged >> slot & 1 != 0 {
                // CAST: A number of bits.
                for tag in self.writes.take_slot(slot as usize) {
                    self.requests.end(tag, Ok(()));
                }
            }
        }
        if told.is_flushed {
            for tag in self.begun_flushes.take_all() {
                self.requests.end(tag, Ok(()));
            }
        }
        for member in told.failed.iter() {
            core.stats.add(Stat::Failures, 1);
            let when = if self.array.kept_out() == Some(member) {
                "\"none\" is written to ec/fail"
            } else {
                "it answers"
            };
            pr_warn!(
                "{}: runs without member {member}: it is taken back when {when}, or write a new \
                 device to its file ec/replace\n",
                core.name()
            );
        }
        for member in told.joined.iter() {
            core.stats.add(Stat::Returns, 1);
            pr_info!("{}: member {member} is in sync again\n", core.name());
        }
        if self.news.note(self.array.view(), self.array.used_percent()) {
            core.announce();
        }
    }

    fn ended(&mut self, core: &Arc<Core>, ended: &Ended) {
        let is_well = ended.result.is_ok();
        match ended.event {
            Event::Array { io, member } => {
                self.own_progress.note_end(member, core.now_ms());
                if let (Err(error), true) = (ended.result, self.is_written(member)) {
                    pr_err!(
                        "{}: member {member}: {} has failed: {error:?}\n",
                        core.name(),
                        name_of(io)
                    );
                }
                self.array.ended(io, member, is_well);
                if !is_well {
                    self.give_up_reads(core, member);
                }
            }
            Event::Piece { piece, member } => {
                self.read_progress.note_end(member, core.now_ms());
                self.piece_read(core, (piece, member), is_well);
            }
        }
    }

    fn is_written(&self, member: usize) -> bool {
        self.array
            .live()
            .or(self.array.returning())
            .contains(member)
    }

    fn arrive(&mut self, core: &Arc<Core>, request: Request<Queue>) {
        // CAST: Below the depth.
        let tag = request.tag() as usize;
        let op = request.op();
        self.requests.put(tag, request);
        match op {
            Op::Read => {
                core.stats.add(Stat::Reads, 1);
                self.begin_read(core, tag);
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                core.stats.add(Stat::Writes, 1);
                if let Err(error) = self.prepare(core, tag) {
                    self.requests.end(tag, Err(error));
                }
            }
            Op::Flush => {
                core.stats.add(Stat::Flushes, 1);
                self.waiting_flushes.push(tag);
            }
            _ => self.requests.end(tag, Err(errno::EOPNOTSUPP)),
        }
    }

    /// Begins a flush for those that wait for one.
    fn begin_flush(&mut self) {
        if !self.waiting_flushes.is_empty()
            && self.begun_flushes.is_empty()
            && self.act(|array, acting| array.flush(acting))
        {
            self.begun_flushes = self.waiting_flushes.take_all();
        }
    }

    /// Begins what frees segments, if batches wait for one, or a dump is due.
    fn make_room(&mut self, core: &Arc<Core>, is_blocked: bool) {
        self.act(|array, acting| array.free_empty(is_blocked, acting));
        match self.array.need(is_blocked) {
            Need::Nothing => {}
            Need::Batch => self.begin_empty_batch(core),
            Need::Collect => Core::keep_up(core),
            Need::Refuse => {
                self.refuse_writes();
                Core::keep_up(core);
            }
        }
    }

    /// Fails what waits for members of which too few live.
    fn fail_waiting(&mut self) {
        for tag in self.writes.take_waiting() {
            self.requests.end(tag, Err(EIO));
        }
        for slot in 0..seglog::log::WINDOW {
            for tag in self.writes.take_slot(slot) {
                self.requests.end(tag, Err(EIO));
            }
        }
        for mut flushes in [
            self.begun_flushes.take_all(),
            self.waiting_flushes.take_all(),
        ] {
            while let Some(tag) = flushes.pop() {
                self.requests.end(tag, Err(EIO));
            }
        }
    }

    /// Notes which members have something to do.
    fn note_ios(&mut self, core: &Core) {
        let now_ms = core.now_ms();
        let have_own = |member: &usize| self.array.ios(*member) > 0;
        let have_reads = |member: &usize| self.reads.parts(*member) > 0;
        let own: Members = (0..MEMBERS).filter(have_own).collect();
        let reads: Members = (0..MEMBERS).filter(have_reads).collect();
        self.own_progress.note_ios(own, now_ms);
        self.read_progress.note_ios(reads, now_ms);
    }

    /// Returns for how many milliseconds each member has owed the end of an IO.
    pub(super) fn owed_ms(&self, core: &Core) -> [u64; MEMBERS] {
        let now_ms = core.now_ms();
        core::array::from_fn(|member| {
            let own_ms = self.own_progress.owed_ms(member, now_ms);
            own_ms.max(self.read_progress.owed_ms(member, now_ms))
        })
    }

    /// Members that do not answer have failed; those that have failed may return.
    fn look_at_members(&mut self, core: &Arc<Core>) {
        let limit_ms = u64::from(core.settings.member_timeout_ms);
        for (member, waited_ms) in self.owed_ms(core).into_iter().enumerate() {
            if waited_ms > limit_ms && self.is_written(member) {
                pr_err!(
                    "{}: member {member} has not answered for {waited_ms} ms: it has failed\n",
                    core.name()
                );
                self.array.fail(member);
                self.give_up_reads(core, member);
            }
        }
        if !core.is_stopping() && self.missing().count() > 0 && !self.array.is_stopped() {
            Core::keep_up(core);
        }
    }

    /// Returns the members that are not written, of which the device is open, and that may return.
    pub(super) fn missing(&self) -> Members {
        let kept_out = self.array.kept_out().map_or(Members::NONE, Members::of);
        let written = self.array.live().or(self.array.returning()).or(kept_out);
        let is_open = |member: &usize| matches!(self.means.devices.get(*member), Some(Some(_)));
        Members::ALL.minus(written).iter().filter(is_open).collect()
    }

    /// The array is being stopped: makes all durable.
    fn drain(&mut self, core: &Arc<Core>) {
        let is_idle = (0..MEMBERS).all(|member| self.array.ios(member) == 0);
        if self.array.is_stopped() || self.array.is_clean() {
            if is_idle && self.reads.is_idle() {
                core.is_drained();
            }
            return;
        }
        self.act(|array, acting| {
            array.free_empty(true, acting);
            array.settle(acting, &Crc);
        });
    }
}

/// Returns how the log calls an IO.
fn name_of(io: Io) -> &'static str {
    match io {
        Io::Column(_) => "a write",
        Io::Flush | Io::DumpFlush => "a flush",
        Io::Superblock => "the write of its superblock",
        Io::Page => "the write of a page of the table",
    }
}
