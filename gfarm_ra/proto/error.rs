// SPDX-License-Identifier: GPL-2.0

//! The errors of gfmd and gfsd (`enum gfarm_errcode`), as errors of the kernel.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    operation::ReplyError,
    xdr::Decoder, //
};

/// An error of a server, not 0.
///
/// Up to 34 the numbers are those of Linux; from 35 on they are Gfarm's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GfarmError(u32);

impl GfarmError {
    /// The caller may not do that; of a gfsd also: another connection has the descriptor open.
    pub const OPERATION_NOT_PERMITTED: Self = Self(1);
    /// The name does not exist.
    pub const NO_SUCH_FILE_OR_DIRECTORY: Self = Self(2);
    /// The process is not known.
    pub const NO_SUCH_PROCESS: Self = Self(3);
    /// Reading or writing failed.
    pub const INPUT_OUTPUT: Self = Self(5);
    /// The descriptor is not open.
    pub const BAD_FILE_DESCRIPTOR: Self = Self(9);
    /// The server can do that later.
    pub const RESOURCE_TEMPORARILY_UNAVAILABLE: Self = Self(11);
    /// The server has too little memory.
    pub const NO_MEMORY: Self = Self(12);
    /// The object is no directory.
    pub const NOT_A_DIRECTORY: Self = Self(20);
    /// The process has too many descriptors open.
    pub const TOO_MANY_OPEN_FILES: Self = Self(24);
    /// The handle is of an object that is gone.
    pub const STALE_FILE_HANDLE: Self = Self(65);
    /// The object does not exist.
    pub const NO_SUCH_OBJECT: Self = Self(74);
    /// The server has too many requests.
    pub const TOO_MANY_JOBS: Self = Self(78);
    /// The gfsd has no replica of the file.
    pub const FILE_MIGRATED: Self = Self(79);
    /// The object is a symbolic link.
    pub const IS_A_SYMBOLIC_LINK: Self = Self(81);
    /// The replica is not the file's.
    pub const INVALID_FILE_REPLICA: Self = Self(83);
    /// The server's database is busy.
    pub const DB_ACCESS_SHOULD_BE_RETRIED: Self = Self(96);
    /// Another gfmd, or a restarted one, is in charge: processes and descriptors are gone.
    pub const GFMD_FAILED_OVER: Self = Self(98);
    /// The bytes of a replica are not those that were written.
    pub const CHECKSUM_MISMATCH: Self = Self(102);
    /// No gfsd is known to be up.
    pub const NO_FILESYSTEM_NODE: Self = Self(105);

    /// Converts a number of a reply; returns `None` for 0, which is no error.
    pub const fn new(raw: u32) -> Option<Self> {
        if raw == 0 {
            None
        } else {
            Some(Self(raw))
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the name without `GFARM_ERR_`; `None` for a number of a later version.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|(name, _)| *name)
    }

    /// Returns the kernel's error: as `gfarm_error_to_errno()` where that has one, and not `EINVAL`
    /// for the others if the caller's request was valid.
    pub fn errno(self) -> Errno {
        self.row()
            .and_then(|(_, number)| Errno::new(i32::from(*number)))
            .unwrap_or(Errno::EIO)
    }

    /// Returns whether the error is one of a connection, after which a client of Gfarm connects
    /// again: its request may succeed at another server, or later.
    pub const fn is_connection_error(self) -> bool {
        matches!(self.0, 32 | 52..=57 | 59..=62 | 71 | 76)
    }

    fn row(self) -> Option<&'static (&'static str, u8)> {
        // CAST: The kernel has 64 bits.
        TABLE.get(self.0 as usize)
    }
}

impl fmt::Display for GfarmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "error {} ({name})", self.0),
            None => write!(f, "error {} of a later Gfarm", self.0),
        }
    }
}

/// Reads the error number with which each reply starts.
pub fn decode_status(from: &mut Decoder<'_>) -> Result<(), ReplyError> {
    match GfarmError::new(from.u32()?) {
        None => Ok(()),
        Some(error) => Err(ReplyError::Server(error)),
    }
}

