// SPDX-License-Identifier: GPL-2.0

//! I/O fencing: no request is executed after a later copy of it was answered (decisions 0006 and
//! 0023).
//!
//! A server uses a chunk on one path at a time, which it decides by [`look`]. What it has not
//! looked at yet it cannot see: a request in the receive queue of a path, or on its way there. So a
//! client that gives a path up asks on another path, by a *fence message* that names the first one
//! by its [`Life`]. The server closes that path and answers when its queue pairs are drained: what
//! they have received is discarded, or in service, where [`look`] finds it.

use core::ops::DerefMut;

use super::IMM_PAYLOAD_BITS;

/// The decision about a request whose context its path has just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Serve it.
    Serve,
    /// Discard it: its path has been closed, most often because the client gave the path up.
    Discard,
    /// Defer it until its chunk is free on the other paths, which are closed.
    Defer,
}

/// A word that the paths of a session share, one for each chunk: the number of paths that carry a
/// request in the chunk (decision 0038). A path adds [`Self::ONE`] after it has taken its context
/// of the chunk, and subtracts it before it releases the context, also where the request was
/// deferred in between. So a request that finds the word 0 is alone, however many paths there are.
///
/// A path that is alone in its session does not count. So who enters a session sets
/// [`Self::DOUBT`] in all words, after the paths that are there were told to count, and before it
/// can carry a request itself. A request that finds it looks at each path. If it finds no other
/// request, none is left that was not counted, and it clears the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carriers(u32);

impl Carriers {
    /// The amount that a path adds for a request.
    pub const ONE: u32 = 1;

    /// Set while a request may be in the chunk that is not counted.
    pub const DOUBT: u32 = 1 << 31;

    /// The carriers of a chunk whose word was not read.
    pub const UNKNOWN: Self = Self(Self::DOUBT);

    /// Converts a word, as it was before a path added itself.
    #[inline(always)]
    pub const fn before(word: u32) -> Self {
        Self(word)
    }

    /// Returns whether another path may carry a request in the chunk.
    #[inline(always)]
    const fn may_be_others(self) -> bool {
        self.0 != 0
    }
}

/// Decides about a request whose context was taken, on a path that was up before that. `carriers`
/// are those before the path added itself, and `None` for the only path of a session.
///
/// The order matters. Of two requests in a chunk at least one finds the other, as each adds itself
/// before it looks for the other one. And the request that closed this path before the look has
/// been answered by now, perhaps: then this one is late, and its chunk may be free everywhere else.
#[inline(always)]
pub fn look(
    carriers: Option<Carriers>,
    is_up: impl FnOnce() -> bool,
    is_contested: impl FnOnce() -> bool,
) -> Look {
    let Some(carriers) = carriers else {
        return Look::Serve;
    };
    if !is_up() {
        Look::Discard
    } else if carriers.may_be_others() && is_contested() {
        Look::Defer
    } else {
        Look::Serve
    }
}

/// The greatest number of a path's life: what fits the payload of an immediate.
const NUMBER_MAX: u32 = (1 << IMM_PAYLOAD_BITS) - 1;

/// A life of a path, as its server names it: from a connect to the end of its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    session: u64,
    number: u32,
}

impl Life {
    /// Creates the name of life `number` of `session`, which is random; `None` if one is 0 or the
    /// number does not fit the message.
    pub const fn new(session: u64, number: u32) -> Option<Self> {
        if session == 0 || number == 0 || number > NUMBER_MAX {
            None
        } else {
            Some(Self { session, number })
        }
    }

    /// Returns the session at the server. It exists until its last path is drained, and only then
    /// the server makes the next one of that client: what was lost on the paths of an earlier one
    /// has ended.
    pub const fn session(self) -> u64 {
        self.session
    }

    /// Returns the number in the session, from 1. It is used once.
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// A place that a path of a client has reached: the session at the server, in the order of time.
///
/// [`Fences::reached`] counts them. The client calls it between the server's accept, when the
/// session existed, and the info request, which the session answers later. So of two sessions that
/// one is the newer one whose place has the greater number; the other one has ended, and with it
/// all of its paths, though the client may not have noticed that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    number: u64,
    life: Option<Life>,
}

impl Place {
    /// Returns the life of the path, if the server knows the fence message.
    pub const fn life(&self) -> Option<Life> {
        self.life
    }

    fn is_in_the_session_of(&self, other: &Self) -> bool {
        self.life.map(Life::session) == other.life.map(Life::session)
    }
}

/// The lives of a session's paths that a client has given up, with requests that were not answered,
/// and of which it does not know yet that the server has drained them.
///
/// No request that was in flight there is sent again before it is known: neither on another path,
/// nor by the upper layer on a path that is connected later.
///
/// There is one for each path at most, as a path carries requests only when all are settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fences<L> {
    given_up: L,
    /// The number of the last place.
    last: u64,
}

