// SPDX-License-Identifier: GPL-2.0

//! Work beside requests, one IO after the other: members return, segments are collected.

use block_ext::bdev::BlockDevice;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    random,
    ratelimit::RateLimit, //
};
use seglog::{
    collect::Purpose,
    devices::Devices,
    layout::{
        COLUMN_BYTES_MAX,
        SLOT_BYTES, //
    },
    log::Wait,
    slots,
    superblock::{
        newer,
        Refusal,
        Superblock, //
    },
};

use super::{
    core::Core,
    engine::Engine,
    memory::Crc,
    one_by_one::OneByOne,
    rewrite::Rewriter,
    stats::Stat, //
};
use crate::{
    proto::{
        array::{
            Need,
            NotNow, //
        },
        collector::{
            Loaded,
            Stage,
            Staged,
            Victim, //
        },
    },
    shown::Shown, //
};

/// The records that are read before they are moved.
const STAGED_MAX: usize = 1024;
/// The time after which a member is tried again, at first and at most, in milliseconds.
const RETRY_MS: u64 = 1000;
const RETRY_MAX_MS: u64 = 60_000;

static LOG_LIMIT: RateLimit = RateLimit::new(60_000, 6);

/// The state of the upkeep of an array.
pub(super) struct Upkeep {
    one_by_one: OneByOne,
    column: KVVec<u8>,
    other: KVVec<u8>,
    payloads: KVVec<u8>,
    records: KVVec<Option<Staged>>,
    rewriter: Rewriter,
    /// Time at which members that are missing are tried again, and the interval until then.
    retry_at_ms: u64,
    retry_ms: u64,
    /// Time at which segments are tried again of which something could not be read.
    again_at_ms: u64,
}

