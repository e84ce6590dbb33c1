// SPDX-License-Identifier: GPL-2.0

//! What becomes of a session's devices when its link changes.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use rtrs_client::{
    OnePath, //
    SessionEvents,
};

use super::Session;
use crate::{
    client::{
        admin,
        device::{
            Asked,
            Device, //
        },
    },
    proto::{
        control::{
            DeviceState,
            Remap, //
        },
        survey::{
            Answer,
            Survey,
            Verdict, //
        },
    },
};

/// Hears of a session's link.
#[pin_data]
pub(super) struct SessionWatcher {
    /// The session while it is ready: a watcher must not keep it.
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
}

impl SessionWatcher {
    /// Of a session that is not ready yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            session <- new_mutex!(None),
        })
    }

    /// The session is ready.
    pub(super) fn watch(&self, session: Arc<Session>) {
        *self.session.lock() = Some(session);
    }

    /// The session is being closed.
    pub(super) fn stop(&self) {
        let session = self.session.lock().take();
        drop(session);
    }

    /// Does something quick to all devices. Nothing of them is kept: who drops the last reference
    /// to a device closes its session, which must not wait for its own news.
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
    }

    fn io_failed(&self) {
        self.for_each_device(Device::io_failed);
    }

    fn validate_path(&self, path: &OnePath<'_>) -> Result<bool> {
        let Some(session) = self.session.lock().clone() else {
            return Ok(true);
        };
        let server = admin::agree(path)?;
        // Every device, for the server is to have all of them open before a request comes.
        let devices = session.devices()?;
        // The others must be down: what is believed of the caches there is not so any more.
        if devices
            .iter()
            .any(|device| device.is_open_in_another_boot(&server))
        {
            return Ok(false);
        }
        let mut asked = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for device in &devices {
            if let Some(question) = device.question(path, &server) {
                asked.push(question, GFP_KERNEL)?;
            }
        }
        let admitted = judge(&asked);
        for question in &asked {
            question.close_again(path);
            if admitted == Ok(true) {
                question.note();
            }
        }
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
        let mut done = Ok(());
        for device in &session.devices()? {
            if device.state() == DeviceState::Disconnected {
                // The others are opened all the same.
                done = device.remap(Remap::Same).and(done);
            }
        }
        done
    }
}

/// Whether the path by which these devices were asked for leads to the server of the others.
///
/// # Errors
///
/// The first that is not the server's word: the path is to be tried again later.
fn judge(asked: &[Asked]) -> Result<bool> {
    let survey = asked
        .iter()
        .fold(Survey::default(), |survey, one| survey.with(one.answer()));
    match survey.verdict() {
        Verdict::SameServer => Ok(true),
        Verdict::AskOthers => Ok(asked.iter().all(|one| {
            let others = one.ask_others();
            one.answer().is_of_the_server_that_says(others)
        })),
        Verdict::TryLater => {
            let missing = asked.iter().find(|one| one.answer() == Answer::Missing);
            Err(missing.and_then(|one| one.answer.err()).unwrap_or(EAGAIN))
        }
    }
}
