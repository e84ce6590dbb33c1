// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rnbd-server`: the devices and the sessions that have them open.
//!
//! ```text
//! ctl/devices/D/block_dev                 link to the disk
//! ctl/devices/D/sidecar/grow              of a device with a sidecar: see `store::growth`
//! ctl/devices/D/sidecar/scrub             of a device with a sidecar: see `store::scrub`
//! ctl/devices/D/sessions/S/read_only      0 or 1
//! ctl/devices/D/sessions/S/access_mode    ro, rw or migration
//! ctl/devices/D/sessions/S/mapping_path   the client's name of the device
//! ctl/devices/D/sessions/S/pi_stats       protection information: what it is, and what was seen
//! ctl/devices/D/sessions/S/force_close    1: close the device, also if its client uses it
//! ```

use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::sysfs::{
    Attribute,
    Class,
    ClassDevice,
    Directory,
    ShowBuffer,
    StoreContext, //
};

use super::device::{
    export::folder,
    mapping::{
        Description,
        Mapping, //
    }, //
};
use crate::{
    proto::control,
    THIS_MODULE, //
};

/// `/sys/class/rnbd-server/ctl`.
pub(crate) struct Control {
    device: ClassDevice<()>,
    _class: Class,
}

impl Control {
    /// Creates the class and its device.
    pub(crate) fn new() -> Result<Self> {
        let class = Class::register(c"rnbd-server")?;
        let device = ClassDevice::new(&class, c"ctl", &[], Arc::new((), GFP_KERNEL)?)?;
        Ok(Self {
            device,
            _class: class,
        })
    }

    /// Returns the folder of the exports.
    pub(super) fn devices(&self) -> Result<Directory<()>> {
        folder(&self.device, c"devices")
    }
}

/// Creates the files of a mapping, in the folder `sessions` of its export. Sleeps.
///
/// # Errors
///
/// Those of sysfs, as `ENOMEM`; the mapping has no files then.
pub(super) fn show(mapping: &mut Mapping) -> Result {
    let description = mapping.description().clone();
    let session = description.session.clone();
    let files = Directory::new(mapping.folder()?, session.name(), &MAPPING, description)?;
    mapping.keep_files(files);
    Ok(())
}

/// The files of a mapping.
static MAPPING: [Attribute<Description>; 5] = [
    Attribute::ro(c"access_mode", show_access_mode),
    Attribute::ro(c"read_only", show_read_only),
    Attribute::ro(c"mapping_path", show_mapping_path),
    Attribute::ro(c"pi_stats", show_pi_stats),
    Attribute::rw(c"force_close", show_force_close, store_force_close),
];

fn show_access_mode(mapping: &Description, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", mapping.access)
}

fn show_read_only(mapping: &Description, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", u8::from(!mapping.access.may_write()))
}

fn show_mapping_path(mapping: &Description, page: &mut ShowBuffer<'_>) -> Result {
    page.write_fmt(fmt!("{}\n", &*mapping.path))
}

fn show_pi_stats(mapping: &Description, page: &mut ShowBuffer<'_>) -> Result {
    match (&mapping.protection, &mapping.seen) {
        (Some(protection), _) => write!(page, "{}", &**protection.stats()),
        (None, Some(seen)) => write!(page, "client none\n{}", &**seen),
        (None, None) => writeln!(page, "mode none"),
    }
}

fn show_force_close(_mapping: &Description, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo 1 > force_close")
}

fn store_force_close(
    mapping: ArcBorrow<'_, Description>,
    context: &StoreContext<'_>,
    written: &str,
) -> Result {
    let session = &mapping.session;
    control::parse_one(written.as_bytes()).map_err(|reason| {
        pr_err!(
            "session {}: force_close of '{}': '{}' is not 1: ignored\n",
            session.name(),
            &*mapping.path,
            Escaped(written.as_bytes())
        );
        Error::from(reason.errno())
    })?;
    pr_info!(
        "session {}: force_close of '{}'\n",
        session.name(),
        &*mapping.path
    );
    // The close removes this file and would wait for its own writer, so the file is removed first.
    context.remove_self(&THIS_MODULE)?;
    session.force_close(&mapping);
    Ok(())
}
