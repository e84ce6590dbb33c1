// SPDX-License-Identifier: GPL-2.0

//! Objects that an upper layer passes in with a request, and gets back when it ends.

use kernel::prelude::*;
use kernel_ext::{
    erased::{
        Erased,
        Kind, //
    },
    pages::PageBlock,
    scatterlist::SgList,
    sync::Held, //
};
use rdma::{
    sg,
    DmaDirection, //
};
use rtrs_core::proto::quarantine::Ticket;

use crate::client::io::{
    request::InFlight,
    table::RequestTable, //
};

/// The object that a request owns while it is in flight: the memory of its data.
///
/// At most one word, since it is stored type-erased without an allocation (a block layer request,
/// a box or an `Arc` fits).
pub trait Transfer: Send + Sized + 'static {
    /// Returns the bytes of the data, 0 of a request without.
    fn data_len(&self) -> u32;

    /// Fills the list of [`Self::sg`], unless it is. Not called for a read that is copied.
    ///
    /// # Errors
    ///
    /// `EIO` if there is no room in it.
    #[inline(always)]
    fn fill_sg(&mut self) -> Result {
        Ok(())
    }

    /// Returns the memory, not DMA-mapped; an empty list for a request without data.
    fn sg(&mut self) -> &mut SgList;

    /// Copies from byte `offset` of `pages` on to all of the memory, which is that of a read.
    fn copy_in(&mut self, pages: &PageBlock, offset: usize) -> Result {
        self.sg().copy_in_pages(pages, offset)
    }

    /// Takes it back, exactly once. `result` is the server's, or `ECONNABORTED` if the path was
    /// lost first. The memory cannot be reached over the wire any more.
    ///
    /// Runs in softirq or process context and must not sleep. The tag is free again.
    fn done(self, result: Result);

    /// Returns how many of the last bytes of a read may come with the response, its tail: at most
    /// [`TAIL_LEN_MAX`](crate::TAIL_LEN_MAX), and not all. That is one packet less where what is in
    /// front of them fills the others. 0 if the server does not know of tails.
    #[inline(always)]
    fn tail_len(&self) -> u32 {
        0
    }

    /// Takes back, as [`Self::done`] does, the memory of a read that has succeeded. Its `tail`, as
    /// long as [`Self::tail_len`] says, has come with the response and is not in the memory.
    fn done_with_tail(self, tail: &[u8]) {
        let _ = tail;
        self.done(Err(EIO));
    }

    /// Requeues the transfer without an answer: the last path is lost, or the request was sent
    /// again too often. The server may have carried it out or not, and may still do so. An upper
    /// layer that submits it again makes its message anew and passes the `ticket`: only so, and
    /// with the same data, it can be sent before the server is known to be done with this copy,
    /// and is not carried out before it.
    ///
    /// Runs in process context and must not sleep. The tag is free again; the next request with it
    /// may have to wait.
    fn requeue(self, ticket: Ticket);

    /// Returns whether `message`, with which the request was submitted, is still valid for the
    /// server. If not, the request is not sent again on another path but requeued.
    ///
    /// Runs in process context and must not sleep.
    fn is_valid(&self, message: &[u8]) -> bool;

    /// Returns the argument of the last [`Self::requeue`], if it was called for this request.
    fn ticket(&self) -> Option<Ticket> {
        None
    }
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data go from the server to the client.
    Read,
    /// Data go from the client to the server.
    Write,
}

impl Direction {
    /// Returns the direction of the DMA mapping.
    #[inline]
    pub(crate) fn dma(self) -> DmaDirection {
        match self {
            Direction::Read => DmaDirection::FromDevice,
            Direction::Write => DmaDirection::ToDevice,
        }
    }
}

/// The IO connection of a path that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoQueue {
    /// The connection of a CPU, or of the hardware queue with this index.
    Cpu(u32),
    /// The connection of a poll queue, from 0; its completions are handled by
    /// [`Session::poll`](crate::Session::poll) only.
    Poll(u32),
}

