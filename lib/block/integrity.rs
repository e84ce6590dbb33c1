// SPDX-License-Identifier: GPL-2.0

//! Protection information of disks and block devices: a tuple of checksum, application tag and
//! address beside each interval of data.
//!
//! Those of a disk are made and verified by its driver. The user of the disk may bring tuples, and
//! may switch on that the block layer makes them (`write_generate` and `read_verify` in sysfs); the
//! driver moves those ([`Request`](crate::mq::Request)). Towards a block device that stores tuples,
//! a [`Bio`](crate::bio::Bio) has memory for them ([`BioTuples`]).
//!
//! C header: [`include/linux/blk-integrity.h`](srctree/include/linux/blk-integrity.h)

use super::SECTOR_BYTES;
use block_ext_sys as raw;
use kernel::bindings;

/// The checksum of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TupleKind {
    /// 16 bytes with a CRC64.
    Crc64,
    /// 8 bytes with a CRC16 of T10-DIF.
    T10,
}

impl TupleKind {
    /// Returns the bytes of a tuple.
    pub const fn bytes(self) -> u8 {
        match self {
            Self::Crc64 => 16,
            Self::T10 => 8,
        }
    }
}

/// Protection information with the address as its reference tag, and nothing beside the tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integrity {
    /// The tuples.
    pub kind: TupleKind,
    /// The bytes that each protects: a power of two, at most a logical block.
    pub interval_bytes: u32,
    /// Whether the medium stores the tuples, application tags included.
    pub is_stored: bool,
}

impl Integrity {
    /// Returns whether a disk with these logical blocks may have it.
    pub(crate) fn fits(self, logical_block_bytes: u32) -> bool {
        self.interval_bytes.is_power_of_two()
            && (SECTOR_BYTES..=logical_block_bytes).contains(&self.interval_bytes)
    }

    /// Converts it for the block layer; the caller has checked that it [fits](Self::fits).
    pub(crate) fn to_raw(self) -> bindings::blk_integrity {
        let mut flags = raw::blk_integrity_flags_BLK_INTEGRITY_REF_TAG
            // The tuples are checked where the data is contiguous.
            | raw::blk_integrity_flags_BLK_SPLIT_INTERVAL_CAPABLE
            // As for an adapter that inserts and strips them: a request without tuples costs the
            // block layer neither memory nor a pass over data and tuples.
            | raw::blk_integrity_flags_BLK_INTEGRITY_NOGENERATE
            | raw::blk_integrity_flags_BLK_INTEGRITY_NOVERIFY;
        if self.is_stored {
            flags |= raw::blk_integrity_flags_BLK_INTEGRITY_DEVICE_CAPABLE;
        }
        let csum_type = match self.kind {
            TupleKind::Crc64 => bindings::blk_integrity_checksum_BLK_INTEGRITY_CSUM_CRC64,
            TupleKind::T10 => bindings::blk_integrity_checksum_BLK_INTEGRITY_CSUM_CRC,
        };
        // CAST: The flags are the lower bits; the logarithm of 32 bits is small.
        bindings::blk_integrity {
            flags: flags as u8,
            csum_type,
            metadata_size: self.kind.bytes(),
            pi_offset: 0,
            interval_exp: self.interval_bytes.trailing_zeros() as u8,
            tag_size: if self.is_stored { 2 } else { 0 },
            pi_tuple_size: self.kind.bytes(),
        }
    }

    /// Converts that of a device; `None` if there is none or it is of another kind.
    pub(crate) fn from_raw(raw: bindings::blk_integrity) -> Option<Self> {
        let kind = match raw.csum_type {
            bindings::blk_integrity_checksum_BLK_INTEGRITY_CSUM_CRC64 => TupleKind::Crc64,
            bindings::blk_integrity_checksum_BLK_INTEGRITY_CSUM_CRC => TupleKind::T10,
            _ => return None,
        };
        let has_address =
            u32::from(raw.flags) & raw::blk_integrity_flags_BLK_INTEGRITY_REF_TAG != 0;
        let is_alone = raw.metadata_size == kind.bytes() && raw.pi_offset == 0;
        let interval_bytes = 1u32.checked_shl(raw.interval_exp.into())?;
        (has_address && is_alone).then_some(Self {
            kind,
            interval_bytes,
            is_stored: true,
        })
    }
}

/// Memory for the description of a bio's tuples: [`BioTuples`], or `()` where bios have none.
pub trait TupleRoom: Default + Send + private::Sealed + 'static {
    /// Whether there is any.
    const IS_THERE: bool;

    /// Returns it.
    #[doc(hidden)]
    fn room(&mut self) -> Option<&mut BioTuples>;
}

mod private {
    pub trait Sealed {}

    impl Sealed for () {}
    impl Sealed for super::BioTuples {}
}

impl TupleRoom for () {
    const IS_THERE: bool = false;

    #[inline]
    fn room(&mut self) -> Option<&mut BioTuples> {
        None
    }
}

impl TupleRoom for BioTuples {
    const IS_THERE: bool = true;

    #[inline]
    fn room(&mut self) -> Option<&mut BioTuples> {
        Some(self)
    }
}

/// The description of one bio's tuples, beside its data: one physically contiguous piece of memory.
///
/// Without an allocation, unlike `bio_integrity_alloc`.
#[derive(Default)]
pub struct BioTuples {
    payload: raw::bio_integrity_payload,
    piece: bindings::bio_vec,
}

impl BioTuples {
    /// Attaches `len_bytes` of tuples at `offset_bytes` from the start of `page` to `bio`.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `self` does not move before [`Self::detach`], that the bio is
    /// the caller's, that the memory exists until it ends, and that it is detached before the bio
    /// is freed.
    pub(crate) unsafe fn attach(
        &mut self,
        bio: &mut bindings::bio,
        page: *mut bindings::page,
        offset_bytes: u32,
        len_bytes: u32,
        first: u64,
    ) {
        self.piece = bindings::bio_vec {
            bv_page: page,
            bv_len: len_bytes,
            bv_offset: offset_bytes,
        };
        let checks = raw::bip_flags_BIP_CHECK_GUARD | raw::bip_flags_BIP_CHECK_REFTAG;
        // As `bio_integrity_init`, which modules cannot call, and `bio_integrity_add_page`.
        self.payload = raw::bio_integrity_payload {
            bip_iter: bindings::bvec_iter {
                bi_sector: first,
                bi_size: len_bytes,
                bi_idx: 0,
                bi_bvec_done: 0,
            },
            bip_vcnt: 1,
            bip_max_vcnt: 1,
            // CAST: These flags are in the lower 16 bits.
            bip_flags: checks as u16,
            app_tag: 0,
            bip_vec: &mut self.piece,
        };
        bio.bi_integrity = (&raw mut self.payload).cast();
        bio.bi_opf |= 1 << bindings::req_flag_bits___REQ_INTEGRITY;
    }

    /// Detaches the tuples, if there are any, from a bio that has ended or was not submitted: the
    /// block layer would free them.
    pub(crate) fn detach(bio: &mut bindings::bio) {
        bio.bi_integrity = core::ptr::null_mut();
        bio.bi_opf &= !(1 << bindings::req_flag_bits___REQ_INTEGRITY);
    }
}

// SAFETY: The pointers are used by the block layer alone, between `attach` and `detach`.
unsafe impl Send for BioTuples {}
