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
    prelude::*, //
};

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
        // SAFETY: By the type invariants, the queue pair is valid. It is drained.
        let started = to_result(unsafe {
            sys::rdma_helper_datagram_restart(qp.raw, port.port.into(), port.pkey_index, port.qkey)
        });
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
