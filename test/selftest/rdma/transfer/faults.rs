// SPDX-License-Identifier: GPL-2.0

//! Transfers of queue pairs that the device gives up, or does not drain when it is asked to.
//!
//! The log names the queue pair that is meant; the test that has loaded the module brings the fault
//! about.

use super::*;
use kernel::time::{
    delay::fsleep,
    Delta, //
};
use rdma_transfer::ReceiveQp;

/// The time that the tests need to bring a fault about, at most and in any case, in milliseconds.
const PATIENCE_MS: u32 = 30_000;
const FAULT_MS: i64 = 3_000;

/// Waits until something holds.
fn until(holds: impl Fn() -> bool) -> Result {
    for _ in 0..PATIENCE_MS {
        if holds() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// Has a queue pair given up that is between two transfers.
fn lose(rig: &Rig, number: u32) -> Result {
    let before = rig.inbox.wrong();
    pr_info!("queue pair {} may be given up\n", number);
    until(|| rig.inbox.wrong() > before)
}

/// The next transfer of a queue pair that was given up while it was idle begins with a restart, and
/// loses nothing: of the receiver, of one that was made ready ahead, and of the sender.
pub(crate) fn given_up(address: &SocketAddress) -> Result {
    let (case, len) = (&CASES[0], 4096);
    let mut rig = Rig::new(address)?;
    whole(&mut rig, case, len, 4)?;
    let receiver = rig.receiver.as_ref().map(ReceiveQp::number).ok_or(EINVAL)?;
    lose(&rig, receiver)?;
    rig.inbox.forgive();
    whole(&mut rig, case, len, 4)?;
    rig.prepare_ahead()?;
    lose(&rig, receiver)?;
    rig.inbox.forgive();
    whole(&mut rig, case, len, 4)?;
    // It was made behind the receiver.
    lose(&rig, receiver.wrapping_add(1))?;
    rig.inbox.forgive();
    whole(&mut rig, case, len, 4)
}

/// A transfer whose queue pair the device does not drain keeps its memory, to which the device may
/// still write, and ends when the device drains again, not before: it is not fit for another one.
pub(crate) fn drain_refused(address: &SocketAddress) -> Result {
    let (case, len) = (&CASES[0], 4096);
    let mut rig = Rig::new(address)?;
    let (from, to) = (Memory::new(case.from)?, Memory::new(case.to)?);
    from.fill(rig.next_turn())?;
    let mut receiving = rig.receive(to.lender()?, 0, len)?;
    let count = receiving.count();
    pr_info!("queue pair {} may not drain\n", receiving.number()?);
    fsleep(Delta::from_millis(FAULT_MS));
    receiving = refused(receiving)?;
    let mut sending = rig.send(from.lender()?, len, &receiving, 0)?;
    sending.post(0..count)?;
    rig.inbox.wait(count.into())?;
    rig.sender = Some(sending.finish().map_err(|_| EBUSY)?.0);
    receiving = refused(receiving)?;
    pr_info!("it may drain\n");
    rig.receiver = Some(receiving.end().into_parts().0);
    check(*from.bytes()? == *to.bytes()?, "the bytes have come")?;
    check(to.release(), "the memory is back")?;
    whole(&mut rig, case, len, 4)
}

/// Checks that a transfer cannot be ended.
fn refused(
    receiving: Receiving<Reception, BlockParts>,
) -> Result<Receiving<Reception, BlockParts>> {
    match receiving.finish() {
        Ok(_) => {
            check(false, "the device has refused the drain")?;
            Err(EINVAL)
        }
        Err(again) => Ok(again),
    }
}
