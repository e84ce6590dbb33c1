// SPDX-License-Identifier: GPL-2.0

//! Contents that an array may have after a crash.

use crate::setting::Versions;

/// Contents that blocks may have after a crash: the state of the last batch that was flushed, and
/// of each batch after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct History {
    /// The number of the first state's batch.
    pub(crate) first: u64,
    pub(crate) states: Vec<Versions>,
}

impl History {
    pub(crate) fn new(first: u64, state: Versions) -> Self {
        Self {
            first,
            states: vec![state],
        }
    }

    pub(crate) fn newest(&self) -> Versions {
        self.states[self.states.len() - 1]
    }

    /// All batches up to one are durable.
    pub(crate) fn forget(&mut self, durable: u64) {
        let gone = durable.saturating_sub(self.first) as usize;
        self.states.drain(..gone.min(self.states.len() - 1));
        self.first = self.first.max(durable);
    }

    pub(crate) fn allows(&self, versions: &Versions) -> bool {
        self.states.contains(versions)
    }
}
