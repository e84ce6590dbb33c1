// SPDX-License-Identifier: GPL-2.0

//! Opens a device on the server: when it is mapped, after an outage, and on request.

use block_ext::disk::Uevent;
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    },
};
use kernel_ext::errno;
use rtrs_client::{
    Fate,
    NotAnswered,
    Unheard, //
};

use super::{
    Device,
    Inner,
    LimitUpdate, //
};
use crate::{
    client::{
        admin,
        limits, //
    },
    proto::{
        admin_lock::LockMode, //
        control::{
            DeviceState,
            Remap, //
        },
        device::{
            Device as Remote,
            Server, //
        },
        io_state::IoState,
        occasion::{
            Occasion,
            ANSWER_MS, //
        },
    },
};

/// The properties of a server, as they are until the next outage.
pub(super) struct Known {
    server: Server,
    /// The outages of the session when the server was asked.
    disconnects: u32,
}

/// The reason why a device was not opened.
struct Failed {
    error: Error,
    silence: Silence,
}

/// A silence that may end while a user waits.
enum Silence {
    /// None: the error is an answer, or that of the connection.
    None,
    /// A server that goes on opening the device has not answered, or said so.
    OfDevice,
    /// The server has not said its version yet; the question, if it is under way.
    OfServer(Option<Unheard>),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            silence: Silence::None,
        }
    }
}

impl From<NotAnswered> for Failed {
    fn from(failed: NotAnswered) -> Self {
        let silence = match failed.fate {
            _ if failed.error != ETIMEDOUT => Silence::None,
            Fate::Unheard(unheard) => Silence::OfServer(Some(unheard)),
            Fate::NotSent => Silence::OfServer(None),
            Fate::Refused => Silence::None,
        };
        Self {
            error: failed.error,
            silence,
        }
    }
}

fn ms(since: Instant<Monotonic>) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(0)
}

impl Device {
    /// Opens the device as [`Self::open_once`] does, again and again while it is silent and a user
    /// waits. What else wants the admin lock has it in between.
    pub(crate) fn open(self: &Arc<Self>, how: Remap, occasion: Occasion) -> Result<Remote> {
        let began = Instant::now();
        let mut known = None;
        loop {
            let asked = Instant::now();
            let failed = match self.open_once(how, occasion, known.take()) {
                Ok(remote) => return Ok(remote),
                Err(failed) => failed,
            };
            if !matches!(failed.silence, Silence::None) {
                self.state().check_to_be_opened()?;
            }
            let is_wanted = match failed.silence {
                Silence::None => false,
                Silence::OfDevice => occasion.asks_again(ms(asked), ms(began)),
                // Without the lock, and no second question meanwhile: each takes an id.
                Silence::OfServer(question) => {
                    let has_ended = question.is_none_or(|q| q.end(ANSWER_MS).is_some());
                    known = has_ended.then(|| self.agree_patiently()).flatten();
                    has_ended && ms(began) < ANSWER_MS.into()
                }
            };
            if !is_wanted {
                return Err(failed.error);
            }
        }
    }

    /// Opens the device on the server and stores its state: for the first time, or again after the
    /// session was disconnected. Queued requests are sent then.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the device was unmapped meanwhile, `ECONNABORTED` if the session was
    /// disconnected, `ETIMEDOUT` if the device had no [`LockMode`], `EAGAIN` if a lost CLOSE may
    /// still end it, `ESTALE` if the server has another disk under that name now, or a smaller one,
    /// and `how` does not allow it, `EINVAL` if that one's blocks are too large, or if another
    /// device has its number; else the server's.
    fn open_once(
        self: &Arc<Self>,
        how: Remap,
        occasion: Occasion,
        known: Option<Known>,
    ) -> Result<Remote, Failed> {
        // Held until the number is in use.
        let guard = self.session().lock_admin(LockMode::Open)?;
        let disconnects = self.lock().disconnects;
        let server = self.server(known)?;
        let remote = match self.send_open(&guard, &*self.rtrs, &server, occasion) {
            Ok(remote) => remote,
            Err(not_opened) => {
                drop(guard);
                if let Some(number) = not_opened.number {
                    self.close_unused(number);
                }
                let is_silent = server.is_extended && not_opened.error == ETIMEDOUT;
                return Err(Failed {
                    error: not_opened.error,
                    silence: match is_silent {
                        true => Silence::OfDevice,
                        false => Silence::None,
                    },
                });
            }
        };
        let number = remote.device_id;
        let used = self.session().check_number(self, number, disconnects);
        let used = used.and_then(|()| {
            guard.uses();
            self.opened(&remote, &server, disconnects, how)
        });
        drop(guard);
        if let Err(error) = used {
            if error != errno::ECONNABORTED {
                self.close_unused(number);
            }
            return Err(error.into());
        }
        Ok(remote)
    }

    /// Asks the server for its version without the admin lock, for as long as an answer may take.
    pub(super) fn agree_patiently(&self) -> Option<Known> {
        let disconnects = self.disconnects();
        let server = admin::agree(&*self.rtrs).ok()?;
        Some(Known {
            server,
            disconnects,
        })
    }

