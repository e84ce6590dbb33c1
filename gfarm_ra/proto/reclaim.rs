// SPDX-License-Identifier: GPL-2.0

//! The choice of the open file that gives its descriptor to another one.

use super::replica::HostId;

/// The time for which the descriptor of one file is waited for before the next one is asked for its
/// own, in milliseconds.
pub const SLICE_MS: u32 = 100;

/// The time for which a task waits for a descriptor, in milliseconds.
pub const PATIENCE_MS: u32 = 1000;

/// The number of gfsds at which files are being closed.
const HOSTS_MAX: usize = 16;

/// The number of files that are being closed at one of them.
const PER_HOST_MAX: u8 = 2;

/// The number of files that are being closed. Each may wait for its gfsd, and keeps none of another
/// gfsd from being closed.
// CAST: 32.
pub const CLOSING_MAX: u16 = HOSTS_MAX as u16 * PER_HOST_MAX as u16;

/// The number of files that are asked one after the other, until one gives its descriptor.
pub const ASKED_MAX: usize = 8;

/// An open file that has a descriptor. The times are in milliseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number among the open files, which no other one has.
    pub number: u64,
    /// The time of its last read, in milliseconds.
    pub used_ms: u64,
    /// The gfsd at which it is open, and has to be closed first.
    pub host: Option<HostId>,
    /// The time since which it is being closed, as another file needs its descriptor, in
    /// milliseconds.
    pub asked_ms: Option<u64>,
    /// A read waits for it, or is carried out: it keeps its descriptor.
    pub is_read: bool,
}

/// The answer of a file that was asked for its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The file keeps it: a read waits for it, or it has none.
    Kept,
    /// Its gfsd is to close the file first.
    Asked,
    /// gfmd is to close it.
    Closing,
}

/// Whether an open file may be asked for its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whether the task that opens the file has noted that it is open. The file is not asked until
    /// then: that note would say for good that gfmd holds a descriptor that was given back before,
    /// also for the file that gets its number next.
    has_begun: bool,
    has_descriptor: bool,
}

impl Held {
    /// A file that gfmd has opened, or that is opened when it is read.
    pub const fn new(has_descriptor: bool) -> Self {
        Self {
            has_begun: false,
            has_descriptor,
        }
    }

    /// Takes note that who opens the file has noted it.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Takes note of whether gfmd has a descriptor for it.
    pub fn note(&mut self, has_descriptor: bool) {
        self.has_descriptor = has_descriptor;
    }

    /// Returns whether it may be asked.
    pub const fn may_go(self) -> bool {
        self.has_begun && self.has_descriptor
    }
}

/// The place of an open file in the order in which they give their descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    used_ms: u64,
    number: u64,
}

/// A gfsd at which files are being closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    host: HostId,
    /// The number of these files.
    files: u8,
    /// The gfsd does not answer.
    is_silent: bool,
}

/// The files that are being closed, of all that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    hosts: [Option<Asked>; HOSTS_MAX],
    now_ms: u64,
    /// The number of files whose gfsds have some time left.
    under_way: usize,
}

impl Closing {
    /// Returns the count of no file.
    pub const fn new(now_ms: u64) -> Self {
        Self {
            hosts: [None; HOSTS_MAX],
            now_ms,
            under_way: 0,
        }
    }

    /// Takes note of one of the open files.
    pub fn note(&mut self, holder: &Holder) {
        let (Some(host), Some(asked_ms)) = (holder.host, holder.asked_ms) else {
            return;
        };
        let is_silent = asked_ms.saturating_add(SLICE_MS.into()) <= self.now_ms;
        if !is_silent {
            self.under_way = self.under_way.saturating_add(1);
        }
        let is_place = |place: &&mut Option<Asked>| place.is_none_or(|asked| asked.host == host);
        if let Some(place) = self.hosts.iter_mut().find(is_place) {
            let asked = place.get_or_insert(Asked {
                host,
                files: 0,
                is_silent: false,
            });
            asked.files = asked.files.saturating_add(1);
            asked.is_silent |= is_silent;
        }
    }

    /// Returns whether another file may be closed at a gfsd.
    fn takes(&self, host: HostId) -> bool {
        let mut known = self.hosts.iter().flatten();
        match known.find(|asked| asked.host == host) {
            Some(asked) => asked.files < PER_HOST_MAX && !asked.is_silent,
            None => self.hosts.iter().any(Option::is_none),
        }
    }

    /// Returns whether fewer files are being closed than are to be.
    pub const fn is_short(&self, wanted: usize) -> bool {
        self.under_way < wanted
    }

    /// Returns the turn of an open file, the least one first; `None` if it is not to be asked: it
    /// is being read or closed, or its gfsd does not answer, or has enough to close. To be called
    /// when all files are noted.
    pub fn turn(&self, holder: &Holder) -> Option<Turn> {
        if holder.is_read
            || holder.asked_ms.is_some()
            || holder.host.is_some_and(|host| !self.takes(host))
        {
            return None;
        }
        Some(Turn {
            used_ms: holder.used_ms,
            number: holder.number,
        })
    }
}

/// Returns the files to be asked for their descriptors, in their order, if so many are wanted; none
/// if enough are being closed. Walks over all `files` twice, however many do not give theirs.
pub fn first<T, I>(files: impl Fn() -> I, now_ms: u64, wanted: usize) -> [Option<T>; ASKED_MAX]
where
    T: Copy,
    I: Iterator<Item = (Holder, T)>,
{
    let mut closing = Closing::new(now_ms);
    files().for_each(|(holder, _)| closing.note(&holder));
    let mut first = [None; ASKED_MAX];
    if closing.is_short(wanted) {
        let turns = files().filter_map(|(holder, file)| Some((closing.turn(&holder)?, file)));
        turns.for_each(|(turn, file)| insert(&mut first, turn, file));
    }
    first.map(|place| place.map(|(_, file)| file))
}

/// Adds a file to those whose turns come first; the last one of too many is left out.
fn insert<T: Copy>(first: &mut [Option<(Turn, T)>], turn: Turn, file: T) {
    let mut offered = (turn, file);
    for place in first {
        match place {
            Some(known) if known.0 < offered.0 => {}
            Some(known) => core::mem::swap(known, &mut offered),
            None => {
                *place = Some(offered);
                return;
            }
        }
    }
}
