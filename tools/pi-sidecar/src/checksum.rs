// SPDX-License-Identifier: GPL-2.0

//! The CRC64 of NVMe.

use crc::{
    Crc,
    Table,
    CRC_64_NVME, //
};
use proto::sidecar::Checksum;

static TABLES: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// The CRC64 of NVMe, by tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc64Nvme;

impl Checksum for Crc64Nvme {
    fn crc64(&self, bytes: &[u8]) -> u64 {
        TABLES.checksum(bytes)
    }
}
