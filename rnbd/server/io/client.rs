// SPDX-License-Identifier: GPL-2.0

//! The client of a session, as its requests need it: what was agreed on with it, and the refusals
//! of its requests and messages, with one log line each, if there are not too many.

use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    }, //
};
use kernel_ext::{
    errno,
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};
use rtrs_server::Operation;

use crate::{
    proto::{
        message::Malformed,
        VERSION, //
    },
    server::log_limit::LOG_LIMIT,
    shown::Shown, //
};

/// The client of a session.
pub(crate) struct Client {
    name: CString,
    /// The protocol version agreed on.
    version: AtomicU32,
    /// Whether the client supports the extension in reserved bytes.
    is_extended: AtomicBool,
}

impl Client {
    /// Creates the state of a client that has not said its version.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        Ok(Self {
            name: CString::try_from(name)?,
            version: AtomicU32::new(u32::from(VERSION)),
            is_extended: AtomicBool::new(false),
        })
    }

    /// Returns the name that the client chose for the session.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Stores the protocol version agreed on, and whether the client supports the extension in
    /// reserved bytes.
    pub(crate) fn agree(&self, version: u8, is_extended: bool) {
        self.version.store(u32::from(version), Relaxed);
        self.is_extended.store(is_extended, Relaxed);
    }

    /// Returns the protocol version agreed on.
    #[inline]
    pub(crate) fn version(&self) -> u8 {
        // CAST: `agree` stored a byte.
        self.version.load(Relaxed) as u8
    }

    /// Returns whether the client supports the extension in reserved bytes.
    pub(crate) fn is_extended(&self) -> bool {
        self.is_extended.load(Relaxed)
    }

    #[cold]
    pub(crate) fn refuse_change(&self, device_id: u32, operation: Operation) {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request refused: device {} is open read-only\n",
                self.name(),
                device_id
            );
        }
        operation.reply(Err(EROFS));
    }

    #[cold]
    pub(crate) fn refuse_unknown(&self, device_id: u32, operation: Operation) {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request for device {}, which is not open: refused\n",
                self.name(),
                device_id
            );
        }
        operation.reply(Err(errno::ENOTCONN));
    }

    #[cold]
    pub(crate) fn refuse(&self, reason: Malformed, operation: Operation) {
        operation.reply(Err(self.log_refusal(reason)));
    }

    /// Logs why a request or message is refused; returns the error that the client gets.
    #[cold]
    pub(crate) fn log_refusal(&self, reason: Malformed) -> Error {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request refused: {}\n",
                self.name(),
                Shown(reason)
            );
        }
        reason.errno().into()
    }
}
