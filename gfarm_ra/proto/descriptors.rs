// SPDX-License-Identifier: GPL-2.0

//! Number of descriptors that a mount has at gfmd, and when a task stops waiting for one.

/// The least number of descriptors by which a full process tells its limit: one that has fewer may
/// be full of others, which gfmd keeps for gfsds that do not answer.
pub const TELLS_MIN: usize = 64;

/// The least time for which a process is kept that has no room for another descriptor, in
/// milliseconds: gfmds that lose many descriptors are not asked for processes without a pause. That
/// it is older says nothing of why it is full, see [`Count::kept_ms`].
pub const FULL_MS_MIN: u64 = 30_000;

/// The maximum number of times that the time doubles: to about an hour.
const DOUBLED_MAX: u32 = 7;

/// The descriptors of a mount, and the tasks that wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The maximum of the mount.
    most: usize,
    /// The maximum of the process, which may have room for fewer.
    max: usize,
    /// Number that was open when a process was full: the most of this one, or that of the one
    /// before which was given up for it.
    told: Option<usize>,
    /// The most that were open since this process is there.
    peak: usize,
    /// The number of processes in a row that never had [`TELLS_MIN`] open, and were given up.
    small: u32,
    /// The descriptors that are open, or being opened or closed.
    open: usize,
    /// The open descriptors that gfmd is to close, up to the moment at which others may have them.
    closing: usize,
    waiting: usize,
}

/// One of so many files gives its descriptor back beside the one that another file needs: gfmd is
/// asked once to close several.
const TOGETHER: usize = 64;

/// The action of a task that has waited as long as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The task has a descriptor: one was given back at the last moment.
    Has,
    /// The task waits as long again: gfmd closes some, and there is room then.
    Wait,
    /// The task fails.
    Fail,
}

impl Count {
    /// Returns the count of no descriptor; a task waits while there are `max`.
    pub const fn new(max: usize) -> Self {
        Self {
            most: max,
            max,
            told: None,
            peak: 0,
            small: 0,
            open: 0,
            closing: 0,
            waiting: 0,
        }
    }

    /// Takes one, if there is room; returns whether it has done so.
    pub fn try_take(&mut self) -> bool {
        let has_room = !self.is_full();
        if has_room {
            self.exceed();
        }
        has_room
    }

    /// Takes one that is there already, also beside the maximum.
    pub fn exceed(&mut self) {
        self.open = self.open.saturating_add(1);
        self.peak = self.peak.max(self.open);
    }

    /// Takes note that gfmd is to close one.
    pub fn begin_closing(&mut self) {
        self.closing = self.closing.saturating_add(1);
    }

    /// Gives one back, which gfmd was to close, or not.
    pub fn give_back(&mut self, was_closing: bool) {
        self.open = self.open.saturating_sub(1);
        if was_closing {
            self.closing = self.closing.saturating_sub(1);
        }
    }

    /// The process has no room for another one: tasks wait from now on while there are nearly as
    /// many, so that files give theirs back. Walks need some, too. Returns whether the maximum is
    /// less than that of the mount for the first time.
    pub fn lower(&mut self) -> bool {
        let was_lowered = self.max < self.most;
        if self.open >= TELLS_MIN {
            self.told = self.told.max(Some(self.open));
            self.max = self.max.min(self.open.saturating_sub(self.open / 8));
        }
        !was_lowered && self.max < self.most
    }

    /// The process is given up as it is full: the next one is compared with it.
    pub fn give_up(&mut self) {
        self.told = Some(self.open);
        self.small = self.small.saturating_add(1);
    }

    /// Starts with another process, which may have room for more.
    pub fn renew(&mut self) {
        if self.peak >= TELLS_MIN {
            self.small = 0;
        }
        (self.max, self.peak) = (self.most, self.open);
    }

    /// Returns how long a process that is full is kept at least before it is given up, in
    /// milliseconds; [`None`] if another one would be as full.
    ///
    /// It may be full of descriptors that were closed. The first one may, which tells nothing else.
    /// A later one has far fewer open than it, or the process that was given up for this, has taken
    /// before; one that is full of about as many has room for no more, and so has the next one. Few
    /// tell nothing, so if gfmd has room for few, each process lives twice as long as the last one.
    pub fn kept_ms(&self) -> Option<u64> {
        let Some(told) = self.told else {
            return Some(FULL_MS_MIN);
        };
        if self.open < told.max(self.peak) / 2 {
            return Some(FULL_MS_MIN);
        }
        let doubled = self.small.min(DOUBLED_MAX);
        (self.open < TELLS_MIN).then_some(FULL_MS_MIN << doubled)
    }

    /// Returns whether a task that needs one has to wait.
    pub const fn is_full(&self) -> bool {
        self.open >= self.max
    }

    /// Begins a wait.
    pub fn begin_wait(&mut self) {
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Ends a wait.
    pub fn end_wait(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Returns how many files are to give theirs back, beside those that gfmd is to close: so many
    /// that each task which waits has one, and some more, or none.
    pub const fn wanted(&self) -> usize {
        let needed = self.open.saturating_add(self.waiting);
        match needed.saturating_sub(self.closing).saturating_sub(self.max) {
            0 => 0,
            wanted => wanted.saturating_add(self.max / TOGETHER),
        }
    }

    /// The time of a task that waits is over.
    pub fn late(&mut self) -> Late {
        if self.try_take() {
            Late::Has
        } else if self.open.saturating_sub(self.closing) < self.max {
            Late::Wait
        } else {
            Late::Fail
        }
    }
}
