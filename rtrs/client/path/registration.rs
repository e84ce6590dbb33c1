// SPDX-License-Identifier: GPL-2.0

//! Registers the read buffers of a path on its admin connection, before the info exchange.

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use rdma::{
    Access,
    SendFlags,
    WrBuffer, //
};
use rtrs_core::proto::CONNECT_TIMEOUT_MS;

use crate::client::{
    io::{
        connection::Tagged,
        table::RequestTable, //
    },
    path::{
        connections::Connection,
        error::PathError,
        setup::{
            Setup,
            Step, //
        }, //
    }, //
};

/// Registrations that are posted at a time.
const BATCH: usize = 16;

/// The pauses between two looks for their end, in milliseconds: an adapter takes microseconds.
const POLL_MS: u32 = 2;

/// Registers the buffers, unless an earlier life of the path has. Sleeps.
pub(super) fn register(
    setup: &Setup,
    admin: &Connection,
    requests: &RequestTable,
) -> Result<(), PathError> {
    let tag = admin.qp.handler().tags.encode(Tagged::Registration);
    let all = requests.read_blocks.unregistered();
    if all.is_empty() {
        return Ok(());
    }
    for regions in all.chunks(BATCH) {
        let mut space = WrBuffer::new();
        let mut batch = admin.qp.batch::<BATCH, 0>(&mut space);
        for (number, region) in (1..).zip(regions) {
            // They are executed in order.
            let flags = SendFlags::signaled(number == regions.len());
            batch.reg_mr(tag, region, Access::REMOTE_WRITE, flags);
        }
        setup.expect();
        batch.post().map_err(PathError::Post)?;
        wait(setup, admin)?;
    }
    requests.read_blocks.registered();
    Ok(())
}

/// Waits for the last registration. Completions of sends raise no interrupt: it polls for them.
fn wait(setup: &Setup, admin: &Connection) -> Result<(), PathError> {
    let began = Instant::<Monotonic>::now();
    loop {
        admin.qp.handler().poll_send_cq();
        let waited = setup.wait(0, Step::Registration, POLL_MS);
        // A pause lasts for a tick at least.
        let is_late = began.elapsed().as_millis() >= CONNECT_TIMEOUT_MS.into();
        if is_late || !matches!(waited, Err(PathError::Timeout(_))) {
            return waited;
        }
    }
}
