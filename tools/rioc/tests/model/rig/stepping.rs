// SPDX-License-Identifier: GPL-2.0

//! Steps of requests, as an engine takes them.

use super::*;

impl<D: Readable> Rig<D> {
    /// Lets a request take a step, if it can.
    pub(crate) fn step(&mut self, tag: u32) {
        let Some(one) = self.running.get_mut(&tag) else {
            return;
        };
        if let State::Reads(old) = &one.state {
            for (source, to) in old.iter().zip(one.blocks.iter_mut()) {
                if let Some(source) = source {
                    let medium = self.store.medium();
                    *to = medium.block(&self.begun.disk, &source.stored, source.first);
                }
            }
            one.state = State::Runs;
        }
        if one.state != State::Runs {
            return;
        }
        let client = &mut self.clients[one.request.client];
        let (bytes, blocks) = (&one.request.bytes, &mut *one.blocks);
        let mut data = Data { bytes, blocks };
        let message = one.request.message();
        let (op, crc) = (&mut one.op, &Crc);
        let ready = self.store.ready(op, &message, (&mut self.begun, crc));
        let ask = one.request.ask;
        let step = match (ready, ask) {
            (Some(step), _) => step,
            (None, Ask::Read(object, offset, bytes)) => {
                self.begin_read(object, offset, bytes);
                let one = self.running.get_mut(&tag).unwrap();
                let client = &mut self.clients[one.request.client];
                let message = one.request.message();
                let mut data = Data {
                    bytes: &[],
                    blocks: &mut one.blocks,
                };
                let with = (&mut self.begun, crc);
                self.store
                    .step(client, &mut one.op, (&message, &mut data), with)
            }
            (None, _) => {
                let with = (&mut self.begun, crc);
                self.store.step(client, op, (&message, &mut data), with)
            }
        };
        let one = self.running.get_mut(&tag).unwrap();
        match step {
            Step::Read(old) => {
                one.state = State::Reads(old);
                // A truncation has decided, and reads no more.
                if old == [None; OLD_MAX] && matches!(one.request.ask, Ask::Truncate(..)) {
                    self.applied(tag);
                }
            }
            Step::Wait(_) => (),
            Step::Room => one.state = State::Room,
            Step::File { is_next } => {
                one.state = State::Files;
                match is_next {
                    true => self.filed.queue.push_front(tag),
                    false => self.filed.queue.push_back(tag),
                }
            }
            Step::Again => (),
            Step::Done(done) => {
                one.state = State::Ended(done);
                self.ended(tag, done);
            }
        }
        self.note_begun();
    }

    /// Lets those take a step that wait for room, as the engine does.
    pub(super) fn try_again(&mut self) {
        for one in self.running.values_mut() {
            if one.state == State::Room {
                one.state = State::Runs;
            }
        }
    }

    pub(crate) fn note_begun(&mut self) {
        while let Some(tag) = self.begun.begins.pop_front() {
            let one = self.running.get_mut(&tag).expect("it is there");
            assert_eq!(one.state, State::Waits);
            one.state = State::Runs;
        }
    }
}
