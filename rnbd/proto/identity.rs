// SPDX-License-Identifier: GPL-2.0

//! The identity of a disk, by which server and client recognise it: after an outage the name that
//! the client opens may refer to another disk.
//!
//! The identity is a number derived from the best identifier of the disk in the server's kernel,
//! and is sent to clients that request it ([`wire`](super::wire)). It is the same after a restart
//! of the server. Two servers that share a disk send the same one, if the disk has an identifier.

use core::fmt;

use ferro_proto::{
    siphash::SipHash,
    text, //
};

use super::boot::Boot;

/// The key that separates identities from other hashes of the same texts. Must not change, as
/// clients compare identities over an upgrade of the server.
const KEY: [u64; 2] = [0x7266_656e_7262_6473, 0x6469_736b_2069_6431];

/// The key of identities through a sidecar. Must not change either.
const SIDECAR_KEY: [u64; 2] = [0x7266_656e_7262_6473, 0x7369_6465_6361_7231];

/// A disk's identity: an NAA identifier of type 3, "locally assigned", in 8 bytes.
///
/// # Invariants
///
/// The upper four bits are 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    const NAA: u64 = 3;
    const NAA_SHIFT: u32 = 60;

    fn from_hash(hash: u64) -> Self {
        let number = hash & ((1 << Self::NAA_SHIFT) - 1);
        // INVARIANT: The four bits are set here.
        Self(Self::NAA << Self::NAA_SHIFT | number)
    }

    /// Converts the number of an OPEN answer; returns `None` if it is not an identity, as 0.
    pub const fn from_wire(raw: u64) -> Option<Self> {
        if raw >> Self::NAA_SHIFT == Self::NAA {
            // INVARIANT: The four bits were just checked.
            Some(Self(raw))
        } else {
            None
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the identity of the disk when it is used through the sidecar with this UUID: what is
    /// at a sector of that is elsewhere on the disk itself, and a disk that was formatted anew has
    /// other data.
    #[must_use]
    pub fn through_sidecar(self, uuid: &[u8; 16]) -> Self {
        let mut hash = SipHash::new(SIDECAR_KEY);
        hash.write(&self.0.to_le_bytes());
        hash.write(uuid);
        Self::from_hash(hash.finish())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "naa.{:016x}", self.0)
    }
}

/// The source of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// An identifier of the disk's own.
    OwnId,
    /// The UUID in the partition table; the disk has no identifier.
    PartitionUuid,
    /// The backing file of a loop device, and this machine.
    BackingFile,
    /// The name of a device-mapper device, and this machine.
    MapperName,
    /// The name of a disk in memory, and this boot, with which its content is lost.
    NameInBoot,
    /// The kernel's name of the device, and this machine.
    Name,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnId => "by its own identifier",
            Self::PartitionUuid => "by its UUID in the partition table",
            Self::BackingFile => "by its backing file",
            Self::MapperName => "by its device-mapper name",
            Self::NameInBoot => "by its name, for this boot",
            Self::Name => "by its name",
        })
    }
}

/// The start of a path of [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The device's folder in sysfs.
    Device,
    /// The folder of the disk that the device is a partition of.
    DiskOfPartition,
    /// The folder that describes the machine's hardware.
    Machine,
}

/// The text files in which the server's kernel describes a device.
pub trait Files {
    /// Returns the start of a file; empty if there is none.
    fn read(&mut self, folder: Folder, path: &str) -> &[u8];
}

/// The files with identifiers of disks, the most reliable first: NVMe and this client; SCSI and
/// ATA; device-mapper; md; virtio; MMC; persistent memory; DASD.
const OWN_IDS: [&str; 8] = [
    "wwid",
    "device/wwid",
    "dm/uuid",
    "md/uuid",
    "serial",
    "device/cid",
    "device/uuid",
    "device/uid",
];

/// The file with the machine's identifier, which no operating system changes.
const MACHINE_ID: &str = "product_uuid";

/// Disks whose content is in memory: brd, zram, null_blk.
const MEMORY_DISKS: [&[u8]; 3] = [b"ram", b"zram", b"nullb"];

/// A hash of a list of texts, which distinguishes their boundaries.
struct Texts(SipHash);

impl Texts {
    fn of(basis: Basis) -> Self {
        let mut texts = Self(SipHash::new(KEY));
        // CAST: The value is a small number. Must not change either.
        texts.add(&[basis as u8]);
        texts
    }

    fn add(&mut self, part: &[u8]) {
        self.0.write(&(part.len() as u64).to_le_bytes());
        self.0.write(part);
    }

