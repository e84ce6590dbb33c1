// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rnbd-client` and `/sys/block/rnbdN/rnbd`.
//!
//! ```text
//! /sys/class/rnbd-client/ctl/map_device   what to map; see `proto::map`
//! /sys/class/rnbd-client/ctl/devices/P@S  link to the disk of device P of session S
//! /sys/block/rnbdN/rnbd/unmap_device      normal or force
//!                       resize            new size in sectors
//!                       remap_device      1: open the device on the server again; force: also if
//!                                         the server has another disk under its name now
//!                       state, session, mapping_path, access_mode, nr_poll_queues
//!                       cache_losses      how often writes may be gone with the server's cache
//!                       pi_stats          protection information: what it is, and what was seen
//! ```

use ferro_proto::text::Escaped;
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

use super::{
    device::Device,
    map,
    Client, //
};
use crate::{
    proto::control::{
        self,
        Remap,
        Unmap, //
    },
    THIS_MODULE, //
};

/// Files of the client.
static CONTROL: [Attribute<Client>; 1] = [Attribute::rw(
    c"map_device",
    show_map_device,
    store_map_device,
)];

/// Files of a mapped device.
static DEVICE: [Attribute<Device>; 10] = [
    Attribute::rw(c"unmap_device", show_unmap_device, store_unmap_device),
    Attribute::rw(c"resize", show_resize, store_resize),
    Attribute::rw(c"remap_device", show_remap_device, store_remap_device),
    Attribute::ro(c"mapping_path", show_mapping_path),
    Attribute::ro(c"state", show_state),
    Attribute::ro(c"session", show_session),
    Attribute::ro(c"access_mode", show_access_mode),
    Attribute::ro(c"nr_poll_queues", show_nr_poll_queues),
    Attribute::ro(c"cache_losses", show_cache_losses),
    Attribute::ro(c"pi_stats", show_pi_stats),
];

/// The files of the client. The drop removes them and unmaps all devices.
pub(crate) struct Control {
    // Dropped first: no thread maps a device any more.
    device: Option<ClassDevice<Client>>,
    client: Arc<Client>,
    _class: Class,
}

impl Control {
    /// Creates the files of `client`.
    pub(crate) fn new(client: Arc<Client>) -> Result<Self> {
        let class = Class::register(c"rnbd-client")?;
        let device = ClassDevice::new(&class, c"ctl", &CONTROL, client.clone())?;
        let devices = Directory::new(&device, c"devices", &[], Arc::new((), GFP_KERNEL)?)?;
        client.set_devices(Some(Arc::new(devices, GFP_KERNEL)?));
        Ok(Self {
            device: Some(device),
            client,
            _class: class,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The folder of links is removed with the last device.
        self.client.set_devices(None);
        // The removal of the file waits for its writers, and these for a server.
        self.client.disconnect_all();
        self.device = None;
        map::unmap_all(&self.client);
        // The last steps of closed sessions, and their last events, may still be pending.
        self.client.flush();
        rtrs_client::flush();
        // An item of the first flush may have queued one of another disk.
        self.client.flush();
    }
}

/// Creates the files of `device`, in the folder of its disk.
pub(super) fn files(disk: &impl HasFolder, device: Arc<Device>) -> Result<Directory<Device>> {
    Directory::new(disk, c"rnbd", &DEVICE, device)
}

fn show_map_device(_client: &Client, page: &mut ShowBuffer<'_>) -> Result {
    write!(
        page,
        "Usage: echo \"[dest_port=server port number] sessname=<name of the rtrs session> \
         path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote \
         side> [access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]\" > \
         map_device\n\naddr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n"
    )
}

fn store_map_device(
    client: ArcBorrow<'_, Client>,
    _context: &StoreContext<'_>,
    line: &str,
) -> Result {
    memory::without_io(|| map::map(&client.into(), line.as_bytes()))
}

fn show_unmap_device(_device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo <normal|force> > unmap_device")
}

fn store_unmap_device(
    device: ArcBorrow<'_, Device>,
    context: &StoreContext<'_>,
    word: &str,
) -> Result {
    let device: Arc<Device> = device.into();
    let how = Unmap::parse(word.as_bytes()).map_err(|reason| {
        pr_err!(
            "{}: unmap_device: '{}' is not normal or force\n",
            &*device,
            Escaped(word.as_bytes())
        );
        Error::from(reason.errno())
    })?;
    if !device.is_shown() {
        pr_err!("{}: unmap_device: is just being mapped\n", &*device);
        return Err(EBUSY);
    }
    let unmap_state = memory::without_io(|| device.begin_unmap(how))?;
    // This file is removed with the device: first, so that unmapping does not wait for its own
    // writer.
    if let Err(error) = context.remove_self(&THIS_MODULE) {
        // The module is being unloaded, which unmaps the device.
        device.cancel_unmap(unmap_state);
        return Err(error);
    }
    memory::without_io(|| device.await_unmap(unmap_state))
}

fn show_resize(_device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo <new size in sectors> > resize")
}

fn store_resize(
    device: ArcBorrow<'_, Device>,
    _context: &StoreContext<'_>,
    number: &str,
) -> Result {
    let sectors = control::parse_resize(number.as_bytes()).map_err(|reason| {
        pr_err!(
            "{}: resize: '{}' is no number of sectors\n",
            &*device,
            Escaped(number.as_bytes())
        );
        Error::from(reason.errno())
    })?;
    memory::without_io(|| device.resize(sectors))
}

fn show_remap_device(_device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo <1> > remap_device")
}

fn store_remap_device(
    device: ArcBorrow<'_, Device>,
    _context: &StoreContext<'_>,
    word: &str,
) -> Result {
    let how = Remap::parse(word.as_bytes()).map_err(|reason| {
        pr_err!(
            "{}: remap_device: '{}' is not 1 or force\n",
            &*device,
            Escaped(word.as_bytes())
        );
        Error::from(reason.errno())
    })?;
    memory::without_io(|| Arc::<Device>::from(device).remap(how))
}

fn show_mapping_path(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    page.write_fmt(fmt!("{}\n", device.path()))
}

fn show_state(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", device.state())
}

fn show_session(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    page.write_fmt(fmt!("{}\n", device.session().name()))
}

fn show_access_mode(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", device.access())
}

fn show_nr_poll_queues(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", device.session().poll_queues())
}

fn show_cache_losses(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", device.cache_losses())
}

fn show_pi_stats(device: &Device, page: &mut ShowBuffer<'_>) -> Result {
    match device.protection() {
        Some(protection) => write!(page, "{}", protection.stats()),
        None => writeln!(page, "mode none"),
    }
}
