// SPDX-License-Identifier: GPL-2.0

//! Module parameters that sysfs shows, also of types that `module!` lacks.
//!
//! `module!` supports integers only, and does not show their values. The macros here define a
//! static with a `get()` method and its entries as a parameter: it is set at load (`insmod x.ko
//! name=value`), described by `modinfo`, and read in `/sys/module/x/parameters/name` (mode 0444).
//! Only a [`RangedParam`] and a [`WordParam`] (mode 0644) can change after the load. The module's
//! `init` rejects a value that is of the type but out of range.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)
//!
//! # Examples
//!
//! ```
//! use kernel_ext::{module_param_bool, module_param_int, module_param_string};
//!
//! module_param_bool!(INVALIDATE, "always_invalidate", true, "Invalidate keys (default: Y)");
//! module_param_int!(PORT: u16, "port", 1234, "Port to listen on (default: 1234)");
//! module_param_string!(SEARCH_PATH: 4096, "dev_search_path", "/", "Prefix (default: /)");
//!
//! fn init() -> Result {
//!     if PORT.get() == 0 {
//!         return Err(EINVAL);
//!     }
//!     pr_info!("{} {}\n", INVALIDATE.get(), SEARCH_PATH.get());
//!     Ok(())
//! }
//! ```

mod ranged;
mod settable;
mod string;
mod word;

use core::cell::UnsafeCell;
use kernel::{
    bindings,
    ffi::{
        c_char,
        c_void, //
    },
};

pub use ranged::RangedParam;
pub use settable::SettableParam;
pub use string::StringParam;
pub use word::WordParam;

/// A type for which C has `param_ops_*`.
///
/// # Safety
///
/// Implementers must ensure that `OPS` reads and writes a value of this type through
/// `kernel_param.arg`, and every value that it writes is valid.
pub unsafe trait Scalar: Copy + Sync + 'static {
    /// The functions that parse and print.
    const OPS: *const bindings::kernel_param_ops;
    /// The name in `modinfo`.
    const NAME: &'static str;
}

macro_rules! scalar {
    ($($type:ty, $ops:ident, $name:literal;)*) => {$(
        // SAFETY: The C functions of this name handle this type.
        unsafe impl Scalar for $type {
            const OPS: *const bindings::kernel_param_ops = &raw const bindings::$ops;
            const NAME: &'static str = $name;
        }
    )*};
}

scalar! {
    bool, param_ops_bool, "bool";
    u8, param_ops_byte, "byte";
    i16, param_ops_short, "short";
    u16, param_ops_ushort, "ushort";
    i32, param_ops_int, "int";
    u32, param_ops_uint, "uint";
    i64, param_ops_long, "long";
    u64, param_ops_ulong, "ulong";
}

/// A parameter that is a number or a `bool`.
///
/// # Invariants
///
/// `value` is written only by the module loader, before the module's code runs.
#[repr(transparent)]
pub struct ScalarParam<T: Scalar> {
    value: UnsafeCell<T>,
}

// SAFETY: By the type invariants, the value is not written while Rust code can read it.
unsafe impl<T: Scalar> Sync for ScalarParam<T> {}

impl<T: Scalar> ScalarParam<T> {
    /// Creates a parameter and its default.
    #[doc(hidden)]
    pub const fn new(default: T) -> Self {
        // INVARIANT: The macros make an entry of mode 0444, which sysfs does not write.
        Self {
            value: UnsafeCell::new(default),
        }
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> T {
        // SAFETY: By the type invariants, the value is initialised and not written any more. The
        // read is volatile, as the compiler does not see the write by the module loader.
        unsafe { self.value.get().read_volatile() }
    }

    /// Returns the functions that the module loader calls.
    #[doc(hidden)]
    pub const fn ops(&self) -> *const bindings::kernel_param_ops {
        T::OPS
    }

    /// Returns the argument of these functions.
    #[doc(hidden)]
    pub const fn arg(&self) -> *mut c_void {
        self.value.get().cast()
    }
}

/// An entry of the section `__param`.
#[doc(hidden)]
#[repr(transparent)]
pub struct Entry(bindings::kernel_param);

// SAFETY: Only the module loader uses an entry.
unsafe impl Sync for Entry {}

impl Entry {
    /// Creates an entry of any mode. `name` ends in NUL.
    #[doc(hidden)]
    pub const fn with_mode(
        name: &'static [u8],
        module: *const bindings::module,
        ops: *const bindings::kernel_param_ops,
        arg: *mut c_void,
        mode: u16,
    ) -> Self {
        assert!(matches!(name.last(), Some(0)));
        Self(bindings::kernel_param {
            name: name.as_ptr().cast::<c_char>(),
            mod_: module.cast_mut(),
            ops,
            perm: mode,
            level: -1,
            flags: 0,
            __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 { arg },
        })
    }
}

/// Copies a string into an array, for the section `.modinfo`, at compile time.
#[doc(hidden)]
pub const fn modinfo_bytes<const N: usize>(text: &str) -> [u8; N] {
    let text = text.as_bytes();
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = text[at];
        at += 1;
    }
    bytes
}