    /// Returns the properties of the server, which is asked unless they are known: a slow one says
    /// them only to a thread without the admin lock. The caller has that.
    pub(super) fn server(&self, known: Option<Known>) -> Result<Server, NotAnswered> {
        match known.filter(|known| known.disconnects == self.disconnects()) {
            Some(known) => Ok(known.server),
            None => admin::agree_locked(&*self.rtrs),
        }
    }

    /// Returns how often the session was disconnected since the device is one of it.
    pub(crate) fn disconnects(&self) -> u32 {
        self.lock().disconnects
    }

    /// Closes what an OPEN has opened that is not used.
    fn close_unused(&self, number: u32) {
        if self.close(number) {
            self.end_doubt();
        }
    }

    /// Closes what the server has open under a number, unless a device of the session uses that.
    /// Returns `false` if the server may have it open still.
    pub(super) fn close(&self, id: u32) -> bool {
        let session = self.session();
        match session.lock_admin(LockMode::Close) {
            Ok(guard) => session.close_number(&guard, &*self.rtrs, id),
            Err(error) => {
                pr_info!("{self}: number {id} stays open on the server: {error:?}\n");
                false
            }
        }
    }

    fn opened(
        self: &Arc<Self>,
        remote: &Remote,
        server: &Server,
        disconnects: u32,
        how: Remap,
    ) -> Result {
        let mut inner = self.lock();
        let again = inner.state.check_opened(inner.disconnects == disconnects)?;
        self.compare_protection(&mut inner, remote)?;
        if how == Remap::Same {
            self.compare_disk(&mut inner, remote)?;
        }
        let restarted = again && inner.has_restarted(server);
        let owes = self.cache.get().will_owe(restarted);
        let is_forced = self.compare_limits(&mut inner, remote, owes)?;
        inner.refusal = None;
        inner.doubt.end();
        let is_another = self.note_disk(&mut inner, remote);
        self.note_boot(&mut inner, server, restarted, remote.writeback);
        let is_protected = self.protection().is_some();
        let io_state = IoState::open(remote.device_id, is_forced, is_protected);
        self.io_state.set(io_state);
        inner.state = DeviceState::Mapped;
        if let (true, Some(mapped_disk)) = (again, &mut inner.mapped_disk) {
            // The size was checked: it is one that a disk can have.
            let _ = self.set_size(mapped_disk, remote.capacity_sectors());
            mapped_disk.unquiesce();
            mapped_disk.uevent(Uevent::Online);
            if is_another {
                mapped_disk.uevent(Uevent::Change);
            }
        }
        if again {
            pr_info!("{self}: opened again\n");
            self.begin_limit_update(&inner);
        }
        Ok(())
    }

    /// Stores the limits of the server's device; returns whether writes must be forced. A disk that
    /// owes an error to the next flush has to get flushes.
    fn compare_limits(&self, inner: &mut Inner, remote: &Remote, owes: bool) -> Result<bool> {
        let mut limits = limits::of_disk(&self.rtrs, remote);
        let Some(limit_update) = &mut inner.limits else {
            inner.limits = Some(LimitUpdate::new(limits));
            return Ok(false);
        };
        limits.write_cache |= owes;
        if let Err(error) = limit_update.follow(limits) {
            // Logged once, however often it is tried.
            if inner.refusal != Some(error) {
                pr_err!(
                    "{self}: has larger blocks now, {} bytes instead of {}: unmap it and map it again\n",
                    remote.logical_block_size,
                    limit_update.block_bytes()
                );
            }
            return Err(error);
        }
        if limit_update.begins_to_force() {
            pr_warn!(
                "{self}: the server's device has a cache now: each write is forced through it \
                 until the disk is unmapped and mapped again\n"
            );
        }
        Ok(limit_update.must_force())
    }

    /// Opens the device again after the session was disconnected, or the server has closed it.
    ///
    /// # Errors
    ///
    /// `EALREADY` if it is open there, which the server is asked, `ENODEV` if it is being unmapped,
    /// `EBUSY` while it is being mapped; else the server's.
    pub(crate) fn remap(self: &Arc<Self>, how: Remap) -> Result {
        self.open_again(how, Occasion::Asked)
            .inspect_err(|_| self.settle_later())
    }

    /// Opens the device again as [`Self::remap`] does, after an outage.
    pub(crate) fn open_after_outage(self: &Arc<Self>) -> Result {
        self.open_again(Remap::Same, Occasion::AfterOutage)
    }

    /// Returns whether the server has not answered when the device was to be opened again.
    pub(crate) fn was_not_answered(&self) -> bool {
        self.lock().refusal == Some(ETIMEDOUT)
    }

    fn open_again(self: &Arc<Self>, how: Remap, occasion: Occasion) -> Result {
        if self.state().asks_before_remap() {
            self.ask_whether_open();
        }
        self.state().check_remap()?;
        self.open(how, occasion).inspect_err(|error| {
            // It may be tried for long, once a second: one line for each reason.
            let mut inner = self.lock();
            if inner.refusal != Some(*error) {
                inner.refusal = Some(*error);
                pr_err!("{self}: not opened again: {error:?}\n");
            }
        })?;
        Ok(())
    }
}
