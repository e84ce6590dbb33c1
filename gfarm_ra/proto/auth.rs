// SPDX-License-Identifier: GPL-2.0

//! The authentication at gfmd and gfsd with a shared key. The server speaks first:
//!
//! ```text
//!   server                              client
//!   methods it has           ------->
//!                            <-------   the method: shared secret
//!   auth_error               ------->
//!                            <-------   user, request for a challenge
//!   auth_error, challenge    ------->
//!                            <-------   expiry of the key, MD5(challenge, key)
//!   auth_error               ------->
//! ```
//!
//! The driver computes the digest: the kernel has MD5.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    command::*,
    operation::ReplyError,
    xdr::{
        DecodeError,
        Decoder,
        Encoder,
        Malformed, //
    },
    LABEL_LEN_MAX,
};

/// The length of a challenge, in bytes.
pub const CHALLENGE_LEN: usize = 32;

/// The length of the answer, in bytes.
pub const DIGEST_LEN: usize = 16;

/// The size of a buffer that each message to the server fits, in bytes.
pub const MESSAGE_LEN_MAX: usize = 512;

const _: () = assert!(4 + LABEL_LEN_MAX + 4 <= MESSAGE_LEN_MAX);

/// The maximum number of methods that a server has: the protocol knows five.
const METHODS_MAX: usize = 64;

/// The number of keys that a client tries on one connection (`GFARM_AUTH_RETRY_MAX` is 1).
const KEYS_MAX: u8 = 2;

/// The answers of a server (`enum gfarm_auth_error`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthError {
    /// The server does not let the user in.
    Denied,
    /// The server has no authentication with a shared key.
    NotSupported,
    /// The user is not known, or the key is another than the server's.
    InvalidCredential,
    /// The key has expired, or its expiry is another than the server's.
    Expired,
    /// The server has too little of something.
    ResourceUnavailable,
    /// The server can do that later.
    Temporary,
    /// A number of a later version.
    Unknown(u32),
}

impl AuthError {
    /// Converts a number of a reply; returns `None` for 0, which is no error.
    pub const fn new(raw: u32) -> Option<Self> {
        match raw {
            0 => None,
            1 => Some(Self::Denied),
            2 => Some(Self::NotSupported),
            3 => Some(Self::InvalidCredential),
            4 => Some(Self::Expired),
            5 => Some(Self::ResourceUnavailable),
            6 => Some(Self::Temporary),
            _ => Some(Self::Unknown(raw)),
        }
    }

    /// Returns whether the same attempt may succeed later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::ResourceUnavailable | Self::Temporary)
    }

    /// Returns the kernel's error; those for keys are the kernel's own.
    pub fn errno(self) -> Errno {
        const EAGAIN: i32 = 11;
        const EKEYEXPIRED: i32 = 127;
        const EKEYREJECTED: i32 = 129;

        let number = match self {
            Self::NotSupported => return Errno::EPROTONOSUPPORT,
            Self::Denied | Self::Unknown(_) => return Errno::EACCES,
            Self::InvalidCredential => EKEYREJECTED,
            Self::Expired => EKEYEXPIRED,
            Self::ResourceUnavailable | Self::Temporary => EAGAIN,
        };
        Errno::new(number).unwrap_or(Errno::EACCES)
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("authentication denied"),
            Self::NotSupported => f.write_str("server has no authentication with a shared key"),
            Self::InvalidCredential => f.write_str("user unknown to the server, or key not its"),
            Self::Expired => f.write_str("key expired, or its expiry not the server's: renew it"),
            Self::ResourceUnavailable => f.write_str("server out of resources"),
            Self::Temporary => f.write_str("server cannot authenticate now"),
            Self::Unknown(raw) => write!(f, "authentication error {raw}"),
        }
    }
}

/// The reason why an authentication ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// The server has refused. What the encoder holds says that the client gives up.
    Refused(AuthError),
    /// The server has sent something that is no answer.
    Malformed(Malformed),
}

impl AuthFailure {
    /// Returns whether the same attempt may succeed later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Refused(error) if error.is_temporary())
    }

    /// Returns the kernel's error.
    pub fn errno(self) -> Errno {
        match self {
            Self::Refused(error) => error.errno(),
            Self::Malformed(malformed) => ReplyError::Malformed(malformed).errno(),
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Malformed(malformed) => malformed.fmt(f),
        }
    }
}

impl From<Malformed> for AuthFailure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The next action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthStep {
    /// Send what the encoder holds, if it holds anything, receive at least this many bytes behind
    /// those that are left, and call [`Auth::receive`].
    Receive(usize),
    /// Compute the MD5 of these bytes followed by the key's, and call [`Auth::answer`].
    Digest([u8; CHALLENGE_LEN]),
    /// The key has expired. If there is another by now, call [`Auth::renew`], else
    /// [`Auth::give_up`].
    Renew,
    /// The connection is authenticated.
    Done,
}

/// The bytes that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The methods.
    Methods,
    /// The answer to the method.
    Method,
    /// The answer to the request for a challenge, and the challenge.
    Challenge,
    /// No bytes: the driver computes.
    Digest,
    /// The answer to the digest.
    Verdict,
    /// No bytes: the driver looks for another key.
    Renew,
    /// No bytes: the connection is authenticated.
    Done,
    /// No bytes: the connection is not authenticated, and will not be.
    Failed,
}

/// The client's side of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'u> {
    state: State,
    user: &'u [u8],
    /// The keys that were tried.
    keys: u8,
}

