// SPDX-License-Identifier: GPL-2.0

//! The other nodes, as this one knows them.

use kernel::{
    alloc::KVVec,
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};
use kernel_ext::{
    random,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};

use super::now_us;
use crate::proto::cache::{
    address::{
        Address,
        Group,
        NodeId,
        Port, //
    },
    members::{
        Members,
        PeerPlace,
        PEERS_MAX, //
    },
    owner::{
        ChunkKey,
        Owners, //
    },
    peer::{
        Claim,
        Record, //
    },
    reply::Holder,
    responder::Discarded,
    wire::Head, //
};

/// The table of peers.
pub(crate) type Table = Members<KVVec<PeerPlace>>;

/// The number that all mounts of this machine have in common until the module is loaded again; 0
/// before the first one. With a number for each of them, mounts would take each other for those
/// from before a start of their machine, and so for dead.
static BOOT: AtomicU32 = AtomicU32::new(0);

fn boot() -> u32 {
    let _ = BOOT.compare_exchange(0, drawn().max(1), Relaxed, Relaxed);
    BOOT.load(Relaxed)
}

fn drawn() -> u32 {
    // CAST: Any half of it.
    random::number() as u32
}

/// The peers of a node.
#[pin_data]
pub(crate) struct Peers {
    #[pin]
    me: SpinLock<Holder>,
    #[pin]
    table: Mutex<Table>,
}

impl Peers {
    /// Makes the table of a node with this number, address and group, without peers. Sleeps.
    pub(crate) fn new(node: NodeId, address: Address, group: Group) -> Result<Arc<Self>> {
        let mut places = KVVec::with_capacity(PEERS_MAX, GFP_KERNEL)?;
        places.extend_with(PEERS_MAX, PeerPlace::EMPTY, GFP_KERNEL)?;
        let record = Record {
            node,
            address,
            boot: boot(),
            claim: Claim::FIRST,
            group,
        };
        let table = Members::new(record, places, now_us(), drawn());
        let me = Holder { node, address };
        Arc::pin_init(
            pin_init!(Self {
                me <- new_spinlock!(me, "Peers::me"),
                table <- new_mutex!(table, "Peers::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns this node.
    pub(crate) fn me(&self) -> Holder {
        *self.me.lock()
    }

    /// Takes note that this node has another address, of which all are to be told.
    pub(crate) fn moved(&self, address: Address) {
        self.me.lock().address = address;
        self.table.lock().moved(address, now_us());
    }

    /// Looks at the table, or changes it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Table) -> R) -> R {
        work(&mut self.table.lock())
    }

    /// Returns the address of the sender of a datagram with this head, if it is a member that has
    /// sent it from there, and not before.
    pub(crate) fn admit(&self, head: &Head, from: Port, qpn: u32) -> Result<Address, Discarded> {
        let mut table = self.table.lock();
        table.admit(head.from, from, qpn, head.sequence)
    }

    /// Returns a node with its address.
    pub(crate) fn holder(&self, node: NodeId) -> Option<Holder> {
        let me = self.me();
        if node == me.node {
            return Some(me);
        }
        let table = self.table.lock();
        let address = table.get(node)?.address();
        Some(Holder { node, address })
    }

    /// Returns whether a node is this one, or one that answers.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        self.table.lock().is_live(node)
    }

    /// Returns the part of the network that a node is in.
    pub(crate) fn group_of(&self, node: NodeId) -> Group {
        self.table.lock().group_of(node)
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
