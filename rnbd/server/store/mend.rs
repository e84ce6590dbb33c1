// SPDX-License-Identifier: GPL-2.0

//! PI blocks that cannot be read: while a scrub runs that is to mend them (`mend`, written to the
//! file `scrub`), they are written anew, for the scrub and for requests of clients.
//!
//! Their data blocks are lost then until they are written again, but they can be. A PI block is
//! read twice before: what is written over is lost for good. Nothing else is written to it
//! meanwhile, as no slot has it; requests for its data blocks wait for the end.

use block_ext::{
    Flags,
    Op, //
};
use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    engine::{
        Engine,
        Event, //
    },
    volume::Volume,
    writes::durable, //
};
use crate::{
    server::log_limit::CHANGES_LIMIT,
    sidecar::{
        group::{
            self,
            Index, //
        },
        online_scrub,
        store::Memory,
        BLOCK_BYTES, //
    },
};

impl Engine {
    /// A PI block was read, or could not be. `is_second`: for the second time.
    pub(super) fn pi_block_read(
        &mut self,
        volume: &Arc<Volume>,
        slot: usize,
        result: Result,
        is_second: bool,
    ) {
        let errno = result.err().and_then(|e| Errno::new(e.to_errno()));
        let is_bad = errno.is_some_and(online_scrub::is_of_medium);
        if is_bad && self.store.may_mend() && volume.scrub().lock().mends() {
            return match is_second {
                true => self.mend(volume, slot),
                false => self.read_pi_block(volume, Event::PiBlockReadAgain(slot), slot),
            };
        }
        let is_ok = result.is_ok() && self.pages.load(slot).is_ok();
        self.store.pi_block_read(slot, is_ok);
    }

    /// Reads the PI block of a slot.
    pub(super) fn read_pi_block(&mut self, volume: &Arc<Volume>, event: Event, slot: usize) {
        let page = self.pages.image(slot).cloned();
        let group = self.store.group(slot);
        let at = group.and_then(|group| self.layout.pi_block(group));
        let flags = Flags::META | Flags::SYNC;
        self.submit(volume, event, (Op::Read, flags), at, page);
    }

    /// Writes the PI block of a slot anew.
    #[cold]
    fn mend(&mut self, volume: &Arc<Volume>, slot: usize) {
        let group = self.store.group(slot);
        if let Some(group) = group {
            let pi_block = self.pages.pi_block_mut(slot);
            group::rebuild(pi_block, group, volume.seal(), |_| None);
        }
        let page = self.pages.save(slot, 0..BLOCK_BYTES).ok();
        let at = group.and_then(|group| self.layout.pi_block(group));
        let flags = Flags::META | durable(true);
        self.submit(
            volume,
            Event::PiBlockMended(slot),
            (Op::Write, flags),
            at,
            page,
        );
    }

    /// A PI block was written anew, or could not be.
    #[cold]
    pub(super) fn pi_block_mended(&mut self, volume: &Volume, slot: usize, is_ok: bool) {
        self.store.pi_block_read(slot, is_ok);
        if !is_ok {
            return;
        }
        volume.scrub().lock().mended();
        let group = self.store.group(slot);
        if let Some(group) = group.filter(|_| CHANGES_LIMIT.allow().is_some()) {
            let name = volume.device().name().unwrap_or_default();
            pr_warn!(
                "{name}: the tuples of data blocks {} to {} could not be read, and were written \
                 anew: these blocks are lost until they are written again\n",
                group::block_at(group, 0),
                group::block_at(group, Index::MAX)
            );
        }
    }
}