/// A request that was not sent.
pub struct Rejected<T> {
    /// `EBUSY`: the tag's chunk is in use, try again; `EALREADY`: the server may still work on an
    /// earlier request in it, which can take long, or the request is paused, try again later;
    /// `ECONNABORTED`: no path is connected; `EMSGSIZE`: head and data exceed the chunk; `EINVAL`:
    /// the tag is out of range.
    pub error: Error,
    /// The transfer of the caller; [`Transfer::done`] was not called.
    pub transfer: T,
}

impl<T> Rejected<T> {
    /// Creates one. It is not inlined: where a request is sent, nothing is prepared for that.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(error: Error, transfer: T) -> Self {
        Self { error, transfer }
    }
}

/// The table of a request whose memory is mapped.
pub(crate) type Mapped<'a> = Option<&'a RequestTable>;

/// The operations of a [`Transfer`] by its type.
struct Ops {
    data_len: fn(&mut AnyTransfer) -> u32,
    tail_len: fn(&mut AnyTransfer) -> u32,
    sg: fn(&mut AnyTransfer) -> Result<&mut SgList>,
    copied: fn(AnyTransfer, Held<'_, InFlight>),
    done: fn(AnyTransfer, Mapped<'_>, Result),
    succeeded: fn(AnyTransfer, &RequestTable),
    done_with_tail: fn(AnyTransfer, &RequestTable, &[u8]),
    requeue: fn(AnyTransfer, Ticket),
    is_valid: fn(&mut AnyTransfer, &[u8]) -> bool,
}

trait HasKind: Transfer {
    const KIND: &'static Kind<Self, Ops>;
}

impl<T: Transfer> HasKind for T {
    const KIND: &'static Kind<T, Ops> = &Kind::new(Ops {
        data_len: |any| any.0.downcast_mut(T::KIND).map_or(0, |any| any.data_len()),
        tail_len: |any| any.0.downcast_mut(T::KIND).map_or(0, |any| any.tail_len()),
        sg: |any| {
            let transfer = any.0.downcast_mut(T::KIND).ok_or(EIO)?;
            transfer.fill_sg()?;
            Ok(transfer.sg())
        },
        copied: |any, held| {
            let Ok(mut transfer) = any.0.into_inner(T::KIND) else {
                return;
            };
            let buffer = held.buffer.as_ref();
            let copied = buffer.map_or(Err(EIO), |buffer| buffer.copy_to(&mut transfer));
            // The buffer belongs to the next request with this entry.
            drop(held);
            transfer.done(copied);
        },
        done: |any, mapped, result| {
            if let Ok(mut transfer) = any.0.into_inner(T::KIND) {
                if let Some(requests) = mapped {
                    sg::unmap(requests, transfer.sg());
                }
                transfer.done(result);
            }
        },
        succeeded: |any, requests| {
            let Ok(mut transfer) = any.0.into_inner(T::KIND) else {
                return;
            };
            sg::unmap(requests, transfer.sg());
            transfer.done(Ok(()));
        },
        done_with_tail: |any, requests, tail| {
            if let Ok(mut transfer) = any.0.into_inner(T::KIND) {
                sg::unmap(requests, transfer.sg());
                transfer.done_with_tail(tail);
            }
        },
        requeue: |any, ticket| {
            if let Ok(transfer) = any.0.into_inner(T::KIND) {
                transfer.requeue(ticket);
            }
        },
        is_valid: |any, message| {
            let transfer = any.0.downcast_mut(T::KIND);
            transfer.is_some_and(|transfer| transfer.is_valid(message))
        },
    });
}

/// A [`Transfer`] without its type.
pub struct AnyTransfer(Erased<Ops>);

impl AnyTransfer {
    #[inline(always)]
    pub(crate) fn new<T: Transfer>(transfer: T) -> Self {
        Self(Erased::new(transfer, T::KIND))
    }

    /// Copies the data of a read out of the buffer of the entry that is `held`, releases that, and
    /// calls [`Transfer::done`].
    #[inline(always)]
    pub(crate) fn copied(self, held: Held<'_, InFlight>) {
        (self.0.ops().copied)(self, held);
    }

