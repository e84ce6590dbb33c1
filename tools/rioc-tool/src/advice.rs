// SPDX-License-Identifier: GPL-2.0

//! The meaning of an error here, and what to type next.

use std::io;

use rustix::io::Errno;

/// The file by which sessions are connected.
pub const CONNECT: &str = "/sys/class/rioc-client/ctl/connect";

/// Returns it for an error of the device.
pub fn opening(error: &io::Error, device: &str) -> String {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "load the module: modprobe rioc_client",
        io::ErrorKind::PermissionDenied => "only root uses it: try sudo",
        _ => "see dmesg",
    };
    format!("{device}: {error}: {next}")
}

/// Returns it for an error of an attach.
pub fn attaching(error: &io::Error, session: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no session {session}: echo \"sessname={session} path=ip:ADDRESS\" > {CONNECT}"
        ),
        _ => format!("session {session}: {error}"),
    }
}

/// Returns it for an error of an operation with an object.
pub fn operating(error: &io::Error, session: &str, object: &str) -> String {
    let (what, next) = match Errno::from_io_error(error) {
        Some(Errno::NOENT) => ("it is not there", format!("rioc ls {session}")),
        Some(Errno::EXIST) => ("it is there already", format!("rioc rm {session} {object}")),
        Some(Errno::BUSY) => (
            "a lease excludes it",
            "try again when the command of that lease has ended".to_owned(),
        ),
        Some(Errno::STALE) => (
            "the lease has ended, as the connection was lost meanwhile",
            format!("take it again: rioc lease {session} {object} -- COMMAND"),
        ),
        Some(Errno::NOSPC) => (
            "the store is full",
            format!("rioc rm {session} OBJECT, or a larger store at the server"),
        ),
        Some(Errno::DQUOT) => (
            "the session has as many leases as it may have",
            "end a command of rioc lease".to_owned(),
        ),
        Some(Errno::CONNRESET) => (
            "the store is in memory, and was begun anew meanwhile: nothing of before is left",
            format!("do it again; rioc ls {session}"),
        ),
        Some(Errno::NODEV) => (
            "the server has removed the store",
            format!("echo sessname={session} > /sys/class/rioc-client/ctl/disconnect"),
        ),
        Some(Errno::SHUTDOWN) => (
            "the session was disconnected",
            format!("echo \"sessname={session} path=ip:ADDRESS\" > {CONNECT}"),
        ),
        Some(Errno::FBIG) => (
            "no object is that large",
            "an object has less than 16 TiB".to_owned(),
        ),
        Some(Errno::IO) => (
            "it failed",
            format!("dmesg; cat /sys/class/rioc-client/ctl/sessions/{session}/state"),
        ),
        _ => return format!("object {object}: {error}"),
    };
    format!("object {object}: {what} ({error}); next: {next}")
}
