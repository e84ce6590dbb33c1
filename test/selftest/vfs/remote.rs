// SPDX-License-Identifier: GPL-2.0

//! A server in user space, on this machine: `-o port=NUMBER`.
//!
//! Each answer has its own connection. A request is the number of the file, its generation, the
//! position and the number of bytes; the answer is a number of bytes, and these. All numbers are
//! big-endian and of 64 bits.

use core::net::{
    Ipv4Addr,
    SocketAddr, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::errno::ECONNRESET;
use net_ext::{
    Destination,
    Namespace,
    TcpStream, //
};
use vfs_ext::Key;

/// A server is given so long for each step.
const STEP_MS: u32 = 30_000;

/// The server of a mount.
pub(super) struct Remote {
    namespace: Namespace,
    address: SocketAddr,
    /// The connections that are in use.
    streams: Arc<Mutex<KVec<Arc<TcpStream>>>>,
}

impl Remote {
    pub(super) fn new(namespace: Namespace, port: u16) -> Result<Self> {
        Ok(Self {
            namespace,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            streams: Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?,
        })
    }

    /// Ends what waits for the server.
    pub(super) fn abort(&self) {
        for stream in self.streams.lock().iter() {
            stream.shutdown();
        }
    }

    /// Reads up to `bytes` bytes of a file into `to`, and returns how many there are.
    pub(super) fn read(
        &self,
        key: Key,
        position: u64,
        bytes: usize,
        to: &mut Destination<'_>,
    ) -> Result<usize> {
        let stream = Arc::new(TcpStream::new(&self.namespace, self.address)?, GFP_KERNEL)?;
        self.streams.lock().push(stream.clone(), GFP_KERNEL)?;
        let result = ask(&stream, key, position, bytes, to);
        let mut streams = self.streams.lock();
        streams.retain(|other| !Arc::ptr_eq(other, &stream));
        drop(streams);
        result
    }
}

fn ask(
    stream: &TcpStream,
    key: Key,
    position: u64,
    bytes: usize,
    to: &mut Destination<'_>,
) -> Result<usize> {
    stream.connect(STEP_MS)?;
    for number in [key.number, key.generation, position, bytes as u64] {
        stream.send(&number.to_be_bytes(), STEP_MS)?;
    }
    let mut head = [0; 8];
    stream.receive_exact(&mut head, STEP_MS)?;
    let count = u64::from_be_bytes(head);
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= bytes)
        .ok_or(EIO)?;
    let received = stream.receive_into(to, count, STEP_MS)?;
    if received < count {
        return Err(ECONNRESET);
    }
    Ok(received)
}
