// SPDX-License-Identifier: GPL-2.0

//! The actions and events of an array.

use rnbd_ec::proto::array::{
    Actions,
    Io, //
};
use seglog::{
    members::Members,
    superblock::SUPERBLOCK_BYTES, //
};

use crate::{
    member::Member,
    random::Random, //
};

pub(crate) struct Acting<'a> {
    members: &'a mut [Member; 3],
    random: &'a mut Random,
    page: Vec<u8>,
    acknowledged: Vec<usize>,
    flushed: bool,
}

impl<'a> Acting<'a> {
    pub(crate) fn new(members: &'a mut [Member; 3], random: &'a mut Random) -> Self {
        Self {
            members,
            random,
            page: vec![0; 4096],
            acknowledged: Vec::new(),
            flushed: false,
        }
    }

    /// The slots whose batches are acknowledged, and whether the flush has ended.
    pub(crate) fn told(self) -> (Vec<usize>, bool) {
        (self.acknowledged, self.flushed)
    }
}

impl Actions for Acting<'_> {
    fn write_superblock(&mut self, member: usize, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        self.members[member].begin_write(Io::Superblock, at, bytes.to_vec(), true);
    }

    fn page(&mut self) -> &mut [u8] {
        &mut self.page
    }

    fn write_page(&mut self, member: usize, at: u64) {
        self.members[member].begin_write(Io::Page, at, self.page.clone(), false);
    }

    fn flush(&mut self, member: usize, io: Io) {
        self.members[member].begin_flush(io);
    }

    fn random(&mut self) -> u64 {
        self.random.next() | 1
    }

    fn acknowledged(&mut self, slot: usize) {
        self.acknowledged.push(slot);
    }

    fn flushed(&mut self) {
        self.flushed = true;
    }

    fn failed(&mut self, _: Members) {}

    fn joined(&mut self, _: usize) {}
}
