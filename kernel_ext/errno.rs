// SPDX-License-Identifier: GPL-2.0

//! Error codes that `kernel::error::code` does not declare.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)
//!
//! # Examples
//!
//! ```
//! use kernel_ext::errno::ECONNRESET;
//!
//! assert_eq!(ECONNRESET.to_errno(), -104);
//! ```

use kernel::{
    bindings,
    prelude::*, //
};

macro_rules! declare_errno {
    ($($name:ident: $doc:literal,)*) => {$(
        #[doc = $doc]
        // CAST: Errno values are below 4096.
        pub const $name: Error = error_of(bindings::$name as i32);
    )*};
}

/// Converts a positive errno of C. `Error::from_errno` is not `const`.
const fn error_of(errno: i32) -> Error {
    assert!(errno > 0 && errno <= bindings::MAX_ERRNO as i32);
    // SAFETY: `Error` is a struct whose one field is a `NonZeroI32` in -4095..=-1, which is
    // asserted above; the field fills the struct, as `transmute` compares the sizes.
    unsafe { core::mem::transmute::<i32, Error>(-errno) }
}

declare_errno! {
    EDEADLK: "Resource deadlock would occur.",
    ENAMETOOLONG: "File name too long.",
    ENOSYS: "Function not implemented.",
    ENODATA: "No data available.",
    ENOLINK: "Link has been severed.",
    ECOMM: "Communication error on send.",
    EPROTO: "Protocol error.",
    EBADMSG: "Not a data message.",
    EREMOTEIO: "Remote I/O error.",
    ENOKEY: "Required key not available.",
    EILSEQ: "Illegal byte sequence.",
    EPROTOTYPE: "Protocol wrong type for socket.",
    ENOPROTOOPT: "Protocol not available.",
    EPROTONOSUPPORT: "Protocol not supported.",
    EOPNOTSUPP: "Operation not supported on transport endpoint.",
    EAFNOSUPPORT: "Address family not supported by protocol.",
    EADDRINUSE: "Address already in use.",
    EADDRNOTAVAIL: "Cannot assign requested address.",
    ENETDOWN: "Network is down.",
    ENETUNREACH: "Network is unreachable.",
    ENETRESET: "Network dropped connection because of reset.",
    ECONNABORTED: "Software caused connection abort.",
    ECONNRESET: "Connection reset by peer.",
    ENOBUFS: "No buffer space available.",
    EISCONN: "Transport endpoint is already connected.",
    ENOTCONN: "Transport endpoint is not connected.",
    ESHUTDOWN: "Cannot send after transport endpoint shutdown.",
    ECONNREFUSED: "Connection refused.",
    EHOSTDOWN: "Host is down.",
    EHOSTUNREACH: "No route to host.",
    EALREADY: "Operation already in progress.",
    EINPROGRESS: "Operation now in progress.",
    ESTALE: "Stale file handle.",
    EDQUOT: "Quota exceeded.",
    EMEDIUMTYPE: "Wrong medium type.",
    ECANCELED: "Operation cancelled.",
}
