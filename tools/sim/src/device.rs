// SPDX-License-Identifier: GPL-2.0

//! The client's devices: how their requests are sent, and what the server's cache may lose.
//!
//! Stands for `rnbd/client/device.rs`, `device/{fence,power}.rs`, `cache.rs` and `io_state.rs`. The
//! decisions are those of `rnbd`'s `control`, `io_state`, `boot` and `cache`.

use proto::common::errno::Errno;
use proto::rnbd::{
    boot::Boot,
    cache::{
        Cache,
        Note,
        Owed, //
    },
    control::DeviceState,
    flags::{
        Op,
        Rw,
        RwFlags, //
    },
    io_state::IoState,
};

use crate::{
    check::Kind,
    message::Deed,
    settings::Mutation,
    trace::note,
    world::World, //
};

/// A mapped device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) io_state: IoState,
    pub(crate) state: DeviceState,
    cache: Cache,
    boot: Option<Boot>,
    /// The number of times that the session was disconnected.
    pub(crate) disconnects: u32,
    /// The number of before the last outage, for a mutation that uses it.
    old: Option<u32>,
    /// The disconnects, and its number, when the server closed it, until it is open under another.
    pub(crate) fenced: Option<(u32, u32)>,
    /// The disconnects, and its number, while it is unmapped and not closed yet.
    pub(crate) closing: Option<(u32, u32)>,
}

impl Device {
    /// A device that is mapped, and not open: the session is being connected.
    pub(crate) fn new() -> Self {
        Self {
            io_state: IoState::Queueing,
            state: DeviceState::Disconnected,
            cache: Cache::new(),
            boot: None,
            disconnects: 0,
            old: None,
            fenced: None,
            closing: None,
        }
    }

    /// Returns the meaning of the acknowledgement of an IO that is about to be sent:
    /// `CacheCell::send`.
    pub(crate) fn send(&mut self, deed: Deed) -> Result<Note, Owed> {
        let (op, fua) = match deed {
            Deed::Flush { .. } => (Op::Flush, false),
            Deed::Write { fua, .. } => (Op::Write, fua),
            _ => (Op::Read, false),
        };
        let flags = RwFlags::FUA.when(fua);
        let rw = Rw { op, flags };
        if Cache::is_flush(&rw) {
            let (next, begun) = self.cache.flush_begins();
            self.cache = next;
            begun.map(Note::Flush)
        } else {
            Ok(self.cache.note_of(&rw))
        }
    }

    /// Makes the state that of a device whose requests fail: `Device::lock`.
    pub(crate) fn settle(&mut self) {
        self.state = self.state.seen(self.io_state);
    }

    /// Says whether the device is open in another boot of the server's machine.
    pub(crate) fn is_open_in_another_boot(&self, boot: u64) -> bool {
        let is_open = self.io_state.remote_id().is_some();
        is_open && Boot::is_another(self.boot, Boot::from_number(boot))
    }
}

impl World {
    /// Says whether a tag's request may wait for the server, rather than fail.
    pub(crate) fn may_recover(&self, tag: u16) -> bool {
        let device = self.device_of(tag);
        device.is_some_and(|d| self.clients[self.at].devices[d].io_state != IoState::Failing)
    }

    /// Says whether the queue of a tag's device stands still.
    pub(crate) fn is_quiesced(&self, tag: u16) -> bool {
        let device = self.device_of(tag);
        device.is_some_and(|d| self.clients[self.at].devices[d].io_state == IoState::Queueing)
    }

    /// Handles the loss of the last path: `Device::disconnected`.
    pub(crate) fn disconnected(&mut self) {
        if self.settings.broken(Mutation::NoReopen) && self.now_us > 0 {
            return;
        }
        for device in &mut self.clients[self.at].devices {
            device.settle();
            device.disconnects += 1;
            if device.state.queues_in_outage() {
                device.old = device.io_state.remote_id();
                device.io_state = IoState::Queueing;
                device.state = DeviceState::Disconnected;
            }
        }
    }

    /// The session has had no path for too long: `Device::io_failed`.
    pub(crate) fn io_failed(&mut self) {
        self.trace.reached("what waits is failed");
        for device in &mut self.clients[self.at].devices {
            device.settle();
            if device.state.fails_with_outage() {
                device.io_state = IoState::Failing;
            }
        }
        self.flush();
        self.try_refused();
    }

    /// Records the acknowledgement of an IO.
    pub(crate) fn acknowledged(&mut self, device: usize, note: Note) {
        let later = self.settings.broken(Mutation::FlushCoversLater);
        let device = &mut self.clients[self.at].devices[device];
        device.cache = device.cache.acknowledged(note);
        if later && matches!(note, Note::Flush(_)) {
            (device.cache, _) = Cache::new().opened(false, true);
        }
    }

    /// Handles a device that the server has opened: `Device::opened`.
    pub(crate) fn device_opened(
        &mut self,
        index: usize,
        number: u32,
        boot: u64,
        disconnects: u32,
    ) -> Result<(), Errno> {
        let is_volatile = self.settings.volatile[index];
        let ignores = self.settings.broken(Mutation::IgnoreBoot);
        let keeps = self.settings.broken(Mutation::OldNumber);
        let device = &mut self.clients[self.at].devices[index];
        device.settle();
        device
            .state
            .check_opened(device.disconnects == disconnects)?;
        let boot = Boot::from_number(boot);
        let restarted = !ignores && Boot::has_restarted(device.boot, boot, false);
        let (cache, is_lost) = device.cache.opened(restarted, is_volatile);
        (device.cache, device.boot) = (cache, boot);
        let number = device.old.filter(|_| keeps).unwrap_or(number);
        device.io_state = IoState::Open(number);
        device.state = DeviceState::Mapped;
        device.fenced = device.fenced.filter(|(_, closed)| *closed == number);
        note!(self, Client, "device {index} is open as {number}");
        if is_lost {
            self.trace.reached("a cache is lost with writes in it");
        }
        self.flush();
        Ok(())
    }

    /// Handles an answer that says that the server does not have the device open.
    pub(crate) fn not_open_there(&mut self, index: usize, number: u32) {
        let device = &mut self.clients[self.at].devices[index];
        let was_closed = device.fenced.is_some() || device.io_state.remote_id() != Some(number);
        self.check.require(was_closed, Kind::Refused, || {
            format!("device {index} is not open as {number}, and was not closed")
        });
        if let Some(failing) = device.io_state.not_open_there(number) {
            device.io_state = failing;
            self.trace
                .reached("a client learns that a device was closed");
            note!(self, Client, "device {index} was closed by the server");
            self.clients[self.at].devices[index].settle();
            self.flush();
        }
    }
}
