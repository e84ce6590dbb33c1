// SPDX-License-Identifier: GPL-2.0

//! The admin messages of a client: its protocol version, and opening and closing devices.
//!
//! Work items of the session handle them, those about one device one at a time in the order of
//! arrival (`message_queue`): opening a device may take long, and a CLOSE waits for the device's
//! requests.

use block_ext::bdev::{
    BlockDevice,
    Mode, //
};
use kernel::{
    prelude::*,
    str::{
        BStr,
        CStr,
        CString, //
    },
    sync::Arc, //
};
use kernel_ext::text::c_string;
use rtrs_server::Operation;
use zerocopy::IntoBytes;

use super::{
    Reservation,
    Session, //
};
use crate::{
    proto::{
        access::AccessMode,
        message::Message,
        path_name::{
            self,
            PATH_LEN_MAX, //
        },
        pi::Wanted,
        slot::Known,
        wire::{
            OpenResponse,
            SessInfo, //
        },
    },
    server::{
        device::mapping::{
            self,
            Description,
            Mapping,
            Opened, //
        },
        io::protection::{
            self,
            Protection, //
        },
        log_limit::LOG_LIMIT,
        store, //
    },
    shown::Shown,
    DEV_SEARCH_PATH, //
};

/// The data of an answer to the client, besides the error number.
pub(super) enum Answer {
    /// The answer has no data.
    Done,
    /// The version agreed on.
    Version(SessInfo),
    /// A device; `is_untold`: no client knew before that it is open.
    Opened {
        device: OpenResponse,
        is_untold: bool,
    },
}

impl Answer {
    /// Writes the answer to the operation's data. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the client gave less memory than the answer has bytes.
    pub(super) fn write_to(&self, operation: &mut Operation) -> Result {
        match self {
            Answer::Done => Ok(()),
            Answer::Version(info) => operation.write_reply(info.as_bytes()),
            Answer::Opened { device, .. } => operation.write_reply(device.as_bytes()),
        }
    }
}

/// Carries out `message`. Sleeps: an OPEN as long as the device does not answer, a CLOSE until the
/// requests of the device have ended.
///
/// # Errors
///
/// The error that the client gets, with a log line.
pub(super) fn answer(session: &Arc<Session>, message: Message<'_>) -> Result<Answer> {
    match message {
        Message::SessInfo { version, nonce } => {
            session.client().agree(version, nonce.is_some());
            Ok(Answer::Version(match nonce {
                Some(nonce) => SessInfo::response_to(version, nonce, Some(session.server().boot())),
                None => SessInfo::response(version),
            }))
        }
        Message::Open {
            name,
            access_mode,
            pi,
            // The message has a queue for that.
            answer_time: _,
        } => {
            let wanted = wanted(session, pi)?;
            open(session, name, access_mode, wanted)
        }
        Message::Close { device_id } => {
            close(session, device_id);
            Ok(Answer::Done)
        }
        // `Session` starts IO itself.
        Message::Io(_) => Err(EINVAL),
    }
}

/// Closes a device. An unused number is not an error, as `force_close` may have closed the device.
fn close(session: &Session, device_id: u32) {
    if !session.close(device_id, false) && LOG_LIMIT.allow().is_some() {
        pr_info!(
            "session {}: device {} is to be closed, but is not open: ignored\n",
            session.name(),
            device_id
        );
    }
}

/// Returns the protection information that the client asks for. Of a C driver the byte has no
/// meaning.
fn wanted(session: &Session, raw: u8) -> Result<Option<Wanted>> {
    if !session.client().is_extended() {
        return Ok(None);
    }
    Wanted::from_wire(raw).map_err(|reason| {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device refused: {}\n",
                session.name(),
                Shown(reason)
            );
        }
        EINVAL
    })
}

