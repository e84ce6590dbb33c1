// SPDX-License-Identifier: GPL-2.0

//! The knowledge of this node as the owner of chunks: which nodes have their pages.

use kernel::{
    alloc::KVVec,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    now_us,
    peers::Peers, //
};
use crate::proto::cache::{
    address::NodeId,
    directory::{
        self,
        Directory,
        Entry,
        Hint,
        Holder,
        Notice,
        Question, //
    },
    excluded::Reason,
    have::Have,
    owner::ChunkKey,
    reply::Answer,
    request::{
        Ask,
        Role,
        Wanted, //
    },
};

/// The time after which a node asks again for pages whose holders are all busy, in milliseconds.
const PAUSE_MS: u16 = 5;

/// The memory of a directory.
struct Memory {
    entries: KVVec<Entry>,
    holders: KVVec<Option<Holder>>,
    hints: KVVec<Option<Hint>>,
}

impl Memory {
    /// Allocates an empty directory of about this length. Sleeps.
    fn new(len_bytes: u64) -> Result<Self> {
        let groups = directory::groups(len_bytes);
        let (entries, holders, hints) = Directory::GROUP;
        let of = |number: usize| groups.checked_mul(number).ok_or(ENOMEM);
        Ok(Self {
            entries: KVVec::from_elem(Entry::EMPTY, of(entries)?, GFP_KERNEL)?,
            holders: KVVec::from_elem(None, of(holders)?, GFP_KERNEL)?,
            hints: KVVec::from_elem(None, of(hints)?, GFP_KERNEL)?,
        })
    }

    fn get(&mut self) -> Directory<'_> {
        Directory::new(&mut self.entries, &mut self.holders, &mut self.hints)
    }
}

/// The directory of a node.
#[pin_data]
pub(crate) struct Owner {
    peers: Arc<Peers>,
    #[pin]
    memory: Mutex<Memory>,
}

impl Owner {
    /// Allocates an empty directory of about `len_bytes`. Sleeps.
    pub(crate) fn new(peers: &Arc<Peers>, len_bytes: u64) -> Result<Arc<Self>> {
        let memory = Memory::new(len_bytes)?;
        Arc::pin_init(
            pin_init!(Self {
                peers: peers.clone(),
                memory <- new_mutex!(memory, "Owner::memory"),
            }),
            GFP_KERNEL,
        )
    }

    /// Answers a node, which may be this one, that asks for pages in the role of an owner.
    pub(crate) fn ask(&self, requester: NodeId, wanted: &Wanted, ask: &Ask) -> Answer {
        let me = self.peers.me().node;
        let key = ChunkKey::new(wanted.id().file.inum, wanted.chunk());
        let is_lost = |node| ask.excluded.reason(node) == Some(Reason::NoAnswer);
        let owners = self.peers.owners(key, requester, is_lost);
        let is_root = owners.root == me || ask.role == Role::NamedOwner;
        let root = || self.peers.holder(owners.root).map(Answer::OtherOwner);
        if owners.near != me && !is_root && requester != me {
            return root().unwrap_or(Answer::Miss);
        }
        let question = Question {
            requester,
            group: self.peers.group_of(requester),
            file: wanted.id(),
            chunk: wanted.chunk(),
            pages: wanted.pages(),
            is_retry: ask.is_retry,
            is_root,
            excluded: &ask.excluded,
        };
        let direction = {
            let is_live = |node| self.peers.is_live(node);
            let mut memory = self.memory.lock();
            memory.get().direct(&question, now_us(), is_live)
        };
        let fetch = direction.fetch;
        let found = direction.from.and_then(|(node, pages)| {
            let holder = self.peers.holder(node)?;
            Some(Answer::Redirect {
                holder,
                pages,
                fetch,
            })
        });
        match found {
            Some(answer) => answer,
            None if fetch.is_empty() => Answer::Busy { wait_ms: PAUSE_MS },
            None if !is_root => root().unwrap_or(Answer::Fetch { pages: fetch }),
            None => Answer::Fetch { pages: fetch },
        }
    }

    /// Takes the notice of a node that has pages.
    pub(crate) fn told(&self, node: NodeId, have: &Have) {
        let notice = Notice {
            node,
            group: self.peers.group_of(node),
            file: have.id(),
            chunk: have.chunk(),
            pages: have.pages(),
        };
        self.memory.lock().get().done(&notice, now_us());
    }
}
