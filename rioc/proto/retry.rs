// SPDX-License-Identifier: GPL-2.0

//! The treatment of a client's operation that was not sent, or not carried out.

use ferro_proto::errno::Errno;

use super::answer::Attached;

/// The pause before an operation is sent again, in milliseconds.
pub const AGAIN_MS: u32 = 10;

/// Whether an operation that RTRS did not take because of `errno` is sent later: its chunk may
/// still be used by a request that was lost, or there is no path now.
pub const fn is_sent_later(errno: Errno) -> bool {
    const EALREADY: u16 = Errno::EALREADY.get();
    const EBUSY: u16 = Errno::EBUSY.get();
    const EAGAIN: u16 = Errno::EAGAIN.get();
    const ENOMEM: u16 = Errno::ENOMEM.get();
    const ECONNABORTED: u16 = Errno::ECONNABORTED.get();
    matches!(
        errno.get(),
        EALREADY | EBUSY | EAGAIN | ENOMEM | ECONNABORTED
    )
}

/// Whether an operation that was answered with `errno` was not carried out, and is sent again: the
/// client is over a limit, or has not told its new connection yet which store it uses.
pub const fn is_sent_again(errno: Errno) -> bool {
    const ENOTCONN: u16 = Errno::ENOTCONN.get();
    is_a_new_one(errno) || errno.get() == ENOTCONN
}

/// Whether an operation that was answered with `errno` came to a store that was deleted: the server
/// is asked for the one that has its name now, and the operation is sent again to that.
pub const fn is_of_no_store(errno: Errno) -> bool {
    errno.get() == Errno::ENODEV.get()
}

/// Whether the server is asked again for a store when asking has failed with `errno`: it has said
/// neither that there is none, nor what makes no sense.
pub const fn is_asked_again(errno: Errno) -> bool {
    const ENOENT: u16 = Errno::ENOENT.get();
    const EIO: u16 = Errno::EIO.get();
    const EINVAL: u16 = Errno::EINVAL.get();
    const EPROTONOSUPPORT: u16 = Errno::EPROTONOSUPPORT.get();
    !matches!(errno.get(), ENOENT | EIO | EINVAL | EPROTONOSUPPORT)
}

/// Whether it is sent again as a new operation, since the server keeps the answer with its number.
/// Else an earlier copy of it may have been carried out, or be carried out yet; also by a store
/// that was deleted meanwhile, whose log knows that.
pub const fn is_a_new_one(errno: Errno) -> bool {
    errno.get() == Errno::EAGAIN.get()
}

/// The knowledge that the server has of a client's operations, as it was when one of them was
/// sent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The number of the client's incarnation: another one if what is known began anew.
    pub incarnation: u64,
    /// The number of what the store keeps: another one if what it had acknowledged is gone.
    pub store: u64,
}

impl From<&Attached> for Life {
    /// A store in memory that was begun anew has another one, and so has another log.
    fn from(attached: &Attached) -> Self {
        Self {
            incarnation: attached.incarnation,
            store: match attached.is_durable {
                true => attached.identity,
                false => attached.boot,
            },
        }
    }
}

/// The way in which an operation that was sent before is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Has the same number: the server tells a copy of what it has carried out.
    Same,
    /// Is a new operation: no copy of it was carried out, and the store has all of before.
    Renewed,
    /// Is not sent: it may have been carried out, and the server does not know that any more.
    Refused,
}

/// Returns the way of an operation that was sent first in `before`, and is to be sent in `now`. It
/// is in `doubt` if one copy or more was lost without an answer. A store that was deleted has not
/// carried out what it answers so: without doubt nothing has to be known of the operation.
pub fn again(before: Life, now: Life, is_in_doubt: bool) -> Again {
    if before == now {
        Again::Same
    } else if before.store == now.store && !is_in_doubt {
        Again::Renewed
    } else {
        Again::Refused
    }
}

/// The sendings of an operation: of its number, if it changes something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sendings {
    is_change: bool,
    /// The [`Life::store`] of the file over which it is asked for.
    store: u64,
    /// The life in which it was sent first.
    sent_in: Option<Life>,
    /// A copy was lost, and the server may have carried that out.
    is_in_doubt: bool,
}

impl Sendings {
    /// Begins an operation, asked for over a file that has attached to this [`Life::store`].
    pub const fn new(is_change: bool, store: u64) -> Self {
        Self {
            is_change,
            store,
            sent_in: None,
            is_in_doubt: false,
        }
    }

    /// Whether it changes something, and was sent before.
    pub const fn was_sent(&self) -> bool {
        self.is_change && self.sent_in.is_some()
    }

    /// Says that it is sent now, and returns in which way. Another store than that of its file does
    /// not get a change, be it the first sending: it may have waited for a path until others have
    /// begun to write there.
    pub fn send(&mut self, now: Life) -> Again {
        let before = self.sent_in.unwrap_or(now);
        let way = match again(before, now, self.is_in_doubt) {
            _ if !self.is_change => Again::Same,
            _ if self.store != now.store => Again::Refused,
            way => way,
        };
        match way {
            Again::Refused => return way,
            Again::Renewed => self.renew(),
            Again::Same => (),
        }
        self.sent_in = Some(now);
        way
    }

    /// Takes back that it was sent first.
    pub const fn was_not_sent(&mut self) {
        self.sent_in = None;
    }

    /// Notes that it may have been carried out.
    pub const fn has_lost_a_copy(&mut self) {
        self.is_in_doubt = true;
    }

    /// Has a new number: with that before nothing was done, nor will be.
    pub const fn renew(&mut self) {
        self.sent_in = None;
        self.is_in_doubt = false;
    }

    /// Whether a copy of it may be sent in the life of `now`, by who cannot change its number.
    pub fn is_valid(&self, now: Life) -> bool {
        !self.is_change || self.sent_in == Some(now)
    }
}