impl<L: DerefMut<Target = [Option<Place>]>> Fences<L> {
    /// No life was given up. `room` is for as many as a session has paths.
    pub const fn new(room: L) -> Self {
        Self {
            given_up: room,
            last: 0,
        }
    }

    /// Returns the place of a path that a server has accepted, and that has not sent its info
    /// request yet. Its `life` is `None` at a server that does not know the message.
    pub fn reached(&mut self, life: Option<Life>) -> Place {
        self.last = self.last.wrapping_add(1);
        Place {
            number: self.last,
            life,
        }
    }

    /// Records that the life of `place` was given up. Returns `false` if it has none, or there is
    /// no room.
    pub fn give_up(&mut self, place: Place) -> bool {
        let free = self.given_up.iter_mut().find(|entry| entry.is_none());
        let free = free.filter(|_| place.life.is_some());
        free.map(|entry| *entry = Some(place)).is_some()
    }

    /// Returns whether the server may still execute a request of `life`.
    pub fn is_open(&self, life: Life) -> bool {
        self.find(life).is_some()
    }

    /// Returns whether a path at `place` has to ask about a life before it carries a request: the
    /// number of one.
    pub fn next(&mut self, place: &Place) -> Option<u32> {
        self.begin(place);
        let mut open = self.given_up.iter().flatten();
        let lost = open.find(|lost| lost.is_in_the_session_of(place));
        lost.and_then(|lost| lost.life).map(Life::number)
    }

    /// Returns whether a path at `place` can say that `life` is drained: by an answer of its
    /// server, or as it has reached a newer session. A path of an older session cannot; it is
    /// connected no more.
    pub fn can_settle(&self, place: &Place, life: Life) -> bool {
        self.find(life)
            .is_none_or(|lost| lost.is_in_the_session_of(place) || lost.number < place.number)
    }

    /// Returns whether a path at `place`, which [can settle](Self::can_settle) it, has to ask about
    /// `life`.
    pub fn must_ask(&mut self, place: &Place, life: Life) -> bool {
        self.begin(place);
        self.is_open(life)
    }

    /// Forgets the lives of older sessions than the one that a path has reached.
    fn begin(&mut self, place: &Place) {
        self.retain(|lost| lost.is_in_the_session_of(place) || lost.number > place.number);
    }

    /// Records that the server has drained life `number` of `session`.
    pub fn answered(&mut self, session: u64, number: u32) {
        let drained = Life { session, number };
        self.retain(|lost| lost.life != Some(drained));
    }

    fn find(&self, life: Life) -> Option<&Place> {
        let mut open = self.given_up.iter().flatten();
        open.find(|lost| lost.life == Some(life))
    }

    fn retain(&mut self, stays: impl Fn(&Place) -> bool) {
        for entry in self.given_up.iter_mut() {
            *entry = entry.filter(&stays);
        }
    }
}

/// The reason why a server closes the path of a fence message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFence {
    /// The client has not said that it knows the message, or it is not on the admin connection.
    Unexpected,
    /// The answer to an earlier one has not been sent.
    Outstanding,
    /// The session has not had a path of this number, or the message came on it.
    Unknown(u32),
}

impl core::fmt::Display for BadFence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            BadFence::Unexpected => f.write_str("fence message that was not agreed upon"),
            BadFence::Outstanding => f.write_str("fence message before the last one was answered"),
            BadFence::Unknown(n) => write!(f, "fence message for path number {n}, which is none"),
        }
    }
}

/// Checks a fence message for path `number`: it came on the path `own` of a session that has used
/// the numbers up to `last`.
///
/// # Errors
///
/// [`BadFence::Unknown`] for a number that no other path of the session has or had.
pub const fn check(number: u32, own: Option<Life>, last: u32) -> Result<(), BadFence> {
    match own {
        None => Err(BadFence::Unexpected),
        Some(own) if number == 0 || number > last || number == own.number => {
            Err(BadFence::Unknown(number))
        }
        Some(_) => Ok(()),
    }
}

/// Returns the number of the next path of a session that has used those up to `last`; `None` if all
/// are used up.
pub const fn next_number(last: u32) -> Option<u32> {
    if last < NUMBER_MAX {
        Some(last.wrapping_add(1))
    } else {
        None
    }
}

/// The time that a client waits for the answer to a fence message on a path that works, before it
/// gives that path up as well, in milliseconds. A server answers when its device has flushed the
/// queue pairs of the path, and does not wait for its disks. A device that hangs must not cost the
/// paths over other ones, so this is far longer than a server waits for a flush.
pub const ANSWER_MS: u32 = 600_000;

/// The time that a client waits for the answer on a path that is being connected, in milliseconds.
pub const SETUP_ANSWER_MS: u32 = 5_000;
