// SPDX-License-Identifier: GPL-2.0

//! Workers that look up addresses: a look-up takes a second if no machine has the address.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::workers::Workers;
use crate::proto::cache::address::Address;

/// The addresses that are looked up at a time.
const RESOLVERS: u16 = 64;

/// The workers. Each address is looked up by one of them at a time: one that no machine has is
/// tried seven times a second while its node is suspected.
#[pin_data]
pub(super) struct Resolvers {
    workers: Arc<Workers>,
    /// The addresses that are looked up now, with room for one of each worker.
    #[pin]
    under_way: Mutex<KVec<Address>>,
}

impl Resolvers {
    /// Allocates them. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if an allocation fails.
    pub(super) fn new() -> Result<Arc<Self>> {
        let workers = Workers::new(c"gfarm_resolve", RESOLVERS)?;
        let under_way = KVec::with_capacity(RESOLVERS.into(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                workers,
                under_way <- new_mutex!(under_way, "Resolvers::under_way"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a worker carry out `work`, which looks `address` up and sends a message there. If one
    /// looks that address up already, there is no memory, or they have ended, the message is lost.
    /// Returns `work` if all are busy with other addresses. Sleeps.
    pub(super) fn spawn<W>(self: &Arc<Self>, address: Address, work: W) -> Result<(), W>
    where
        W: FnOnce() + Send + 'static,
    {
        {
            let mut under_way = self.under_way.lock();
            if under_way.contains(&address) {
                return Ok(());
            }
            if under_way.push_within_capacity(address).is_err() {
                return Err(work);
            }
        }
        // Dropped by the worker, or at once if there is none for it.
        let turn = Turn(self.clone(), address);
        self.workers.spawn(move || {
            work();
            drop(turn);
        });
        Ok(())
    }

    /// Ends them: waits for those that are busy. Sleeps.
    pub(super) fn end(&self) {
        self.workers.end();
    }
}

/// The turn of an address.
struct Turn(Arc<Resolvers>, Address);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.under_way.lock().retain(|other| *other != self.1);
    }
}
