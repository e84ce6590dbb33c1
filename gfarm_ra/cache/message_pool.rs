// SPDX-License-Identifier: GPL-2.0

//! A reserve of memory for messages to other nodes: they are too long for the stack of a reader,
//! and must be sent also when an allocation fails.

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
        COMMON_LEN_MAX, //
    }, //
};

/// The number of messages that are in the reserve.
const KEPT: usize = 4;

/// The memory for the body of a message, and for its datagram.
#[derive(Zeroable)]
struct Buffers {
    body: [u8; BODY_LEN_MAX],
    bytes: [u8; COMMON_LEN_MAX],
}

/// The reserve of memory for messages.
#[pin_data]
pub(super) struct MessagePool {
    #[pin]
    kept: Mutex<KVec<KBox<Buffers>>>,
}

impl MessagePool {
    /// Allocates the reserve. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if an allocation fails.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut kept = KVec::with_capacity(KEPT, GFP_KERNEL)?;
        for _ in 0..KEPT {
            let buffers = KBox::init(pin_init::zeroed::<Buffers>(), GFP_KERNEL)?;
            kept.push(buffers, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self { kept <- new_mutex!(kept, "MessagePool::kept") }),
            GFP_KERNEL,
        )
    }

    /// Takes memory for a message from the reserve, or allocates it; `None` if both fail. Sleeps
    /// for a lock only.
    pub(super) fn take(self: &Arc<Self>) -> Option<MessageMemory> {
        let kept = self.kept.lock().pop();
        let fresh = || KBox::init(pin_init::zeroed::<Buffers>(), GFP_NOWAIT | __GFP_NOWARN).ok();
        Some(MessageMemory {
            buffers: Some(kept.or_else(fresh)?),
            pool: self.clone(),
        })
    }
}

/// Memory for a message. Dropping it returns it to the reserve, and sleeps for a lock.
pub(super) struct MessageMemory {
    /// [`None`] when it was returned.
    buffers: Option<KBox<Buffers>>,
    pool: Arc<MessagePool>,
}

impl MessageMemory {
    /// Makes a datagram of the message that `write` returns: `write` writes the body, and names
    /// the receiver. Returns `None` if there is nothing to send. The sender is the node of `table`.
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
        let Buffers { body, bytes } = &mut **self.buffers.as_mut()?;
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
            memory: self,
        })
    }
}

impl Drop for MessageMemory {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            // It is freed if the reserve is full.
            let _ = self.pool.kept.lock().push_within_capacity(buffers);
        }
    }
}

/// A message that is ready to be sent.
pub(super) struct Message {
    to: Address,
    is_lost: bool,
    len: usize,
    memory: MessageMemory,
}

impl Message {
    /// Returns the address of its receiver.
    pub(super) fn to(&self) -> Address {
        self.to
    }

    /// Returns whether its receiver does not answer, see [`Outgoing::is_lost`].
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the datagram.
    pub(super) fn bytes(&self) -> &[u8] {
        let buffers = self.memory.buffers.as_ref();
        buffers
            .and_then(|buffers| buffers.bytes.get(..self.len))
            .unwrap_or_default()
    }
}
