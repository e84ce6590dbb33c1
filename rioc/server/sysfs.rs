// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rioc-server`.
//!
//! ```text
//! ctl/add_store           makes a store; see `proto::command`
//! ctl/del_store           name of a store: what it has in memory is gone
//! ctl/stores/N/state      what an acknowledgement means
//!              stats      what it has, and what was done
//!              clients    for each its number, session, operations, bytes in flight and leases
//! ```

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    memory,
    module::ModuleUse,
    sysfs::{
        Attribute,
        Class,
        ClassDevice,
        Directory,
        ShowBuffer,
        StoreContext, //
    },
};

use super::stores::{
    ShownStore,
    Stores, //
};

/// Files of the module.
static CONTROL: [Attribute<Stores>; 2] = [
    Attribute::rw(c"add_store", show_add_store, store_add_store),
    Attribute::rw(c"del_store", show_del_store, store_del_store),
];

/// Files of a store.
static STORE: [Attribute<ShownStore>; 3] = [
    Attribute::ro(c"state", |store, page| store.0.show_state(page)),
    Attribute::ro(c"stats", |store, page| store.0.show_stats(page)),
    Attribute::ro(c"clients", |store, page| store.0.show_clients(page)),
];

/// The files of the module. The drop removes them and deletes all stores.
pub(crate) struct Control {
    // Dropped first: no store is added any more.
    device: Option<ClassDevice<Stores>>,
    stores: Arc<Stores>,
    _class: Class,
}

impl Control {
    /// Creates the files.
    pub(crate) fn new(stores: Arc<Stores>) -> Result<Self> {
        let class = Class::register(c"rioc-server")?;
        let device = ClassDevice::new(&class, c"ctl", &CONTROL, stores.clone())?;
        let folder = Directory::new(&device, c"stores", &[], Arc::new((), GFP_KERNEL)?)?;
        stores.set_folder(Some(folder));
        Ok(Self {
            device: Some(device),
            stores,
            _class: class,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.device = None;
        self.stores.delete_all();
        self.stores.set_folder(None);
    }
}

/// Creates the files of a store.
pub(super) fn files(
    stores: &Directory<()>,
    name: &CStr,
    store: Arc<ShownStore>,
) -> Result<Directory<ShownStore>> {
    Directory::new(stores, name, &STORE, store)
}

fn show_add_store(_stores: &Stores, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(
        page,
        "Usage: echo \"name=<name> ram_mib=<MiB> [evict=objects|backing=<folder>]\" > add_store\n\
         \x20      echo \"name=<name> log=<device> [mode=<assemble|create>] [force=<0|1>]\" > \
         add_store"
    )
}

fn store_add_store(
    stores: ArcBorrow<'_, Stores>,
    _context: &StoreContext<'_>,
    line: &str,
) -> Result {
    // A file system that hangs may have it wait: who unloads the module is told so.
    let _in_use = ModuleUse::new(&crate::THIS_MODULE);
    memory::without_io(|| stores.add(line.as_bytes()))
}

fn show_del_store(_stores: &Stores, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo <name> > del_store")
}

fn store_del_store(
    stores: ArcBorrow<'_, Stores>,
    _context: &StoreContext<'_>,
    name: &str,
) -> Result {
    memory::without_io(|| stores.delete(name.as_bytes()))
}
