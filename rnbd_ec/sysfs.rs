// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rnbd-ec` and `/sys/block/N/ec`.
//!
//! ```text
//! /sys/class/rnbd-ec/ctl/assemble   what to assemble or to make; see `proto::command`
//! /sys/block/N/ec/state             clean, degraded, resyncing, failed; and what to do
//!                 members           for each its number, its state, its device
//!                 stats             what was done
//!                 uuid              of the array
//!                 replace           a new device for the member that is missing
//!                 fail              number of a member: goes on without it; none: it may return
//!                 recover_every_n   each read with this number is rebuilt
//!                 stop              1: makes all durable, and removes the disk
//! ```

use ferro_proto::text::{
    parse_i32,
    Escaped, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    memory,
    sysfs::{
        Attribute,
        Class,
        ClassDevice,
        Directory,
        HasFolder,
        ShowBuffer,
        StoreContext, //
    },
};
use seglog::members::MEMBERS;

use crate::{
    arrays::Arrays,
    device::Device,
    THIS_MODULE, //
};

/// Files of the module.
static CONTROL: [Attribute<Arrays>; 1] =
    [Attribute::rw(c"assemble", show_assemble, store_assemble)];

/// Files of an array.
static DEVICE: [Attribute<Device>; 8] = [
    Attribute::ro(c"state", show_state),
    Attribute::ro(c"members", show_members),
    Attribute::ro(c"stats", show_stats),
    Attribute::ro(c"uuid", show_uuid),
    Attribute::rw(c"replace", show_replace, store_replace),
    Attribute::rw(c"fail", show_fail, store_fail),
    Attribute::rw(
        c"recover_every_n",
        show_recover_every_n,
        store_recover_every_n,
    ),
    Attribute::rw(c"stop", show_stop, store_stop),
];

/// The files of the module. The drop removes them and stops all arrays.
pub(crate) struct Control {
    // Dropped first: no array is assembled any more.
    device: Option<ClassDevice<Arrays>>,
    arrays: Arc<Arrays>,
    _class: Class,
}

impl Control {
    /// Creates the files.
    pub(crate) fn new(arrays: Arc<Arrays>) -> Result<Self> {
        let class = Class::register(c"rnbd-ec")?;
        let device = ClassDevice::new(&class, c"ctl", &CONTROL, arrays.clone())?;
        Ok(Self {
            device: Some(device),
            arrays,
            _class: class,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.device = None;
        self.arrays.stop_all();
    }
}

/// Creates the files of an array, in the folder of its disk.
pub(crate) fn files(disk: &impl HasFolder, device: Arc<Device>) -> Result<Directory<Device>> {
    Directory::new(disk, c"ec", &DEVICE, device)
}

fn show_assemble(_arrays: &Arrays, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(
        page,
        "Usage: echo \"[mode=<assemble|create>] name=<name of the disk> \
         members=<device>,<device>[,<device>] [size=<bytes>[K|M|G|T]] [codec=<lz4|none>] \
         [matrix=<xor|vandermonde>] [force=<0|1>] [member_timeout_ms=<ms>] [hedge_ms=<ms>] \
         [recover_every_n=<n>]\" > assemble"
    )
}

fn store_assemble(
    arrays: ArcBorrow<'_, Arrays>,
    _context: &StoreContext<'_>,
    line: &str,
) -> Result {
    memory::without_io(|| Arc::<Arrays>::from(arrays).assemble(line.as_bytes()))
}

fn show_state(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    device.show_state(page)
}

fn show_members(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    device.show_members(page)
}

fn show_stats(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    device.show_stats(page)
}

fn show_uuid(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    device.show_uuid(page)
}

fn show_replace(_device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo <device> > replace")
}

fn store_replace(device: ArcBorrow<'_, Device>, _context: &StoreContext<'_>, path: &str) -> Result {
    memory::without_io(|| device.replace(path.as_bytes()))
}

fn show_fail(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    device.show_failed(page)
}

fn store_fail(device: ArcBorrow<'_, Device>, _context: &StoreContext<'_>, word: &str) -> Result {
    let number = parse_i32(word.as_bytes(), 10).ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    let member = number.filter(|member| *member < MEMBERS);
    if member.is_none() && word != "none" {
        pr_err!(
            "{}: fail: '{}' is neither a member nor none\n",
            device.name(),
            Escaped(word.as_bytes())
        );
        return Err(EINVAL);
    }
    memory::without_io(|| device.fail(member))
}

fn show_recover_every_n(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", device.recover_every_n())
}

fn store_recover_every_n(
    device: ArcBorrow<'_, Device>,
    _context: &StoreContext<'_>,
    number: &str,
) -> Result {
    let n = parse_i32(number.as_bytes(), 10).ok();
    let n = n.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
        pr_err!(
            "{}: recover_every_n: '{}' is not in 0..=2147483647\n",
            device.name(),
            Escaped(number.as_bytes())
        );
        EINVAL
    })?;
    device.set_recover_every_n(n);
    Ok(())
}

fn show_stop(_device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo 1 > stop")
}

fn store_stop(device: ArcBorrow<'_, Device>, context: &StoreContext<'_>, word: &str) -> Result {
    if word != "1" {
        pr_err!(
            "{}: stop: '{}' is not 1: ignored\n",
            device.name(),
            Escaped(word.as_bytes())
        );
        return Err(EINVAL);
    }
    let device: Arc<Device> = device.into();
    memory::without_io(|| {
        let forbidden = device.begin_stop()?;
        // This file is removed with the disk: first, so that the stop does not wait for its writer.
        context.remove_self(&THIS_MODULE)?;
        device.arrays().stop(&device, forbidden);
        Ok(())
    })
}