    /// Unmaps the memory if it is `mapped`, and calls [`Transfer::done`].
    ///
    /// The memory cannot be reached over the wire any more.
    #[inline(always)]
    pub(crate) fn done(self, mapped: Mapped<'_>, result: Result) {
        (self.0.ops().done)(self, mapped, result);
    }

    /// Unmaps the memory, and calls [`Transfer::done`] with success; as [`Self::done`].
    #[inline(always)]
    pub(crate) fn succeeded(self, requests: &RequestTable) {
        (self.0.ops().succeeded)(self, requests);
    }

    /// Unmaps the memory and calls [`Transfer::done_with_tail`]; as [`Self::done`].
    pub(crate) fn done_with_tail(self, requests: &RequestTable, tail: &[u8]) {
        (self.0.ops().done_with_tail)(self, requests, tail);
    }

    /// Calls [`Transfer::is_valid`].
    #[cold]
    pub(crate) fn is_valid(&mut self, message: &[u8]) -> bool {
        (self.0.ops().is_valid)(self, message)
    }

    /// Calls [`Transfer::requeue`]; the memory is not mapped any more.
    #[cold]
    pub(crate) fn requeue(self, ticket: Ticket) {
        (self.0.ops().requeue)(self, ticket);
    }
}

/// A [`Transfer`] that is being sent. Where its type is still known no indirect call is needed.
pub(crate) trait Outbound: Sized {
    /// Returns what [`Transfer::data_len`] returns.
    fn data_len(&mut self) -> u32;

    /// Returns the memory, as [`Transfer::sg`] does once the list is filled.
    fn sg(&mut self) -> Result<&mut SgList>;

    /// Returns whether the memory is one piece.
    fn is_one_piece(&mut self) -> bool;

    /// Returns what [`Transfer::tail_len`] returns; 0 for one that is sent again.
    #[inline(always)]
    fn tail_len(&self) -> u32 {
        0
    }

    /// Returns how many of the last bytes of a read must not be those of a read before.
    fn spoil_len(&mut self) -> u32;

    /// Erases the type.
    fn forget_type(self) -> AnyTransfer;
}

/// A [`Transfer`] whose type is known.
pub(crate) struct Known<T> {
    pub(crate) transfer: T,
    data_len: u32,
}

impl<T: Transfer> Known<T> {
    /// Returns that of a read, whose list is filled where it is needed.
    #[inline(always)]
    pub(crate) fn of_read(transfer: T) -> Self {
        Self {
            data_len: transfer.data_len(),
            transfer,
        }
    }

    /// Returns that of a write, whose list is filled now, as less has to be saved over that call
    /// than later. If there is no room in it, it stays empty until that is noticed.
    #[inline(always)]
    pub(crate) fn of_write(mut transfer: T) -> Self {
        let _ = transfer.fill_sg();
        Self {
            data_len: transfer.data_len(),
            transfer,
        }
    }
}

impl<T: Transfer> Outbound for Known<T> {
    #[inline(always)]
    fn data_len(&mut self) -> u32 {
        self.data_len
    }

    #[inline(always)]
    fn sg(&mut self) -> Result<&mut SgList> {
        self.transfer.fill_sg()?;
        Ok(self.transfer.sg())
    }

    #[inline(always)]
    fn is_one_piece(&mut self) -> bool {
        self.transfer.sg().nents() == 1
    }

    #[inline(always)]
    fn tail_len(&self) -> u32 {
        self.transfer.tail_len()
    }

    #[inline(always)]
    fn spoil_len(&mut self) -> u32 {
        self.transfer.tail_len()
    }

    #[inline(always)]
    fn forget_type(self) -> AnyTransfer {
        AnyTransfer::new(self.transfer)
    }
}

impl Outbound for AnyTransfer {
    fn data_len(&mut self) -> u32 {
        (self.0.ops().data_len)(self)
    }

    fn sg(&mut self) -> Result<&mut SgList> {
        (self.0.ops().sg)(self)
    }

    fn is_one_piece(&mut self) -> bool {
        self.sg().is_ok_and(|list| list.nents() == 1)
    }

    fn spoil_len(&mut self) -> u32 {
        (self.0.ops().tail_len)(self)
    }

    fn forget_type(self) -> AnyTransfer {
        self
    }
}
