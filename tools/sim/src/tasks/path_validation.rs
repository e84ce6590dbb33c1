// SPDX-License-Identifier: GPL-2.0

//! The validation of a path: what its server, and that of the others, answers to OPEN of the
//! devices.
//!
//! Stands for `rnbd/client/device/fence.rs` and `judge` of `rnbd/client/session/watcher.rs`. The
//! decisions are those of `rnbd`'s `path_validation`.

use proto::common::errno::Errno;
use proto::rnbd::{
    io_state::IoState,
    path_validation::{
        self,
        PathValidation,
        Verdict, //
    },
};

use super::{
    Asked,
    Purpose,
    Step,
    Task, //
};
use crate::{
    settings::Mutation,
    trace::note,
    world::World, //
};

impl Task {
    /// Adds the messages that close what a validation has opened; returns whether there are any.
    pub(super) fn close_again(&mut self) -> bool {
        if !matches!(self.purpose, Purpose::Validate { .. }) {
            return false;
        }
        let mut is_any = false;
        for asked in &mut self.asked {
            if let path_validation::Answer::Opened(id) = asked.answer {
                self.steps.push_back(Step::Close(id));
                // Once; the device is closed there.
                asked.answer = path_validation::Answer::Refused;
                is_any = true;
            }
        }
        is_any
    }

    /// Decides about a path whose server was asked for all devices: `judge` of the driver.
    pub(super) fn judge(&mut self) {
        let answers = self.asked.iter().map(|a| a.answer);
        let validation = answers.fold(PathValidation::default(), PathValidation::with);
        match validation.verdict() {
            Verdict::SameServer => self.verdict = Some(Ok(true)),
            // All were compared, and none differs.
            Verdict::AskOthers if self.is_compared => self.verdict = Some(Ok(true)),
            Verdict::AskOthers => {
                self.is_compared = true;
                let asked = self.asked.iter();
                self.steps
                    .extend(asked.flat_map(|a| [Step::InfoOthers, Step::OpenOthers(a.device)]));
            }
            Verdict::TryLater => self.verdict = Some(Err(Errno::EBUSY)),
        }
    }
}

impl World {
    /// Handles the answer of a new path's server to OPEN of a device that should be open there.
    pub(super) fn device_validated(
        &mut self,
        number: u64,
        device: usize,
        answer: Result<u64, Errno>,
    ) {
        let Some(task) = self.clients[self.at].tasks.get(number) else {
            return;
        };
        let (open, disconnects) = (task.number, task.disconnects);
        let adopts = self.settings.broken(Mutation::ValidationAdopts);
        // CAST: the number of a device.
        let answer =
            path_validation::Answer::new(open.unwrap_or(u32::MAX), answer.map(|id| id as u32));
        if let (path_validation::Answer::Opened(id), true) = (answer, adopts) {
            let io_state = IoState::Open(id);
            self.clients[self.at].devices[device].io_state = io_state;
        }
        if let Some(task) = self.clients[self.at].tasks.get(number) {
            task.asked.push(Asked {
                device,
                number: open.unwrap_or(u32::MAX),
                answer,
                disconnects,
            });
            if answer == path_validation::Answer::Missing {
                task.steps.clear();
            }
        }
    }

    /// Handles the answer of the other paths' server to the same.
    pub(super) fn compared(&mut self, number: u64, device: usize, answer: Result<u64, Errno>) {
        let Some(task) = self.clients[self.at].tasks.get(number) else {
            return;
        };
        let Some(asked) = task.asked.iter().find(|a| a.device == device).copied() else {
            return;
        };
        // CAST: the number of a device.
        let others = path_validation::Answer::new(asked.number, answer.map(|id| id as u32));
        let verdict = match asked.answer.is_of_the_server_that_says(others) {
            Some(true) => None,
            Some(false) => Some(Ok(false)),
            None => Some(Err(Errno::EBUSY)),
        };
        if verdict.is_some() {
            task.verdict = verdict;
            task.steps.clear();
        }
        if let (path_validation::Answer::Opened(id), true) = (others, others != asked.answer) {
            task.steps.push_front(Step::CloseOthers(id));
        }
    }

    pub(super) fn validated(&mut self, path: usize, life: u64, task: &Task) {
        let verdict = task.verdict.unwrap_or(Err(Errno::EBUSY));
        note!(self, Client, "p{path} is validated: {verdict:?}");
        if self.clients[self.at].paths[path].life != life {
            return;
        }
        match verdict {
            Ok(true) => {
                for asked in &task.asked {
                    if asked.answer != path_validation::Answer::Same {
                        self.not_open_there(asked.device, asked.number);
                    }
                }
                self.established(path);
            }
            Ok(false) => {
                self.trace.reached("a path leads to another server");
                let others = 0..self.clients[self.at].paths.len();
                others
                    .filter(|o| *o != path)
                    .for_each(|o| self.path_failed(o));
                self.path_failed(path);
            }
            Err(_) if !self.is_admission_due(path) => self.established(path),
            Err(_) => {
                self.trace.reached("a path is tried again later");
                self.path_failed(path);
            }
        }
    }
}