/// The names of all errors, and the numbers of the kernel for them.
///
/// The kernel has numbers of its own for keys (`EKEYREJECTED` 129, `EKEYEXPIRED` 127), which
/// libgfarm has not; `ELOOP` and `EINVAL` are what open(2) and readlink(2) return for 81 and 80.
#[rustfmt::skip]
const TABLE: [(&str, u8); 107] = [
    ("NO_ERROR", 0),
    ("OPERATION_NOT_PERMITTED", 1), // 1: EPERM
    ("NO_SUCH_FILE_OR_DIRECTORY", 2), // 2: ENOENT
    ("NO_SUCH_PROCESS", 3), // 3: ESRCH
    ("INTERRUPTED_SYSTEM_CALL", 4), // 4: EINTR
    ("INPUT_OUTPUT", 5), // 5: EIO
    ("DEVICE_NOT_CONFIGURED", 6), // 6: ENXIO
    ("ARGUMENT_LIST_TOO_LONG", 7), // 7: E2BIG
    ("EXEC_FORMAT", 8), // 8: ENOEXEC
    ("BAD_FILE_DESCRIPTOR", 9), // 9: EBADF
    ("NO_CHILD_PROCESS", 10), // 10: ECHILD
    ("RESOURCE_TEMPORARILY_UNAVAILABLE", 11), // 11: EAGAIN
    ("NO_MEMORY", 12), // 12: ENOMEM
    ("PERMISSION_DENIED", 13), // 13: EACCES
    ("BAD_ADDRESS", 14), // 14: EFAULT
    ("BLOCK_DEVICE_REQUIRED", 15), // 15: ENOTBLK
    ("DEVICE_BUSY", 16), // 16: EBUSY
    ("ALREADY_EXISTS", 17), // 17: EEXIST
    ("CROSS_DEVICE_LINK", 18), // 18: EXDEV
    ("OPERATION_NOT_SUPPORTED_BY_DEVICE", 19), // 19: ENODEV
    ("NOT_A_DIRECTORY", 20), // 20: ENOTDIR
    ("IS_A_DIRECTORY", 21), // 21: EISDIR
    ("INVALID_ARGUMENT", 22), // 22: EINVAL
    ("TOO_MANY_OPEN_FILES_IN_SYSTEM", 23), // 23: ENFILE
    ("TOO_MANY_OPEN_FILES", 24), // 24: EMFILE
    ("INAPPROPRIATE_IOCTL_FOR_DEVICE", 25), // 25: ENOTTY
    ("TEXT_FILE_BUSY", 26), // 26: ETXTBSY
    ("FILE_TOO_LARGE", 27), // 27: EFBIG
    ("NO_SPACE", 28), // 28: ENOSPC
    ("ILLEGAL_SEEK", 29), // 29: ESPIPE
    ("READ_ONLY_FILE_SYSTEM", 30), // 30: EROFS
    ("TOO_MANY_LINKS", 31), // 31: EMLINK
    ("BROKEN_PIPE", 32), // 32: EPIPE
    ("NUMERICAL_ARGUMENT_OUT_OF_DOMAIN", 33), // 33: EDOM
    ("RESULT_OUT_OF_RANGE", 34), // 34: ERANGE
    ("ILLEGAL_BYTE_SEQUENCE", 84), // 35: EILSEQ
    ("RESOURCE_DEADLOCK_AVOIDED", 35), // 36: EDEADLK
    ("FILE_NAME_TOO_LONG", 36), // 37: ENAMETOOLONG
    ("DIRECTORY_NOT_EMPTY", 39), // 38: ENOTEMPTY
    ("NO_LOCKS_AVAILABLE", 37), // 39: ENOLCK
    ("FUNCTION_NOT_IMPLEMENTED", 38), // 40: ENOSYS
    ("OPERATION_NOW_IN_PROGRESS", 115), // 41: EINPROGRESS
    ("OPERATION_ALREADY_IN_PROGRESS", 114), // 42: EALREADY
    ("SOCKET_OPERATION_ON_NON_SOCKET", 88), // 43: ENOTSOCK
    ("DESTINATION_ADDRESS_REQUIRED", 89), // 44: EDESTADDRREQ
    ("MESSAGE_TOO_LONG", 90), // 45: EMSGSIZE
    ("PROTOCOL_WRONG_TYPE_FOR_SOCKET", 91), // 46: EPROTOTYPE
    ("PROTOCOL_NOT_AVAILABLE", 92), // 47: ENOPROTOOPT
    ("PROTOCOL_NOT_SUPPORTED", 93), // 48: EPROTONOSUPPORT
    ("OPERATION_NOT_SUPPORTED", 95), // 49: EOPNOTSUPP
    ("ADDRESS_FAMILY_NOT_SUPPORTED_BY_PROTOCOL_FAMILY", 97), // 50: EAFNOSUPPORT
    ("ADDRESS_ALREADY_IN_USE", 98), // 51: EADDRINUSE
    ("CANNOT_ASSIGN_REQUESTED_ADDRESS", 99), // 52: EADDRNOTAVAIL
    ("NETWORK_IS_DOWN", 100), // 53: ENETDOWN
    ("NETWORK_IS_UNREACHABLE", 101), // 54: ENETUNREACH
    ("CONNECTION_ABORTED", 103), // 55: ECONNABORTED
    ("CONNECTION_RESET_BY_PEER", 104), // 56: ECONNRESET
    ("NO_BUFFER_SPACE_AVAILABLE", 105), // 57: ENOBUFS
    ("SOCKET_IS_ALREADY_CONNECTED", 106), // 58: EISCONN
    ("SOCKET_IS_NOT_CONNECTED", 107), // 59: ENOTCONN
    ("OPERATION_TIMED_OUT", 110), // 60: ETIMEDOUT
    ("CONNECTION_REFUSED", 111), // 61: ECONNREFUSED
    ("NO_ROUTE_TO_HOST", 113), // 62: EHOSTUNREACH
    ("TOO_MANY_LEVELS_OF_SYMBOLIC_LINK", 40), // 63: ELOOP
    ("DISK_QUOTA_EXCEEDED", 122), // 64: EDQUOT
    ("STALE_FILE_HANDLE", 116), // 65: ESTALE
    ("IDENTIFIER_REMOVED", 43), // 66: EIDRM
    ("NO_MESSAGE_OF_DESIRED_TYPE", 42), // 67: ENOMSG
    ("VALUE_TOO_LARGE_TO_BE_STORED_IN_DATA_TYPE", 75), // 68: EOVERFLOW
    ("AUTHENTICATION", 129), // 69: EKEYREJECTED
    ("EXPIRED", 127), // 70: EKEYEXPIRED
    ("PROTOCOL", 71), // 71: EPROTO
    ("UNKNOWN_HOST", 113), // 72: EHOSTUNREACH
    ("CANNOT_RESOLVE_AN_IP_ADDRESS_INTO_A_HOSTNAME", 113), // 73: EHOSTUNREACH
    ("NO_SUCH_OBJECT", 2), // 74: ENOENT
    ("CANT_OPEN", 5), // 75: EIO
    ("UNEXPECTED_EOF", 71), // 76: EPROTO
    ("GFARM_URL_PREFIX_IS_MISSING", 22), // 77: EINVAL
    ("TOO_MANY_JOBS", 11), // 78: EAGAIN
    ("FILE_MIGRATED", 5), // 79: EIO
    ("NOT_A_SYMBOLIC_LINK", 22), // 80: EINVAL
    ("IS_A_SYMBOLIC_LINK", 40), // 81: ELOOP
    ("UNKNOWN", 5), // 82: EIO
    ("INVALID_FILE_REPLICA", 5), // 83: EIO
    ("NO_SUCH_USER", 22), // 84: EINVAL
    ("CANNOT_REMOVE_LAST_REPLICA", 1), // 85: EPERM
    ("NO_SUCH_GROUP", 22), // 86: EINVAL
    ("GFARM_URL_USER_IS_MISSING", 22), // 87: EINVAL
    ("GFARM_URL_HOST_IS_MISSING", 22), // 88: EINVAL
    ("GFARM_URL_PORT_IS_MISSING", 22), // 89: EINVAL
    ("GFARM_URL_PORT_IS_INVALID", 22), // 90: EINVAL
    ("FILE_BUSY", 16), // 91: EBUSY
    ("NOT_A_REGULAR_FILE", 22), // 92: EINVAL
    ("IS_A_REGULAR_FILE", 22), // 93: EINVAL
    ("PATH_IS_ROOT", 22), // 94: EINVAL
    ("INTERNAL_ERROR", 5), // 95: EIO
    ("DB_ACCESS_SHOULD_BE_RETRIED", 11), // 96: EAGAIN
    ("TOO_MANY_HOSTS", 22), // 97: EINVAL
    ("GFMD_FAILED_OVER", 5), // 98: EIO
    ("BAD_INODE_NUMBER", 116), // 99: ESTALE
    ("BAD_COOKIE", 22), // 100: EINVAL
    ("INSUFFICIENT_NUMBER_OF_FILE_REPLICAS", 5), // 101: EIO
    ("CHECKSUM_MISMATCH", 5), // 102: EIO
    ("CONFLICT_DETECTED", 16), // 103: EBUSY
    ("INVALID_CREDENTIAL", 129), // 104: EKEYREJECTED
    ("NO_FILESYSTEM_NODE", 113), // 105: EHOSTUNREACH
    ("DIRECTORY_QUOTA_EXISTS", 17), // 106: EEXIST
];
