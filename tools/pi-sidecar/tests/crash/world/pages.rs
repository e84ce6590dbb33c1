// SPDX-License-Identifier: GPL-2.0

//! The memory of the store.

use std::rc::Rc;

use proto::sidecar::{
    queue::Ticket,
    store::Memory,
    tuple::Tuple,
    Block, //
};

use super::SLOTS;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pages {
    pub(super) pi_blocks: [Rc<Block>; SLOTS],
    pub(super) tuples: Vec<Vec<Tuple>>,
}

impl Memory for Pages {
    fn pi_block(&self, slot: usize) -> &Block {
        &self.pi_blocks[slot]
    }

    fn pi_block_mut(&mut self, slot: usize) -> &mut Block {
        Rc::make_mut(&mut self.pi_blocks[slot])
    }

    fn tuple(&self, ticket: Ticket, offset: u16) -> Tuple {
        self.tuples[ticket][usize::from(offset)]
    }
}