impl Upkeep {
    /// Allocates all memory. Sleeps.
    pub(super) fn new(one_by_one: OneByOne) -> Result<KBox<Self>> {
        let this = Self {
            one_by_one,
            column: KVVec::from_elem(0, COLUMN_BYTES_MAX, GFP_KERNEL)?,
            other: KVVec::from_elem(0, COLUMN_BYTES_MAX, GFP_KERNEL)?,
            payloads: KVVec::from_elem(0, 2 * COLUMN_BYTES_MAX, GFP_KERNEL)?,
            records: KVVec::from_elem(None, STAGED_MAX, GFP_KERNEL)?,
            rewriter: Rewriter::new()?,
            retry_at_ms: 0,
            retry_ms: RETRY_MS,
            again_at_ms: RETRY_MAX_MS,
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }

    /// Does what is needed, but collects one segment at most; returns whether to call it again.
    /// Sleeps.
    pub(super) fn run(&mut self, core: &Arc<Core>) -> bool {
        self.try_returns(core);
        if core.now_ms() >= self.again_at_ms {
            self.again_at_ms = core.now_ms().saturating_add(RETRY_MAX_MS);
            core.with_engine(|engine| engine.array.collect_again());
        }
        self.collect(core)
    }

    /// Tries to take back members that have failed.
    fn try_returns(&mut self, core: &Arc<Core>) {
        let Some(missing) = core.with_engine(|engine| engine.missing()) else {
            return;
        };
        if missing.is_empty() {
            self.retry_ms = RETRY_MS;
            return;
        }
        if core.now_ms() < self.retry_at_ms {
            return;
        }
        self.retry_at_ms = core.now_ms().saturating_add(self.retry_ms);
        self.retry_ms = self.retry_ms.saturating_mul(2).min(RETRY_MAX_MS);
        for member in missing.iter() {
            if let Err(why) = self.take_back(core, member) {
                if LOG_LIMIT.allow().is_some() {
                    pr_info!(
                        "{}: member {member} is not taken back yet: {why:?}\n",
                        core.name()
                    );
                }
            }
        }
    }

    /// Takes a member back that answers again.
    fn take_back(&mut self, core: &Arc<Core>, member: usize) -> Result {
        let checked = core.with_engine(|engine| {
            let reads = engine.reads.parts(member);
            engine.array.check_return(member, reads)
        });
        checked.ok_or(ENODEV)?.map_err(|_: NotNow| EBUSY)?;
        self.one_by_one.forget();
        // What was on its way has arrived, and its superblock may be among it.
        self.one_by_one.flush(member)?;
        // An older one will do: that it has failed is written over the one that is damaged.
        let own = superblock(&mut self.one_by_one, member)?.map_err(|_: Refusal| EINVAL)?;
        if own.member != member {
            return Err(EINVAL);
        }
        let taken = core.with_running(|engine| {
            let with = (own, engine.reads.parts(member));
            let taken = engine.act(|array, acting| array.take_back(with, acting, &Crc));
            engine.settle(core);
            taken
        });
        taken.ok_or(ENODEV)?.map_err(|_: NotNow| EBUSY)?;
        is_back(core, member);
        Ok(())
    }

    /// Puts a new device in the place of a member that has failed. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no member is missing, or one cannot return now; those of the device.
    pub(super) fn replace(&mut self, core: &Arc<Core>, device: Arc<BlockDevice>) -> Result<usize> {
        let id = random::number() | 1;
        let member = core.with_engine(Engine::replaceable).ok_or(ENODEV)?;
        let member = member.ok_or_else(|| {
            pr_err!("{}: replace: no member is missing\n", core.name());
            EBUSY
        })?;
        let own = core.with_engine(|engine| {
            let with = (id, engine.reads.parts(member));
            engine.array.replacement(member, with)
        });
        let own = own.ok_or(ENODEV)?.map_err(|why| {
            pr_err!(
                "{}: member {member} is not replaced: {}\n",
                core.name(),
                Shown(why)
            );
            EBUSY
        })?;
        let before = self.one_by_one.set(member, device.clone())?;
        if let Err(error) = self.take_new(core, own, device) {
            // The one before may still return.
            self.one_by_one.put_back(member, before);
            return Err(error);
        }
        self.one_by_one.close(before);
        self.retry_ms = RETRY_MS;
        is_back(core, member);
        Ok(member)
    }

    /// Writes a new device, which the array has from then on, or as before if that fails.
    fn take_new(&mut self, core: &Arc<Core>, own: Superblock, device: Arc<BlockDevice>) -> Result {
        let member = own.member;
        write_new(&mut self.one_by_one, &own)?;
        let found = superblock(&mut self.one_by_one, member)?.map_err(|_: Refusal| EINVAL)?;
        if found.member != member {
            return Err(EINVAL);
        }
        let taken = core.with_running(|engine| engine.take_new(core, own, device));
        taken.ok_or(ENODEV)?.map_err(|why| {
            pr_err!(
                "{}: member {member} is not replaced: {}\n",
                core.name(),
                Shown(why)
            );
            EBUSY
        })
    }

    /// Collects a segment; whether there was one.
    fn collect(&mut self, core: &Arc<Core>) -> bool {
        let begun = core.with_running(|engine| engine.begin_collecting(core));
        let Some(Some(mut victim)) = begun else {
            return false;
        };
        // It may have been read in an earlier use.
        self.one_by_one.forget();
        let is_emptied = self.empty(core, &mut victim);
        core.with_engine(|engine| engine.array.end_collecting(&victim));
        core.stats.add(Stat::Collected, 1);
        if is_emptied && victim.is_repaired() {
            core.stats.add(Stat::Repairs, 1);
        }
        Core::kick(core);
        is_emptied
    }

    /// Moves what is live in a segment; whether all of it was.
    fn empty(&mut self, core: &Arc<Core>, victim: &mut Victim) -> bool {
        let Some(with) = core.with_engine(|engine| (engine.layout(), engine.array.tag())) else {
            return false;
        };
        let mut is_whole = true;
        loop {
            let mut stage = Stage {
                column: &mut self.column,
                other: &mut self.other,
                payloads: &mut self.payloads,
                records: &mut self.records,
            };
            let with = (&with.0, with.1);
            let hedge_ms = core.settings.hedge_ms;
            let devices = (&mut self.one_by_one, || core.is_stopping(), hedge_ms);
            let loaded = victim.load(devices, &mut stage, with, &Crc);
            if loaded.is_stopped {
                return false;
            }
            if loaded.lost_columns > 0 {
                is_whole = false;
                if LOG_LIMIT.allow().is_some() {
                    pr_err!(
                        "{}: {} columns of segment {} cannot be read from any member\n",
                        core.name(),
                        loaded.lost_columns,
                        victim.segment()
                    );
                }
            }
            if !self.move_all(core, &loaded) {
                return false;
            }
            if loaded.is_complete {
                return is_whole;
            }
        }
    }

    /// Moves the records that were read; whether that was possible.
    fn move_all(&mut self, core: &Arc<Core>, loaded: &Loaded) -> bool {
        let mut next = 0;
        while next < loaded.records {
            if core.is_stopping() {
                return false;
            }
            let runs = core.runs();
            let staged = self.records.get(next..loaded.records).unwrap_or_default();
            let (payloads, rewriter) = (&self.payloads, &mut self.rewriter);
            let moved =
                core.with_running(|engine| engine.move_some(core, (staged, payloads), rewriter));
            match moved {
                Some(Ok(0)) => return true,
                Some(Ok(count)) => next = next.saturating_add(count),
                Some(Err(Wait::Stopped)) | None => return false,
                Some(Err(_)) => core.await_run(runs),
            }
        }
        true
    }
}

impl Engine {
    /// Fails a member by hand; `None` lets it return.
    ///
    /// # Errors
    ///
    /// `EBUSY` if too few others are in sync, or one of them does not answer, after a log line.
    pub(super) fn fail(&mut self, core: &Arc<Core>, member: Option<usize>) -> Result {
        let Some(member) = member else {
            if let Some(member) = self.array.kept_out() {
                pr_info!("{}: member {member} may return\n", core.name());
            }
            self.array.release();
            return Ok(());
        };
        let owed_ms = self.owed_ms(core);
        self.array.take_away(member, owed_ms).map_err(|why| {
            pr_err!("{}: fail: not done: {}\n", core.name(), Shown(why));
            EBUSY
        })?;
        self.give_up_reads(core, member);
        pr_info!(
            "{}: member {member} is failed by hand, and kept out\n",
            core.name()
        );
        Ok(())
    }

