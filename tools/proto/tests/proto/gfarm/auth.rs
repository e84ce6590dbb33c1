// SPDX-License-Identifier: GPL-2.0

//! The authentication, against the recorded servers.

use proto::gfarm::{
    auth::{
        Auth,
        AuthError,
        AuthFailure,
        AuthStep,
        MESSAGE_LEN_MAX, //
    },
    key::SharedKey,
    xdr::{
        Decoder,
        Encoder,
        Malformed, //
    },
};

use super::{
    md5::md5,
    trace::{
        trace,
        Turn, //
    },
};

const KEY: &str = "6ce20b9e d698611bf555ed9594ff12c5126f2c49e2342579ba2c4e4cb24aaa98a604ebd7";

fn key(line: &str) -> SharedKey {
    let mut key = SharedKey::empty();
    key.read(line.as_bytes()).unwrap();
    key
}

/// One that has expired.
fn late_key() -> SharedKey {
    let mut late = key(KEY);
    late.expire = 1;
    late
}

/// A driver, which receives what a server sends in pieces of `piece` bytes.
struct Client<'u> {
    auth: Auth<'u>,
    /// The keys that it has, the first one first.
    keys: &'u [SharedKey],
    /// Received and not consumed.
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl<'u> Client<'u> {
    fn new(user: &'u str, keys: &'u [SharedKey]) -> Self {
        Self {
            auth: Auth::new(user.as_bytes()),
            keys,
            received: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Takes what has arrived; returns what comes of it.
    fn take(&mut self) -> Result<AuthStep, AuthFailure> {
        let mut out = [0; MESSAGE_LEN_MAX];
        let mut to = Encoder::new(&mut out);
        let mut from = Decoder::new(&self.received);
        let mut step = self.auth.receive(&mut from, &mut to);
        let consumed = from.consumed();
        if let Ok(AuthStep::Digest(challenge)) = step {
            let digest = md5(&[challenge, self.keys[0].secret].concat());
            step = Ok(self.auth.answer(self.keys[0].expire, &digest, &mut to));
        }
        if step == Ok(AuthStep::Renew) {
            self.keys = &self.keys[1..];
            step = match self.keys.is_empty() {
                true => Err(self.auth.give_up(&mut to)),
                false => Ok(self.auth.renew(&mut to)),
            };
        }
        let len = to.finish().unwrap();
        self.received.drain(..consumed);
        self.sent.extend(&out[..len]);
        step
    }

    /// Runs against what a server sends, in pieces of `piece` bytes.
    fn run(&mut self, server: &[u8], piece: usize) -> Result<AuthStep, AuthFailure> {
        let mut step = Ok(AuthStep::Receive(4));
        for bytes in server.chunks(piece) {
            self.received.extend(bytes);
            loop {
                let before = (self.received.len(), self.sent.len());
                step = self.take();
                assert_ne!(step, Ok(AuthStep::Receive(0)));
                let after = (self.received.len(), self.sent.len());
                if !matches!(step, Ok(AuthStep::Receive(_))) || after == before {
                    break;
                }
            }
        }
        step
    }
}

/// The streams of both sides of a trace: the client's, the server's.
fn streams(name: &str) -> (Vec<u8>, Vec<u8>) {
    let turns = trace(name);
    let of = |is_client| {
        let turns = turns.iter().filter(|turn| turn.is_client == is_client);
        turns.map(Turn::bytes).collect::<Vec<_>>().concat()
    };
    (of(true), of(false))
}

#[test]
fn a_recorded_authentication_is_done_whatever_the_pieces() {
    let (sent, server) = streams("gfmd-auth");
    for piece in 1..=server.len() {
        let keys = [key(KEY)];
        let mut client = Client::new("root", &keys);
        assert_eq!(client.run(&server, piece), Ok(AuthStep::Done), "{piece}");
        assert_eq!(client.sent, sent, "{piece}");
        assert_eq!(client.received, b"");
    }
}

#[test]
fn recorded_refusals_are_told_apart() {
    let zero = key(&format!("6ce20b9e {}", "0".repeat(64)));
    let late = late_key();
    for (name, user, key, error) in [
        ("auth-bad-key", "root", zero, AuthError::InvalidCredential),
        ("auth-bad-expire", "root", late, AuthError::Expired),
        (
            "auth-bad-user",
            "nobody0",
            key(KEY),
            AuthError::InvalidCredential,
        ),
    ] {
        let (sent, server) = streams(name);
        for piece in 1..=server.len() {
            let keys = std::slice::from_ref(&key);
            let mut client = Client::new(user, keys);
            let failure = AuthFailure::Refused(error);
            assert_eq!(client.run(&server, piece), Err(failure), "{name}");
            assert_eq!(client.sent, sent, "{name}");
            assert!(!failure.is_temporary());
        }
    }
}

#[test]
fn an_expired_key_is_renewed_once() {
    let (_, first) = streams("auth-bad-expire");
    let (_, good) = streams("gfmd-auth");
    // What follows the method is asked for again.
    let again = good[9..].to_vec();
    let server = [&first[..], &again].concat();
    let keys = [late_key(), key(KEY)];
    let mut client = Client::new("root", &keys);
    assert_eq!(client.run(&server, 5), Ok(AuthStep::Done));
    // The second key has expired as well: the third is not tried.
    let server = [&first[..], &first[9..]].concat();
    let keys = [late_key(), late_key(), key(KEY)];
    let mut client = Client::new("root", &keys);
    let refused = Err(AuthFailure::Refused(AuthError::Expired));
    assert_eq!(client.run(&server, 7), refused);
    assert_eq!(client.sent[client.sent.len() - 4..], [0; 4], "gives up");
}

#[test]
fn each_refusal_stops_where_it_comes() {
    let methods = b"\0\0\0\x01\x01";
    for raw in 1..=9u32 {
        let error = AuthError::new(raw).unwrap();
        assert!(!error.to_string().is_empty());
        let refused = Err(AuthFailure::Refused(error));
        assert_eq!(
            AuthFailure::Refused(error).is_temporary(),
            matches!(raw, 5 | 6)
        );
        let raw = raw.to_be_bytes();
        let keys = [key(KEY)];
        let mut client = Client::new("u", &keys);
        assert_eq!(client.run(&[&methods[..], &raw].concat(), 100), refused);
        assert_eq!(client.sent, b"\0\0\0\x01");
        let keys = [key(KEY)];
        let mut client = Client::new("u", &keys);
        assert_eq!(
            client.run(&[&methods[..], &[0; 4], &raw].concat(), 100),
            refused
        );
        assert_eq!(client.sent, b"\0\0\0\x01\0\0\0\x01u\0\0\0\x01\0\0\0\0");
    }
}

#[test]
fn errors_are_those_of_keys() {
    for (raw, errno) in [
        (1, 13),
        (2, 93),
        (3, 129),
        (4, 127),
        (5, 11),
        (6, 11),
        (7, 13),
    ] {
        assert_eq!(AuthError::new(raw).unwrap().errno().get(), errno, "{raw}");
    }
    assert_eq!(AuthError::new(0), None);
}

#[test]
fn a_server_without_the_method_is_refused() {
    for (methods, has) in [
        (&b"\x03\x04"[..], false),
        (b"", false),
        (b"\x05\x04\x01", true),
    ] {
        let len = (methods.len() as u32).to_be_bytes();
        let keys = [key(KEY)];
        let mut client = Client::new("u", &keys);
        let step = client.run(&[&len[..], methods].concat(), 100);
        let refused = Err(AuthFailure::Refused(AuthError::NotSupported));
        assert_eq!(
            step,
            if has {
                Ok(AuthStep::Receive(4))
            } else {
                refused
            }
        );
        assert_eq!(client.sent, [0, 0, 0, u8::from(has)]);
    }
}

#[test]
fn wrong_lengths_are_refused_before_they_arrive() {
    let keys = [key(KEY)];
    let mut client = Client::new("u", &keys);
    let step = client.run(&[0, 0, 0, 65], 100);
    assert!(matches!(
        step,
        Err(AuthFailure::Malformed(Malformed::TooLong { .. }))
    ));
    // And nothing changes that any more.
    assert!(client.run(&[0; 40], 1).is_err());
    let start = b"\0\0\0\x01\x01\0\0\0\0\0\0\0\0";
    for len in [31, 33] {
        let keys = [key(KEY)];
        let mut client = Client::new("u", &keys);
        let challenge = [&start[..], &[0, 0, 0, len], &[7; 33]].concat();
        let step = client.run(&challenge, 100);
        assert!(matches!(step, Err(AuthFailure::Malformed(_))), "{len}");
        assert_eq!(step.unwrap_err().errno().get(), 71);
    }
}

#[test]
fn bytes_out_of_turn_are_never_success() {
    // A driver that asks although it has to compute, or after the end, is not let in.
    let (_, server) = streams("gfmd-auth");
    let mut auth = Auth::new(b"root");
    let mut step = Ok(AuthStep::Receive(4));
    let mut rest = &server[..server.len() - 4];
    while let Ok(AuthStep::Receive(_)) = step {
        let mut out = [0; MESSAGE_LEN_MAX];
        let mut from = Decoder::new(rest);
        step = auth.receive(&mut from, &mut Encoder::new(&mut out));
        rest = &rest[from.consumed()..];
    }
    assert!(matches!(step, Ok(AuthStep::Digest(_))));
    let mut out = [0; MESSAGE_LEN_MAX];
    for _ in 0..2 {
        let step = auth.receive(&mut Decoder::new(&[0; 4]), &mut Encoder::new(&mut out));
        assert!(matches!(step, Err(AuthFailure::Malformed(_))));
    }
}
