// SPDX-License-Identifier: GPL-2.0

//! The functions of `ioc-client.h`. What fails is -1, or `NULL`, with a line on the standard error
//! and `errno`.

use std::{
    ffi::{
        c_char,
        c_int,
        c_void,
        CStr, //
    },
    fmt,
    io::{
        self,
        Write, //
    },
    slice, //
};

use rioc_device::{
    wire,
    ObjectId, //
};
use rustix::io::Errno;

use crate::client::{
    Client,
    Range, //
};

extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Tells why, and sets `errno`.
fn told(what: fmt::Arguments<'_>, error: &io::Error) {
    // A program whose errors have no reader goes on.
    let _ = writeln!(io::stderr().lock(), "libioc: {what}: {error}");
    let errno = Errno::from_io_error(error).unwrap_or(Errno::NOENT);
    // SAFETY: Each thread has its own.
    unsafe { *__errno_location() = errno.raw_os_error() };
}

/// Returns 0, or -1 for an error, which is told.
fn status<T: From<i8>>(what: &str, object: ObjectId, done: io::Result<()>) -> T {
    let Err(error) = done else {
        return 0.into();
    };
    told(
        format_args!("{what} {}:{}", object.high as i64, object.low as i64),
        &error,
    );
    (-1i8).into()
}

fn id(high: i64, low: i64) -> ObjectId {
    // CAST: The same bits.
    ObjectId {
        high: high as u64,
        low: low as u64,
    }
}

fn no_client() -> io::Error {
    Errno::BADF.into()
}

fn no_buffer() -> io::Error {
    Errno::FAULT.into()
}

/// Connects with a server: uses the session that is connected with it. The port is that of the
/// session.
///
/// # Safety
///
/// `ip` must be a C string or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_init(ip: *const c_char, _port: *const c_char) -> *mut Client {
    let server = if ip.is_null() {
        ""
    } else {
        // SAFETY: By the function requirements.
        unsafe { CStr::from_ptr(ip) }.to_str().unwrap_or_default()
    };
    match Client::new(server) {
        Ok(client) => Box::into_raw(Box::new(client)),
        Err(error) => {
            told(format_args!("server '{server}'"), &error);
            std::ptr::null_mut()
        }
    }
}

/// Ends a client, and its ranges.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] that no thread uses any more, or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_fini(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: By the function requirements it was made by `Box::into_raw`, and has no other
        // user.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// Reads; bytes that were never written are zeroes. Returns 0, and not the size.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`; `buffer` must have `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_read(
    client: *const Client,
    high: i64,
    low: i64,
    buffer: *mut c_void,
    size: usize,
    offset: usize,
) -> isize {
    let object = id(high, low);
    let read = || {
        // SAFETY: By the function requirements.
        let client = unsafe { client.as_ref() }.ok_or_else(no_client)?;
        if size == 0 {
            return Ok(());
        }
        if buffer.is_null() {
            return Err(no_buffer());
        }
        // SAFETY: By the function requirements; what it has before is not looked at.
        let to = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
        client.read(object, offset as u64, to)
    };
    status("read", object, read())
}

/// Writes; returns 0, and not the size.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`; `buffer` must have `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_write(
    client: *const Client,
    high: i64,
    low: i64,
    buffer: *const c_void,
    size: usize,
    offset: usize,
) -> isize {
    let object = id(high, low);
    let write = || {
        // SAFETY: By the function requirements.
        let client = unsafe { client.as_ref() }.ok_or_else(no_client)?;
        if size == 0 {
            return client.write(object, offset as u64, &[]);
        }
        if buffer.is_null() {
            return Err(no_buffer());
        }
        // SAFETY: By the function requirements.
        let from = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), size) };
        client.write(object, offset as u64, from)
    };
    status("write", object, write())
}

/// Writes bytes of an object back; with size 0 all of it.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_flush(
    client: *const Client,
    high: i64,
    low: i64,
    offset: u64,
    size: u64,
) -> c_int {
    let object = id(high, low);
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    let flushed = client.and_then(|client| client.flush(object, offset, size));
    status("flush", object, flushed)
}

/// Makes an object; one that is there stays.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_create(
    client: *const Client,
    high: i64,
    low: i64,
) -> c_int {
    let object = id(high, low);
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    status(
        "create",
        object,
        client.and_then(|client| client.create(object)),
    )
}

/// Asks the server for an answer, so often, and prints the rate. The sizes are not used: no bytes
/// go along.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_ping_pong(
    client: *const Client,
    count: c_int,
    _eager_size: usize,
    _rdma_size: usize,
) {
    let count = u32::try_from(count).unwrap_or_default();
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    match client.and_then(|client| client.ping(count)) {
        Ok(time) => {
            let (seconds, bytes) = (time.as_secs_f64(), size_of::<wire::Head>());
            let rate = f64::from(count) / seconds;
            let bits = 8.0 * rate * bytes as f64;
            let _ = writeln!(
                io::stdout().lock(),
                "Time: {seconds:.6} s, rate: {:.3} kOPS, bandwidth: {:.6} GBits/s, size: {bytes}",
                rate / 1e3,
                bits / 1e9
            );
        }
        Err(error) => told(format_args!("ping"), &error),
    }
}

/// Registers a range: readers, or one writer. Returns its identifier, or -1.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_range_register(
    client: *const Client,
    high: i64,
    low: i64,
    offset: usize,
    size: usize,
    write: bool,
) -> i32 {
    let range = range(id(high, low), offset, size, write);
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    match client.and_then(|client| client.register(&range)) {
        Ok(id) => id,
        Err(error) => status("range of", range.object, Err(error)),
    }
}

/// Ends a range that was registered with the same numbers.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_range_unregister(
    client: *const Client,
    number: i32,
    high: i64,
    low: i64,
    offset: usize,
    size: usize,
    write: bool,
) -> c_int {
    let range = range(id(high, low), offset, size, write);
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    let ended = client.and_then(|client| client.unregister(number, &range));
    status("end of range of", range.object, ended)
}

fn range(object: ObjectId, offset: usize, size: usize, is_write: bool) -> Range {
    Range {
        object,
        offset: offset as u64,
        size: size as u64,
        is_write,
    }
}

/// Returns the name of the transport.
#[no_mangle]
pub extern "C" fn ioc_client_provider_name(_client: *const Client) -> *const c_char {
    c"rtrs".as_ptr()
}

/// Is taken, and changes nothing: the kernel waits.
#[no_mangle]
pub extern "C" fn ioc_client_set_passive_wait(_client: *mut Client, _value: bool) {}

/// Copies an object by reference, or with a size these bytes of it, to the same place.
///
/// # Safety
///
/// `client` must be one of [`ioc_client_init`] or `NULL`.
#[no_mangle]
pub unsafe extern "C" fn ioc_client_obj_cow(
    client: *const Client,
    orig_high: i64,
    orig_low: i64,
    dest_high: i64,
    dest_low: i64,
    allow_exist: bool,
    offset: usize,
    size: usize,
) -> c_int {
    let (source, destination) = (id(orig_high, orig_low), id(dest_high, dest_low));
    // SAFETY: By the function requirements.
    let client = unsafe { client.as_ref() }.ok_or_else(no_client);
    let span = (offset as u64, size as u64);
    let copied = client.and_then(|client| client.copy((source, destination), allow_exist, span));
    status("copy of", source, copied)
}
