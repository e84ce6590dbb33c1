// SPDX-License-Identifier: GPL-2.0

//! The objects of a session of `rioc_client`, through `/dev/rioc`.

use std::{
    fs::File,
    io,
    path::Path, //
};

use rioc::proto::ioctl::{
    NUMBER,
    TYPE,
    VERSION, //
};
pub use rioc::proto::{
    ioctl::{
        Request,
        BACKING,
        DURABLE, //
    },
    span::ObjectId,
    wire, //
};
use rustix::ioctl::{
    ioctl,
    opcode,
    Updater, //
};

/// The names that are asked for at once.
const NAMES: usize = 120;

/// An open `/dev/rioc` with a session. Its leases end when it is dropped.
#[derive(Debug)]
pub struct Session {
    file: File,
    /// The kernel's knowledge of the store: `boot`, `state` and `io_bytes_max`.
    pub attached: Request,
}

/// A request of a kind for an object.
pub fn request(kind: u8, object: ObjectId) -> Request {
    Request {
        version: VERSION,
        kind: kind.into(),
        object: [object.high, object.low],
        ..Request::default()
    }
}

/// The bytes of a read or a write that were done, and the error that has ended it.
pub type Done = (u64, io::Result<()>);

impl Session {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// Those of the device: `NotFound` if the module is not loaded.
    pub fn open(device: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(device)
    }

    /// Attaches a session by its name.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such session.
    pub fn attach(file: File, name: &str) -> io::Result<Self> {
        let mut attached = request(wire::ATTACH, ObjectId::default());
        // SAFETY: The kernel reads the name.
        unsafe { call(&file, &mut attached, (name.as_ptr().cast_mut(), name.len()))? };
        Ok(Self { file, attached })
    }

    /// Carries out an operation without bytes of the program; returns what the kernel has written.
    ///
    /// # Errors
    ///
    /// Those of the operation; `InvalidInput` for one with bytes.
    pub fn call(&self, mut request: Request) -> io::Result<Request> {
        let kinds = [wire::ATTACH, wire::LIST, wire::READ, wire::WRITE];
        if kinds.map(u32::from).contains(&request.kind) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = request.length as usize;
        // SAFETY: The kernel uses no address of these kinds.
        unsafe { call(&self.file, &mut request, (std::ptr::null_mut(), length))? };
        Ok(request)
    }

    /// Reads bytes; fewer than there is room for at the end of the object only.
    pub fn read(&self, object: ObjectId, offset: u64, lease: u32, to: &mut [u8]) -> Done {
        let mut read = request(wire::READ, object);
        (read.offset, read.lease) = (offset, lease);
        // SAFETY: The kernel writes to the slice only.
        let done = unsafe { call(&self.file, &mut read, (to.as_mut_ptr(), to.len())) };
        (read.length, done)
    }

    /// Writes bytes; an object that is not there is made.
    pub fn write(&self, object: ObjectId, offset: u64, lease: u32, from: &[u8]) -> Done {
        let mut write = request(wire::WRITE, object);
        (write.offset, write.lease) = (offset, lease);
        write.flags = wire::FLAG_CREATE.into();
        // SAFETY: The kernel reads the slice only.
        let from = (from.as_ptr().cast_mut(), from.len());
        let done = unsafe { call(&self.file, &mut write, from) };
        (write.length, done)
    }

    /// Returns the names of some objects, and the cursor for the next ones, if there are any.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn list(&self, cursor: u64) -> io::Result<(Vec<ObjectId>, Option<u64>)> {
        let mut list = request(wire::LIST, ObjectId::default());
        list.offset = cursor;
        let mut names = [[0u64; 2]; NAMES];
        let room = (names.as_mut_ptr().cast::<u8>(), size_of_val(&names));
        // SAFETY: The kernel writes to the array only, for which any bytes are right.
        unsafe { call(&self.file, &mut list, room)? };
        let count = list.length as usize / size_of::<[u64; 2]>();
        let names = names.iter().take(count);
        let names = names.map(|[high, low]| ObjectId {
            high: *high,
            low: *low,
        });
        Ok((names.collect(), (list.offset != 0).then_some(list.offset)))
    }
}

/// Asks the kernel.
///
/// # Safety
///
/// The caller must ensure that the bytes may be read, and of a kind that reads or lists written.
unsafe fn call(file: &File, request: &mut Request, bytes: (*mut u8, usize)) -> io::Result<()> {
    request.buffer = bytes.0 as u64;
    request.length = bytes.1 as u64;
    const CALL: rustix::ioctl::Opcode = opcode::read_write::<Request>(TYPE, NUMBER);
    // SAFETY: The opcode is that of this structure; by the function requirements, the bytes may be
    // used.
    let done = unsafe { ioctl(file, Updater::<CALL, Request>::new(request)) };
    Ok(done?)
}
