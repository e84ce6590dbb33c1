// SPDX-License-Identifier: GPL-2.0

//! The making of a mount: its options, and the log that says why it was refused.
//!
//! C header: [`include/linux/fs_context.h`](srctree/include/linux/fs_context.h)

use super::{
    super_block,
    FileSystem,
    SuperBlock, //
};
use core::{
    marker::PhantomData,
    ptr,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings,
    error::from_result,
    fmt,
    prelude::*,
    str::{
        CStr,
        CString, //
    }, //
};
use net_ext::Namespace;
use vfs_ext_sys as raw;

/// The reason why an option is refused. The mount fails with `EINVAL`, and its log names the
/// option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// The file system has no such option.
    Unknown,
    /// The option has another value than it may have, which the text explains.
    Refused(&'static CStr),
    /// The option is refused, and [`MountContext::fail`] has said why.
    Explained,
}

/// The circumstances of a mount that is being made.
///
/// # Invariants
///
/// `fc` is a context that only this task uses while this value is borrowed.
pub struct MountContext<'a> {
    fc: NonNull<raw::fs_context>,
    _borrow: PhantomData<&'a ()>,
}

impl MountContext<'_> {
    /// # Safety
    ///
    /// The caller must ensure that `fc` is a context that no other task uses, during the lifetime
    /// of the returned value.
    unsafe fn from_raw(fc: NonNull<raw::fs_context>) -> Self {
        // INVARIANT: By the function requirements.
        Self {
            fc,
            _borrow: PhantomData,
        }
    }

    /// Returns what is to be mounted: the first argument of `mount(8)`.
    pub fn source(&self) -> Option<&CStr> {
        // SAFETY: By the type invariants, the context is valid.
        let source = unsafe { (*self.fc.as_ptr()).source };
        // SAFETY: The source of a context is a string that is not changed during the borrow.
        (!source.is_null()).then(|| unsafe { CStr::from_char_ptr(source) })
    }

    /// Returns the network namespace of the task that mounts. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the kernel gave the mount none.
    pub fn namespace(&self) -> Result<Namespace> {
        // SAFETY: By the type invariants, the context is valid.
        let net = unsafe { (*self.fc.as_ptr()).net_ns };
        let net = NonNull::new(net).ok_or(EINVAL)?;
        // SAFETY: The context keeps its namespace.
        Ok(unsafe { Namespace::from_raw(net) })
    }

    /// Returns the user and the group that mount, as the user namespace of the mount numbers them.
    pub fn mounter(&self) -> (u32, u32) {
        let (mut uid, mut gid) = (0, 0);
        // SAFETY: By the type invariants, the context is valid; the function writes both values.
        unsafe { raw::vfs_ext_helper_mounter(self.fc.as_ptr(), &mut uid, &mut gid) };
        (uid, gid)
    }

    /// Writes a line into the log of the mount, which says why it fails. May sleep.
    pub fn fail(&self, why: fmt::Arguments<'_>) {
        let line = CString::try_from_fmt(why);
        let line = line.as_deref().unwrap_or(c"out of memory");
        // SAFETY: By the type invariants, the context is valid; both texts are copied.
        unsafe {
            raw::vfs_ext_helper_fail(self.fc.as_ptr(), ptr::null(), line.as_char_ptr());
        }
    }
}

