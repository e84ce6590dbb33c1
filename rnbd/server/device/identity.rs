// SPDX-License-Identifier: GPL-2.0

//! Reads the kernel's identifiers of its boot and of its disks, from which `proto` derives numbers.

use block_ext::bdev::BlockDevice;
use kernel::{
    prelude::*,
    str::CString, //
};
use kernel_ext::{
    file,
    random, //
};

use crate::proto::{
    boot::Boot,
    identity::{
        self,
        Basis,
        Files,
        Folder,
        Identity, //
    },
};

/// The maximum length of the path of a loop device's file (`PATH_MAX`); no other text is longer.
const TEXT_LEN_MAX: usize = 4096;

/// Returns the boot of the machine.
pub(crate) fn boot() -> Boot {
    let mut buffer = [0; 64];
    let boot_id = file::read_start(c"/proc/sys/kernel/random/boot_id", &mut buffer);
    match boot_id.map(Boot::from_kernel) {
        Ok(Some(boot)) => return boot,
        Ok(None) => {}
        Err(error) => pr_warn!(
            "the kernel's boot_id cannot be read ({error:?}): to clients each load of this module \
             looks like a boot of the machine\n"
        ),
    }
    loop {
        let mut number = [0; size_of::<u64>()];
        random::fill(&mut number);
        if let Some(boot) = Boot::from_number(u64::from_ne_bytes(number)) {
            return boot;
        }
    }
}

/// The folder of a device in sysfs.
struct Sysfs {
    device: CString,
    text: KVec<u8>,
}

impl Files for Sysfs {
    fn read(&mut self, folder: Folder, path: &str) -> &[u8] {
        let device = &*self.device;
        let path = match folder {
            Folder::Device => CString::try_from_fmt(fmt!("{device}/{path}")),
            Folder::DiskOfPartition => CString::try_from_fmt(fmt!("{device}/../{path}")),
            Folder::Machine => CString::try_from_fmt(fmt!("/sys/class/dmi/id/{path}")),
        };
        // Most of the files exist for few devices.
        path.and_then(|path| file::read_start(&path, &mut self.text))
            .unwrap_or(&[])
    }
}

/// Returns the identity of `device`, which is used through the sidecar with this UUID, if it has
/// one. Sleeps.
pub(super) fn of_device(
    device: &BlockDevice,
    sidecar: Option<[u8; 16]>,
    boot: Boot,
) -> Result<Option<(Identity, Basis)>> {
    let name = device.name().ok_or(ENXIO)?;
    let number = device.number();
    // `MAJOR` and `MINOR` of `include/linux/kdev_t.h`.
    let (major, minor) = (number >> 20, number & ((1 << 20) - 1));
    let mut files = Sysfs {
        device: CString::try_from_fmt(fmt!("/sys/dev/block/{major}:{minor}"))?,
        text: KVec::from_elem(0, TEXT_LEN_MAX, GFP_KERNEL)?,
    };
    let of_disk = identity::of_device(name.to_bytes(), boot, &mut files);
    Ok(of_disk.map(|(identity, basis)| match sidecar {
        Some(uuid) => (identity.through_sidecar(&uuid), basis),
        None => (identity, basis),
    }))
}
