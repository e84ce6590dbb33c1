// SPDX-License-Identifier: GPL-2.0

//! Memory in which messages to other nodes are written: they are too long for the stack of a
//! reader, and have to be sent when there is no memory, too.

use kernel::{
    alloc::flags::{
        GFP_NOWAIT,
        __GFP_NOWARN, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    now_us,
    peers::Table, //
};
use crate::proto::cache::{
    address::Address,
    gossip::BODY_LEN_MAX,
    members::Outgoing,
    wire::{
        self,
        Head,
        Key,
        Kind,
        DATAGRAM_LEN_MAX, //
    }, //
};

/// The messages that can be written at a time when there is no memory.
const KEPT: usize = 4;

/// What a message is made in, and the datagram.
#[derive(Zeroable)]
struct Space {
    body: [u8; BODY_LEN_MAX],
    bytes: [u8; DATAGRAM_LEN_MAX],
}

/// Memory for messages.
#[pin_data]
pub(super) struct Drafts {
    #[pin]
    kept: Mutex<KVec<KBox<Space>>>,
}

impl Drafts {
    /// Allocates it. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if an allocation fails.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut kept = KVec::with_capacity(KEPT, GFP_KERNEL)?;
        for _ in 0..KEPT {
            let space = KBox::init(pin_init::zeroed::<Space>(), GFP_KERNEL)?;
            kept.push(space, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self { kept <- new_mutex!(kept, "Drafts::kept") }),
            GFP_KERNEL,
        )
    }

    /// Returns memory for a message; `None` if there is none. Sleeps for a lock only.
    pub(super) fn take(self: &Arc<Self>) -> Option<Draft> {
        let kept = self.kept.lock().pop();
        let fresh = || KBox::init(pin_init::zeroed::<Space>(), GFP_NOWAIT | __GFP_NOWARN).ok();
        Some(Draft {
            space: Some(kept.or_else(fresh)?),
            drafts: self.clone(),
        })
    }
}

/// Memory for a message. Dropping it gives it back.
pub(super) struct Draft {
    /// [`None`] when it has been given back.
    space: Option<KBox<Space>>,
    drafts: Arc<Drafts>,
}

impl Draft {
    /// Makes a datagram of what `write` says, if there is something to send: it writes the body,
    /// and returns where that goes. The sender is the node of `table`.
    // A frame of its own, which ends before the datagram is sent.
    #[inline(never)]
    pub(super) fn seal<F>(
        mut self,
        table: &mut Table,
        key: &Key,
        kind: Kind,
        write: F,
    ) -> Option<Message>
    where
        F: for<'b> FnOnce(&mut Table, &'b mut [u8; BODY_LEN_MAX]) -> Option<Outgoing<'b>>,
    {
        let Space { body, bytes } = &mut **self.space.as_mut()?;
        let outgoing = write(table, body)?;
        let head = Head {
            kind,
            from: table.me().node,
            to: outgoing.node,
            sequence: table.next_sequence(outgoing.node, now_us()),
        };
        let len = wire::seal(&head, outgoing.body, key, bytes)?;
        Some(Message {
            to: outgoing.to,
            is_lost: outgoing.is_lost,
            len,
            draft: self,
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(space) = self.space.take() {
            // One more than are kept is freed.
            let _ = self.drafts.kept.lock().push_within_capacity(space);
        }
    }
}

/// A message that is ready to be sent.
pub(super) struct Message {
    to: Address,
    is_lost: bool,
    len: usize,
    draft: Draft,
}

impl Message {
    /// Returns where it goes.
    pub(super) fn to(&self) -> Address {
        self.to
    }

    /// Returns whether its receiver does not answer, see [`Outgoing::is_lost`].
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the datagram.
    pub(super) fn bytes(&self) -> &[u8] {
        let space = self.draft.space.as_ref();
        space
            .and_then(|space| space.bytes.get(..self.len))
            .unwrap_or_default()
    }
}