    /// Takes a new device in the place of a member, with the superblock that was written to it.
    fn take_new(
        &mut self,
        core: &Arc<Core>,
        own: Superblock,
        device: Arc<BlockDevice>,
    ) -> Result<(), NotNow> {
        let reads = self.reads.parts(own.member);
        let before = self.means.exchange(own.member, Some(device));
        let taken = self.act(|array, acting| array.take_new((own, reads), acting, &Crc));
        if taken.is_err() {
            self.means.exchange(own.member, before);
        }
        self.settle(core);
        taken
    }

    /// Returns the member whose place a new device may take.
    fn replaceable(&mut self) -> Option<usize> {
        let written = self.array.live().or(self.array.returning());
        seglog::members::Members::ALL.minus(written).iter().next()
    }

    /// Chooses a segment to be collected, if that is needed.
    fn begin_collecting(&mut self, core: &Arc<Core>) -> Option<Victim> {
        let is_blocked = self.is_blocked();
        match self.array.need(is_blocked) {
            Need::Collect | Need::Refuse => {}
            Need::Nothing | Need::Batch => return None,
        }
        let victim = self.act(|array, acting| array.begin_collecting(acting));
        self.settle(core);
        victim
    }

    /// Begins a batch of records that are still live; returns how many of them are done with.
    fn move_some(
        &mut self,
        core: &Arc<Core>,
        (staged, payloads): (&[Option<Staged>], &[u8]),
        rewriter: &mut Rewriter,
    ) -> Result<usize, Wait> {
        let mut packing = match self.array.pack(Purpose::Collect, false) {
            Ok(packing) => packing,
            Err(wait) => {
                if wait == Wait::Segment {
                    self.act(|array, acting| array.free_empty(true, acting));
                    self.settle(core);
                }
                return Err(wait);
            }
        };
        let mut done = 0;
        for record in staged {
            let live = record.and_then(|staged| Some((staged, staged.live(&self.array)?)));
            if let Some((staged, record)) = live {
                let payload = payloads.get(staged.payload()).unwrap_or_default();
                let compression = core.settings.compression;
                let has_room = if rewriter.rewrite(&record, payload, compression) {
                    self.add_records(&mut packing, rewriter.parts())
                } else {
                    self.add_records(&mut packing, [(&record, payload)].into_iter())
                };
                if !has_room {
                    break;
                }
                core.stats.add(Stat::MovedBytes, record.bytes() as u64);
            }
            done += 1;
        }
        if !packing.is_empty() {
            self.begin_batch(core, (&packing, Purpose::Collect))?;
        }
        Ok(done)
    }
}

/// A member was taken back.
fn is_back(core: &Arc<Core>, member: usize) {
    pr_info!(
        "{}: member {member} is back, and is resynchronised\n",
        core.name()
    );
    Core::kick(core);
}

/// Returns what the slots of a member have: the newer superblock, if both can be read.
pub(super) fn superblock(
    devices: &mut OneByOne,
    member: usize,
) -> Result<Result<Superblock, Refusal>> {
    let [one, other] = slots::read(devices, member, &Crc)?;
    Ok(newer(one, other))
}

/// Writes the superblock of a new member: both slots are zeroed before. Sleeps.
pub(super) fn write_new(devices: &mut OneByOne, own: &Superblock) -> Result {
    let zeroes = KVec::from_elem(0, SLOT_BYTES as usize, GFP_KERNEL)?;
    Ok(slots::write_new(devices, own, &zeroes, &Crc)?)
}
