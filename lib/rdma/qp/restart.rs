// SPDX-License-Identifier: GPL-2.0

//! A queue pair for datagrams that is closed can be started again.

use super::{
    datagram::DatagramPort,
    transport::Datagram,
    OwnedQp,
    QpHandler, //
};
use crate::sys;
use kernel::{
    error::to_result,
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// The resets at most, and the time between two. The task of rxe that sends looks at the state, and
/// somewhat later writes the error state (`rxe_requester()`, behind its label `err`), also over a
/// reset in between. It does so once for each work request of the queue, which takes microseconds.
const RESETS: u32 = 10;
const RESET_PAUSE: Delta = Delta::from_millis(1);

impl<H: QpHandler<Transport = Datagram>> OwnedQp<H> {
    /// [Closes](crate::Qp::close) the queue pair if it is not closed, and starts it again, empty,
    /// on `port`, which has the number with which it was created. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the error of the close, `EBUSY` while there is a [`Drained`](crate::Drained) of its
    /// domain, or what the device says; the queue pair stays closed.
    pub fn restart(&mut self, port: &DatagramPort) -> Result {
        self.close()?;
        let qp = &**self;
        qp.pd.queue_pair_restarted()?;
        let reset_and_start = || {
            // SAFETY: By the type invariants, the queue pair is valid. It is drained.
            to_result(unsafe {
                sys::rdma_helper_datagram_restart(
                    qp.raw,
                    port.port.into(),
                    port.pkey_index,
                    port.qkey,
                )
            })
        };
        let mut started = reset_and_start();
        for _ in 1..RESETS {
            // The error of a change that the state does not allow, `ib_modify_qp_is_ok()`.
            if started == Err(EINVAL) {
                fsleep(RESET_PAUSE);
                started = reset_and_start();
            }
        }
        if started.is_err() {
            qp.pd.queue_pair_drained();
            return started;
        }
        // The exclusive borrow says that no other thread closes it, or posts.
        qp.drain.renew();
        self.permit_posts();
        Ok(())
    }
}
