// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of a device that has failed, and whose driver drains them.

use super::{
    identifier::Idle,
    *, //
};
use kernel::time::{
    delay::fsleep,
    Delta,
    Instant,
    Monotonic, //
};

/// Connections; each has two queue pairs, of two queues each that are polled.
const CONNECTIONS: usize = 4;

/// The time that the tests need to make the device fail, and then work again.
const PATIENCE_MS: u32 = 60_000;

/// Tries to close the queue pairs.
const TRIES: u32 = 40;

/// The time between two of them.
const PAUSE: Delta = Delta::from_millis(500);

/// Waits for the device to fail.
#[pin_data]
struct Failure {
    #[pin]
    has_failed: Completion,
}

impl PortEvents for Failure {
    fn device_failed(&self, _device: DeviceId) {
        self.has_failed.complete_all();
    }
}

/// Closes queue pairs when their device has failed, until they are closed. Logs how long each try
/// took.
pub(crate) fn close_when_it_fails(address: &SocketAddress) -> Result {
    let create: Create<Idle> = |id| {
        let config = QpConfig::new(1, 1, 1);
        queue_pair(id, &config, PollContext::Direct, |_, _| Ok(Idle))
    };
    let mut connections = KVec::with_capacity(CONNECTIONS, GFP_KERNEL)?;
    for _ in 0..CONNECTIONS {
        let (active, passive) = connect(address, create)?;
        active.qp.post_receive(0, None)?;
        connections.push((active, passive), GFP_KERNEL)?;
    }
    let failure = pin_init!(Failure { has_failed <- Completion::new() });
    let failure = Arc::pin_init(failure, GFP_KERNEL)?;
    let watch = PortWatch::new(failure.clone())?;
    pr_info!("the device may fail\n");
    failure.has_failed.wait_timeout_ms(PATIENCE_MS)?;
    drop(watch);
    let mut closed = Err(EAGAIN);
    for _ in 0..TRIES {
        let begun = Instant::<Monotonic>::now();
        let ends = connections.iter().flat_map(|(one, other)| [one, other]);
        closed = Qp::close_all(ends.map(|end| &*end.qp));
        let took_ms = begun.elapsed().as_millis();
        pr_info!("closed after {} ms: {:?}\n", took_ms, closed);
        if closed.is_ok() {
            break;
        }
        fsleep(PAUSE);
    }
    closed
}
