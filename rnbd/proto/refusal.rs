// SPDX-License-Identifier: GPL-2.0

//! The meaning of a server's refusal to open a device, and what a user can do about it.

use ferro_proto::errno::Errno;

/// Returns the text to add to the error of an OPEN; empty for an error that says it all.
pub const fn cure(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOENT | Errno::ENXIO => {
            ": the server has no such device below its dev_search_path, look there"
        }
        Errno::ENOTBLK => ": the name is not that of a block device on the server",
        Errno::EPERM => {
            ": another session has it open for writing, map it with access_mode=ro (or =migration)"
        }
        Errno::EROFS | Errno::EACCES => {
            ": the device is read-only on the server, map it with access_mode=ro"
        }
        Errno::EAGAIN => {
            ": a lost request may still close it on the server, map it again in half a minute"
        }
        Errno::EBUSY => ": a program on the server, or another server, has it for itself",
        _ => "",
    }
}
