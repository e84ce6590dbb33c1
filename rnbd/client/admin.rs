// SPDX-License-Identifier: GPL-2.0

//! The admin messages of a client: they agree on the version, open and close devices. All of them
//! sleep until the server has answered.

use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    str::CStr, //
};
use kernel_ext::{
    errno,
    random, //
};
use rtrs_client::{
    AdminChannel,
    Direction,
    Fate,
    NotAnswered,
    UserMessage, //
};
use rtrs_core::proto::permit::AnswerWaits::{
    self,
    ForNothing,
    ForRequests, //
};
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

use crate::{
    proto::{
        access::AccessMode,
        device::{
            self,
            BadResponse,
            Device,
            Server, //
        },
        doubt,
        occasion::{
            Occasion,
            AGREE_MS,
            ANSWER_MS, //
        },
        pi::Wanted,
        wire::{
            AdminMessage,
            Close,
            Open,
            SessInfo, //
        }, //
    },
    shown::Shown,
};

/// Agrees with the server on a protocol version, and gets its identity. The version changes nothing
/// for a client: servers of version 1 ignore the priority. Sleeps for at most twice
/// [`ANSWER_MS`]; the thread can be killed.
///
/// # Errors
///
/// Those of the channel, and `EINVAL` for an answer that is not valid, with a log line.
pub(super) fn agree(rtrs: &impl AdminChannel) -> Result<Server> {
    Ok(agree_within(rtrs, ANSWER_MS)?)
}

/// Agrees with the server as [`agree`] does, for one who has the admin lock: sleeps for at most
/// twice [`AGREE_MS`].
pub(super) fn agree_locked(rtrs: &impl AdminChannel) -> Result<Server, NotAnswered> {
    agree_within(rtrs, AGREE_MS)
}

fn agree_within(rtrs: &impl AdminChannel, timeout_ms: u32) -> Result<Server, NotAnswered> {
    let mut nonce = [0; size_of::<u64>()];
    random::fill(&mut nonce);
    let nonce = u64::from_ne_bytes(nonce);
    let response = ask(rtrs, ForNothing, &SessInfo::request(nonce), timeout_ms)?;
    let server = device::parse_sess_info_response(response.as_bytes(), nonce);
    server.map_err(|reason| bad(rtrs, reason).into())
}

/// The reason why a device cannot be used.
pub(super) struct NotOpened {
    /// The server's error; `EINVAL` for an answer that is not valid for a disk.
    pub(super) error: Error,
    /// The number under which the server has opened the device all the same. The caller closes it,
    /// under the [lock](crate::proto::admin_lock): another device may have the number.
    pub(super) number: Option<u32>,
    /// Whether the server may open it without that its answer comes.
    pub(super) fate: Fate,
}

impl NotOpened {
    /// Returns whether the server has said that it has nothing open now.
    pub(super) fn has_nothing_open(&self) -> bool {
        let errno = Errno::new(self.error.to_errno());
        let is_answer = self.number.is_none() && matches!(self.fate, Fate::Refused);
        is_answer && errno.is_some_and(doubt::has_nothing_open)
    }
}

impl From<NotAnswered> for NotOpened {
    fn from(failed: NotAnswered) -> Self {
        Self {
            error: failed.error,
            number: None,
            fate: failed.fate,
        }
    }
}

/// Opens the device `name` on `server`, which [`agree`] has returned.
pub(super) fn open(
    rtrs: &impl AdminChannel,
    server: &Server,
    name: &CStr,
    access: AccessMode,
    wanted: Option<Wanted>,
    occasion: Occasion,
) -> Result<Device, NotOpened> {
    // A server that does not know the extension gets zeroes.
    let wanted = wanted.filter(|_| server.is_extended);
    let answer_time = occasion.answer_time().filter(|_| server.is_extended);
    let request = Open::new(name.to_bytes(), access, wanted)
        .ok_or_else(|| NotAnswered::from(errno::ENAMETOOLONG))?;
    let request = request.with_answer_time(answer_time);
    let timeout_ms = occasion.timeout_ms(server.is_extended);
    let response = ask(rtrs, occasion.waits(), &request, timeout_ms)?;
    Device::parse(response.as_bytes(), server).map_err(|reason| NotOpened {
        error: bad(rtrs, reason),
        number: Some(response.device_id.get()),
        fate: Fate::Refused,
    })
}

/// Closes a device on the server. If that fails the server closes it with the session. Returns
/// whether the server has answered that it is not open; if not, the message may still reach it, or
/// the server had no memory for it.
pub(super) fn close(rtrs: &impl AdminChannel, device_id: u32) -> bool {
    let Err(failed) = ask(rtrs, ForRequests, &Close::new(device_id), ANSWER_MS) else {
        return true;
    };
    // A server that is down has closed its devices with the session.
    if failed.error != errno::ECONNABORTED {
        pr_info!(
            "session {}: device {} is not closed on the server: {:?}\n",
            rtrs.session().name(),
            device_id,
            failed.error
        );
    }
    let errno = Errno::new(failed.error.to_errno());
    matches!(failed.fate, Fate::Refused) && errno.is_some_and(doubt::has_nothing_open)
}

/// Sends a message and waits for its response.
///
/// # Errors
///
/// Those of [`AdminChannel::send_message`].
fn ask<M: AdminMessage>(
    rtrs: &impl AdminChannel,
    waits: AnswerWaits,
    message: &M,
    timeout_ms: u32,
) -> Result<M::Response, NotAnswered> {
    let mut response = M::Response::new_zeroed();
    let direction = match size_of::<M::Response>() {
        0 => Direction::Write,
        _ => Direction::Read,
    };
    let message = UserMessage {
        direction,
        bytes: message.as_bytes(),
        subject: message.subject(),
    };
    rtrs.send_message(waits, &message, response.as_mut_bytes(), timeout_ms)?;
    Ok(response)
}

fn bad(rtrs: &impl AdminChannel, reason: BadResponse) -> Error {
    pr_err!(
        "session {}: the server's answer is no use: {}\n",
        rtrs.session().name(),
        Shown(reason)
    );
    EINVAL
}
