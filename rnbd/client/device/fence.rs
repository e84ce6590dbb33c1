// SPDX-License-Identifier: GPL-2.0

//! Devices that the server closes on its own: an administrator there has fenced this client off.
//!
//! Requests of such a device fail until somebody has it opened again (`remap_device`), whatever
//! becomes of the session meanwhile. The server tells nothing; the client learns of it by the
//! answer to a request, or when a path comes up ([`survey`](crate::proto::survey)).

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
        admin,
        io_state::IoState, //
    },
    proto::{
        control::DeviceState,
        device::Server,
        survey::Answer, //
    },
};

/// A device that a server was told to open, although it should be open there.
pub(crate) struct Asked {
    pub(crate) device: Arc<Device>,
    /// The number that its requests are made with.
    number: u32,
    pub(crate) answer: Result<u32>,
}

impl Asked {
    /// What the server said.
    pub(crate) fn answer(&self) -> Answer {
        read(self.number, self.answer)
    }

    /// Asks the session's other paths the same, and says what they answer.
    pub(crate) fn ask_others(&self) -> Answer {
        let rtrs = self.device.rtrs();
        let opened = admin::agree(rtrs).and_then(|server| self.device.ask(rtrs, &server));
        let answer = read(self.number, opened);
        if let Answer::Opened(id) = answer {
            // What was opened by way of the new path is closed there.
            if answer != self.answer() {
                admin::close(rtrs, id);
            }
        }
        answer
    }

    /// Closes what was opened by the question, by way of `path`.
    pub(crate) fn close_again(&self, path: &impl AdminChannel) {
        if let Answer::Opened(id) = self.answer() {
            admin::close(path, id);
        }
    }

    /// The server is the one of all paths, and has closed the device unless it has its number.
    pub(crate) fn note(&self) {
        if matches!(self.answer(), Answer::Opened(_) | Answer::Refused) {
            self.device.not_open_there(self.number);
            // Becomes visible now.
            let _ = self.device.state();
        }
    }
}

fn read(number: u32, opened: Result<u32>) -> Answer {
    let opened = opened.map_err(|error| Errno::new(error.to_errno()).unwrap_or(Errno::EIO));
    Answer::new(number, opened)
}

impl Device {
    /// Has `server` open the device by way of `path`; `None` if it is not open, so that nothing is
    /// sent for it.
    pub(crate) fn question(
        self: &Arc<Self>,
        path: &impl AdminChannel,
        server: &Server,
    ) -> Option<Asked> {
        let number = self.io_state().remote_id()?;
        Some(Asked {
            device: self.clone(),
            number,
            answer: self.ask(path, server),
        })
    }

    fn ask(&self, path: &impl AdminChannel, server: &Server) -> Result<u32> {
        let remote = admin::open(path, server, &self.path, self.access)?;
        Ok(remote.device_id)
    }

    /// The server has said that it has no device of that number open: requests fail from now on.
    /// Does nothing if requests are made with another number meanwhile. Any context.
    #[cold]
    pub(crate) fn not_open_there(&self, number: u32) {
        let ended = [IoState::Open(number), IoState::OpenForceFua(number)]
            .into_iter()
            .any(|io_state| self.io_state.change(io_state, IoState::Failing));
        if ended {
            pr_err!(
                "{self}: the server has closed it, requests fail until it is opened again \
                 (remap_device)\n"
            );
        }
    }

    /// The second half of [`Self::not_open_there`], with what changes locked.
    pub(super) fn become_fenced(&self, inner: &mut Inner) {
        inner.state = DeviceState::Fenced;
        if let Some(mapped_disk) = &inner.mapped_disk {
            mapped_disk.disk().uevent(Uevent::Offline);
        }
    }
}