impl<'u> Auth<'u> {
    /// Starts on a new connection, as the user with this name in Gfarm, at most [`LABEL_LEN_MAX`]
    /// bytes. The driver receives 4 bytes first.
    pub const fn new(user: &'u [u8]) -> Self {
        Self {
            state: State::Methods,
            user,
            keys: 0,
        }
    }

    /// Takes received bytes and returns what to do next.
    ///
    /// With [`AuthStep::Receive`] the bytes that `from` has consumed are done with; those behind
    /// them are given again, with more behind.
    pub fn receive(
        &mut self,
        from: &mut Decoder<'_>,
        to: &mut Encoder<'_>,
    ) -> Result<AuthStep, AuthFailure> {
        loop {
            let mut ahead = from.clone();
            let step = match self.step(&mut ahead, to) {
                Err(Stop::NeedMore(len)) => return Ok(AuthStep::Receive(len)),
                Err(Stop::Failed(failure)) => {
                    self.state = State::Failed;
                    Err(failure)
                }
                Ok(step) => Ok(step),
            };
            *from = ahead;
            // The server may have sent more already.
            if !matches!(step, Ok(AuthStep::Receive(_))) || from.is_at_end() {
                return step;
            }
        }
    }

    fn step(&mut self, from: &mut Decoder<'_>, to: &mut Encoder<'_>) -> Result<AuthStep, Stop> {
        match self.state {
            State::Methods => self.methods(from, to),
            State::Method => self.method(from, to),
            State::Challenge => self.challenge(from, to),
            State::Verdict => self.verdict(from, to),
            State::Done => Ok(AuthStep::Done),
            State::Digest | State::Renew | State::Failed => {
                let field = "a message that was not asked for";
                Err(Malformed::Value { field }.into())
            }
        }
    }

    /// Answers the challenge with the expiry of the key, in seconds since 1970, and the digest.
    pub fn answer(
        &mut self,
        expire: u32,
        digest: &[u8; DIGEST_LEN],
        to: &mut Encoder<'_>,
    ) -> AuthStep {
        to.u32(expire);
        to.bytes(digest);
        self.state = State::Verdict;
        AuthStep::Receive(4)
    }

    /// Asks for another challenge, for another key.
    pub fn renew(&mut self, to: &mut Encoder<'_>) -> AuthStep {
        self.ask_for_challenge(to)
    }

    /// Ends the authentication: there is no other key.
    pub fn give_up(&mut self, to: &mut Encoder<'_>) -> AuthFailure {
        self.state = State::Failed;
        to.u32(GFARM_AUTH_SHAREDSECRET_GIVEUP);
        AuthFailure::Refused(AuthError::Expired)
    }

    fn ask_for_challenge(&mut self, to: &mut Encoder<'_>) -> AuthStep {
        to.u32(GFARM_AUTH_SHAREDSECRET_MD5);
        self.keys = self.keys.saturating_add(1);
        self.state = State::Challenge;
        AuthStep::Receive(4)
    }

    fn methods(&mut self, from: &mut Decoder<'_>, to: &mut Encoder<'_>) -> Result<AuthStep, Stop> {
        let methods = from.bytes("methods", METHODS_MAX)?;
        let has_ours = methods
            .iter()
            .any(|m| u32::from(*m) == GFARM_AUTH_METHOD_SHAREDSECRET);
        if !has_ours {
            to.u32(GFARM_AUTH_METHOD_NONE);
            return Err(Stop::refused(AuthError::NotSupported));
        }
        to.u32(GFARM_AUTH_METHOD_SHAREDSECRET);
        self.state = State::Method;
        Ok(AuthStep::Receive(4))
    }

    fn method(&mut self, from: &mut Decoder<'_>, to: &mut Encoder<'_>) -> Result<AuthStep, Stop> {
        if let Some(error) = AuthError::new(from.u32()?) {
            return Err(Stop::refused(error));
        }
        to.bytes(self.user);
        Ok(self.ask_for_challenge(to))
    }

    fn challenge(
        &mut self,
        from: &mut Decoder<'_>,
        to: &mut Encoder<'_>,
    ) -> Result<AuthStep, Stop> {
        if let Some(error) = AuthError::new(from.u32()?) {
            to.u32(GFARM_AUTH_SHAREDSECRET_GIVEUP);
            return Err(Stop::refused(error));
        }
        let challenge = from.bytes("challenge", CHALLENGE_LEN)?;
        let challenge = <[u8; CHALLENGE_LEN]>::try_from(challenge)
            .map_err(|_| Malformed::Value { field: "challenge" })?;
        self.state = State::Digest;
        Ok(AuthStep::Digest(challenge))
    }

    fn verdict(&mut self, from: &mut Decoder<'_>, to: &mut Encoder<'_>) -> Result<AuthStep, Stop> {
        match AuthError::new(from.u32()?) {
            None => {
                self.state = State::Done;
                Ok(AuthStep::Done)
            }
            Some(AuthError::Expired) if self.keys < KEYS_MAX => {
                self.state = State::Renew;
                Ok(AuthStep::Renew)
            }
            Some(error) => {
                to.u32(GFARM_AUTH_SHAREDSECRET_GIVEUP);
                Err(Stop::refused(error))
            }
        }
    }
}

/// The reason why a step did not end.
enum Stop {
    NeedMore(usize),
    Failed(AuthFailure),
}

impl Stop {
    const fn refused(error: AuthError) -> Self {
        Self::Failed(AuthFailure::Refused(error))
    }
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::NeedMore(len) => Self::NeedMore(len),
            DecodeError::Malformed(malformed) => malformed.into(),
        }
    }
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Failed(malformed.into())
    }
}
