// SPDX-License-Identifier: GPL-2.0

//! The tasks of a client that exchange admin messages with the server: one opens the devices after
//! an outage, or a device on request; one validates a path that is connected while others are.
//!
//! Stands for `rtrs/client/session/admin.rs` and `rnbd/client/session/watcher.rs`.

use std::collections::{
    BTreeMap,
    VecDeque, //
};

use proto::common::errno::Errno;
use proto::rnbd::path_validation::Answer;
use proto::rtrs::{
    availability::{
        Event as Availability,
        Reopening, //
    },
    timeouts::ONE_PATH_ANSWER_MS, //
};

use crate::{
    event::{
        Event,
        MS, //
    },
    message::Deed,
    settings::Mutation,
    world::World,
};

/// Longest time for an answer, on any path and on one that is not in use yet.
const ANSWER_MS: u64 = 60_000;

mod admin_lock;
mod path_validation;

use self::admin_lock::Held;

/// The purpose of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Opens the devices after an outage.
    Reopen(Reopening),
    /// Opens one device on request.
    Remap,
    /// Closes a device that was unmapped.
    Unmap,
    /// Opens a device that was unmapped.
    Map(usize),
    /// Validates a path in a life.
    Validate { path: usize, life: u64 },
}

/// A message of a task; `None` of a device: the server is asked for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Info(Option<usize>),
    Open(usize),
    /// The same again, on the other paths.
    InfoOthers,
    OpenOthers(usize),
    Close(u32),
    CloseOthers(u32),
}

impl Step {
    fn deed(self) -> Deed {
        match self {
            Self::Info(_) | Self::InfoOthers => Deed::Info,
            Self::Open(device) | Self::OpenOthers(device) => Deed::Open { device },
            Self::Close(number) | Self::CloseOthers(number) => Deed::Close { number },
        }
    }

    fn is_on_any_path(self) -> bool {
        matches!(
            self,
            Self::InfoOthers | Self::OpenOthers(_) | Self::CloseOthers(_)
        )
    }
}

/// A device that the server of a new path was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    device: usize,
    number: u32,
    answer: Answer,
    /// The disconnects when it was asked for.
    disconnects: u32,
}

/// A sequence of messages, each of which waits for the answer to the one before.
#[derive(Debug)]
struct Task {
    purpose: Purpose,
    steps: VecDeque<Step>,
    current: Option<Step>,
    /// Counts its messages.
    step: u64,
    /// The current message has no id yet.
    waits: bool,
    boot: u64,
    /// The disconnects, and the number, of the device that the server is being asked for.
    disconnects: u32,
    number: Option<u32>,
    failed: bool,
    /// Its first message was answered.
    has_asked: bool,
    /// The other paths' server was asked as well.
    is_compared: bool,
    asked: Vec<Asked>,
    held: Held,
    /// The verdict of a validation.
    verdict: Option<Result<bool, Errno>>,
}

/// The tasks of a client.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    list: BTreeMap<u64, Task>,
    /// The session is to be made usable once more after the running try.
    again: bool,
    next: u64,
}

impl Tasks {
    fn get(&mut self, task: u64) -> Option<&mut Task> {
        self.list.get_mut(&task)
    }

    /// Says whether a try to make the session usable is running: then another one follows it.
    pub(crate) fn reopen_again(&mut self) -> bool {
        let is_reopen = |t: &Task| matches!(t.purpose, Purpose::Reopen(_));
        let is_running = self.list.values().any(is_reopen);
        self.again |= is_running;
        is_running
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.list.is_empty()
    }
}

impl World {
    pub(crate) fn start_task(&mut self, purpose: Purpose, steps: &[Step]) {
        let tasks = &mut self.clients[self.at].tasks;
        tasks.next += 1;
        let task = tasks.next;
        tasks.list.insert(
            task,
            Task {
                purpose,
                steps: steps.iter().copied().collect(),
                current: None,
                step: 0,
                waits: false,
                boot: 0,
                disconnects: 0,
                number: None,
                failed: false,
                has_asked: false,
                is_compared: false,
                asked: Vec::new(),
                held: Held::default(),
                verdict: None,
            },
        );
        self.next_step(task);
    }

