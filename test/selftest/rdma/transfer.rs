// SPDX-License-Identifier: GPL-2.0

//! Tests of transfers: pages of one device that it sends to itself.

pub(crate) mod faults;
mod memory;
mod rig;

use self::{
    memory::Memory,
    rig::{
        Reception,
        Rig, //
    },
};
use super::{
    super::check,
    *, //
};
use core::ops::Range;
use kernel_ext::{
    scatterlist::BlockParts,
    sync::Global, //
};
use rdma_transfer::{
    Place,
    Received,
    Receiving, //
};

/// A part of a block: offset and length in bytes.
type Cut = (usize, u32);

/// Memory that is sent, and the memory to which it goes.
struct Case {
    skip: u32,
    from: &'static [Cut],
    to: &'static [Cut],
}

/// Four pages.
const CASES: [Case; 3] = [
    Case {
        skip: 0,
        from: &[(0, 16384)],
        to: &[(0, 16384)],
    },
    // Pieces at any offsets; a fragment has up to two of them.
    Case {
        skip: 0,
        from: &[(100, 5000), (4, 3192), (4000, 8192)],
        to: &[(7, 300), (123, 12_000), (50, 4084)],
    },
    // The memory begins in the first page and ends in the last one.
    Case {
        skip: 1000,
        from: &[(0, 4096), (8192, 4096), (4096, 8192)],
        to: &[(1000, 3096), (0, 4096), (512, 6904)],
    },
];

/// The bytes of all cases.
const LEN: u32 = 16384;

impl Case {
    /// The bytes of the sender's memory that the receiver has.
    fn common(&self) -> Range<u32> {
        let len: u32 = self.to.iter().map(|cut| cut.1).sum();
        self.skip..self.skip.saturating_add(len)
    }
}

/// A transfer under way.
struct Run {
    received: Received<Reception, BlockParts>,
    from: Memory,
    to: Memory,
    case: &'static Case,
}

impl Run {
    /// Sends the fragments in `posts`, one after the other, waits for them, and ends the transfer.
    fn new(
        rig: &mut Rig,
        case: &'static Case,
        fragment_len: u32,
        posts: &[Range<u16>],
    ) -> Result<Self> {
        let (from, to) = (Memory::new(case.from)?, Memory::new(case.to)?);
        from.fill(rig.next_turn())?;
        let receiving = rig.receive(to.lender()?, case.skip, fragment_len)?;
        check(
            u32::from(receiving.count()).checked_mul(fragment_len) == Some(LEN),
            "the fragments are whole pages",
        )?;
        let mut sending = rig.send(from.lender()?, fragment_len, &receiving, 0)?;
        let mut count = 0;
        for post in posts {
            sending.post(post.clone())?;
            count += post.len();
        }
        rig.inbox.wait(count)?;
        rig.outbox.wait(posts.len())?;
        check(
            rig.check_order(posts.iter().cloned().flatten()),
            "each slot has the next one that was sent",
        )?;
        let (qp, _) = sending.finish().map_err(|_| EBUSY)?;
        rig.sender = Some(qp);
        let received = receiving.finish().map_err(|_| EBUSY)?;
        Ok(Self {
            received,
            from,
            to,
            case,
        })
    }

    /// Compares the bytes of the receiver with those of the sender, but for those in `lost`.
    fn compare(&self, lost: Range<u32>) -> Result {
        let (sent, came) = (self.from.bytes()?, self.to.bytes()?);
        let common = self.case.common();
        for (at, byte) in common.clone().zip(came.iter()) {
            if !lost.contains(&at) && sent.get(at as usize) != Some(byte) {
                pr_err!("byte {} of {:?} differs\n", at, common);
                return Err(EINVAL);
            }
        }
        check(came.len() == common.len(), "all bytes were compared")
    }

    fn end(self, rig: &mut Rig) {
        let (qp, _) = self.received.into_parts();
        rig.receiver = Some(qp);
    }
}

/// Fragments of one size: all come, some are lost, or they come in another order.
fn fragments_of(address: &SocketAddress, len: u32) -> Result {
    let mut rig = Rig::new(address)?;
    check(
        rig.mtu_bytes >= len,
        "the port takes datagrams of that size",
    )?;
    // CAST: At most 64.
    let count = (LEN / len) as u16;
    for case in &CASES {
        whole(&mut rig, case, len, count)?;
        if count >= 4 {
            lost(&mut rig, case, len, count)?;
            swapped(&mut rig, case, len, count)?;
        }
    }
    Ok(())
}

