// SPDX-License-Identifier: GPL-2.0

//! The operations of a client, as iocatcher's code defines them: an object is there once it is
//! used, and what was not written is zeroes.

use std::{
    collections::BTreeMap,
    env, io,
    path::Path,
    sync::{
        Mutex,
        MutexGuard,
        PoisonError, //
    },
    time::{
        Duration,
        Instant, //
    },
};

use rioc_device::{
    request,
    wire,
    ObjectId,
    Request,
    Session, //
};
use rustix::io::Errno;

use crate::sessions;

/// The variable of the environment that names a session.
pub const SESSION: &str = "RIOC_SESSION";
/// The variable that names another device.
pub const DEVICE: &str = "RIOC_DEVICE";

/// Some bytes of an object, for readers or for one writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The object.
    pub object: ObjectId,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// Whether it is for one writer.
    pub is_write: bool,
}

impl Range {
    /// Whether a lease of this range is enough for the other one.
    fn covers(&self, other: &Self) -> bool {
        let end = |range: &Self| range.offset.checked_add(range.size);
        self.object == other.object
            && (self.is_write || !other.is_write)
            && self.offset <= other.offset
            && end(other).is_some_and(|other| end(self).is_some_and(|end| other <= end))
    }
}

/// The ranges that are registered, by their identifiers.
#[derive(Debug, Default)]
struct Ranges {
    last: i32,
    all: BTreeMap<i32, (Range, u32)>,
}

impl Ranges {
    /// Returns an identifier above 0 that no range has, as late as may be one that was used.
    fn unused(&mut self) -> i32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.all.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

/// A client of iocatcher: a session, and the ranges that are registered over it.
#[derive(Debug)]
pub struct Client {
    session: Session,
    ranges: Mutex<Ranges>,
}

/// Whether an object is not there.
fn is_missing(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOENT)
}

fn invalid() -> io::Error {
    Errno::INVAL.into()
}