    /// Sends the next message of a task, or ends it.
    fn next_step(&mut self, number: u64) {
        loop {
            if !self.has_lock(number) {
                return;
            }
            let Some(task) = self.clients[self.at].tasks.get(number) else {
                return;
            };
            task.current = task.steps.pop_front();
            let Some(step) = task.current else {
                if !self.more_steps(number) {
                    return self.end_task(number);
                }
                continue;
            };
            if self.closes_used(step) {
                continue;
            }
            let Some(task) = self.clients[self.at].tasks.get(number) else {
                return;
            };
            task.step += 1;
            let on_path = match task.purpose {
                Purpose::Validate { path, .. } if !step.is_on_any_path() => Some(path),
                _ => None,
            };
            let serial = task.step;
            let limit_ms = match on_path {
                Some(_) => ONE_PATH_ANSWER_MS.into(),
                None => ANSWER_MS,
            };
            let timeout = Event::TaskTimeout {
                task: number,
                step: serial,
            };
            self.after(limit_ms * MS, timeout);
            if let Step::Info(Some(device)) | Step::Open(device) = step {
                let device = &self.clients[self.at].devices[device];
                let (disconnects, open) = (device.disconnects, device.io_state.remote_id());
                if let Some(task) = self.clients[self.at].tasks.get(number) {
                    if on_path.is_some() && open.is_none() {
                        // Nothing is sent for it any more.
                        continue;
                    }
                    if on_path.is_some() || matches!(step, Step::Info(_)) {
                        (task.disconnects, task.number) = (disconnects, open);
                    }
                }
            }
            if self.send_message(number) {
                return;
            }
            self.answered(number, Err(Errno::ECONNABORTED));
        }
    }

    /// Sends the current message of a task, if an id is free; `false` if no path takes it.
    fn send_message(&mut self, number: u64) -> bool {
        let id = self.free_admin_id();
        let now_ms = self.now_ms();
        let Some(task) = self.clients[self.at].tasks.get(number) else {
            return true;
        };
        let Some(step) = task.current else {
            return true;
        };
        task.waits = id.is_none();
        let on_path = match task.purpose {
            Purpose::Validate { path, .. } if !step.is_on_any_path() => Some(path),
            _ => None,
        };
        let Some(id) = id else {
            self.clients[self.at].shortage.refused(now_ms);
            self.try_again_later();
            return true;
        };
        // It is free, and not held.
        let _ = self.clients[self.at].quarantine.take(id, None);
        self.take(id, step.deed(), Some(number));
        let Some(slot) = self.clients[self.at].slots[usize::from(id)].clone() else {
            return false;
        };
        let is_sent = match on_path {
            Some(path) => self.is_there(number) && self.send(id, &slot, id, path),
            None => self.send_on_any_path(id, &slot, id),
        };
        if !is_sent {
            self.clients[self.at].slots[usize::from(id)] = None;
        }
        is_sent
    }

    /// Says whether the path that a task validates is still in the same life.
    fn is_there(&mut self, number: u64) -> bool {
        let client = &mut self.clients[self.at];
        let purpose = client.tasks.get(number).map(|task| task.purpose.clone());
        match purpose {
            Some(Purpose::Validate { path, life }) => {
                let p = &client.paths[path];
                p.life == life && !p.conns.is_empty()
            }
            _ => true,
        }
    }

    /// Messages that wait for an id try again.
    pub(crate) fn try_messages(&mut self) {
        let tasks = &self.clients[self.at].tasks.list;
        let waiting: Vec<u64> = tasks
            .iter()
            .filter(|(_, t)| t.waits)
            .map(|(number, _)| *number)
            .collect();
        for number in waiting {
            if !self.send_message(number) {
                self.task_answer(Some(number), Err(Errno::ECONNABORTED));
            }
        }
    }

    pub(crate) fn task_timeout(&mut self, number: u64, step: u64) {
        let client = &mut self.clients[self.at];
        let task = client.tasks.get(number).filter(|t| t.step == step);
        let Some(waits) = task.map(|t| t.held.waits) else {
            return;
        };
        if waits.is_some() {
            return self.lock_timed_out(number);
        }
        self.trace
            .reached("an admin message is unanswered for too long");
        // Its id stays in use until the answer comes.
        for slot in client.slots.iter_mut().flatten() {
            slot.task = slot.task.filter(|task| *task != number);
        }
        // ETIMEDOUT.
        let error = Errno::new(110).unwrap_or(Errno::EIO);
        self.task_answer(Some(number), Err(error));
    }

    /// Handles the answer to a task's message, or that there is none.
    pub(crate) fn task_answer(&mut self, number: Option<u64>, answer: Result<u64, Errno>) {
        if let Some(number) = number {
            self.answered(number, answer);
            self.next_step(number);
        }
    }