/// All come in their order.
fn whole(rig: &mut Rig, case: &'static Case, len: u32, count: u16) -> Result {
    let posts = [0..1, 1..count];
    let mut run = Run::new(rig, case, len, &posts)?;
    run.compare(0..0)?;
    check(
        run.received.deliver(0..5).is_err(),
        "there is no fifth page",
    )?;
    run.received.deliver(0..4)?;
    check(
        run.received.deliver(4..5).is_err(),
        "there is no fifth page",
    )?;
    run.end(rig);
    Ok(())
}

/// One is not sent: those behind it come a slot too early, and are moved.
fn lost(rig: &mut Rig, case: &'static Case, len: u32, count: u16) -> Result {
    let posts = [0..1, 2..count];
    let mut run = Run::new(rig, case, len, &posts)?;
    check(
        run.received.deliver(3..4).is_err(),
        "the last slot is empty",
    )?;
    check(
        run.received.deliver(0..4).is_err(),
        "nor are all pages whole",
    )?;
    let from = Place::Slot(count.wrapping_sub(1));
    check(
        run.received.copy(from, Place::Spare).is_err(),
        "so there is nothing to copy",
    )?;
    for number in (2..count).rev() {
        let from = Place::Slot(number.wrapping_sub(1));
        run.received.copy(from, Place::Slot(number))?;
    }
    run.compare(len..len.wrapping_mul(2))?;
    run.received.deliver(3..4)?;
    run.end(rig);
    Ok(())
}

/// The second half comes first.
fn swapped(rig: &mut Rig, case: &'static Case, len: u32, count: u16) -> Result {
    let half = count / 2;
    let posts = [half..count, 0..half];
    let mut run = Run::new(rig, case, len, &posts)?;
    check(
        run.received.copy(Place::Spare, Place::Slot(0)).is_err(),
        "nothing is spare",
    )?;
    for number in 0..half {
        let (low, high) = (Place::Slot(number), Place::Slot(number + half));
        run.received.copy(low, Place::Spare)?;
        run.received.copy(high, low)?;
        run.received.copy(Place::Spare, high)?;
    }
    run.compare(0..0)?;
    run.end(rig);
    Ok(())
}

pub(crate) fn fragments_256(address: &SocketAddress) -> Result {
    fragments_of(address, 256)
}

pub(crate) fn fragments_1024(address: &SocketAddress) -> Result {
    fragments_of(address, 1024)
}

pub(crate) fn fragments_4096(address: &SocketAddress) -> Result {
    fragments_of(address, 4096)
}

/// A queue pair is used for a thousand transfers, of which each second one gets less than it waits
/// for, or what has another key.
pub(crate) fn reused(address: &SocketAddress) -> Result {
    const TURNS: u32 = 1000;
    let mut rig = Rig::new(address)?;
    let number = rig.receiver.as_ref().map(|qp| qp.number());
    for turn in 0..TURNS {
        let (case, len) = (&CASES[0], 4096);
        match turn % 4 {
            0 | 2 => whole(&mut rig, case, len, 4)?,
            1 => {
                let run = Run::new(&mut rig, case, len, &[0..1, 1..2])?;
                run.end(&mut rig);
            }
            _ => other_key(&mut rig, case, len)?,
        }
    }
    let same = rig.receiver.as_ref().map(|qp| qp.number()) == number;
    check(same, "it is the same queue pair")
}

/// Datagrams with another key do not come, nor those of the transfer before.
fn other_key(rig: &mut Rig, case: &Case, len: u32) -> Result {
    let (from, to) = (Memory::new(case.from)?, Memory::new(case.to)?);
    let receiving = rig.receive(to.lender()?, 0, len)?;
    let mut sending = rig.send(from.lender()?, len, &receiving, 1)?;
    sending.post(0..4)?;
    rig.outbox.wait(1)?;
    let (qp, _) = sending.finish().map_err(|_| EBUSY)?;
    rig.sender = Some(qp);
    let received = receiving.finish().map_err(|_| EBUSY)?;
    check(rig.inbox.count() == 0, "another key is dropped")?;
    check(!received.has(0), "no slot is full")?;
    rig.receiver = Some(received.into_parts().0);
    Ok(())
}

