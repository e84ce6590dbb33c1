// SPDX-License-Identifier: GPL-2.0

//! The application: one request per block at a time, with a record of all results.

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
    /// When it stops.
    pub(crate) until_us: u64,
    /// Requests that ended well.
    pub(crate) done: u64,
    /// Requests that ended with an error.
    pub(crate) failed: u64,
}

impl App {
    pub(crate) fn new(blocks: usize, until_us: u64) -> Self {
        Self {
            busy: vec![false; blocks],
            until_us,
            done: 0,
            failed: 0,
        }
    }
}

impl World {
    /// Starts a request for a block without one in flight.
    pub(crate) fn app(&mut self) {
        if self.now_us > self.app.until_us {
            return;
        }
        let block = self.rng.usize(0..self.app.busy.len());
        if !self.app.busy[block] {
            let deed = match self.rng.u32(0..4) {
                0 => Deed::Read { block },
                _ => Deed::Write { block },
            };
            self.app.busy[block] = true;
            if self.take_io(deed).is_none() {
                self.app.busy[block] = false;
            }
        }
        let later = self.rng.u64(0..2 * self.settings.app_pause_us);
        self.after(later, Event::App);
    }

    /// Handles the end of a request; `None` is an error. `unknown`: the server may have it.
    pub(crate) fn io_done(&mut self, body: Body, answer: Option<u64>, unknown: bool) {
        let Body { request, deed } = body;
        self.check.ends(request);
        match answer {
            Some(_) => self.app.done += 1,
            None => {
                self.app.failed += 1;
                note!(self, App, "r{request} {deed:?} failed");
            }
        }
        match (deed, answer) {
            (Deed::Write { block }, _) => {
                self.app.busy[block] = false;
                let on_disk = self.disk.blocks[block];
                let end = match (answer, unknown) {
                    (Some(_), _) => End::Done,
                    (None, true) => End::Unknown,
                    (None, false) => End::Never,
                };
                self.check.write_ends(block, request, end, on_disk);
            }
            (Deed::Read { block }, Some(content)) => {
                self.app.busy[block] = false;
                self.check.read_ends(block, content);
            }
            (Deed::Read { block }, None) => self.app.busy[block] = false,
            (Deed::Open, _) => {}
        }
    }
}