    fn answered(&mut self, number: u64, answer: Result<u64, Errno>) {
        let Some(task) = self.clients[self.at].tasks.get(number) else {
            return;
        };
        let Some(step) = task.current.take() else {
            return;
        };
        task.waits = false;
        let validates = matches!(task.purpose, Purpose::Validate { .. });
        match (step, answer) {
            (Step::Info(_) | Step::InfoOthers, Ok(boot)) => task.boot = boot,
            (Step::Info(None), Err(error)) => {
                task.failed = true;
                task.verdict = Some(Err(error));
            }
            (Step::Open(device), answer) if validates => {
                self.device_validated(number, device, answer)
            }
            (Step::OpenOthers(device), answer) => self.compared(number, device, answer),
            // The device's OPEN is not sent.
            (Step::Info(Some(_)), Err(_)) => {
                task.failed = true;
                task.steps.pop_front();
            }
            (Step::Open(device), Ok(opened)) => {
                let (boot, disconnects) = (task.boot, task.disconnects);
                // CAST: the number of a device.
                let opened = opened as u32;
                let used = self
                    .check_number(opened)
                    .and_then(|()| self.device_opened(device, opened, boot, disconnects));
                if let (Err(error), Some(task)) = (used, self.clients[self.at].tasks.get(number)) {
                    task.failed = true;
                    if error != Errno::ECONNABORTED {
                        task.steps.push_front(Step::Close(opened));
                    }
                }
            }
            (Step::Open(_), Err(_)) => task.failed = true,
            (Step::Close(closed) | Step::CloseOthers(closed), Err(_)) => {
                self.clients[self.at].lost_closes.add(closed);
            }
            (Step::InfoOthers, Err(_)) | (Step::Close(_) | Step::CloseOthers(_), Ok(_)) => {}
        }
    }

    /// Adds the messages that follow from the answers so far; `false` if the task is over.
    fn more_steps(&mut self, number: u64) -> bool {
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.list.get_mut(&number) else {
            return false;
        };
        let devices = client.devices.iter().enumerate();
        match task.purpose {
            // The first message was answered, and the devices were not asked for yet.
            Purpose::Reopen(_) if !task.has_asked && !task.failed => {
                task.has_asked = true;
                let out = devices.filter(|(_, d)| d.state.is_opened_after_outage());
                let steps = out.flat_map(|(d, _)| [Step::Info(Some(d)), Step::Open(d)]);
                task.steps.extend(steps);
            }
            Purpose::Validate { .. } if !task.has_asked && !task.failed => {
                task.has_asked = true;
                if devices
                    .clone()
                    .any(|(_, d)| d.is_open_in_another_boot(task.boot))
                {
                    task.verdict = Some(Ok(false));
                    return false;
                }
                let open = devices.filter(|(_, d)| d.io_state.remote_id().is_some());
                task.steps.extend(open.map(|(d, _)| Step::Open(d)));
                if task.steps.is_empty() {
                    task.verdict = Some(Ok(true));
                }
            }
            Purpose::Validate { .. } if task.verdict.is_none() => task.judge(),
            _ => return false,
        }
        !task.steps.is_empty()
    }

    fn end_task(&mut self, number: u64) {
        let client = &mut self.clients[self.at];
        let now: Vec<u32> = client.devices.iter().map(|d| d.disconnects).collect();
        let closes_late = self.settings.broken(Mutation::NoLock);
        if let Some(task) = client.tasks.get(number) {
            let is_current = task.asked.iter().all(|a| now[a.device] == a.disconnects);
            if !is_current && !closes_late {
                // The devices were opened anew, perhaps with the numbers that the validation got.
                task.verdict = Some(Err(Errno::EBUSY));
            } else if task.verdict == Some(Ok(true)) && task.close_again() {
                return self.next_step(number);
            }
        }
        self.release_lock(number);
        let client = &mut self.clients[self.at];
        let Some(task) = client.tasks.list.remove(&number) else {
            return;
        };
        match task.purpose {
            Purpose::Remap | Purpose::Unmap => {}
            Purpose::Map(device) => self.mapped(device),
            Purpose::Reopen(reopening) => {
                let succeeded = !task.failed;
                self.availability(Availability::Reopened {
                    reopening,
                    succeeded,
                });
                if std::mem::take(&mut self.clients[self.at].tasks.again) {
                    self.reopen();
                }
            }
            Purpose::Validate { path, life } => self.validated(path, life, &task),
        }
    }
}
