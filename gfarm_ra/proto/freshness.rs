// SPDX-License-Identifier: GPL-2.0

//! Tells how long the answers of gfmd count.
//!
//! An answer is as old as its question, however long it was under way. It may be too old when it
//! comes, and from a gfmd that is slower than `actimeo=` all of them are. A task that looks at the
//! age alone would ask again for what it has just been told: so the task that has asked uses its
//! answer once, right after ([`Own`]). For others, and for later uses, it stays as old as it is.
//!
//! A right is withdrawn while an open is under way that gfmd has granted before: what was granted
//! counts only if it was asked for since ([`Grant`]).

/// The time for which an answer waits for the task that has asked, in milliseconds: much longer
/// than a path walk takes from one of its steps to the next.
const RIGHT_AFTER_MS: u64 = 200;

/// Returns whether what was told `age_ms` milliseconds ago was told less than `max_s` seconds ago.
pub fn is_within(age_ms: u64, max_s: u32) -> bool {
    age_ms < u64::from(max_s) * 1000
}

/// The answer to a question that a task has asked to use it. `T` is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own<T> {
    /// The task, and the time at which it had the answer.
    unused: Option<(i32, T)>,
}

impl<T: Copy> Own<T> {
    /// No answer.
    pub const NONE: Self = Self { unused: None };

    /// Takes note that a task has an answer.
    pub fn told(&mut self, task: i32, now: T) {
        self.unused = Some((task, now));
    }

    /// Uses the answer of a task; returns the time at which it had come, if there is one. It counts
    /// if it came [right before](is_right_after).
    pub fn take(&mut self, task: i32) -> Option<T> {
        let (_, came) = self.unused.filter(|(asker, _)| *asker == task)?;
        self.unused = None;
        Some(came)
    }
}

/// Returns whether an answer that has come `since_ms` milliseconds ago is used without a look at
/// its age. With an age of at most 0 seconds each use asks.
pub fn is_right_after(since_ms: u64, max_s: u32) -> bool {
    since_ms < RIGHT_AFTER_MS && is_within(since_ms, max_s)
}

/// Whether gfmd has granted a right, and when it was asked. `T` is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<T> {
    asked: Option<T>,
    withdrawn: Option<T>,
}

impl<T: Copy + Ord> Grant<T> {
    /// Nothing is known.
    pub const NONE: Self = Self {
        asked: None,
        withdrawn: None,
    };

    /// Returns the time at which gfmd was asked for what it has granted.
    pub const fn asked(&self) -> Option<T> {
        self.asked
    }

    /// Takes note that gfmd has granted what it was asked for at a time. The answer may have been
    /// under way when the right was withdrawn.
    pub fn grant(&mut self, asked: T) {
        if self.withdrawn.is_none_or(|withdrawn| asked >= withdrawn) {
            self.asked = self.asked.max(Some(asked));
        }
    }

    /// Takes note that what was asked for before a time is granted no more.
    pub fn withdraw(&mut self, at: T) {
        self.withdrawn = self.withdrawn.max(Some(at));
        self.asked = self.asked.filter(|asked| *asked >= at);
    }
}
