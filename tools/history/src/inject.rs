// SPDX-License-Identifier: GPL-2.0

//! A disk that does something wrong on purpose: what the checker must find.

use std::{
    io,
    str::FromStr,
    sync::{
        Mutex,
        MutexGuard,
        PoisonError, //
    }, //
};

use crate::disk::{
    Buffer,
    Disk, //
};

const FOREIGN: u8 = 0x5a;

/// A fault that is injected, so that the check shows that it finds such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A write is acknowledged and not executed.
    Lost,
    /// A write is executed again when a newer one of the same place has been acknowledged and read.
    Late,
    /// The first part of a write is executed, up to the middle of a sector or up to its end, by
    /// turns.
    Torn,
    /// A write brings the data of another place.
    Swapped,
    /// A write has the data of another writer.
    Foreign,
    /// A write fails; every second one is executed all the same.
    Error,
    /// A write fails and is executed when a newer one of the same place has been acknowledged and
    /// read.
    LateError,
}

impl FromStr for Wrong {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "lost" => Self::Lost,
            "late" => Self::Late,
            "torn" => Self::Torn,
            "swapped" => Self::Swapped,
            "foreign" => Self::Foreign,
            "error" => Self::Error,
            "late-error" => Self::LateError,
            _ => return Err(format!("nothing is wrong in the way of {name}")),
        })
    }
}

/// An old write that waits for its moment.
struct Old {
    at: u64,
    bytes: Vec<u8>,
    overwritten: bool,
}

#[derive(Default)]
struct State {
    writes: u64,
    old: Option<Old>,
}

/// A disk of which every so many-th write goes wrong.
pub(crate) struct Injected<D> {
    disk: D,
    wrong: Option<(Wrong, u64)>,
    state: Mutex<State>,
}

impl<D: Disk> Injected<D> {
    /// A disk that is as good as the one below when `wrong` is none.
    pub(crate) fn new(disk: D, wrong: Option<(Wrong, u64)>) -> Self {
        Self {
            disk,
            wrong,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind and its turn, if it is time for this write to go wrong.
    fn due(&self, wrong: Option<(Wrong, u64)>) -> Option<(Wrong, u64)> {
        let (wrong, every) = wrong?;
        let mut state = self.state();
        state.writes += 1;
        (state.writes % every == 0).then_some((wrong, state.writes / every))
    }

    fn write_torn(&self, at: u64, from: &[u8], cut: usize) -> io::Result<()> {
        let mut buffer = Buffer::new(from.len());
        let mixed = buffer.first(from.len());
        self.disk.read(at, mixed)?;
        for (place, new) in mixed.iter_mut().zip(from).take(cut) {
            *place = *new;
        }
        self.disk.write(at, mixed)
    }

    fn write_swapped(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut buffer = Buffer::new(from.len());
        let other = if at == 0 { from.len() as u64 } else { 0 };
        self.disk.read(other, buffer.first(from.len()))?;
        self.disk.write(at, buffer.first(from.len()))
    }

    fn write_foreign(&self, at: u64, size: usize) -> io::Result<()> {
        let mut buffer = Buffer::new(size);
        buffer.first(size).fill(FOREIGN);
        self.disk.write(at, buffer.first(size))
    }

    /// Keeps a write for later, unless another one waits.
    fn keep(&self, at: u64, from: &[u8]) {
        let old = Old {
            at,
            bytes: from.to_vec(),
            overwritten: false,
        };
        self.state().old.get_or_insert(old);
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl<D: Disk> Disk for Injected<D> {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, into)?;
        let covers =
            |old: &Old| at <= old.at && old.at + old.bytes.len() as u64 <= at + into.len() as u64;
        let mut state = self.state();
        if let Some(old) = state.old.take_if(|old| old.overwritten && covers(old)) {
            let mut buffer = Buffer::new(old.bytes.len());
            let bytes = buffer.first(old.bytes.len());
            bytes.copy_from_slice(&old.bytes);
            self.disk.write(old.at, bytes)?;
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let due = self.due(self.wrong);
        match due {
            Some((Wrong::Lost, _)) => return Ok(()),
            Some((Wrong::Torn, turn)) => {
                return self.write_torn(
                    at,
                    from,
                    from.len() / 2 + if turn % 2 == 0 { 0 } else { 100 },
                )
            }
            Some((Wrong::Swapped, _)) => return self.write_swapped(at, from),
            Some((Wrong::Foreign, _)) => return self.write_foreign(at, from.len()),
            Some((Wrong::Error, turn)) => {
                if turn % 2 == 0 {
                    self.disk.write(at, from)?;
                }
                return Err(eio());
            }
            Some((Wrong::LateError, _)) => {
                self.keep(at, from);
                return Err(eio());
            }
            Some((Wrong::Late, _)) | None => (),
        }
        self.disk.write(at, from)?;
        let mut state = self.state();
        if let Some(old) = &mut state.old {
            old.overwritten |=
                at <= old.at && old.at + old.bytes.len() as u64 <= at + from.len() as u64;
        }
        drop(state);
        if due.is_some() {
            self.keep(at, from);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }
}