/// Checks that in each state in which parts can be dropped the memory comes back, and nothing is
/// left behind.
pub(crate) fn dropped(address: &SocketAddress) -> Result {
    for state in 0..6 {
        let mut rig = Rig::new(address)?;
        let (from, to) = (Memory::new(CASES[1].from)?, Memory::new(CASES[1].to)?);
        let receiving = rig.receive(to.lender()?, 0, 1024)?;
        let mut sending = rig.send(from.lender()?, 1024, &receiving, 0)?;
        match state {
            // Nothing is sent, half of it, or all.
            0..=2 => {
                let count = state * 8;
                if count > 0 {
                    sending.post(0..count)?;
                    rig.inbox.wait(count.into())?;
                }
                drop(receiving);
                drop(sending);
            }
            // Sends without a receiver, which are on their way.
            3 => {
                drop(receiving);
                sending.post(0..16)?;
                drop(sending);
            }
            // It has ended, and the parts were not taken.
            4 => {
                drop(sending.finish().map_err(|_| EBUSY)?);
                drop(receiving.finish().map_err(|_| EBUSY)?);
            }
            _ => {
                check(!to.release() && !from.release(), "a transfer has it")?;
                continue;
            }
        }
        check(to.release() && from.release(), "the memory is back")?;
    }
    Ok(())
}

/// Checks that what is not possible is refused, and that both parts come back.
pub(crate) fn refused(address: &SocketAddress) -> Result {
    let mut rig = Rig::new(address)?;
    let memory = Memory::new(CASES[0].to)?;
    for (skip, len) in [(0, 128), (0, 3000), (4096, 1024), (1, 4096)] {
        let qp = rig.receiver.take().ok_or(EINVAL)?;
        // A byte more than 64 fragments, with the last one.
        let lender = match skip {
            1 => Memory::new(&[(0, 64 * 4096)])?.lender()?,
            _ => memory.lender()?,
        };
        let refused = qp.receive(lender, skip, len, 1).err().ok_or(EINVAL)?;
        check(refused.error == EINVAL, "it is no layout")?;
        rig.receiver = Some(refused.parts.0);
    }
    let qp = rig.receiver.take().ok_or(EINVAL)?;
    let refused = qp.receive(BlockParts::new(), 0, 1024, 1).err();
    let refused = refused.ok_or(EINVAL)?;
    check(refused.error == EINVAL, "there is no memory")?;
    rig.receiver = Some(refused.parts.0);
    let pieces = Memory::new(&[(0, 512); 8])?;
    let qp = rig.receiver.take().ok_or(EINVAL)?;
    let refused = qp.receive(pieces.lender()?, 0, 4096, 1).err();
    let refused = refused.ok_or(EINVAL)?;
    check(refused.error == EINVAL, "eight pieces are too many")?;
    let (qp, lender) = refused.parts;
    drop(lender);
    check(pieces.release(), "they come back")?;
    rig.receiver = Some(qp);
    let receiving = rig.receive(memory.lender()?, 0, 1024)?;
    let mut sending = rig.send(memory.lender()?, 1024, &receiving, 0)?;
    for wrong in [0..0, 0..17, 16..17] {
        check(sending.post(wrong).is_err(), "there is no such fragment")?;
    }
    sending.post(15..16)
}

/// The transfer that waits for the removal of its device.
static HELD: Global<Option<(PortWatch, Held)>> = Global::new(None);

type Held = Arc<Holder>;

#[pin_data]
struct Holder {
    device: DeviceId,
    #[pin]
    receiving: Mutex<Option<Receiving<Reception, BlockParts>>>,
}

impl PortEvents for Holder {
    fn device_removed(&self, device: DeviceId) {
        if device == self.device {
            let receiving = self.receiving.lock().take();
            let ended = receiving.map(|receiving| receiving.finish().is_ok());
            pr_info!("the device goes: {:?}\n", ended);
        }
    }
}

/// Leaves receives posted until the device goes.
pub(crate) fn hold(address: &SocketAddress) -> Result {
    let mut rig = Rig::new(address)?;
    let memory = Memory::new(CASES[1].to)?;
    let receiving = rig.receive(memory.lender()?, 0, 1024)?;
    let holder = Arc::pin_init(
        pin_init!(Holder {
            device: rig.pd.device().id(),
            receiving <- new_mutex!(Some(receiving)),
        }),
        GFP_KERNEL,
    )?;
    let watch = PortWatch::new(holder.clone())?;
    *HELD.lock() = Some((watch, holder));
    Ok(())
}

/// Forgets what was held; called by the module's exit.
pub(crate) fn let_go() {
    let held = HELD.lock().take();
    drop(held);
}
