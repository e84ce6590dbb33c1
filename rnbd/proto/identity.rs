// SPDX-License-Identifier: GPL-2.0

//! By what a server knows a disk again, and by what a client does: after an outage there may be
//! another disk behind the name that the client asks for.
//!
//! The identity is a number made of the best that the server's kernel tells about the disk, and is
//! told to clients that ask for it ([`wire`](super::wire)). It is the same after a restart of the
//! server. Two servers that share a disk tell the same of it, if the disk itself says who it is.

use core::fmt;

use ferro_proto::{
    siphash::SipHash,
    text, //
};

use super::boot::Boot;

/// Makes identities different from other hashes of the same texts. Must not change: clients compare
/// what they were told before an upgrade of the server with what they are told after it.
const KEY: [u64; 2] = [0x7266_656e_7262_6473, 0x6469_736b_2069_6431];

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

    /// Reads the number of an OPEN answer; `None` if it is none, as 0 is.
    pub const fn from_wire(raw: u64) -> Option<Self> {
        if raw >> Self::NAA_SHIFT == Self::NAA {
            // INVARIANT: Just checked.
            Some(Self(raw))
        } else {
            None
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Says whether a disk that was `before` may be the one that is `now`: what is not known
    /// excludes nothing.
    pub fn may_be_same(before: Option<Self>, now: Option<Self>) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "naa.{:016x}", self.0)
    }
}

/// What an identity is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// An identifier of the disk's own.
    OwnId,
    /// The UUID in the partition table; the disk has no identifier.
    PartitionUuid,
    /// The file that a loop device shows, and this machine.
    BackingFile,
    /// The name that a device-mapper device was given, and this machine.
    MapperName,
    /// The name of a disk in memory, and this boot: with the boot its content ends.
    NameInBoot,
    /// The name that the kernel gave it, and this machine.
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

/// Where a path of [`Files`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// In the device's folder in sysfs.
    Device,
    /// In that of the disk that the device is a partition of.
    DiskOfPartition,
    /// In the folder that describes the machine's hardware.
    Machine,
}

/// The text files in which the server's kernel describes a device.
pub trait Files {
    /// The beginning of a file; empty if there is none.
    fn read(&mut self, folder: Folder, path: &str) -> &[u8];
}

/// Where disks say who they are, the most reliable first: NVMe and our own client; SCSI and ATA;
/// device-mapper; md; virtio; MMC; persistent memory; DASD.
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

/// A hash of texts: two lists of texts have the same only if they are the same.
struct Texts(SipHash);

impl Texts {
    fn of(basis: Basis) -> Self {
        let mut texts = Self(SipHash::new(KEY));
        // CAST: A small number. Must not change either.
        texts.add(&[basis as u8]);
        texts
    }

    fn add(&mut self, part: &[u8]) {
        self.0.write(&(part.len() as u64).to_le_bytes());
        self.0.write(part);
    }

    /// Adds a file's text; says whether there is one.
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

/// The identity of the device that the server's kernel calls `name`, for a server in `boot`. `None`
/// if nothing can be read about the device: what is made of nothing would change with the first
/// file that can be read.
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

/// A disk that does not say who it is.
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

/// Longest UUID in a partition table (`PARTITION_META_INFO_UUIDLTH`), without its NUL.
const PARTITION_UUID_MAX: usize = 36;

/// What the device is of its disk, if it is not all of it.
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
