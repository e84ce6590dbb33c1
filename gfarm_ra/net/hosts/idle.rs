// SPDX-License-Identifier: GPL-2.0

//! Ends connections that no open file has used for a time.

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::workqueue::{
    self,
    DelayedItem,
    WorkQueue, //
};

use super::{
    Connection,
    Host,
    Hosts,
    State, //
};
use crate::proto::{
    idle::{
        self,
        Idle, //
    },
    setting::Setting, //
};

impl WorkItem for Hosts {
    type Pointer = Arc<Hosts>;

    fn run(this: Arc<Hosts>) {
        *this.looks_at_ms.lock() = None;
        let timeout_s = this.setup.options.get(Setting::IdleTimeout);
        let now_ms = this.setup.now_ms();
        let mut next_ms = None;
        for number in 0.. {
            let Some(host) = this.known.lock().get(number).cloned() else {
                break;
            };
            let left_ms = host.end_idle(now_ms, timeout_s);
            next_ms = [next_ms, left_ms].into_iter().flatten().min();
        }
        if let Some(left_ms) = next_ms {
            this.look_in(left_ms);
        }
    }
}

impl DelayedItem for Hosts {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

impl Hosts {
    /// Gives a connection back.
    pub(in crate::net) fn give_back(self: &Arc<Self>, host: &Host, connection: Arc<Connection>) {
        if host.give_back(&connection, self.setup.now_ms()) {
            let timeout_s = self.setup.options.get(Setting::IdleTimeout);
            self.look_in(idle::kept_ms(2, timeout_s));
        }
    }

    /// Lets unused connections be looked at after `left_ms`, if they are not before.
    fn look_in(self: &Arc<Self>, left_ms: u64) {
        if self.setup.is_closed() {
            return;
        }
        let at_ms = self.setup.now_ms().saturating_add(left_ms);
        let mut looks_at_ms = self.looks_at_ms.lock();
        if looks_at_ms.is_none_or(|pending_ms| at_ms < pending_ms) {
            *looks_at_ms = Some(at_ms);
            let delay_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
            workqueue::mod_delayed::<_, 0>(self.clone(), delay_ms);
        }
    }

    /// Stops to look at unused connections, of which no more are given back. Sleeps.
    pub(in crate::net) fn close(self: &Arc<Self>) {
        drop(workqueue::cancel_delayed_sync::<_, 0>(self));
    }
}

impl Host {
    /// Ends the connections that were not used for a time. Returns after which time there is
    /// another one to end, in milliseconds, if there is one that is not used. Sleeps.
    fn end_idle(&self, now_ms: u64, timeout_s: u32) -> Option<u64> {
        loop {
            let mut state = self.state.lock();
            match oldest(&state, now_ms, timeout_s)? {
                (index, Idle::End) => {
                    let ended = state.pool.remove(index);
                    drop(state);
                    // The last reference closes the socket, which may sleep.
                    drop(ended);
                }
                (_, Idle::Keep { left_ms }) => return Some(left_ms),
            }
        }
    }
}

/// Returns the connection that is not used for the longest time.
fn oldest(state: &State, now_ms: u64, timeout_s: u32) -> Option<(usize, Idle)> {
    let pool = state.pool.iter().enumerate();
    let idle = pool.filter(|(_, pooled)| pooled.users == 0);
    let (index, pooled) = idle.min_by_key(|(_, pooled)| pooled.since_ms)?;
    let decided = idle::decide(state.pool.len(), pooled.since_ms, now_ms, timeout_s);
    Some((index, decided))
}
