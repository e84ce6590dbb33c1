// SPDX-License-Identifier: GPL-2.0

//! The bytes that gfmd has sent and that were not taken yet.

use kernel::prelude::*;
use net_ext::TcpStream;

use crate::{
    net::setup::Trouble,
    proto::{
        retry::Fault,
        PART_LEN_MAX, //
    }, //
};

/// The bytes that were received and not taken yet.
pub(super) struct Input {
    bytes: KVec<u8>,
    begin: usize,
    end: usize,
    /// The number of interrupts of all waits that threads which received have seen.
    pub(super) interrupts: u32,
}

impl Input {
    pub(super) fn new(interrupts: u32) -> Result<Self> {
        Ok(Self {
            // Behind a part there may be the beginning of others.
            bytes: KVec::from_elem(0, 2 * PART_LEN_MAX, GFP_KERNEL)?,
            begin: 0,
            end: 0,
            interrupts,
        })
    }

    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }

    pub(super) fn take(&mut self, taken: usize) {
        self.begin = self.begin.saturating_add(taken).min(self.end);
    }

    pub(super) fn clear(&mut self) {
        (self.begin, self.end) = (0, 0);
    }

    /// Receives at least one byte, if there is room for `more`.
    pub(super) fn fill(
        &mut self,
        socket: &TcpStream,
        more: usize,
        timeout_ms: u32,
    ) -> Result<(), Trouble> {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end.saturating_sub(self.begin));
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        if room.len() < more {
            return Err(Trouble::of(Fault::malformed("length of a part")));
        }
        match socket.receive(room, timeout_ms)? {
            0 => Err(Trouble::of(Fault::Disconnected)),
            received => {
                self.end = self.end.saturating_add(received);
                Ok(())
            }
        }
    }
}
