// SPDX-License-Identifier: GPL-2.0

//! Tests of `net_ext` in the kernel: the load runs each part, which prints one line.
//!
//! Built with the other modules, used by the tests in virtual machines, not installed. The peers
//! are programs of user space on the same machine. They listen on ports from the parameter `port`
//! on: [`ECHO`], [`SILENT`], [`CLOSER`]. With `hang` the load does nothing but wait for the silent
//! one, until it is killed.

use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    errno::{
        ECONNREFUSED,
        ECONNRESET,
        ESHUTDOWN, //
    },
    module_param_bool,
    module_param_int,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};
use net_ext::{
    tcp::Keepalive,
    Namespace,
    TcpStream, //
};

module! {
    type: Tests,
    name: "net_test",
    authors: ["The Ferrofabric developers"],
    description: "Tests of net_ext",
    license: "GPL",
}

module_param_int!(PORT: u16, "port", 7400, "Port of the first peer (default: 7400)");
module_param_bool!(HANG, "hang", false, "Wait for the silent peer (default: N)");

/// Sends back what it gets.
const ECHO: u16 = 0;
/// Sends and receives nothing.
const SILENT: u16 = 1;
/// Closes a connection after five bytes.
const CLOSER: u16 = 2;
/// No peer listens.
const NONE: u16 = 3;

/// An address of the network of the machine's first interface, at which no machine is.
const ABSENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const LONG_MS: u32 = 60_000;
const SHORT_MS: u32 = 300;

/// A part and its test.
type Part = (&'static str, fn() -> Result);

const PARTS: [Part; 9] = [
    ("echo", || echo(LOOPBACK)),
    ("echo over IPv6", || echo(IpAddr::V6(Ipv6Addr::LOCALHOST))),
    ("refused", refused),
    ("absent", absent),
    ("silent", silent),
    ("closed", closed),
    ("shut down while it receives", shut_down_receiver),
    ("shut down while it sends", shut_down_sender),
    ("shut down while it connects", shut_down_connect),
];

struct Tests;

impl kernel::Module for Tests {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if HANG.get() {
            let stream = connected(LOOPBACK, SILENT)?;
            pr_info!("hangs\n");
            stream.receive(&mut [0], LONG_MS)?;
            return Err(EINVAL);
        }
        for (name, part) in PARTS {
            part().inspect_err(|e| pr_err!("{}: failed: {:?}\n", name, e))?;
            pr_info!("{}: ok\n", name);
        }
        Ok(Tests)
    }
}

/// Returns an error and logs `what` unless `holds`.
fn check(holds: bool, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("not so: {}\n", what);
    Err(EINVAL)
}

fn new(ip: IpAddr, peer: u16) -> Result<TcpStream> {
    let address = SocketAddr::new(ip, PORT.get().saturating_add(peer));
    TcpStream::new(&Namespace::of_current(), address)
}

fn connected(ip: IpAddr, peer: u16) -> Result<TcpStream> {
    let stream = new(ip, peer)?;
    stream.connect(LONG_MS)?;
    Ok(stream)
}

/// Runs `work`, which is to end with `error`, and returns how many milliseconds it took.
fn failing<T>(error: Error, what: &str, work: impl FnOnce() -> Result<T>) -> Result<i64> {
    let began = Instant::<Monotonic>::now();
    let result = work().map(|_| ());
    if result != Err(error) {
        pr_err!("{}: {:?} instead of {:?}\n", what, result, error);
        return Err(EINVAL);
    }
    Ok(began.elapsed().as_millis())
}

/// Checks that what is sent comes back, in one piece and in many.
fn echo(ip: IpAddr) -> Result {
    let stream = connected(ip, ECHO)?;
    stream.set_keepalive(Keepalive {
        idle_s: 30,
        interval_s: 5,
        probes: 3,
    });
    let mut sent = KVec::new();
    for number in 0..32_768_u32 {
        // CAST: The lowest byte of a pattern.
        sent.push((number.wrapping_mul(2_654_435_761) >> 24) as u8, GFP_KERNEL)?;
    }
    let mut answer = KVec::from_elem(0, sent.len(), GFP_KERNEL)?;
    for _ in 0..10 {
        stream.send(&sent, LONG_MS)?;
        stream.receive_exact(&mut answer, LONG_MS)?;
        check(answer[..] == sent[..], "the answer is what was sent")?;
    }
    for piece in sent.chunks(1000) {
        stream.send(piece, LONG_MS)?;
        let to = answer.get_mut(..piece.len()).ok_or(EINVAL)?;
        stream.receive_exact(to, LONG_MS)?;
        check(to == piece, "a piece is what was sent")?;
    }
    Ok(())
}

