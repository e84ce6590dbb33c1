// SPDX-License-Identifier: GPL-2.0

//! Sends requests that were submitted together: on one path, by one call into its driver.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use kernel_ext::errno;
use zerocopy::{
    Immutable,
    IntoBytes, //
};

use crate::client::{
    io::{
        prepare::{
            READ,
            WRITE, //
        },
        request::Attempt,
        submit::{
            Space,
            Together,
            TOGETHER_MAX, //
        },
        transfer::{
            Direction,
            IoQueue,
            Known,
            Rejected,
            Transfer, //
        }, //
    },
    session::Session, //
};

/// A request for [`Session::submit_together`]: the arguments of [`Session::submit`].
pub struct Submission<T, M> {
    /// The tag, below [`Session::io_depth`]; no other request with it is in flight.
    pub tag: u16,
    /// The direction of the data.
    pub direction: Direction,
    /// The message for the upper layer's peer.
    pub message: M,
    /// The data.
    pub transfer: T,
}

impl Session {
    /// Sends requests, which it takes from `next` one by one, until that has no more, or as many as
    /// are posted together. Returns their number; 0 if `next` has none, or if each is to be sent
    /// by [`Self::submit`] for now, as chunks are held. Any context.
    ///
    /// All go by the path that the policy chooses for the first. One that is not sent is passed to
    /// `back`, on the same terms as by [`Self::submit_once`].
    #[inline(always)]
    pub fn submit_together<T: Transfer, M: IntoBytes + Immutable>(
        &self,
        io_queue: IoQueue,
        mut next: impl FnMut() -> Option<Submission<T, M>>,
        mut back: impl FnMut(Rejected<T>),
    ) -> usize {
        if !self.quarantine.is_idle() {
            return 0;
        }
        let Some(mut request) = next() else {
            return 0;
        };
        let (cid, guard) = (self.cid_of(io_queue), rcu::read_lock());
        let route = self.paths.read(&guard).and_then(|paths| {
            let (connections, attempt) = match paths.all.as_slice() {
                [only] => (only.connections.read(&guard), Attempt::FIRST),
                _ => self.route(paths, &guard),
            };
            let connections = connections?;
            Some((connections.connection(cid)?, connections, attempt))
        });
        let Some((connection, connections, attempt)) = route else {
            back(Rejected::new(errno::ECONNABORTED, request.transfer));
            return 1;
        };
        let mut space = Space::new();
        let to = (connection, &*connections.requests, &guard);
        let mut together = Together::new(to, cid, attempt, &mut space);
        let mut count = 0usize;
        loop {
            count = count.wrapping_add(1);
            if let Err(rejected) = self.send_with(&mut together, request) {
                back(rejected);
            }
            // As `submit` does, it looks whether chunks are held when the request has its tag.
            if count == TOGETHER_MAX || !self.quarantine.is_idle() {
                return count;
            }
            request = match next() {
                Some(request) => request,
                None => return count,
            };
        }
    }

    #[inline(always)]
    fn send_with<T: Transfer, M: IntoBytes + Immutable>(
        &self,
        together: &mut Together<'_>,
        request: Submission<T, M>,
    ) -> Result<(), Rejected<T>> {
        let Some(id) = self.io_id(request.tag) else {
            return Err(Rejected::new(EINVAL, request.transfer));
        };
        let message = request.message.as_bytes();
        let added = match request.direction {
            Direction::Read => {
                together.add::<READ, _>(id, message, Known::of_read(request.transfer))
            }
            Direction::Write => {
                together.add::<WRITE, _>(id, message, Known::of_write(request.transfer))
            }
        };
        added.map_err(|back| Rejected::new(back.error, back.transfer.transfer))
    }
}
