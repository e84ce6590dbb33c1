// SPDX-License-Identifier: GPL-2.0

//! How a request ends: response, acknowledged send, invalidated key.
//!
//! A request is ended only when nobody can reach its memory over the wire any more:
//!
//! - a read, when its key was invalidated by the server, which its completion shows, or by us;
//! - a write without key, when the response has come and the send is complete: until then the
//!   device may send the data again;
//! - a write by key likewise, and when we have invalidated the key after that.

use kernel::prelude::*;
use kernel_ext::sync::Held;
use rdma::{
    Qp,
    SendFlags,
    Space, //
};
use rtrs_core::{
    errno,
    proto::{
        imm::Response,
        request::parse_rkey, //
    },
};

use crate::{
    channel::{
        Channel,
        Tagged, //
    },
    exchange::Exchange,
    fault::Fault,
    slot::{
        Data,
        InFlight,
        Stage, //
    },
    transfer::Direction, //
};

impl Channel {
    /// The server has answered. `message` is what came with the answer, if anything did: the
    /// chunk's new key.
    #[inline]
    pub(crate) fn answered(
        &self,
        qp: &Qp<Self>,
        exchange: &Exchange,
        response: Response,
        message: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let by_server = self.take_invalidated();
        let unknown = Fault::MessageId(response.msg_id);
        let id = exchange
            .granted
            .geometry
            .chunk_id(response.msg_id)
            .ok_or(unknown)?;
        let slot = exchange.slots.get(usize::from(id)).ok_or(unknown)?;
        let mut held = slot.claim().ok_or(Fault::NotInFlight(id))?;
        let waiting = matches!(held.stage, Stage::Sent | Stage::Acknowledged);
        if !waiting || held.cid != self.cid {
            held.arm();
            return Err(Fault::NotInFlight(id));
        }
        if let Some(message) = message {
            match parse_rkey(message, id) {
                Ok(rkey) => held.chunk.rkey = rkey,
                Err(e) => {
                    held.arm();
                    return Err(Fault::Rkey(e));
                }
            }
        }

        let result = errno::from_wire(response.errno);
        match (held.data, held.direction, held.stage) {
            (Data::Direct | Data::Registered, Direction::Write, Stage::Sent) => {
                held.stage = Stage::Answered(result);
                held.arm();
            }
            (Data::None | Data::Direct, ..) => exchange.end(held, result),
            (Data::Registered, ..) => {
                if response.invalidated && by_server == Some(held.mr.key()) {
                    exchange.end(held, result);
                } else {
                    // A write, or a server that did not do what it was asked for.
                    self.invalidate(qp, held, id, result)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the key of a request invalid whose answer is `result`; its end comes with that.
    #[inline]
    fn invalidate(
        &self,
        qp: &Qp<Self>,
        mut held: Held<'_, InFlight>,
        id: u16,
        result: Result,
    ) -> Result<(), Fault> {
        held.stage = Stage::Invalidating(result);
        let key = held.mr.key();
        held.arm();
        let tag = self.tags.encode(Tagged::Invalidate(id));
        let mut space = Space::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        batch.local_invalidate(tag, key, SendFlags::SIGNALED);
        batch.post().map_err(Fault::Post)
    }

    /// Our key for a request that was answered is invalid.
    #[inline]
    pub(crate) fn key_invalidated(&self, exchange: &Exchange, id: u16) {
        let Some(held) = exchange.slots.get(usize::from(id)).and_then(|s| s.claim()) else {
            return;
        };
        match held.stage {
            Stage::Invalidating(result) => exchange.end(held, result),
            // Not ours any more.
            _ => held.arm(),
        }
    }

    /// The server has all the data of a write; nothing will be sent again.
    #[inline]
    pub(crate) fn written(&self, qp: &Qp<Self>, exchange: &Exchange, id: u16) -> Result<(), Fault> {
        let Some(mut held) = exchange.slots.get(usize::from(id)).and_then(|s| s.claim()) else {
            return Ok(());
        };
        match (held.stage, held.data) {
            (Stage::Answered(result), Data::Registered) => {
                self.invalidate(qp, held, id, result)?;
            }
            (Stage::Answered(result), _) => exchange.end(held, result),
            (Stage::Sent, _) => {
                held.stage = Stage::Acknowledged;
                held.arm();
            }
            _ => held.arm(),
        }
        Ok(())
    }
}
