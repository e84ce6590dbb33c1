// SPDX-License-Identifier: GPL-2.0

//! Tests of address handles that are dropped while sends may use them.

use super::{
    super::check,
    datagram::{
        find,
        Node, //
    },
    *, //
};
use ::rdma::proto::retirement::WAITING_MAX;
use kernel::time::{
    delay::fsleep,
    Delta, //
};

const KEY: u32 = 0x1234;

/// The time for which a handle is looked at that must not go.
const STAY: Delta = Delta::from_millis(50);

/// The number of handles of one address after the other.
const MANY: usize = 500;

/// Two queue pairs, of which one sends to the other.
struct Pair {
    from: OwnedQp<Node>,
    to: OwnedQp<Node>,
    address: PortAddress,
    pd: Arc<Pd>,
}

impl Pair {
    fn new(address: &SocketAddress) -> Result<Self> {
        let (device, gid_index, _) = find(address)?;
        let pd = Pd::new(&device)?;
        let port = DatagramPort {
            port: 1,
            gid_index,
            pkey_index: 0,
            qkey: KEY,
        };
        Ok(Self {
            from: Node::create(&pd, &port)?,
            to: Node::create(&pd, &port)?,
            address: PortAddress::own(&device, 1, gid_index)?,
            pd,
        })
    }

    /// Sends by a handle of its own, which is dropped at once.
    fn send(&self, flags: SendFlags) -> Result {
        let handle = AddressHandle::new(&self.pd, &self.address)?;
        self.send_by(&handle, flags)
    }

    fn send_by(&self, handle: &AddressHandle, flags: SendFlags) -> Result {
        let peer = Peer {
            address: handle,
            qp_number: self.to.number(),
            // The other one need not take it.
            qkey: KEY + 1,
        };
        Node::send_with(&self.from, peer, None, flags)
    }

    /// Waits until as many handles wait, or fewer.
    fn await_waiting(&self, count: usize) -> Result {
        for _ in 0..STEP_MS {
            if self.pd.waiting_handles() <= count {
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        pr_err!("{} handles wait\n", self.pd.waiting_handles());
        Err(ETIMEDOUT)
    }

    fn check_waiting(&self, count: usize, what: &'static str) -> Result {
        fsleep(STAY);
        check(self.pd.waiting_handles() == count, what)
    }
}

/// Handles that were dropped go with their last send, and not before; too many that wait are
/// refused, and a queue pair that is closed or dropped keeps none.
pub(crate) fn address_handles(address: &SocketAddress) -> Result {
    signaled(&Pair::new(address)?)?;
    unsignaled(&Pair::new(address)?)?;
    ends(Pair::new(address)?)
}

fn signaled(pair: &Pair) -> Result {
    drop(AddressHandle::new(&pair.pd, &pair.address)?);
    check(pair.pd.waiting_handles() == 0, "one that was not used goes")?;
    for _ in 0..MANY {
        pair.send(SendFlags::SIGNALED)?;
        pair.await_waiting(4)?;
    }
    pair.await_waiting(0)
}

fn unsignaled(pair: &Pair) -> Result {
    pair.send(SendFlags::NONE)?;
    pair.check_waiting(1, "one of an unsignaled send stays")?;
    let last = AddressHandle::new(&pair.pd, &pair.address)?;
    let same = last.clone();
    drop(last);
    pair.check_waiting(1, "a handle with a clone is not dropped")?;
    pair.send_by(&same, SendFlags::SIGNALED)?;
    pair.await_waiting(0)?;
    pair.send(SendFlags::NONE)?;
    for waiting in 1..WAITING_MAX {
        check(pair.pd.waiting_handles() == waiting, "all wait")?;
        drop(AddressHandle::new(&pair.pd, &pair.address)?);
    }
    let one_more = AddressHandle::new(&pair.pd, &pair.address).err();
    check(one_more == Some(EAGAIN), "no more than these wait")?;
    pair.send_by(&same, SendFlags::SIGNALED)?;
    pair.await_waiting(WAITING_MAX - 1)?;
    pair.send_by(&same, SendFlags::SIGNALED)?;
    pair.await_waiting(0)?;
    drop(AddressHandle::new(&pair.pd, &pair.address)?);
    Ok(())
}

fn ends(pair: Pair) -> Result {
    pair.send(SendFlags::NONE)?;
    pair.check_waiting(1, "an unsignaled send is on its way")?;
    pair.from.close()?;
    check(pair.pd.waiting_handles() == 0, "a close ends all sends")?;
    let Pair { from, to, pd, .. } = pair;
    drop(from);
    drop(to);
    check(pd.waiting_handles() == 0, "no queue pair is left")
}
