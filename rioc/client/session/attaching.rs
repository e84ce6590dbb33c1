// SPDX-License-Identifier: GPL-2.0

//! The store of a session: the server is asked for it, and says what it is.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        MutexGuard, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::errno;
use rtrs_client::{
    AdminChannel,
    Direction,
    UserMessage, //
};
use rtrs_core::proto::permit::AnswerWaits;

use super::{
    super::LOG_LIMIT,
    Session, //
};
use crate::proto::{
    answer::Attached,
    message::{
        Message,
        Operation, //
    },
    retry::{
        self,
        Life, //
    },
    wire::{
        ANSWER_BYTES,
        REQUEST_BYTES_MAX,
        VERSION, //
    },
};

/// The longest time for the answer of an attach.
const ANSWER_MS: u32 = 30_000;

/// A session, and its store as it was when a file has attached it: no other store carries out what
/// is asked for over the file.
#[derive(Clone)]
pub(in super::super) struct Attachment {
    session: Arc<Session>,
    attached: Attached,
}

impl Deref for Attachment {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Attachment {
    /// Attaches a session that is connected.
    pub(in super::super) fn new(session: &Arc<Session>) -> Result<Self> {
        Ok(Self {
            session: session.clone(),
            attached: session.attached()?,
        })
    }

    /// Returns what the server had said of the store.
    pub(in super::super) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Returns the store's number, which it has while it keeps what was acknowledged.
    pub(in super::super) fn store(&self) -> u64 {
        Life::from(&self.attached).store
    }

    /// Checks that the store of now has all of what that of the file had acknowledged.
    pub(in super::super) fn check(&self) -> Result {
        match self.session.attached()?.has_kept(&self.attached) {
            true => Ok(()),
            false => Err(errno::ECONNRESET),
        }
    }
}

impl Session {
    /// Tells the server which store is used. Sleeps.
    pub(super) fn attach(&self, channel: &impl AdminChannel) -> Result<Attached> {
        let message = Message {
            lease: 0,
            ticket: None,
            incarnation: 0,
            operation: Operation::Attach {
                store: self.store.to_bytes(),
            },
        };
        let (mut bytes, mut answer) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_BYTES as usize]);
        let len = message.write(&mut bytes).ok_or(EINVAL)?;
        let bytes = bytes.get(..len).unwrap_or_default();
        let message = UserMessage {
            direction: Direction::Read,
            bytes,
            subject: bytes,
        };
        let (name, store) = (self.name(), &*self.store);
        channel
            .send_message(AnswerWaits::ForNothing, &message, &mut answer, ANSWER_MS)
            .map_err(Error::from)
            .inspect_err(|error| {
                if LOG_LIMIT.allow().is_none() {
                    return;
                }
                if *error == errno::EPROTONOSUPPORT {
                    pr_err!(
                        "session {name}: the server speaks another version of the protocol than \
                         {VERSION}: load rioc_client and rioc_server of one release\n"
                    );
                } else {
                    pr_err!("session {name}: the server does not give store {store}: {error:?}\n");
                }
            })?;
        let attached = Attached::parse(&answer).map_err(|reason| self.disbelieve(reason))?;
        Ok(attached)
    }

    /// Goes on with what the server has said, if `before` is what it has said last; returns whether
    /// it is. Else another task was told something meanwhile, and which of both is so now only the
    /// server knows. What may have been carried out for an incarnation that it does not know is not
    /// sent again.
    pub(super) fn use_attached(&self, before: Option<Attached>, now: &Attached) -> bool {
        let mut usage = self.usage.lock();
        if usage.attached != before {
            return false;
        }
        let has_kept = before.is_none_or(|before| now.has_kept(&before));
        if let Some(lanes) = self.lanes.as_ref() {
            lanes.set_life(now.into());
        }
        usage.attached = Some(*now);
        drop(usage);
        if !has_kept {
            let (name, store) = (self.name(), &*self.store);
            pr_warn!("session {name}: store {store} was begun anew, and keeps nothing of before\n");
        }
        true
    }

    /// Lets no other task ask; sleeps, and can be killed.
    fn begin_asking(&self) -> Result<MutexGuard<'_, ()>> {
        loop {
            if let Some(asking) = self.asking.try_lock() {
                return Ok(asking);
            }
            self.rest()?;
        }
    }

    /// Attaches again, to the store that has this name now. Sleeps, and can be killed.
    pub(super) fn attach_again(&self) -> Result {
        let rtrs = self.rtrs.as_ref().ok_or(errno::ENOTCONN)?;
        let _asking = self.begin_asking()?;
        loop {
            let before = self.attached().ok();
            let now = self.attach(&**rtrs)?;
            if self.use_attached(before, &now) {
                return Ok(());
            }
        }
    }

    /// Does so for an operation whose store was deleted, until the server says which one has its
    /// name. Sleeps, and can be killed.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none.
    pub(super) fn ask_for_store(&self) -> Result {
        let since = Instant::<Monotonic>::now();
        loop {
            self.wait_until_sent(|| false)?;
            match self.attach_again() {
                Ok(()) => return Ok(()),
                Err(ENOENT) => return Err(ENODEV),
                Err(error) => self.pause(error, retry::is_asked_again, since)?,
            }
        }
    }
}
