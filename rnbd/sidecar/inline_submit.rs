// SPDX-License-Identifier: GPL-2.0

//! The choice of the thread that carries out a request to an idle device: the one that submits it,
//! or a worker.
//!
//! The thread saves waking a worker, which costs more than a record. The worker starts later, and
//! so finds the requests that come right behind, which then share a record. So requests that come
//! alone are carried out at once, and now and then the worker looks whether they still do.

/// The number of requests that are carried out at once before the worker looks again.
const UNTIL_LOOK: u32 = 16;

/// The number of requests that are submitted inline before the worker looks again; as a number, for
/// an atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineSubmit(u32);

impl InlineSubmit {
    /// Restores what [`into_raw`](Self::into_raw) gave.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns it as a number.
    pub const fn into_raw(self) -> u32 {
        self.0
    }

    /// Decides about a request to an idle device. Returns the new state if the thread that submits
    /// the request carries it out; `None` if that is for the worker.
    pub const fn at_once(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(left) => Some(Self(left)),
            None => None,
        }
    }

    /// Returns the state after a run of the worker, which had at most `together` requests at a
    /// time.
    #[must_use]
    pub const fn after_worker(self, together: u32) -> Self {
        match together {
            // It was for something else.
            0 => self,
            1 => Self(UNTIL_LOOK),
            _ => Self(0),
        }
    }
}