/// Adds an entry to the module's `modinfo` for which `module!` has no key.
///
/// # Examples
///
/// ```
/// kernel_ext::modinfo!("softdep", "pre: rdma_cm");
/// kernel_ext::modinfo!("version", "0.1");
/// ```
#[macro_export]
macro_rules! modinfo {
    ($key:literal, $($value:expr),+ $(,)?) => {
        const _: () = {
            const TEXT: &str = ::core::concat!($key, "=", $($value,)+ "\0");
            #[link_section = ".modinfo"]
            #[used(compiler)]
            static INFO: [u8; TEXT.len()] = $crate::param::modinfo_bytes(TEXT);
        };
    };
}

/// Registers a static parameter with the module loader.
#[doc(hidden)]
#[macro_export]
macro_rules! module_param_entry {
    ($ident:ident, $name:literal, $type:expr, $description:literal) => {
        $crate::module_param_entry!($ident, $name, $type, $description, 0o444);
    };
    ($ident:ident, $name:literal, $type:expr, $description:literal, $mode:literal) => {
        const _: () = {
            #[link_section = "__param"]
            #[used(compiler)]
            static ENTRY: $crate::param::Entry = $crate::param::Entry::with_mode(
                ::core::concat!($name, "\0").as_bytes(),
                &raw const ::kernel::bindings::__this_module,
                $ident.ops(),
                $ident.arg(),
                $mode,
            );
        };
        $crate::modinfo!("parm", $name, ":", $description);
        $crate::modinfo!("parmtype", $name, ":", $type);
    };
}

/// Defines a `bool` module parameter: a static of the given name. See [`crate::param`].
#[macro_export]
macro_rules! module_param_bool {
    ($(#[$meta:meta])* $vis:vis $ident:ident, $name:literal, $default:expr, $description:literal
        $(,)?) => {
        $(#[$meta])*
        #[doc = $description]
        $vis static $ident: $crate::param::ScalarParam<bool> =
            $crate::param::ScalarParam::new($default);
        $crate::module_param_entry!($ident, $name, "bool", $description);
    };
}

/// Defines an integer module parameter: a static of the given name. See [`crate::param`].
#[macro_export]
macro_rules! module_param_int {
    (@type u8) => { "byte" };
    (@type i16) => { "short" };
    (@type u16) => { "ushort" };
    (@type i32) => { "int" };
    (@type u32) => { "uint" };
    (@type i64) => { "long" };
    (@type u64) => { "ulong" };
    ($(#[$meta:meta])* $vis:vis $ident:ident: $type:tt, $name:literal, $default:expr,
        $description:literal $(,)?) => {
        $(#[$meta])*
        #[doc = $description]
        $vis static $ident: $crate::param::ScalarParam<$type> =
            $crate::param::ScalarParam::new($default);
        $crate::module_param_entry!(
            $ident,
            $name,
            $crate::module_param_int!(@type $type),
            $description
        );
    };
}

/// Defines a `u32` module parameter with a range, which the administrator may change at any time
/// (mode 0644): a static of the given name. See [`RangedParam`](crate::param::RangedParam).
#[macro_export]
macro_rules! module_param_ranged {
    ($(#[$meta:meta])* $vis:vis $ident:ident: $min:expr, $max:expr, $name:literal, $default:expr,
        $description:literal $(,)?) => {
        $(#[$meta])*
        #[doc = $description]
        $vis static $ident: $crate::param::RangedParam =
            $crate::param::RangedParam::new($default, $min, $max);
        $crate::module_param_entry!($ident, $name, "uint", $description, 0o644);
    };
}

/// Defines a module parameter that is one of a few words, the first one by default, which the
/// administrator may change at any time (mode 0644): a static of the given name. See
/// [`WordParam`](crate::param::WordParam).
#[macro_export]
macro_rules! module_param_word {
    ($(#[$meta:meta])* $vis:vis $ident:ident, $name:literal, $words:expr, $description:literal
        $(,)?) => {
        $(#[$meta])*
        #[doc = $description]
        $vis static $ident: $crate::param::WordParam = $crate::param::WordParam::new(&$words);
        $crate::module_param_entry!($ident, $name, "charp", $description, 0o644);
    };
}

/// Defines a string module parameter: a static of the given name and of at most the given number of
/// bytes. See [`crate::param`] and [`StringParam`](crate::param::StringParam).
#[macro_export]
macro_rules! module_param_string {
    ($(#[$meta:meta])* $vis:vis $ident:ident: $capacity:literal, $name:literal, $default:expr,
        $description:literal $(,)?) => {
        $(#[$meta])*
        #[doc = $description]
        $vis static $ident: $crate::param::StringParam<$capacity> =
            $crate::param::StringParam::new($default);
        $crate::module_param_entry!($ident, $name, "charp", $description);
    };
}
