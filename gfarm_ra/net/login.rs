// SPDX-License-Identifier: GPL-2.0

//! A new connection to any server: TCP, and the authentication.

use core::net::SocketAddr;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use net_ext::{
    digest::md5,
    tcp::Keepalive,
    TcpStream, //
};
use vfs_ext::keyring;

use super::setup::{
    Setup,
    Trouble, //
};
use crate::proto::{
    auth::{
        Auth,
        AuthFailure,
        AuthStep,
        CHALLENGE_LEN,
        DIGEST_LEN,
        MESSAGE_LEN_MAX, //
    },
    key::{
        SharedKey,
        KEY_LEN, //
    },
    retry::Fault,
    setting::Setting,
    xdr::{
        Decoder,
        Encoder, //
    }, //
};

/// The size of a buffer that each message of a server fits, in bytes.
const INPUT_LEN: usize = 128;

/// Creates a socket; the caller makes it known before it connects, so that it can be shut down.
/// Sleeps.
///
/// # Errors
///
/// `ENOMEM`, and those of the network, as for a family of addresses that the machine does not have.
pub(super) fn socket(setup: &Setup, to: SocketAddr) -> Result<Arc<TcpStream>> {
    let socket = TcpStream::new(&setup.namespace, to)?;
    let silence_s = setup.options.get(Setting::ReceiveTimeout);
    socket.set_keepalive(Keepalive {
        idle_s: u16::try_from(silence_s).unwrap_or(u16::MAX),
        interval_s: 10,
        probes: 3,
    });
    Ok(Arc::new(socket, GFP_KERNEL)?)
}

/// Connects and authenticates, in at most `timeout_ms` milliseconds. Sleeps, killable.
///
/// # Errors
///
/// The error of the network, a refusal of the server, or [`Fault::TimedOut`].
pub(super) fn login(setup: &Setup, socket: &TcpStream, timeout_ms: u32) -> Result<(), Trouble> {
    let end_ms = setup.end_ms(timeout_ms);
    socket.connect(timeout_ms)?;
    authenticate(setup, socket, end_ms)
}

fn authenticate(setup: &Setup, socket: &TcpStream, end_ms: u64) -> Result<(), Trouble> {
    let mut auth = Auth::new(setup.options.user());
    let mut input = [0; INPUT_LEN];
    // The server speaks first.
    let (mut have, mut wanted) = (0, 4);
    loop {
        let left_ms = setup.left_ms(end_ms)?;
        let place = input.get_mut(have..have + wanted);
        socket.receive_exact(place.ok_or_else(malformed)?, left_ms)?;
        have += wanted;
        let (step, consumed) = answer(setup, socket, &mut auth, input.get(..have), left_ms)?;
        input.copy_within(consumed..have, 0);
        have -= consumed;
        match step {
            AuthStep::Receive(more) => wanted = more,
            _ => return Ok(()),
        }
    }
}

/// Takes what was received, and sends what follows. Returns what to do, and the number of bytes
/// that were taken.
fn answer(
    setup: &Setup,
    socket: &TcpStream,
    auth: &mut Auth<'_>,
    input: Option<&[u8]>,
    left_ms: u32,
) -> Result<(AuthStep, usize), Trouble> {
    let mut output = [0; MESSAGE_LEN_MAX];
    let mut to = Encoder::new(&mut output);
    let mut from = Decoder::new(input.unwrap_or_default());
    let step = match auth.receive(&mut from, &mut to) {
        Ok(AuthStep::Digest(challenge)) => {
            let digest = |key: &SharedKey| (digest(&challenge, key), key.expire);
            match setup.key.with(digest) {
                Ok((digest, expire)) => Ok(auth.answer(expire, &digest, &mut to)),
                Err(_) => Err(auth.give_up(&mut to)),
            }
        }
        // It was read a moment ago; the next login reads it again.
        Ok(AuthStep::Renew) => Err(auth.give_up(&mut to)),
        step => step,
    };
    let len = to.finish().map_err(|_| malformed())?;
    let sent = socket.send(output.get(..len).unwrap_or_default(), left_ms);
    // What the server has said matters more than whether it heard the end.
    let step = step.map_err(refused)?;
    sent?;
    Ok((step, from.consumed()))
}

/// Returns the answer to a challenge.
fn digest(challenge: &[u8; CHALLENGE_LEN], key: &SharedKey) -> [u8; DIGEST_LEN] {
    let mut text = [0; CHALLENGE_LEN + KEY_LEN];
    let bytes = Iterator::chain(challenge.iter(), &key.secret);
    for (to, from) in text.iter_mut().zip(bytes) {
        *to = *from;
    }
    let digest = md5(&text);
    keyring::wipe(&mut text);
    digest
}

fn refused(failure: AuthFailure) -> Trouble {
    Trouble::of(Fault::Auth(failure))
}

fn malformed() -> Trouble {
    Trouble::of(Fault::malformed("length of a message"))
}
