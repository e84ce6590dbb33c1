// SPDX-License-Identifier: GPL-2.0

//! Updates a session's devices when its paths come up or go down.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::sync::synchronize_rcu;
use rtrs_client::{
    OnePath, //
    SessionEvents,
};

use super::{
    AdminLockGuard, //
    Session,
};
use crate::{
    client::{
        admin,
        device::{
            Asked,
            Device, //
        },
    },
    proto::{
        admin_lock::LockMode,
        path_validation::{
            Answer,
            PathValidation,
            Verdict, //
        },
    },
};

/// Handles the events of a session.
#[pin_data]
pub(super) struct SessionWatcher {
    /// The session while it is ready: a watcher must not hold it for longer.
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
}

impl SessionWatcher {
    /// Returns the watcher of a session that is not ready yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            session <- new_mutex!(None),
        })
    }

    /// Handles events from now on: the session is ready.
    pub(super) fn watch(&self, session: Arc<Session>) {
        *self.session.lock() = Some(session);
    }

    /// Handles no more events: the session is being closed.
    pub(super) fn stop(&self) {
        let session = self.session.lock().take();
        drop(session);
    }

    /// Calls `visit`, which must be quick, for all devices. It must not keep a reference: dropping
    /// the last one to a device closes its session, which waits for the running event handler.
    fn for_each_device(&self, visit: impl Fn(&Device)) {
        let session = self.session.lock().clone();
        if let Some(session) = session {
            session
                .devices
                .lock()
                .iter()
                .for_each(|device| visit(device));
        }
    }
}

impl SessionEvents for SessionWatcher {
    fn disconnected(&self) {
        self.for_each_device(Device::disconnected);
        // Disks that are fenced or unmapped were not quiesced: a request that has read the number
        // of one may be about to be sent, and the next server gives the number to another one.
        synchronize_rcu();
    }

    fn carries_swap(&self) -> bool {
        let session = self.session.lock().clone();
        session.is_some_and(|session| session.devices.lock().iter().any(|d| d.carries_swap()))
    }

    fn io_failed(&self) {
        self.for_each_device(Device::io_failed);
    }

    fn validate_path(&self, path: &OnePath<'_>) -> Result<bool> {
        let Some(session) = self.session.lock().clone() else {
            return Ok(true);
        };
        // Not while a device is being opened: the validation would not ask for it.
        let guard = session.lock_admin(LockMode::Validate)?;
        let server = admin::agree(path)?;
        // Every device, since the server must have all of them open before a request comes.
        let devices = session.devices()?;
        // The other paths must go down: the state of the caches there is not valid any more.
        if devices
            .iter()
            .any(|device| device.is_open_in_another_boot(&server))
        {
            return Ok(false);
        }
        let mut asked = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for device in &devices {
            if let Some(question) = device.question(&guard, path, &server) {
                let is_missing = question.answer() == Answer::Missing;
                asked.push(question, GFP_KERNEL)?;
                if is_missing {
                    break;
                }
            }
        }
        let admitted = judge(&guard, &asked);
        if !asked.iter().all(Asked::is_current) {
            return Err(EAGAIN);
        }
        if admitted != Ok(false) {
            for question in &asked {
                // Also over a path that is not admitted: the device is open there for no one.
                question.close_again(&guard, path);
                if admitted.is_ok() {
                    question.note();
                }
            }
        }
        asked.iter().for_each(Asked::settle_later);
        admitted
    }

    fn connected(&self) -> Result {
        let Some(session) = self.session.lock().clone() else {
            return Ok(());
        };
        admin::agree(&**session.rtrs()?).inspect_err(|error| {
            pr_err!(
                "session {}: devices are not opened again: {error:?}\n",
                session.name()
            );
        })?;
        let devices = session.devices()?;
        let mut last = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        let mut done = Ok(());
        // The others are opened even if one fails, and before those that have not been answered.
        for device in &devices {
            if !device.state().is_opened_after_outage() {
                // Without a path this was not settled.
                device.settle_later();
                continue;
            }
            if device.was_not_answered() {
                last.push(device, GFP_KERNEL)?;
            } else {
                done = device.open_after_outage().and(done);
            }
        }
        for device in last {
            done = device.open_after_outage().and(done);
        }
        done
    }
}

/// Returns whether the path over which these devices were asked for leads to the server of the
/// other paths.
///
/// # Errors
///
/// The first error that is not an answer of the server: the path is tried again later.
fn judge(guard: &AdminLockGuard<'_>, asked: &[Asked]) -> Result<bool> {
    let validation = asked
        .iter()
        .fold(PathValidation::default(), |validation, one| {
            validation.with(one.answer())
        });
    match validation.verdict() {
        Verdict::SameServer => Ok(true),
        Verdict::AskOthers => {
            for one in asked {
                match one
                    .answer()
                    .is_of_the_server_that_says(one.ask_others(guard))
                {
                    Some(true) => {}
                    Some(false) => return Ok(false),
                    None => return Err(EAGAIN),
                }
            }
            Ok(true)
        }
        Verdict::TryLater => {
            let missing = asked.iter().find(|one| one.answer() == Answer::Missing);
            Err(missing.and_then(|one| one.answer.err()).unwrap_or(EAGAIN))
        }
    }
}
