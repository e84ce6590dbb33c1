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
    // SAFETY: `Error` is a struct of one `NonZeroI32` in -4095..=-1, a range that is asserted
    // above. The layout of the struct is not promised, but its one field fills it, as `transmute`
    // compares the sizes; and this runs when the module is compiled.
    unsafe { core::mem::transmute::<i32, Error>(-errno) }
}

declare_errno! {
    ENAMETOOLONG: "File name too long.",
    EOPNOTSUPP: "Operation not supported on transport endpoint.",
    ECONNABORTED: "Software caused connection abort.",
    ECONNRESET: "Connection reset by peer.",
    ENOTCONN: "Transport endpoint is not connected.",
    ESHUTDOWN: "Cannot send after transport endpoint shutdown.",
    ECONNREFUSED: "Connection refused.",
    EHOSTUNREACH: "No route to host.",
    EALREADY: "Operation already in progress.",
    ESTALE: "Stale file handle.",
    EUCLEAN: "Structure needs cleaning.",
    ECANCELED: "Operation cancelled.",
    ENOKEY: "Required key not available.",
    EKEYEXPIRED: "Key has expired.",
    EKEYREJECTED: "Key was rejected by service.",
    EILSEQ: "Illegal byte sequence; of a block: its protection information is wrong.",
    EPROTO: "Protocol error.",
    EPROTONOSUPPORT: "Protocol not supported.",
}