impl Client {
    /// Attaches the session of a server.
    ///
    /// # Errors
    ///
    /// Returns why there is none, or that of the device.
    pub fn new(server: &str) -> io::Result<Self> {
        let session = match env::var(SESSION) {
            Ok(session) => session,
            Err(_) => sessions::of_server(Path::new("/sys/class"), server)
                .map_err(|why| io::Error::new(io::ErrorKind::NotFound, why.to_string()))?,
        };
        let device = env::var_os(DEVICE);
        let device = device.as_ref().map_or(Path::new("/dev/rioc"), Path::new);
        let session = Session::attach(Session::open(device)?, &session)?;
        Ok(Self {
            session,
            ranges: Mutex::default(),
        })
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lease of these bytes; 0 if none has them all. A lease that was lost is told so:
    /// it is ESTALE then.
    fn lease(&self, wanted: &Range) -> u32 {
        let ranges = self.ranges();
        let mut all = ranges.all.values();
        let found = all.find(|(range, _)| range.covers(wanted));
        found.map_or(0, |(_, lease)| *lease)
    }

    fn call(
        &self,
        kind: u8,
        object: ObjectId,
        change: impl FnOnce(&mut Request),
    ) -> io::Result<()> {
        let mut asked = request(kind, object);
        change(&mut asked);
        self.session.call(asked).map(|_| ())
    }

    /// Reads; bytes that are not there are zeroes.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn read(&self, object: ObjectId, offset: u64, to: &mut [u8]) -> io::Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let lease = self.lease(&Range {
            object,
            offset,
            size: to.len() as u64,
            is_write: false,
        });
        let (read, done) = self.session.read(object, offset, lease, to);
        match done {
            Err(error) if !is_missing(&error) => return Err(error),
            _ => {}
        }
        let rest = to.get_mut(read as usize..).unwrap_or_default();
        rest.fill(0);
        Ok(())
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn write(&self, object: ObjectId, offset: u64, from: &[u8]) -> io::Result<()> {
        if from.is_empty() {
            return self.create(object);
        }
        let lease = self.lease(&Range {
            object,
            offset,
            size: from.len() as u64,
            is_write: true,
        });
        self.session.write(object, offset, lease, from).1
    }

    /// Writes back; of an object that is not there nothing is to be written.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn flush(&self, object: ObjectId, offset: u64, size: u64) -> io::Result<()> {
        let flushed = self.call(wire::FLUSH, object, |asked| {
            // Without a size all of the object is meant, wherever it begins.
            asked.offset = if size == 0 { 0 } else { offset };
            asked.length = size;
        });
        match flushed {
            Err(error) if is_missing(&error) => Ok(()),
            flushed => flushed,
        }
    }

    /// Makes an object; one that is there stays.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn create(&self, object: ObjectId) -> io::Result<()> {
        self.call(wire::CREATE, object, |_| {})
    }

    /// Copies an object, or with a size these bytes of it, to the same place.
    ///
    /// # Errors
    ///
    /// Those of the operation; EEXIST for a destination that is there and may not be.
    pub fn copy(
        &self,
        (source, destination): (ObjectId, ObjectId),
        may_exist: bool,
        (offset, size): (u64, u64),
    ) -> io::Result<()> {
        let to = [destination.high, destination.low];
        let new = if may_exist { 0 } else { wire::FLAG_NEW.into() };
        if size == 0 {
            return self.call(wire::SNAPSHOT, source, |asked| {
                (asked.destination, asked.flags) = (to, new);
            });
        }
        let copy = |flags: u16, lease: u32| {
            self.call(wire::COPY, source, |asked| {
                (asked.destination, asked.destination_offset) = (to, offset);
                (asked.offset, asked.length) = (offset, size);
                (asked.flags, asked.lease) = (flags.into(), lease);
            })
        };
        if may_exist {
            return copy(wire::FLAG_CREATE, 0);
        }
        // A source that is not there leaves no destination, nor does a copy that fails, unless
        // another program may have written to it meanwhile.
        self.call(wire::STAT, source, |_| {})?;
        let lease = self.lease_of_all(destination)?;
        let made = self.call(wire::CREATE, destination, |asked| asked.flags = new);
        let copied = made.and_then(|()| {
            copy(0, lease.unwrap_or_default()).inspect_err(|_| {
                if let Some(lease) = lease {
                    let remove = |asked: &mut Request| asked.lease = lease;
                    let _ = self.call(wire::DELETE, destination, remove);
                }
            })
        });
        if let Some(lease) = lease {
            // One that is lost has ended, and another one ends with the client.
            let _ = self.release(lease);
        }
        copied
    }

    /// Takes a lease of all of an object, against all other sessions; `None` if others have leases
    /// of it, or this program.
    fn lease_of_all(&self, object: ObjectId) -> io::Result<Option<u32>> {
        let mut asked = request(wire::LEASE, object);
        asked.flags = wire::FLAG_WRITER.into();
        match self.session.call(asked) {
            Ok(answer) => Ok(Some(answer.lease)),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a lease; returns its identifier, which is above 0.
    ///
    /// # Errors
    ///
    /// Those of the operation: EBUSY if a lease excludes it, also one of the same client.
    pub fn register(&self, range: &Range) -> io::Result<i32> {
        if range.size == 0 {
            return Err(invalid());
        }
        let mut asked = request(wire::LEASE, range.object);
        if range.is_write {
            asked.flags = wire::FLAG_WRITER.into();
        }
        (asked.offset, asked.length) = (range.offset, range.size);
        let lease = self.session.call(asked)?.lease;
        let mut ranges = self.ranges();
        let id = ranges.unused();
        ranges.all.insert(id, (*range, lease));
        Ok(id)
    }

    /// Ends a lease.
    ///
    /// # Errors
    ///
    /// EINVAL if it is none of this range; ESTALE if it has ended before.
    pub fn unregister(&self, id: i32, range: &Range) -> io::Result<()> {
        let ranges = self.ranges();
        let (known, lease) = *ranges.all.get(&id).ok_or_else(invalid)?;
        if known != *range {
            return Err(invalid());
        }
        drop(ranges);
        let released = self.release(lease);
        let is_gone = |error: &io::Error| error.raw_os_error() == Some(Errno::STALE.raw_os_error());
        // One that is left can be ended again.
        if released.as_ref().map_or_else(is_gone, |()| true) {
            self.ranges().all.remove(&id);
        }
        released
    }

    fn release(&self, lease: u32) -> io::Result<()> {
        self.call(wire::RELEASE, ObjectId::default(), |asked| {
            asked.lease = lease;
        })
    }

    /// Asks the server so often for an answer; returns how long it has taken.
    ///
    /// # Errors
    ///
    /// Those of the first that was not answered.
    pub fn ping(&self, count: u32) -> io::Result<Duration> {
        let begin = Instant::now();
        for _ in 0..count {
            self.call(wire::PING, ObjectId::default(), |_| {})?;
        }
        Ok(begin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn identifiers_begin_anew_when_they_run_out() {
        let mut ranges = Ranges {
            last: i32::MAX - 1,
            ..Ranges::default()
        };
        ranges.all.insert(1, (Default::default(), 0));
        assert_eq!([ranges.unused(), ranges.unused()], [i32::MAX, 2]);
    }
}
