// SPDX-License-Identifier: GPL-2.0

//! The path of a client's device name on the server.

use core::ffi::CStr;

use ferro_proto::errno::Errno;

/// The placeholder of the session's name in `dev_search_path`.
const SESSION: &[u8] = b"%SESSNAME%";

/// The maximum length of a path in bytes, its NUL included (`PATH_MAX`).
pub const PATH_LEN_MAX: usize = 4096;

/// The reason why a device name is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNameError {
    /// The device name contains `..`.
    Parent,
    /// The device name is empty, or a part contains a NUL.
    Name,
    /// The whole path does not fit the buffer.
    TooLong,
}

impl PathNameError {
    /// Returns the error of all variants, the same as the C driver's.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl core::fmt::Display for PathNameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            PathNameError::Parent => "device name contains ..",
            PathNameError::Name => "device name is empty or has a NUL in it",
            PathNameError::TooLong => "path is longer than 4095 bytes",
        })
    }
}

/// Appends to a caller's buffer, and merges runs of slashes.
struct Joiner<'b> {
    out: &'b mut [u8],
    len: usize,
    after_slash: bool,
}

impl Joiner<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), PathNameError> {
        for c in bytes {
            if *c == 0 {
                return Err(PathNameError::Name);
            }
            let slash = *c == b'/';
            if slash && self.after_slash {
                continue;
            }
            self.after_slash = slash;
            self.put(*c)?;
        }
        Ok(())
    }

    fn put(&mut self, c: u8) -> Result<(), PathNameError> {
        *self.out.get_mut(self.len).ok_or(PathNameError::TooLong)? = c;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }
}

/// Writes `search_path/device` into `out`, NUL-terminated, with the first `%SESSNAME%` of
/// `search_path` replaced by `session`. `out` is at most [`PATH_LEN_MAX`] bytes long.
///
/// `session` is a checked session name: without slash or dot it cannot leave the search path.
/// Neither can `device`, which must not contain `..`.
pub fn join<'b>(
    search_path: &[u8],
    session: &[u8],
    device: &[u8],
    out: &'b mut [u8],
) -> Result<&'b CStr, PathNameError> {
    if device.is_empty() {
        return Err(PathNameError::Name);
    }
    if device.windows(2).any(|w| w == b"..") {
        return Err(PathNameError::Parent);
    }
    let mut to = Joiner {
        out,
        len: 0,
        after_slash: false,
    };
    let mark = search_path
        .windows(SESSION.len())
        .position(|w| w == SESSION);
    match mark.and_then(|at| search_path.split_at_checked(at)) {
        Some((before, rest)) => {
            to.push(before)?;
            to.push(session)?;
            to.push(rest.get(SESSION.len()..).unwrap_or(&[]))?;
        }
        None => to.push(search_path)?,
    }
    to.push(b"/")?;
    to.push(device)?;
    to.put(0)?;
    let Joiner { out, len, .. } = to;
    let path = out.get(..len).ok_or(PathNameError::TooLong)?;
    CStr::from_bytes_with_nul(path).map_err(|_| PathNameError::Name)
}

/// Returns the folder of a search path that all sessions have in common: all of it, or the parts
/// before the one with `%SESSNAME%`. An empty search path means the root, as in [`join`].
pub fn common_folder(search_path: &[u8]) -> &[u8] {
    let mark = search_path
        .windows(SESSION.len())
        .position(|w| w == SESSION);
    let before = mark.and_then(|at| search_path.get(..at));
    let end = before.map_or(Some(search_path.len()), |before| {
        let slash = before.iter().rposition(|c| *c == b'/');
        slash.map(|at| at.wrapping_add(1))
    });
    match end.and_then(|end| search_path.get(..end)) {
        None | Some([]) => b"/",
        Some(folder) => folder,
    }
}
