// SPDX-License-Identifier: GPL-2.0

//! The end of a store: an item of its own waits for what hangs, and who has asked for it does not.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    module::ModuleUse,
    workqueue::{
        self,
        WorkQueue, //
    },
};

use super::{
    super::{
        medium::Kept,
        one_device::TIMEOUT_MS, //
    },
    StoreOn, //
};

impl<D: Kept> StoreOn<D> {
    /// Ends it, in an item of `owed`. Sleeps, and can be killed.
    pub(super) fn end_on(self: Arc<Self>, owed: &WorkQueue) -> Result {
        self.inbox.lock().is_closed = true;
        let _ = self.with_engine(|engine| {
            engine.end_waiting();
            Ok(())
        });
        self.clone().kick();
        // While it goes on who unloads the module is told that it is in use.
        let (store, in_use) = (self.clone(), ModuleUse::new(&crate::THIS_MODULE));
        let spawned = owed.try_spawn(GFP_KERNEL, move || {
            store.end();
            drop(in_use);
            store.ended.complete_all();
        });
        if spawned.is_err() {
            self.end();
            return Ok(());
        }
        let mut before = self.left();
        while let Err(error) = self.ended.wait_killable_timeout_ms(TIMEOUT_MS) {
            let left = self.left();
            if error == ETIMEDOUT && core::mem::replace(&mut before, left) != left {
                continue;
            }
            if error != ETIMEDOUT {
                return Err(error);
            }
            let of = match self.is_backed {
                true => "the file system",
                false => "its device",
            };
            pr_warn!(
                "store '{}' ends, but {of} has not answered for {} s, and is in use until then\n",
                &*self.name,
                TIMEOUT_MS / 1000
            );
            break;
        }
        Ok(())
    }

    /// Returns what is left to be done with files: each thing that is done changes it.
    fn left(&self) -> Option<(u64, u32)> {
        let left = self.with_engine(|engine| {
            let usage = engine.store.index().usage();
            Ok((usage.dirty, usage.objects))
        });
        left.ok()
    }

    /// Frees its memory, when nothing goes on any more. Sleeps.
    fn end(self: &Arc<Self>) {
        self.drained.wait();
        self.end_files();
        // All are here, with the last request; the last one's item may be queueing that of the
        // store, on a queue which nothing else keeps when the store is gone.
        let readers = core::mem::take(&mut *self.readers.lock());
        for (reader, _) in readers.iter() {
            workqueue::flush::<_, 0>(reader);
        }
        drop(workqueue::cancel_sync::<Self, 2>(self));
        drop(workqueue::cancel_sync::<Self, 1>(self));
        drop(workqueue::cancel_sync::<Self, 0>(self));
        // Here, as the end of the last IO may have the last reference.
        let (worker, upkeep) = (self.worker.lock().take(), self.upkeep.lock().take());
        let filing = self.filing.lock().take();
        let engine = self.engine.lock().take();
        let list = core::mem::replace(&mut self.inbox.lock().list, KVVec::new());
        drop((worker, upkeep, readers, filing, engine, list));
    }
}
