// SPDX-License-Identifier: GPL-2.0

//! The arrays of this machine.

use block_ext::disk::OpensForbidden;
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use kernel_ext::sync::Completion;

use crate::{
    device::{
        Device,
        Queue,
        WorkQueues, //
    },
    proto::command::Command,
    shown::Shown, //
};

/// All arrays that are assembled.
#[pin_data]
pub(crate) struct Arrays {
    queues: Arc<WorkQueues>,
    /// Serialises assemblies, so that a name is not given twice. Who removes files of an array does
    /// not wait for it: their writers may.
    #[pin]
    assembling: Mutex<()>,
    #[pin]
    list: Mutex<KVec<Arc<Device>>>,
    /// Completes when nothing of an array that was stopped is left.
    #[pin]
    stopped: Mutex<KVec<Arc<Completion>>>,
}

impl Arrays {
    /// None. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queues = WorkQueues::new()?;
        Arc::pin_init(
            pin_init!(Self {
                queues,
                assembling <- new_mutex!((), "rnbd_ec::Arrays::assembling"),
                list <- new_mutex!(KVec::new(), "rnbd_ec::Arrays::list"),
                stopped <- new_mutex!(KVec::new(), "rnbd_ec::Arrays::stopped"),
            }),
            GFP_KERNEL,
        )
    }

    /// Carries out a line. Sleeps.
    pub(crate) fn assemble(self: &Arc<Self>, line: &[u8]) -> Result {
        let command = Command::parse(line).map_err(|wrong| {
            pr_err!("assemble: {}\n", Shown(wrong));
            Error::from(wrong.errno())
        })?;
        let _assembling = self.assembling.lock();
        let is_taken = |device: &Arc<Device>| device.name().to_bytes() == command.name.as_bytes();
        if self.list.lock().iter().any(is_taken) {
            pr_err!(
                "assemble: '{}' is assembled: choose another name=\n",
                command.name
            );
            return Err(EEXIST);
        }
        self.list.lock().reserve(1, GFP_KERNEL)?;
        let means = (self.clone(), self.queues.clone());
        let device = Device::assemble(&command, means)?;
        // Before it is shown, as it may be stopped then. There is room: `assembling` is locked.
        let _ = self.list.lock().push_within_capacity(device.clone());
        device.show().inspect_err(|_| self.forget(&device))
    }

    /// Takes an array off the list.
    fn forget(&self, device: &Device) {
        let mut list = self.list.lock();
        let place = list
            .iter()
            .position(|other| core::ptr::eq(&**other, device));
        let removed = place.and_then(|place| list.remove(place).ok());
        drop(list);
        drop(removed);
    }

    /// Stops an array, of which opens are forbidden. Sleeps.
    pub(crate) fn stop(&self, device: &Device, forbidden: OpensForbidden<Queue>) {
        device.finish_stop(forbidden);
        self.forget(device);
        // The end of its last IO may still be on its way out.
        let mut stopped = self.stopped.lock();
        stopped.retain(|gone| !gone.is_done());
        if stopped.push(device.gone().clone(), GFP_KERNEL).is_err() {
            pr_warn!("{}: no memory to note that it was stopped\n", device.name());
        }
    }

    /// Stops all of them: the module goes, so none is open. Sleeps.
    pub(crate) fn stop_all(&self) {
        loop {
            let Some(device) = self.list.lock().pop() else {
                break;
            };
            // A task may be closing it just now.
            let forbidden = loop {
                match device.forbid_open() {
                    Err(EBUSY) => fsleep(Delta::from_millis(20)),
                    other => break other,
                }
            };
            if let Ok(forbidden) = forbidden {
                device.finish_stop(forbidden);
            }
            let gone = device.gone().clone();
            drop(device);
            gone.wait();
        }
        while let Some(gone) = self.stopped.lock().pop() {
            gone.wait();
        }
    }
}
