// SPDX-License-Identifier: GPL-2.0

//! Writes for which there is no room.

use std::collections::VecDeque;

use rnbd_ec::proto::array::Need;
use seglog::{
    collect::Purpose,
    record::CODEC_ZEROES, //
};

use super::{
    Life,
    Write, //
};

fn is_zeroes(write: &Write) -> bool {
    let mut records = write.records.iter();
    records.all(|(record, _)| record.codec == CODEC_ZEROES)
}

impl Life {
    /// Begins batches of what gives room back.
    pub(super) fn begin_zeroes(&mut self) {
        let (zeroes, mut data) = self.waiting.drain(..).partition(is_zeroes);
        self.waiting = zeroes;
        self.begin_batches(Purpose::Reserved);
        self.waiting.append(&mut data);
    }

    /// Refuses what needs room, if too much is live.
    pub(super) fn refuse(&mut self) {
        self.act(|array, acting| array.free_empty(true, acting));
        if self.array.need(true) != Need::Refuse {
            return;
        }
        assert!(self.setting.overcommits, "{}: it is full", self.label());
        let (zeroes, data): (_, VecDeque<_>) = self.waiting.drain(..).partition(is_zeroes);
        self.waiting = zeroes;
        for write in data {
            self.refused += 1;
            for (block, version) in write.blocks {
                self.history.refuse(block, version);
            }
        }
    }
}
