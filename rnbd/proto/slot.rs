// SPDX-License-Identifier: GPL-2.0

//! The state of a device number of a session at the server.
//!
//! ```text
//! Free ── reserve ──> Reserved ── open ──> Open ── close ──> Reserved ── release ──> Free
//!                        └───── release ──> Free └── retire ──> Retired
//! ```
//!
//! A number is reserved by one thread, which opens or releases it; who closes a device has its
//! number reserved until the device is closed. So no two devices have a number, and no device is
//! open under a number that is free.

/// The state of a device number; `M` is what the server knows of an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot<M> {
    /// Free for the next device.
    Free,
    /// One thread has the number: it opens a device, or closes one.
    Reserved,
    /// A device that is open.
    Open(M),
    /// The device was closed by `force_close`, or its disk is gone. Its client may still use the
    /// number, so it is not reused until the session ends.
    Retired,
}

/// The action of an OPEN for the device that its session has open under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The open device is the answer.
    Answer,
    /// The open device is closed, and the device is opened anew.
    Close {
        /// Its number is not used again.
        retire: bool,
    },
}

impl Known {
    /// Decides about a device that is open as the client asks for it, or not, and whose disk is
    /// present, or was removed.
    ///
    /// A client that asks for something else has not got the answer to an OPEN, or its CLOSE was
    /// lost with a path: it does not use the number. The number stays reserved for the device until
    /// that is open anew: a client that uses it all the same reaches no other disk. That of a
    /// removed disk it may still use.
    pub const fn new(is_asked_for: bool, is_present: bool) -> Self {
        match (is_asked_for, is_present) {
            (true, true) => Self::Answer,
            (_, is_present) => Self::Close {
                retire: !is_present,
            },
        }
    }
}

impl<M> Slot<M> {
    /// Returns what is known of the device that is open.
    pub const fn device(&self) -> Option<&M> {
        match self {
            Slot::Open(device) => Some(device),
            Slot::Free | Slot::Reserved | Slot::Retired => None,
        }
    }

    /// Returns what is known of the device that is open, to change it.
    pub const fn device_mut(&mut self) -> Option<&mut M> {
        match self {
            Slot::Open(device) => Some(device),
            Slot::Free | Slot::Reserved | Slot::Retired => None,
        }
    }

    /// Reserves a number that is free; returns `false`, and changes nothing, if it is not.
    #[must_use]
    pub fn reserve(&mut self) -> bool {
        let is_free = matches!(self, Slot::Free);
        if is_free {
            *self = Slot::Reserved;
        }
        is_free
    }

    /// Assigns `device` to a number that the caller has reserved.
    ///
    /// # Errors
    ///
    /// Returns `device` if the number is not reserved.
    pub fn open(&mut self, device: M) -> Result<(), M> {
        match self {
            Slot::Reserved => {
                *self = Slot::Open(device);
                Ok(())
            }
            Slot::Free | Slot::Open(_) | Slot::Retired => Err(device),
        }
    }

    /// Takes the device if one is open that `is_right`. With `retire` the number is never used
    /// again, else the caller has reserved it.
    pub fn close(&mut self, retire: bool, is_right: impl FnOnce(&M) -> bool) -> Option<M> {
        if !self.device().is_some_and(is_right) {
            return None;
        }
        let next = if retire {
            Slot::Retired
        } else {
            Slot::Reserved
        };
        match core::mem::replace(self, next) {
            Slot::Open(device) => Some(device),
            Slot::Free | Slot::Reserved | Slot::Retired => None,
        }
    }

    /// Frees a number that the caller has reserved. One in another state is left as it is.
    pub fn release(&mut self) {
        if matches!(self, Slot::Reserved) {
            *self = Slot::Free;
        }
    }
}
