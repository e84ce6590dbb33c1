// SPDX-License-Identifier: GPL-2.0

//! The other nodes, as this one knows them.

use kernel::{
    alloc::KVVec,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::random;

use super::now_us;
use crate::proto::cache::{
    address::{
        Address,
        NodeId,
        Port, //
    },
    members::{
        Members,
        PEERS_MAX, //
    },
    owner::{
        ChunkKey,
        Owners, //
    },
    peer::Peer,
    reply::Holder,
    wire::Head, //
};

/// The table of peers.
pub(crate) type Table = Members<KVVec<Option<Peer>>>;

/// The peers of a node.
#[pin_data]
pub(crate) struct Peers {
    me: Holder,
    #[pin]
    table: Mutex<Table>,
}

impl Peers {
    /// Makes the table of a node with this number and address, without peers. Sleeps.
    pub(crate) fn new(node: NodeId, address: Address) -> Result<Arc<Self>> {
        let mut places = KVVec::with_capacity(PEERS_MAX, GFP_KERNEL)?;
        places.extend_with(PEERS_MAX, None, GFP_KERNEL)?;
        let mut drawn = [0; 8];
        random::fill(&mut drawn);
        let [b0, b1, b2, b3, r0, r1, r2, r3] = drawn;
        let boot = u32::from_le_bytes([b0, b1, b2, b3]);
        let random = u32::from_le_bytes([r0, r1, r2, r3]);
        let table = Members::new(node, address, boot, places, now_us(), random);
        let me = Holder { node, address };
        Arc::pin_init(
            pin_init!(Self {
                me,
                table <- new_mutex!(table, "Peers::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns this node.
    pub(crate) fn me(&self) -> Holder {
        self.me
    }

    /// Looks at the table, or changes it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Table) -> R) -> R {
        work(&mut self.table.lock())
    }

    /// Returns the address of the sender of a datagram with this head, if it is a member that has
    /// sent it from there, and not before.
    pub(crate) fn admit(&self, head: &Head, from: Port, qpn: u32) -> Option<Address> {
        let mut table = self.table.lock();
        let is_good = table.admits(head.from, from, qpn, head.sequence);
        let peer = is_good.then(|| table.get(head.from)).flatten()?;
        Some(peer.address())
    }

    /// Returns a node with its address.
    pub(crate) fn holder(&self, node: NodeId) -> Option<Holder> {
        if node == self.me.node {
            return Some(self.me);
        }
        let table = self.table.lock();
        let address = table.get(node)?.address();
        Some(Holder { node, address })
    }

    /// Returns whether a node is this one, or one that answers.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        self.table.lock().is_live(node)
    }

    /// Returns the owners of a chunk for a node that asks.
    pub(crate) fn owners(
        &self,
        chunk: ChunkKey,
        requester: NodeId,
        is_excluded: impl Fn(NodeId) -> bool,
    ) -> Owners {
        self.table.lock().owners(chunk, requester, is_excluded)
    }
}
