// SPDX-License-Identifier: GPL-2.0

//! What an upper layer hands over with a request, and gets back at its end.

use kernel::prelude::*;
use kernel_ext::{
    erased::{
        Erased,
        Kind, //
    },
    scatterlist::SgList, //
};
use rdma::{
    sg,
    Device,
    DmaDirection, //
};
use rtrs_core::proto::quarantine::Ticket;

/// What a request owns while it is under way: the memory that its data is in.
///
/// At most one word, for it is kept in place with its type forgotten (a block layer request, a box
/// or an `Arc` fits).
pub trait Transfer: Send + Sized + 'static {
    /// Returns the memory, not DMA-mapped; an empty list for a request without data.
    fn sg(&mut self) -> &mut SgList;

    /// Takes it back, exactly once. `result` is the server's, or `ECONNABORTED` where the path went
    /// away first. By then nobody can reach the memory over the wire any more.
    ///
    /// Runs in softirq or process context and must not sleep. The tag is free again.
    fn done(self, result: Result);

    /// Ends the transfer without an answer: the last path is gone, or the request has been sent
    /// again too often. The server may have carried it out or not, and may still do so. Whoever
    /// sends it once more makes its message anew and gives the `ticket` along: only so, and with
    /// the same data, it can go out before the server is known to be done with this copy, and does
    /// not come before it.
    ///
    /// Runs in process context and must not sleep. The tag is free again; its next user may have to
    /// wait.
    fn requeue(self, ticket: Ticket);

    /// What [`Self::lost`] gave last, if it has been called for this request.
    fn ticket(&self) -> Option<Ticket> {
        None
    }
}

/// Where the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server to us.
    Read,
    /// From us to the server.
    Write,
}

impl Direction {
    /// Returns what the device does with the memory.
    #[inline]
    pub(crate) fn dma(self) -> DmaDirection {
        match self {
            Direction::Read => DmaDirection::FromDevice,
            Direction::Write => DmaDirection::ToDevice,
        }
    }
}

/// Which of a path's IO connections a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoQueue {
    /// That of a CPU, or of the hardware queue with its index.
    Cpu(u32),
    /// That of a poll queue, from 0; its answer is seen by [`Session::poll`](crate::Session::poll)
    /// only.
    Poll(u32),
}

/// A request that was not taken.
pub struct Rejected<T> {
    /// `EBUSY`: the tag's chunk is still taken, try again; `EALREADY`: the server may still work on
    /// an earlier request in it, which can take long, try again later; `ECONNABORTED`: no path is
    /// connected; `EMSGSIZE`: head and data exceed the chunk; `EINVAL`: the tag is none.
    pub error: Error,
    /// What came with it; [`Transfer::done`] was not called.
    pub transfer: T,
}

impl<T> Rejected<T> {
    #[inline(always)]
    pub(crate) fn new(error: Error, transfer: T) -> Self {
        Self { error, transfer }
    }
}

/// A device for which the memory of a request is mapped, and how.
pub(crate) type Mapped<'a> = Option<(&'a Device, Direction)>;

/// The two operations of a [`Transfer`], found by its type.
struct Ops {
    sg: fn(&mut AnyTransfer) -> Option<&mut SgList>,
    done: fn(AnyTransfer, Mapped<'_>, Result),
    lost: fn(AnyTransfer, Ticket),
}

trait HasKind: Transfer {
    const KIND: &'static Kind<Self, Ops>;
}

impl<T: Transfer> HasKind for T {
    const KIND: &'static Kind<T, Ops> = &Kind::new(Ops {
        sg: |any| any.0.downcast_mut(T::KIND).map(T::sg),
        done: |any, mapped, result| {
            if let Ok(mut transfer) = any.0.into_inner(T::KIND) {
                if let Some((device, direction)) = mapped {
                    sg::unmap(device, transfer.sg(), direction.dma());
                }
                transfer.done(result);
            }
        },
        lost: |any, ticket| {
            if let Ok(transfer) = any.0.into_inner(T::KIND) {
                transfer.requeue(ticket);
            }
        },
    });
}

/// A [`Transfer`] whose type is forgotten.
pub struct AnyTransfer(Erased<Ops>);

impl AnyTransfer {
    #[inline(always)]
    pub(crate) fn new<T: Transfer>(transfer: T) -> Self {
        Self(Erased::new(transfer, T::KIND))
    }

    /// Takes the memory off the device for which it is `mapped`, and gives the transfer back.
    ///
    /// Nobody reaches the memory over the wire any more.
    #[inline(always)]
    pub(crate) fn done(self, mapped: Mapped<'_>, result: Result) {
        (self.0.ops().done)(self, mapped, result);
    }

    /// Gives the transfer back without an answer; its memory is on no device any more.
    #[cold]
    pub(crate) fn requeue(self, ticket: Ticket) {
        (self.0.ops().lost)(self, ticket);
    }
}

/// A [`Transfer`] on its way out, whose type may be known still: what is known need not be looked
/// up.
pub(crate) trait Outbound: Sized {
    /// The memory.
    fn sg(&mut self) -> Option<&mut SgList>;

    /// Forgets the type.
    fn forget_type(self) -> AnyTransfer;
}

/// A [`Transfer`] whose type is known.
pub(crate) struct Known<T>(pub(crate) T);

impl<T: Transfer> Outbound for Known<T> {
    #[inline(always)]
    fn sg(&mut self) -> Option<&mut SgList> {
        Some(self.0.sg())
    }

    #[inline(always)]
    fn forget_type(self) -> AnyTransfer {
        AnyTransfer::new(self.0)
    }
}

impl Outbound for AnyTransfer {
    fn sg(&mut self) -> Option<&mut SgList> {
        (self.0.ops().sg)(self)
    }

    fn forget_type(self) -> AnyTransfer {
        self
    }
}
