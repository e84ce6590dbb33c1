// SPDX-License-Identifier: GPL-2.0

//! What an upper layer hands over with a request, and gets back at its end.

use kernel::prelude::*;
use kernel_ext::{
    erased::Erased,
    scatterlist::SgList, //
};
use rdma::DmaDirection;

/// What a request owns while it is under way: the memory that its data is in.
///
/// At most two words, for it is kept in place with its type forgotten (a block layer request or an
/// `Arc` fits).
pub trait Transfer: Send + Sized + 'static {
    /// Returns the memory, not DMA-mapped; an empty list for a request without data.
    fn sg(&mut self) -> &mut SgList;

    /// Takes it back, exactly once. `result` is the server's, or `ECONNABORTED` where the path went
    /// away first. By then nobody can reach the memory over the wire any more.
    ///
    /// Runs in softirq or process context and must not sleep. The tag is free again.
    fn done(self, result: Result);

    /// Ends the transfer without an answer: the last path is gone, or the request has been sent
    /// again too often. The server may have carried it out or not; whoever sends it once more does
    /// well to make its message anew, and to use the same tag.
    ///
    /// Runs in process context and must not sleep. The tag is free again.
    fn lost(self);
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
pub enum Lane {
    /// That of a CPU, or of the hardware queue with its index.
    Cpu(u32),
    /// That of a poll queue, from 0; its answer is seen by [`Session::poll`](crate::Session::poll)
    /// only.
    Poll(u32),
}

/// A request that was not taken.
pub struct Rejected<T> {
    /// `EBUSY`: the tag's chunk is still taken, try again; `ECONNABORTED`: no path is connected;
    /// `EMSGSIZE`: head and data exceed the chunk; `EINVAL`: the tag is none.
    pub error: Error,
    /// What came with it; [`Transfer::done`] was not called.
    pub transfer: T,
}

/// The two deeds of a [`Transfer`], found by its type.
struct Deeds {
    sg: fn(&mut Erased) -> Option<&mut SgList>,
    done: fn(Erased, Result),
    lost: fn(Erased),
}

trait HasDeeds {
    const DEEDS: &'static Deeds;
}

impl<T: Transfer> HasDeeds for T {
    const DEEDS: &'static Deeds = &Deeds {
        sg: |erased| erased.downcast_mut::<T>().map(T::sg),
        done: |erased, result| {
            if let Ok(transfer) = erased.into_inner::<T>() {
                transfer.done(result);
            }
        },
        lost: |erased| {
            if let Ok(transfer) = erased.into_inner::<T>() {
                transfer.lost();
            }
        },
    };
}

/// A [`Transfer`] whose type is forgotten.
pub struct AnyTransfer {
    owned: Erased,
    deeds: &'static Deeds,
}

impl AnyTransfer {
    #[inline]
    pub(crate) fn new<T: Transfer>(transfer: T) -> Self {
        Self {
            owned: Erased::new(transfer),
            deeds: <T as HasDeeds>::DEEDS,
        }
    }

    /// Gives it back to whoever still knows its type.
    #[inline]
    pub(crate) fn into_inner<T: Transfer>(self) -> Option<T> {
        self.owned.into_inner::<T>().ok()
    }

    #[inline]
    pub(crate) fn sg(&mut self) -> Option<&mut SgList> {
        (self.deeds.sg)(&mut self.owned)
    }

    #[inline]
    pub(crate) fn done(self, result: Result) {
        (self.deeds.done)(self.owned, result);
    }

    #[cold]
    pub(crate) fn lost(self) {
        (self.deeds.lost)(self.owned);
    }
}