    /// Adds a file's text; returns whether there is one.
    fn add_file(&mut self, files: &mut impl Files, folder: Folder, path: &str) -> bool {
        let found = text::trim(files.read(folder, path));
        if !found.is_empty() {
            self.add(found);
        }
        !found.is_empty()
    }

    fn identity(self) -> Identity {
        Identity::from_hash(self.0.finish())
    }
}

/// Returns the identity of the device with the kernel's name `name`, for a server in `boot`.
/// Returns `None` if no file of the device can be read, as the identity would change with the first
/// readable file.
pub fn of_device(name: &[u8], boot: Boot, files: &mut impl Files) -> Option<(Identity, Basis)> {
    if files.read(Folder::Device, "uevent").is_empty() {
        return None;
    }
    let partition = Partition::of(files);
    let disk = match partition {
        None => Folder::Device,
        Some(_) => Folder::DiskOfPartition,
    };
    let mut texts = Texts::of(Basis::OwnId);
    let has_id = OWN_IDS.iter().any(|path| texts.add_file(files, disk, path));
    if has_id {
        if let Some(partition) = partition {
            texts.add(partition.uuid_or_number());
        }
        return Some((texts.identity(), Basis::OwnId));
    }
    if let Some(uuid) = partition.as_ref().and_then(Partition::uuid) {
        let mut texts = Texts::of(Basis::PartitionUuid);
        texts.add(uuid);
        return Some((texts.identity(), Basis::PartitionUuid));
    }
    let (mut texts, basis) = by_name(name, boot, disk, files);
    if let Some(partition) = partition {
        texts.add(partition.uuid_or_number());
    }
    Some((texts.identity(), basis))
}

/// Returns the texts for the identity of a disk without an identifier, and their source.
fn by_name(name: &[u8], boot: Boot, disk: Folder, files: &mut impl Files) -> (Texts, Basis) {
    let mut texts = Texts::of(Basis::BackingFile);
    if texts.add_file(files, disk, "loop/backing_file") {
        texts.add_file(files, disk, "loop/offset");
        texts.add_file(files, Folder::Machine, MACHINE_ID);
        return (texts, Basis::BackingFile);
    }
    let mut texts = Texts::of(Basis::MapperName);
    if texts.add_file(files, disk, "dm/name") {
        texts.add_file(files, Folder::Machine, MACHINE_ID);
        return (texts, Basis::MapperName);
    }
    let in_memory = MEMORY_DISKS.iter().any(|disk| name.starts_with(disk));
    let basis = match in_memory {
        true => Basis::NameInBoot,
        false => Basis::Name,
    };
    let mut texts = Texts::of(basis);
    texts.add(name);
    if in_memory {
        texts.add(&boot.get().to_le_bytes());
    } else {
        texts.add_file(files, Folder::Machine, MACHINE_ID);
    }
    (texts, basis)
}

/// The maximum length of a UUID in a partition table (`PARTITION_META_INFO_UUIDLTH`), without its
/// NUL.
const PARTITION_UUID_MAX: usize = 36;

/// The partition of the device, if it is not a whole disk.
struct Partition {
    /// The UUID, or the number as text.
    text: [u8; PARTITION_UUID_MAX],
    len: usize,
    has_uuid: bool,
}

impl Partition {
    fn of(files: &mut impl Files) -> Option<Self> {
        let mut partition = Self {
            text: [0; PARTITION_UUID_MAX],
            len: 0,
            has_uuid: false,
        };
        partition.keep(text::trim(files.read(Folder::Device, "partition")));
        if partition.len == 0 {
            return None;
        }
        let lines = files.read(Folder::Device, "uevent").split(|c| *c == b'\n');
        let uuid = lines
            .filter_map(|line| line.strip_prefix(b"PARTUUID="))
            .next();
        if let Some(uuid) = uuid.map(text::trim).filter(|uuid| !uuid.is_empty()) {
            partition.keep(uuid);
            partition.has_uuid = true;
        }
        Some(partition)
    }

    fn keep(&mut self, text: &[u8]) {
        self.text = [0; PARTITION_UUID_MAX];
        self.len = text.len().min(PARTITION_UUID_MAX);
        for (to, from) in self.text.iter_mut().zip(text) {
            *to = *from;
        }
    }

    fn uuid_or_number(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or(&self.text)
    }

    fn uuid(&self) -> Option<&[u8]> {
        self.has_uuid.then(|| self.uuid_or_number())
    }
}