/// Opens the device with the client's name `name`, or returns the one already open.
fn open(
    session: &Arc<Session>,
    name: &[u8],
    access: AccessMode,
    wanted: Option<Wanted>,
) -> Result<Answer> {
    session.check_not_ended()?;
    session.server().left_queues().wait(session, name)?;
    let is_extended = session.client().is_extended();
    let known = |mapping: &mut Mapping| {
        let is_asked_for = mapping.is_asked_for(access, wanted);
        let known = Known::new(is_asked_for, mapping.is_present());
        (known, mapping.answer(is_extended), mapping.told.ask())
    };
    // Of a device that is opened anew, so that no other gets it meanwhile.
    let mut number = None;
    match session.with_mapping(name, known) {
        Some((Known::Answer, device, is_untold)) => {
            return Ok(Answer::Opened {
                device: device.to_wire(),
                is_untold,
            })
        }
        Some((Known::Close { retire }, device, _)) => {
            let is_right = |mapping: &Mapping| mapping.path() == name;
            number = session
                .close_and_reserve(device.device_id, retire, is_right)
                .flatten();
        }
        None => {}
    }
    let path = full_path(session, name)?;
    let mode = if access.may_write() {
        Mode::ReadWrite
    } else {
        Mode::ReadOnly
    };
    let device = BlockDevice::open(&path, mode).inspect_err(|error| {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device '{}' cannot be opened as {}: {:?}\n",
                session.name(),
                &*path,
                Shown(access),
                error
            );
        }
    })?;
    if !mapping::is_expressible(&device) {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device '{}' has blocks of {} bytes, more than the protocol can say\n",
                session.name(),
                &*path,
                device.logical_block_bytes()
            );
        }
        return Err(EINVAL);
    }
    let device = Arc::new(device, GFP_KERNEL)?;
    let reservation = match number {
        Some(reservation) => reservation,
        None => session.reserve()?,
    };
    let device = show(session, (name, access, wanted), &path, device, reservation)?;
    Ok(Answer::Opened {
        device,
        is_untold: true,
    })
}

/// Adds `device` to the session's mappings.
fn show(
    session: &Arc<Session>,
    (name, access, wanted): (&[u8], AccessMode, Option<Wanted>),
    path: &CStr,
    device: Arc<BlockDevice>,
    reservation: Reservation<'_>,
) -> Result<OpenResponse> {
    let server = session.server();
    let device_id = reservation.device_id();
    let label = || {
        let (session, name) = (session.name(), BStr::from_bytes(name));
        CString::try_from_fmt(fmt!("session {session}: device '{name}'"))
    };
    let has_sidecar = server.volumes().has_sidecar(&device, &label()?)?;
    // The device may have taken its time.
    session.check_not_ended()?;
    let protection = protection(session, label()?, &device, wanted, has_sidecar)?;
    let exports = server.exports();
    let claim = exports.claim(&device, session.name(), access, has_sidecar)?;
    let attached = match has_sidecar {
        true => {
            let request = store::Request {
                path,
                export: claim.folder()?,
                label: label()?,
                protection: protection.clone(),
                version: session.client().version(),
                boot: server.boot(),
            };
            Some(server.volumes().attach(&device, request)?)
        }
        false => None,
    };
    let opened = Opened {
        device,
        attached,
        claim,
    };
    // So may its sidecar.
    session.check_not_ended()?;
    let attached = opened.attached.as_ref();
    let description = Description {
        session: session.clone(),
        device_id,
        path: c_string(name)?,
        access,
        wanted,
        protection,
        seen: attached.map(|attached| attached.stats().clone()),
    };
    let means = (server.bios().clone(), server.submissions().clone());
    let mapping = Mapping::new(description, opened, means, server.boot(), server.removals());
    let published = mapping.and_then(|(mapping, target)| {
        let answer = mapping.answer(session.client().is_extended()).to_wire();
        session.publish(reservation, mapping, target)?;
        Ok(answer)
    });
    published.inspect_err(|error| {
        // That a session ends is no failure of the device.
        if session.check_not_ended().is_ok() && LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device {device_id} cannot be set up: {error:?}\n",
                session.name()
            );
        }
    })
}

/// Creates the state of the protection information of a device for a client that asks for `wanted`,
/// if it gets some.
fn protection(
    session: &Session,
    label: CString,
    device: &BlockDevice,
    wanted: Option<Wanted>,
    has_sidecar: bool,
) -> Result<Option<Arc<Protection>>> {
    let block_bytes = has_sidecar.then_some(store::BLOCK_SIZE);
    let geometry = wanted.and_then(|wanted| protection::offer(device, wanted, block_bytes));
    let Some(geometry) = geometry else {
        return Ok(None);
    };
    let bios = session.server().protected_bios().clone();
    let protection = Protection::new(label, geometry, bios)?;
    Ok(Some(Arc::new(protection, GFP_KERNEL)?))
}

/// Returns the path of the client's device name `name`.
fn full_path(session: &Session, name: &[u8]) -> Result<CString> {
    let mut buffer = KVec::from_elem(0u8, PATH_LEN_MAX, GFP_KERNEL)?;
    let search_path = DEV_SEARCH_PATH.get().as_bytes();
    let path = path_name::join(search_path, session.name().to_bytes(), name, &mut buffer);
    let path = path.map_err(|reason| {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: device refused: {}\n",
                session.name(),
                Shown(reason)
            );
        }
        Error::from(reason.errno())
    })?;
    Ok(CString::try_from(path)?)
}
