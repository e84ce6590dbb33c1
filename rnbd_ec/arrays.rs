// SPDX-License-Identifier: GPL-2.0

//! The arrays of this machine.

use block_ext::disk::OpensForbidden;
use kernel::{
    prelude::*,
    str::CString,
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
        ArrayQueues,
        Device,
        Queue,
        WorkQueues, //
    },
    proto::command::Command,
    shown::Shown, //
};

/// The name of an array that is being assembled, which no other one gets meanwhile.
struct NameTaken<'a> {
    arrays: &'a Arrays,
    name: Arc<CString>,
}

impl Drop for NameTaken<'_> {
    fn drop(&mut self) {
        let mut assembling = self.arrays.assembling.lock();
        assembling.retain(|other| !Arc::ptr_eq(other, &self.name));
    }
}

/// An array that is assembled, or of which something is left: the end of its last IO may still be
/// on its way out.
struct Left {
    /// Completes when nothing is left.
    gone: Arc<Completion>,
    /// Its work queues, which what is left of it may run on, and must not drop.
    _queues: Arc<ArrayQueues>,
}

/// All arrays that are assembled.
#[pin_data]
pub(crate) struct Arrays {
    queues: Arc<WorkQueues>,
    /// The names of arrays that are being assembled. What an assembly waits for, the disks of its
    /// members, no other one waits for.
    #[pin]
    assembling: Mutex<KVec<Arc<CString>>>,
    #[pin]
    list: Mutex<KVec<Arc<Device>>>,
    /// The arrays of the list, and those that were stopped of which something is left, or was until
    /// the last assembly.
    #[pin]
    left: Mutex<KVec<Left>>,
}

impl Arrays {
    /// None. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queues = WorkQueues::new()?;
        Arc::pin_init(
            pin_init!(Self {
                queues,
                assembling <- new_mutex!(KVec::new(), "rnbd_ec::Arrays::assembling"),
                list <- new_mutex!(KVec::new(), "rnbd_ec::Arrays::list"),
                left <- new_mutex!(KVec::new(), "rnbd_ec::Arrays::left"),
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
        let _name = self.take_name(&command)?;
        let queues = ArrayQueues::new(self.queues.clone())?;
        let device = Device::assemble(&command, (self.clone(), queues.clone()))?;
        // Before it is shown, as it may be stopped then.
        if let Err(error) = self.note(&device, queues.clone()) {
            device.finish();
            let gone = device.gone().clone();
            drop(device);
            // The queues are kept here until then.
            gone.wait();
            return Err(error);
        }
        device.show().inspect_err(|_| self.forget(&device))
    }

    /// Puts an array on the list, and has its work queues and the module kept until nothing of it
    /// is left. Sleeps.
    fn note(&self, device: &Arc<Device>, queues: Arc<ArrayQueues>) -> Result {
        let mut left = self.left.lock();
        left.retain(|left| !left.gone.is_done());
        let new = Left {
            gone: device.gone().clone(),
            _queues: queues,
        };
        left.push(new, GFP_KERNEL)?;
        drop(left);
        Ok(self.list.lock().push(device.clone(), GFP_KERNEL)?)
    }

    /// Takes the name of an array that is to be assembled, until the result is dropped.
    fn take_name(&self, command: &Command<'_>) -> Result<NameTaken<'_>> {
        let name = Arc::new(CString::try_from_fmt(fmt!("{}", command.name))?, GFP_KERNEL)?;
        let mut assembling = self.assembling.lock();
        let is_listed = |device: &Arc<Device>| *device.name() == **name;
        if assembling.iter().any(|other| ***other == **name)
            || self.list.lock().iter().any(is_listed)
        {
            pr_err!(
                "assemble: '{}' is assembled: choose another name=\n",
                command.name
            );
            return Err(EEXIST);
        }
        assembling.push(name.clone(), GFP_KERNEL)?;
        Ok(NameTaken { arrays: self, name })
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
        while let Some(left) = self.left.lock().pop() {
            left.gone.wait();
        }
    }
}
