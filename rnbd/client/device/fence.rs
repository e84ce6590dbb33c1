// SPDX-License-Identifier: GPL-2.0

//! Devices that the server closes on its own: an administrator there has fenced this client off, or
//! the disk was removed from the machine.
//!
//! Requests of such a device fail until it is opened again on request (`remap_device`), even if the
//! session is disconnected meanwhile. The server does not notify the client, which finds out by the
//! answer to a request, or when a path comes up
//! ([`path_validation`](crate::proto::path_validation)).

use block_ext::disk::Uevent;
use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_client::AdminChannel;

use super::{
    Device,
    Inner, //
};
use crate::{
    client::{
        admin::{
            self,
            NotOpened, //
        },
        session::AdminLockGuard, //
    },
    proto::{
        admin_lock::LockMode, //
        control::DeviceState,
        device::{
            Device as Remote,
            Server, //
        },
        occasion::Occasion,
        path_validation::Answer,
    },
};

/// A device for which a server was asked to open it, although it should be open there.
pub(crate) struct Asked {
    pub(crate) device: Arc<Device>,
    /// The number with which its requests are sent.
    number: u32,
    /// The number of outages when the server was asked.
    disconnects: u32,
    pub(crate) answer: Result<u32>,
}

impl Asked {
    /// Returns the server's answer.
    pub(crate) fn answer(&self) -> Answer {
        read(self.number, self.answer)
    }

    /// Asks the server of the session's other paths the same, and returns its answer.
    pub(crate) fn ask_others(&self, guard: &AdminLockGuard<'_>) -> Answer {
        let rtrs = self.device.rtrs();
        let opened = admin::agree_locked(rtrs)
            .map_err(Error::from)
            .and_then(|server| self.device.ask(guard, rtrs, &server, Occasion::NewPath));
        let answer = read(self.number, opened);
        if let Answer::Opened(id) = answer {
            // A device that was opened over the new path is closed there by the caller.
            if answer != self.answer() {
                let _ = self.device.session().close_number(guard, rtrs, id);
            }
        }
        answer
    }

    /// Returns whether no outage has begun since the server was asked.
    pub(crate) fn is_current(&self) -> bool {
        self.device.disconnects() == self.disconnects
    }

    /// Closes over `path` what the question has opened.
    pub(crate) fn close_again(&self, guard: &AdminLockGuard<'_>, path: &impl AdminChannel) {
        if let Answer::Opened(id) = self.answer() {
            if self.device.session().close_number(guard, path, id) {
                self.device.end_doubt();
            }
        }
    }

    /// Has a work item ask again over the other paths if the path was lost before an answer or a
    /// CLOSE: it may not come back. A device that is being unmapped does so itself in the end.
    pub(crate) fn settle_later(&self) {
        if self.device.state() != DeviceState::Unmapped {
            self.device.settle_later();
        }
    }

    /// Closes what the question has opened, and records that the server had closed the device.
    pub(super) fn settle(&self, guard: &AdminLockGuard<'_>) {
        if self.is_current() {
            self.close_again(guard, self.device.rtrs());
            self.note();
        }
    }

    /// Records a closed device: the server is that of all paths, and has closed the device unless
    /// it has it open under its number.
    pub(crate) fn note(&self) {
        if matches!(self.answer(), Answer::Opened(_) | Answer::Refused) {
            self.device.not_open_there(self.number);
            // Makes the state fenced now.
            let _ = self.device.state();
        }
    }
}

fn read(number: u32, opened: Result<u32>) -> Answer {
    let opened = opened.map_err(|error| Errno::new(error.to_errno()).unwrap_or(Errno::EIO));
    Answer::new(number, opened)
}

impl Device {
    /// Opens the device on `server` over `path`; `None` if it is not open, so that no requests are
    /// sent for it.
    pub(crate) fn question(
        self: &Arc<Self>,
        guard: &AdminLockGuard<'_>,
        path: &impl AdminChannel,
        server: &Server,
    ) -> Option<Asked> {
        let disconnects = self.disconnects();
        let number = self.io_state().remote_id()?;
        Some(Asked {
            device: self.clone(),
            number,
            disconnects,
            answer: self.ask(guard, path, server, Occasion::NewPath),
        })
    }

    /// Asks the server whether it has the device open, and records it if it has closed it. Without
    /// an answer the state is what it was.
    pub(super) fn ask_whether_open(self: &Arc<Self>) {
        let Ok(guard) = self.session().lock_admin(LockMode::Validate) else {
            return;
        };
        // A user waits for it, and is told the state of before if there is no answer.
        let asked = match admin::agree(&*self.rtrs) {
            Ok(server) => self.question(&guard, &*self.rtrs, &server),
            Err(_) => None,
        };
        if let Some(asked) = asked {
            asked.settle(&guard);
        }
    }

    /// Opens the device on `server`. A number that its requests do not use is to be closed by the
    /// caller.
    pub(super) fn ask(
        &self,
        guard: &AdminLockGuard<'_>,
        path: &impl AdminChannel,
        server: &Server,
        occasion: Occasion,
    ) -> Result<u32> {
        match self.send_open(guard, path, server, occasion) {
            Ok(remote) => {
                if self.io_state().is_number(remote.device_id) {
                    self.end_doubt();
                }
                Ok(remote.device_id)
            }
            Err(not_opened) => {
                if let Some(number) = not_opened.number {
                    if self.session().close_number(guard, path, number) {
                        self.end_doubt();
                    }
                }
                Err(not_opened.error)
            }
        }
    }

    /// Sends an OPEN for the device, and notes what the server says.
    pub(super) fn send_open(
        &self,
        guard: &AdminLockGuard<'_>,
        path: &impl AdminChannel,
        server: &Server,
        occasion: Occasion,
    ) -> Result<Remote, NotOpened> {
        guard.opens();
        let (access, wanted) = (self.access, self.wanted());
        let opened = admin::open(path, server, &self.path, access, wanted, occasion);
        self.note_heard(server, &opened);
        opened
    }

    /// Fails requests from now on: the server has said that it has no device of that number open.
    /// Does nothing if requests are sent with another number meanwhile. Any context.
    #[cold]
    pub(crate) fn not_open_there(&self, number: u32) {
        let mut io_state = self.io_state();
        let mut ended = false;
        while let Some(failing) = io_state.not_open_there(number) {
            ended = self.io_state.change(io_state, failing);
            if ended {
                break;
            }
            // It was opened, lost or unmapped meanwhile.
            io_state = self.io_state();
        }
        if ended {
            pr_err!(
                "{self}: the server has closed it, requests fail until it is opened again \
                 (remap_device); its log says whether the disk is gone there\n"
            );
        }
    }

    /// The second half of [`Self::not_open_there`], with the state locked.
    pub(super) fn become_fenced(&self, inner: &mut Inner) {
        inner.state = DeviceState::Fenced;
        if let Some(mapped_disk) = &inner.mapped_disk {
            mapped_disk.uevent(Uevent::Offline);
        }
    }
}
