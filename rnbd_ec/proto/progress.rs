// SPDX-License-Identifier: GPL-2.0

//! Measures how long members have owed the end of an IO.

use seglog::members::{
    Members,
    MEMBERS, //
};

/// Times at which an IO of each member has ended last, of IO of one kind. Writes and reads have one
/// each: a write that hangs is not excused by reads that end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time at which one has ended last, or the first one had begun, in milliseconds.
    ms: [u64; MEMBERS],
    /// The members that had IO in flight at the last [`Self::note_ios`].
    had_ios: Members,
}

impl Progress {
    /// An IO of a member has ended.
    pub fn note_end(&mut self, member: usize, now_ms: u64) {
        if let Some(ms) = self.ms.get_mut(member) {
            *ms = now_ms;
        }
    }

    /// Notes the members that have IO in flight: those that had none begin to owe its end.
    pub fn note_ios(&mut self, have_ios: Members, now_ms: u64) {
        for member in have_ios.minus(self.had_ios).iter() {
            self.note_end(member, now_ms);
        }
        self.had_ios = have_ios;
    }

    /// Returns for how many milliseconds a member has owed an end; 0 if it owes none.
    pub fn owed_ms(&self, member: usize, now_ms: u64) -> u64 {
        let since_ms = self.ms.get(member).copied().unwrap_or(now_ms);
        if self.had_ios.contains(member) {
            now_ms.saturating_sub(since_ms)
        } else {
            0
        }
    }
}
