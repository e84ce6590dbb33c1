// SPDX-License-Identifier: GPL-2.0

//! TCP connections.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    Destination,
    Namespace, //
};
use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*, //
};
use kernel_ext::{
    errno::{
        ECONNRESET,
        ESHUTDOWN, //
    },
    memory,
    sync::atomic::{
        AtomicBool,
        Ordering, //
    }, //
};
use net_ext_sys as raw;

/// The probes that are sent while the peer is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The seconds of silence after which the first probe is sent; 1 to 32767.
    pub idle_s: u16,
    /// The seconds between probes; 1 to 32767.
    pub interval_s: u16,
    /// The number of probes without an answer after which the connection is lost; 1 to 127.
    pub probes: u8,
}

/// A TCP connection to a server, or one that is not made yet.
///
/// Any thread may use it; two that send at the same time mix their bytes, so the user has a lock or
/// one owner for each direction. [`TcpStream::shutdown`] ends the waits of all other threads.
///
/// While a thread waits, only a fatal signal interrupts it. What the socket allocates during a call
/// starts no IO and does not wait for IO, so a file system can wait for its server in reclaim.
///
/// # Examples
///
/// ```
/// use core::net::SocketAddr;
/// use net_ext::{Namespace, TcpStream};
///
/// let peer = SocketAddr::from(([127, 0, 0, 1], 601));
/// let stream = TcpStream::new(&Namespace::of_current(), peer)?;
/// stream.connect(5000)?;
/// stream.send(b"hello", 1000)?;
/// let mut answer = [0; 5];
/// stream.receive_exact(&mut answer, 1000)?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `socket` is a TCP socket that this value owns; nothing but C functions accesses it.
pub struct TcpStream {
    socket: NonNull<bindings::socket>,
    peer: SocketAddr,
    /// Set before the socket is shut down.
    is_shut_down: AtomicBool,
}

// SAFETY: A socket is not tied to a thread.
unsafe impl Send for TcpStream {}
// SAFETY: The C functions take the socket's lock; the other fields are atomic or do not change.
unsafe impl Sync for TcpStream {}

