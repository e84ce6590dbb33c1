// SPDX-License-Identifier: GPL-2.0

//! Devices that an administrator unmaps, and maps again later.
//!
//! Stands for `rnbd/client/{map,device/unmap}.rs`. What the model keeps of a device that is
//! unmapped is what the server's cache may lose, so that the check of flushes holds on.

use proto::rnbd::{
    control::DeviceState,
    io_state::IoState, //
};

use crate::{
    event::{
        Event,
        MS,
        S, //
    },
    tasks::{
        Purpose,
        Step, //
    },
    trace::note,
    world::World,
};

impl World {
    /// An administrator unmaps a device: `Device::begin_unmap`.
    pub(crate) fn unmap(&mut self, device: usize) {
        let later = match self.rng.bool() {
            true => self.rng.u64(MS..200 * MS),
            false => self.rng.u64(MS..5 * S),
        };
        let unmapped = &mut self.clients[self.at].devices[device];
        unmapped.settle();
        if matches!(unmapped.state, DeviceState::Unmapped | DeviceState::Init) {
            return;
        }
        let number = unmapped.io_state.remote_id();
        let disconnects = unmapped.disconnects;
        unmapped.state = DeviceState::Unmapped;
        unmapped.io_state = IoState::Failing;
        unmapped.closing = number.map(|number| (disconnects, number));
        note!(self, Client, "device {device} is unmapped");
        self.flush();
        self.try_refused();
        self.finish_unmap(device);
        self.after(later, Event::Map { device });
    }

    /// Closes an unmapped device when its requests have ended: `Device::finish_unmap`.
    pub(crate) fn finish_unmap(&mut self, device: usize) {
        let devices = self.settings.volatile.len();
        let client = &mut self.clients[self.at];
        let slots = client.slots.iter().flatten();
        if slots
            .filter_map(|s| s.body.deed.device(devices))
            .any(|d| d == device)
        {
            return self.after(10 * MS, Event::FinishUnmap { device });
        }
        let unmapped = &mut client.devices[device];
        let Some((disconnects, number)) = unmapped.closing.take() else {
            return;
        };
        if unmapped.disconnects == disconnects {
            self.trace.reached("an unmapped device is closed");
            self.start_task(Purpose::Unmap, &[Step::Close(number)]);
        }
    }

    /// An administrator maps a device that was unmapped, until that succeeds.
    pub(crate) fn map(&mut self, device: usize) {
        let client = &mut self.clients[self.at];
        let mapped = &mut client.devices[device];
        let state = mapped.state;
        if !matches!(state, DeviceState::Unmapped | DeviceState::Init) {
            return;
        }
        self.after(self.settings.map_pause_us, Event::Map { device });
        // The session forgets a device before the CLOSE is sent.
        let client = &mut self.clients[self.at];
        let is_forgotten = client.devices[device].closing.is_none();
        if state == DeviceState::Unmapped && is_forgotten {
            client.devices[device].state = DeviceState::Init;
            let steps = [Step::Info(Some(device)), Step::Open(device)];
            self.start_task(Purpose::Map(device), &steps);
        }
    }

    /// Handles the end of a try to map a device.
    pub(crate) fn mapped(&mut self, device: usize) {
        let mapped = &mut self.clients[self.at].devices[device];
        if mapped.state == DeviceState::Init {
            mapped.state = DeviceState::Unmapped;
        }
    }
}