fn refused() -> Result {
    failing(ECONNREFUSED, "a port without a peer", || {
        connected(LOOPBACK, NONE)
    })?;
    Ok(())
}

fn absent() -> Result {
    let stream = new(ABSENT, ECHO)?;
    let took_ms = failing(ETIMEDOUT, "an address without a machine", || {
        stream.connect(SHORT_MS)
    })?;
    check(took_ms >= i64::from(SHORT_MS), "the time-out is waited for")
}

/// A peer that is silent ends waits by their time-outs, in both directions.
fn silent() -> Result {
    let stream = connected(LOOPBACK, SILENT)?;
    let took_ms = failing(ETIMEDOUT, "a receive", || {
        stream.receive(&mut [0], SHORT_MS)
    })?;
    check(took_ms >= i64::from(SHORT_MS), "the time-out is waited for")?;
    let bytes = KVec::from_elem(0, 1 << 20, GFP_KERNEL)?;
    failing(ETIMEDOUT, "a send", || -> Result {
        for _ in 0..64 {
            stream.send(&bytes, SHORT_MS)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A peer that closes a connection ends receives, and sends after that fail.
fn closed() -> Result {
    let stream = connected(LOOPBACK, CLOSER)?;
    stream.send(b"hello", LONG_MS)?;
    check(
        stream.receive(&mut [0; 8], LONG_MS) == Ok(0),
        "the end of a connection has no bytes",
    )?;
    failing(ECONNRESET, "a receive of more", || {
        stream.receive_exact(&mut [0], LONG_MS)
    })?;
    static BYTES: [u8; 4096] = [0; 4096];
    let broken = (0..1000).find_map(|_| stream.send(&BYTES, LONG_MS).err());
    check(
        matches!(broken, Some(error) if error == EPIPE || error == ECONNRESET),
        "a send to a closed connection fails",
    )
}

/// Runs `work` in a thread, and shuts the stream down meanwhile: it ends at once.
fn shut_down(
    stream: TcpStream,
    work: impl FnOnce(&TcpStream) -> Result + Send + 'static,
) -> Result {
    let queue = WorkQueue::new(c"net_test", Flags::UNBOUND, 0)?;
    let stream = Arc::new(stream, GFP_KERNEL)?;
    let other = stream.clone();
    let result = Arc::pin_init(kernel::new_mutex!(None), GFP_KERNEL)?;
    let told = result.clone();
    queue.try_spawn(GFP_KERNEL, move || {
        let ended = failing(ESHUTDOWN, "what was waiting", || work(&other));
        *told.lock() = Some(ended);
    })?;
    kernel::time::delay::fsleep(kernel::time::Delta::from_millis(300));
    stream.shutdown();
    queue.flush();
    let ended = result.lock().take();
    let took_ms = ended.ok_or(EINVAL)??;
    check((200..20_000).contains(&took_ms), "it ends when told to")?;
    failing(ESHUTDOWN, "a receive afterwards", || {
        stream.receive(&mut [0], LONG_MS)
    })?;
    failing(ESHUTDOWN, "a send afterwards", || {
        stream.send(&[0], LONG_MS)
    })?;
    Ok(())
}

fn shut_down_receiver() -> Result {
    shut_down(connected(LOOPBACK, SILENT)?, |stream| {
        stream.receive_exact(&mut [0], LONG_MS)
    })
}

fn shut_down_sender() -> Result {
    let bytes = KVec::from_elem(0, 1 << 20, GFP_KERNEL)?;
    shut_down(connected(LOOPBACK, SILENT)?, move |stream| {
        (0..64).try_for_each(|_| stream.send(&bytes, LONG_MS))
    })
}

fn shut_down_connect() -> Result {
    shut_down(new(ABSENT, ECHO)?, |stream| stream.connect(LONG_MS))?;
    let early = new(ABSENT, ECHO)?;
    early.shutdown();
    failing(ESHUTDOWN, "a connect that comes too late", || {
        early.connect(LONG_MS)
    })?;
    Ok(())
}