impl TcpStream {
    /// Creates a socket for a connection to `peer`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns that of `sock_create_kern()`: `ENOMEM`, or `EAFNOSUPPORT` without IPv6.
    pub fn new(namespace: &Namespace, peer: SocketAddr) -> Result<Self> {
        let mut socket = ptr::null_mut();
        memory::without_io(|| {
            // SAFETY: The namespace has a reference; `socket` is writable.
            to_result(unsafe {
                raw::net_ext_helper_create(namespace.as_raw(), peer.is_ipv6(), &mut socket)
            })
        })?;
        // INVARIANT: The socket was just created.
        Ok(Self {
            socket: NonNull::new(socket).ok_or(EINVAL)?,
            peer,
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Connects, once, and waits at most `timeout_ms` milliseconds. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT`; `ERESTARTSYS` when the task is killed; `ESHUTDOWN` after
    /// [`Self::shutdown`]; else the error of the network, as `ECONNREFUSED` and `EHOSTUNREACH`.
    pub fn connect(&self, timeout_ms: u32) -> Result {
        let to = raw_address(self.peer);
        let begun = memory::without_io(|| {
            // SAFETY: By the type invariants, the socket is owned; `to` is readable.
            unsafe { raw::net_ext_helper_connect(self.as_raw(), &to) }
        });
        // A shutdown that came before the connect had begun has not ended it.
        self.check()?;
        // CAST: Errno values are below 4096.
        if begun != -(bindings::EINPROGRESS as i32) {
            return to_result(begun);
        }
        let mut left_ms = timeout_ms;
        self.wait(true, &mut left_ms)?;
        // SAFETY: By the type invariants, the socket is owned.
        to_result(unsafe { raw::net_ext_helper_connect_result(self.as_raw()) })
    }

    /// Probes a peer that is silent.
    pub fn set_keepalive(&self, keepalive: Keepalive) {
        // SAFETY: By the type invariants, the socket is owned. C ignores what is out of range.
        unsafe {
            raw::net_ext_helper_keepalive(
                self.as_raw(),
                keepalive.idle_s.into(),
                keepalive.interval_s.into(),
                keepalive.probes.into(),
            )
        };
    }

    /// Sends all of `bytes`, in at most `timeout_ms` milliseconds. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`], and `EPIPE` if the connection has been closed. An unknown part of the
    /// bytes has been sent then.
    pub fn send(&self, bytes: &[u8], timeout_ms: u32) -> Result {
        self.send_rest(bytes, &mut 0, timeout_ms)
    }

    /// Sends what follows the first `sent` of `bytes`, in at most `timeout_ms` milliseconds, and
    /// adds to `sent` what has been sent, also if there is an error: after `ERESTARTSYS` another
    /// thread can send the rest. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_rest(&self, bytes: &[u8], sent: &mut usize, timeout_ms: u32) -> Result {
        let mut left_ms = timeout_ms;
        while let Some(rest @ [_, ..]) = bytes.get(*sent..) {
            *sent += self.attempt(true, &mut left_ms, || {
                // SAFETY: By the type invariants, the socket is owned; `rest` is readable.
                unsafe { raw::net_ext_helper_send(self.as_raw(), rest.as_ptr().cast(), rest.len()) }
            })?;
        }
        Ok(())
    }

    /// Receives what has come, up to the length of `to`, and returns its number of bytes; 0 if the
    /// peer has closed the connection. Waits at most `timeout_ms` milliseconds. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ETIMEDOUT`; `ERESTARTSYS` when the task is killed; `ESHUTDOWN` after
    /// [`Self::shutdown`]; else the error of the connection, as `ECONNRESET` and `ENOTCONN`.
    pub fn receive(&self, to: &mut [u8], timeout_ms: u32) -> Result<usize> {
        self.receive_until(to, &mut { timeout_ms })
    }

    /// Fills `to`. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`], and `ECONNRESET` if the peer closes the connection before that.
    pub fn receive_exact(&self, to: &mut [u8], timeout_ms: u32) -> Result {
        let mut left_ms = timeout_ms;
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = to.get_mut(filled..) {
            filled += match self.receive_until(rest, &mut left_ms)? {
                0 => return Err(ECONNRESET),
                bytes => bytes,
            };
        }
        Ok(())
    }

    /// Receives up to `bytes` bytes into the memory `to`, without a copy in between, and returns
    /// their number: fewer if the peer has closed the connection or `to` is full. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`]. What has been received before the error is in `to` nevertheless.
    pub fn receive_into(
        &self,
        to: &mut Destination<'_>,
        bytes: usize,
        timeout_ms: u32,
    ) -> Result<usize> {
        let mut left_ms = timeout_ms;
        let wanted = bytes.min(to.len());
        let mut filled = 0;
        while filled < wanted {
            let iter = to.as_raw();
            let received = self.attempt(false, &mut left_ms, || {
                // SAFETY: By the type invariants, the socket is owned; those of `to` allow to write
                // through its iterator.
                unsafe { raw::net_ext_helper_receive_iter(self.as_raw(), iter, wanted - filled) }
            })?;
            if received == 0 {
                break;
            }
            filled += received;
        }
        Ok(filled)
    }

    /// Ends the connection in both directions: all calls of other threads return, and later ones
    /// fail with `ESHUTDOWN`. May sleep, for a short time.
    pub fn shutdown(&self) {
        // The flag comes first: see `connect`.
        self.is_shut_down.store(true, Ordering::SeqCst);
        // SAFETY: By the type invariants, the socket is owned. The result says whether the socket
        // was connected; if not, there is nothing to end.
        let _ = unsafe {
            bindings::kernel_sock_shutdown(self.as_raw(), bindings::sock_shutdown_cmd_SHUT_RDWR)
        };
    }

    fn receive_until(&self, to: &mut [u8], left_ms: &mut u32) -> Result<usize> {
        self.attempt(false, left_ms, || {
            // SAFETY: By the type invariants, the socket is owned; `to` is writable.
            unsafe { raw::net_ext_helper_receive(self.as_raw(), to.as_mut_ptr().cast(), to.len()) }
        })
    }

    /// Runs `work`, a call that does not wait, until it does not ask to wait. Returns its number of
    /// bytes.
    fn attempt(
        &self,
        to_send: bool,
        left_ms: &mut u32,
        mut work: impl FnMut() -> c_int,
    ) -> Result<usize> {
        loop {
            self.check()?;
            let result = memory::without_io(&mut work);
            if let Ok(bytes) = usize::try_from(result) {
                // An orderly end that this side has asked for is none of the peer.
                if bytes == 0 {
                    self.check()?;
                }
                return Ok(bytes);
            }
            let error = Error::from_errno(result);
            if error != EAGAIN {
                self.check()?;
                return Err(error);
            }
            self.wait(to_send, left_ms)?;
        }
    }

    /// Waits until the socket can send, or receive, or has failed.
    fn wait(&self, to_send: bool, left_ms: &mut u32) -> Result {
        // SAFETY: By the type invariants, the socket is owned; `left_ms` is writable.
        let result = unsafe { raw::net_ext_helper_wait(self.as_raw(), to_send, left_ms) };
        self.check()?;
        to_result(result)
    }

    fn check(&self) -> Result {
        if self.is_shut_down.load(Ordering::SeqCst) {
            return Err(ESHUTDOWN);
        }
        Ok(())
    }

    fn as_raw(&self) -> *mut bindings::socket {
        self.socket.as_ptr()
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this value owns the socket, which is released once, here.
        unsafe { bindings::sock_release(self.as_raw()) };
    }
}

/// Returns the form of an address that C reads.
pub(crate) fn raw_address(address: SocketAddr) -> raw::net_ext_address {
    let mut ip = [0; 16];
    let scope = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    match address.ip() {
        IpAddr::V4(v4) => {
            for (to, from) in ip.iter_mut().zip(v4.octets()) {
                *to = from;
            }
        }
        IpAddr::V6(v6) => ip = v6.octets(),
    }
    raw::net_ext_address {
        ip,
        scope,
        port: address.port(),
        is_v6: address.is_ipv6(),
    }
}
