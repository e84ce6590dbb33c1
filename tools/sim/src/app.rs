// SPDX-License-Identifier: GPL-2.0

//! The application: one request per block at a time, by whatever client, with a record of all
//! results; and flushes, one per client and device at a time.

use crate::{
    check::End,
    event::Event,
    message::{
        Body,
        Deed, //
    },
    trace::note,
    world::World,
};

/// The application.
#[derive(Debug)]
pub(crate) struct App {
    /// Blocks with a request in flight.
    pub(crate) busy: Vec<bool>,
    /// The last writes that a flush in flight must make durable, by clients and devices.
    flushing: Vec<Option<Vec<(usize, u64)>>>,
    /// The time when it stops.
    pub(crate) until_us: u64,
    /// Requests that ended well.
    pub(crate) done: u64,
    /// Requests that ended with an error.
    pub(crate) failed: u64,
}

/// The end of a request, as the application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The request is done; a read has brought this content.
    Done(u64),
    /// The server has refused it.
    Refused,
    /// The client ends it with an error; the server may still have it.
    Unknown,
    /// The client ends it with an error; it was never sent.
    Never,
}

impl App {
    pub(crate) fn new(blocks: usize, flushes: usize, until_us: u64) -> Self {
        Self {
            busy: vec![false; blocks],
            flushing: vec![None; flushes],
            until_us,
            done: 0,
            failed: 0,
        }
    }
}

impl World {
    fn blocks_of(&self, device: usize) -> impl Iterator<Item = usize> {
        let devices = self.settings.volatile.len();
        (0..self.disk.blocks()).filter(move |block| block % devices == device)
    }

    /// Starts requests.
    pub(crate) fn app(&mut self) {
        if self.now_us > self.app.until_us {
            return;
        }
        for _ in 0..self.settings.burst {
            self.begin_request();
        }
        let later = self.rng.u64(0..2 * self.settings.app_pause_us);
        self.after(later, Event::App);
    }

    /// Starts a request, if there is a block, or a device to flush, without one in flight.
    fn begin_request(&mut self) {
        match self.rng.u32(0..12) {
            0 => {
                let device = self.rng.usize(0..self.settings.volatile.len());
                self.begin_flush(device);
            }
            kind => {
                let block = self.rng.usize(0..self.app.busy.len());
                let deed = match kind {
                    1..4 => Deed::Read { block },
                    4 => Deed::Write { block, fua: true },
                    _ => Deed::Write { block, fua: false },
                };
                if !self.app.busy[block] {
                    self.app.busy[block] = true;
                    if self.take_io(deed).is_none() {
                        self.app.busy[block] = false;
                    }
                }
            }
        }
    }

    fn flush_slot(&mut self, device: usize) -> &mut Option<Vec<(usize, u64)>> {
        &mut self.app.flushing[self.at * self.settings.volatile.len() + device]
    }

    fn begin_flush(&mut self, device: usize) {
        // The block layer ends a flush at once where there is no cache.
        if !self.settings.volatile[device] || self.flush_slot(device).is_some() {
            return;
        }
        let covered = self.check.flush_begins(self.blocks_of(device));
        *self.flush_slot(device) = Some(covered);
        if self.take_io(Deed::Flush { device }).is_none() {
            *self.flush_slot(device) = None;
        }
    }

    /// Handles the end of a request.
    pub(crate) fn io_done(&mut self, body: Body, answer: Answer) {
        let Body { request, deed, .. } = body;
        self.check.ends(request);
        let done = matches!(answer, Answer::Done(_));
        if done {
            self.app.done += 1;
        } else {
            self.app.failed += 1;
            note!(self, App, "r{request} {deed:?} failed: {answer:?}");
        }
        match (deed, answer) {
            (Deed::Write { block, fua }, _) => {
                self.app.busy[block] = false;
                let on_disk = self.disk.content(block);
                let end = match answer {
                    Answer::Done(_) => End::Done(self.at),
                    Answer::Unknown | Answer::Refused => End::Unknown,
                    Answer::Never => End::Never,
                };
                self.check.write_ends(block, request, end, on_disk);
                if answer == Answer::Refused {
                    // No copy of it is left at the server.
                    self.check.write_settled(block, request, on_disk);
                }
                if done && (fua || !self.settings.volatile[block % self.settings.volatile.len()]) {
                    self.check.durable(block, request);
                }
            }
            (Deed::Read { block }, Answer::Done(content)) => {
                self.app.busy[block] = false;
                self.check.read_ends(block, content);
            }
            (Deed::Read { block }, _) => self.app.busy[block] = false,
            (Deed::Flush { device }, _) => {
                let covered = self.flush_slot(device).take().unwrap_or_default();
                let blocks = self.blocks_of(device);
                self.check.flush_ends(self.at, done, &covered, blocks);
            }
            (Deed::Info | Deed::Open { .. } | Deed::Close { .. }, _) => {}
        }
    }
}
