// SPDX-License-Identifier: GPL-2.0

//! A work item that sends the events which the pure array has for user space, as they take memory.

use block_ext::disk::Uevent;
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    workqueue::{
        impl_has_work,
        WorkItem, //
    },
};
use kernel_ext::{
    memory,
    workqueue, //
};

use super::{
    core::Core,
    Device, //
};
use crate::proto::array::{
    Event,
    View, //
};

impl_has_work! {
    impl HasWork<Self> for Device { self.announcing }
}

impl WorkItem for Device {
    type Pointer = Arc<Device>;

    fn run(device: Arc<Device>) {
        let next = || device.core.with_engine(|engine| engine.news.next_event());
        memory::without_io(|| {
            while let Some(Some(event)) = next() {
                // Without memory it is lost, and the files of the array have the same.
                let _ = device.announce(event);
            }
        });
    }
}

impl Core {
    /// Queues the work item that tells user space of changes, if there is a disk. Any context that
    /// may sleep.
    pub(super) fn announce(&self) {
        if let Some(device) = &*self.announcer.lock() {
            let queue = &self.queues.shared.events;
            let _ = queue.enqueue::<Arc<Device>, 0>(device.clone());
        }
    }
}

impl Device {
    /// The disk is there. What has happened before is told now.
    pub(super) fn begin_announcing(self: &Arc<Self>) {
        *self.core.announcer.lock() = Some(self.clone());
        self.core.announce();
    }

    /// The disk is about to go. Sleeps.
    pub(super) fn end_announcing(&self) {
        let announcer = self.core.announcer.lock().take();
        if let Some(this) = announcer {
            drop(workqueue::cancel_sync(&this));
        }
    }

    /// Sends an event.
    fn announce(&self, (event, view): (Event, View)) -> Result {
        let name = CString::try_from_fmt(fmt!("RNBD_EC={}", self.name()))?;
        let state = CString::try_from_fmt(fmt!("RNBD_EC_STATE={}", view.state().word()))?;
        let (first, second) = match event {
            Event::Member(member) => (
                CString::try_from_fmt(fmt!("RNBD_EC_MEMBER={member}"))?,
                Some(CString::try_from_fmt(fmt!(
                    "RNBD_EC_MEMBER_STATE={}",
                    view.member(member)
                ))?),
            ),
            Event::Used(percent) => (CString::try_from_fmt(fmt!("RNBD_EC_USED={percent}"))?, None),
        };
        if let Some(shown) = &*self.shown.lock() {
            let variables = [Some(&name), Some(&state), Some(&first), second.as_ref()];
            let variables = variables.map(|variable| variable.map(|variable| &**variable));
            shown.disk.uevent_with(Uevent::Change, &variables);
        }
        Ok(())
    }
}
