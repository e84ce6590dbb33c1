// SPDX-License-Identifier: GPL-2.0

//! A content of a file, in messages.

use zerocopy::little_endian::{
    I64,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    super::{
        attr::{
            FileId,
            Time, //
        },
        identity::ContentId, //
    },
    invalid::Invalid, //
};

/// The maximum of the nanoseconds.
const NSEC_MAX: u32 = 999_999_999;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawContent {
    inum: U64,
    gen: U64,
    sec: I64,
    nsec: U32,
}

impl RawContent {
    /// Encodes it.
    pub(super) fn new(id: &ContentId) -> Self {
        Self {
            inum: U64::new(id.file.inum),
            gen: U64::new(id.file.gen),
            sec: I64::new(id.mtime.sec),
            nsec: U32::new(id.mtime.nsec),
        }
    }

    /// Decodes it: the number of the object is not 0.
    pub(super) fn id(&self) -> Result<ContentId, Invalid> {
        let nsec = self.nsec.get();
        if nsec > NSEC_MAX {
            return Err(Invalid::Time);
        }
        let id = ContentId {
            file: FileId {
                inum: self.inum.get(),
                gen: self.gen.get(),
            },
            mtime: Time {
                sec: self.sec.get(),
                nsec,
            },
        };
        match id.file.inum {
            0 => Err(Invalid::Object),
            _ => Ok(id),
        }
    }
}