/// The operations of a context of `T`.
///
/// A context's `fs_private` is a `KBox<T::Options>`, or null after a mount has taken it.
pub(super) struct ContextOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> ContextOps<T> {
    const OPS: raw::fs_context_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: raw::fs_context_operations = unsafe { core::mem::zeroed() };
        ops.free = Some(Self::free);
        ops.parse_param = Some(Self::parse_param);
        ops.get_tree = Some(Self::get_tree);
        ops.reconfigure = Some(Self::reconfigure);
        ops
    };

    /// Begins a mount or the change of one.
    ///
    /// # Safety
    ///
    /// Must only be called by the VFS, with a new context for a file system of `T`.
    pub(super) unsafe extern "C" fn init(fc: *mut bindings::fs_context) -> c_int {
        let fc = fc.cast::<raw::fs_context>();
        from_result(|| {
            let options = KBox::new(T::Options::default(), GFP_KERNEL)?;
            // SAFETY: By the function requirements, the context is valid and not shared.
            unsafe {
                (*fc).fs_private = KBox::into_raw(options).cast();
                (*fc).ops = &Self::OPS;
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// The caller must ensure that `fc` is a context of `T` that no other task uses.
    unsafe fn take_options(fc: *mut raw::fs_context) -> Option<KBox<T::Options>> {
        // SAFETY: By the function requirements.
        let options = unsafe { ptr::replace(&raw mut (*fc).fs_private, ptr::null_mut()) };
        // SAFETY: What is not null comes from `init`, and is taken once.
        (!options.is_null()).then(|| unsafe { KBox::from_raw(options.cast()) })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, at the end of a context of `T`.
    unsafe extern "C" fn free(fc: *mut raw::fs_context) {
        // SAFETY: By the function requirements.
        drop(unsafe { Self::take_options(fc) });
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a context of `T` and a parameter for it.
    unsafe extern "C" fn parse_param(
        fc: *mut raw::fs_context,
        param: *mut raw::fs_parameter,
    ) -> c_int {
        // SAFETY: By the function requirements; a context that takes parameters has options.
        let Some(options) = (unsafe { (*fc).fs_private.cast::<T::Options>().as_mut() }) else {
            return EBUSY.to_errno();
        };
        // SAFETY: The key of a parameter is a string.
        let name = unsafe { CStr::from_char_ptr((*param).key) };
        let Some(context) = NonNull::new(fc) else {
            return EINVAL.to_errno();
        };
        // SAFETY: By the function requirements.
        let context = unsafe { MountContext::from_raw(context) };
        // SAFETY: By the function requirements.
        let result = match unsafe { value_of(&*param) } {
            Some(value) => T::set_option(&context, options, name.to_bytes(), value),
            None => Err(OptionError::Refused(c"neither a flag nor a text")),
        };
        match result {
            Ok(()) => 0,
            // The VFS knows `source`, and names every other option in the log.
            Err(OptionError::Unknown) => -raw::VFS_EXT_ENOPARAM,
            Err(OptionError::Refused(why)) => {
                // SAFETY: By the function requirements; both texts are copied.
                unsafe { raw::vfs_ext_helper_fail(fc, name.as_char_ptr(), why.as_char_ptr()) };
                EINVAL.to_errno()
            }
            Err(OptionError::Explained) => EINVAL.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a context of `T`.
    unsafe extern "C" fn get_tree(fc: *mut raw::fs_context) -> c_int {
        // SAFETY: By the function requirements; `fill_super` is called for a new super block.
        unsafe {
            (*fc).sb_flags |= READ_ONLY;
            raw::get_tree_nodev(fc, Some(Self::fill_super))
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a new super block, which is locked, and the context of
    /// `T` for which it was made.
    unsafe extern "C" fn fill_super(
        sb: *mut bindings::super_block,
        fc: *mut raw::fs_context,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements.
            let options = unsafe { Self::take_options(fc) }.ok_or(EBUSY)?;
            // SAFETY: By the function requirements.
            let context = unsafe { MountContext::from_raw(NonNull::new(fc).ok_or(EINVAL)?) };
            let data = T::mount(&context, KBox::into_inner(options))?;
            // SAFETY: By the function requirements, the super block is new.
            unsafe { super_block::fill::<T>(sb, data) }?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a context of `T` whose root is that of a mount.
    unsafe extern "C" fn reconfigure(fc: *mut raw::fs_context) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements. The mount stays one that is only read.
            let sb = unsafe {
                (*fc).sb_flags |= READ_ONLY;
                (*fc).sb_flags_mask &= !READ_ONLY;
                (*(*fc).root).d_sb
            };
            // SAFETY: By the function requirements.
            let options = unsafe { Self::take_options(fc) }.ok_or(EBUSY)?;
            // SAFETY: By the function requirements.
            let context = unsafe { MountContext::from_raw(NonNull::new(fc).ok_or(EINVAL)?) };
            // SAFETY: The root of a mount has a super block, which is filled.
            let sb = unsafe { SuperBlock::<T>::from_raw(sb) };
            T::reconfigure(sb, &context, KBox::into_inner(options))?;
            Ok(0)
        })
    }
}

// CAST: The flag is bit 0.
const READ_ONLY: c_uint = raw::VFS_EXT_SB_RDONLY as c_uint;

/// Returns the value of a parameter: `Some(None)` for a flag, `None` for what is neither a flag nor
/// a text.
///
/// # Safety
///
/// The caller must ensure that `param` is one of the VFS.
unsafe fn value_of(param: &raw::fs_parameter) -> Option<Option<&[u8]>> {
    match param.type_() {
        raw::fs_value_type_fs_value_is_flag => Some(None),
        raw::fs_value_type_fs_value_is_string => {
            // SAFETY: By the function requirements and the type, the value is a string of `size`
            // bytes.
            let bytes = unsafe {
                let text = param.__bindgen_anon_1.string.cast::<u8>();
                slice::from_raw_parts(text, param.size)
            };
            Some(Some(bytes))
        }
        _ => None,
    }
}
