// SPDX-License-Identifier: GPL-2.0

//! The stores of this machine.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    memory as kernel_memory, random,
    sysfs::Directory,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

use super::{
    engine::Engine,
    medium::Acting,
    memory::{
        Elements,
        RamPages, //
    },
    store::{
        StoreOn,
        StoreService, //
    },
    sysfs, //
};
use crate::proto::{
    claim::{
        Claim,
        Claims, //
    },
    command::Command,
    index::Index,
    medium::Ram,
    slot::{
        Slot,
        NONE, //
    },
    span::BLOCK_BYTES,
    store::Store, //
};

/// The claims of a store.
const CLAIMS: usize = 4096;
/// The lists of claims, by their hashes.
const CLAIM_BUCKETS: usize = 1024;
/// The slots of a store beside those of its blocks.
const SLOTS_MIN: u64 = 4096;

/// A store and its files.
struct Shown {
    files: Directory<ShownStore>,
    store: Arc<dyn StoreService>,
}

/// A store, as its files know it.
pub(super) struct ShownStore(pub(super) Arc<dyn StoreService>);

/// All stores.
#[pin_data]
pub(crate) struct Stores {
    queue: Arc<WorkQueue>,
    /// Held while one is added or deleted.
    #[pin]
    changing: Mutex<()>,
    #[pin]
    list: Mutex<KVec<Shown>>,
    /// The folder of their files.
    #[pin]
    folder: Mutex<Option<Directory<()>>>,
}

fn random_key() -> [u64; 2] {
    [random::number(), random::number()]
}

/// Returns the slots for so many blocks: each may be an extent with a range of its own.
fn slots_of(blocks: u64) -> u64 {
    let slots = blocks.saturating_mul(5) / 2;
    slots.saturating_add(SLOTS_MIN).min(u64::from(NONE))
}

impl Stores {
    /// None. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queue = WorkQueue::new(c"rioc_server", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?;
        let queue = Arc::new(queue, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                queue,
                changing <- new_mutex!((), "rioc_server::Stores::changing"),
                list <- new_mutex!(KVec::new(), "rioc_server::Stores::list"),
                folder <- new_mutex!(None, "rioc_server::Stores::folder"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the queue of the work items of stores and sessions.
    pub(super) fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// Sets the folder for the files of stores, or takes it away.
    pub(super) fn set_folder(&self, folder: Option<Directory<()>>) {
        let before = core::mem::replace(&mut *self.folder.lock(), folder);
        drop(before);
    }

    /// Returns the store with a name.
    pub(super) fn find(&self, name: &[u8]) -> Option<Arc<dyn StoreService>> {
        let list = self.list.lock();
        let mut stores = list.iter().map(|shown| &shown.store);
        stores
            .find(|store| store.name().to_bytes() == name)
            .cloned()
    }

    /// Carries out a line. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `ABI/sysfs-class-rioc-server`, after a log line.
    pub(super) fn add(&self, line: &[u8]) -> Result {
        let command = Command::parse(line).map_err(|wrong| {
            pr_err!("add_store: {}\n", format_args!("{wrong}"));
            Error::from(wrong.errno())
        })?;
        let _changing = self.changing.lock();
        let name = command.name;
        if self.find(name.as_bytes()).is_some() {
            pr_err!("add_store: '{name}' is there: choose another name=, or delete it first\n");
            return Err(EEXIST);
        }
        let store = self.make(&command)?;
        self.show(&store).inspect_err(|error| {
            pr_err!("add_store: '{name}': no files can be made: {error:?}\n");
            store.clone().stop();
        })
    }

    fn show(&self, store: &Arc<dyn StoreService>) -> Result {
        let shown = Arc::new(ShownStore(store.clone()), GFP_KERNEL)?;
        let folder = self.folder.lock();
        let files = sysfs::files(folder.as_ref().ok_or(ENODEV)?, store.name(), shown)?;
        drop(folder);
        let mut list = self.list.lock();
        list.reserve(1, GFP_KERNEL)?;
        let store = store.clone();
        Ok(list.push(Shown { files, store }, GFP_KERNEL)?)
    }

    /// Makes a store in memory.
    fn make(&self, command: &Command<'_>) -> Result<Arc<dyn StoreService>> {
        let name = command.name;
        if command.log.is_some() {
            pr_err!("add_store: '{name}': log= is not built: leave it out\n");
            return Err(kernel_ext::errno::EOPNOTSUPP);
        }
        let blocks = command.ram_mib.saturating_mul((1 << 20) / BLOCK_BYTES);
        let count = u32::try_from(blocks).map_err(|_| EINVAL)?;
        let slots = slots_of(blocks);
        let table = slots.saturating_mul(size_of::<Slot>() as u64);
        let needed = table.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
        let there = kernel_memory::available_bytes();
        if needed > there {
            pr_err!("add_store: '{name}' takes {needed} bytes of memory, and {there} are free\n");
            return Err(ENOMEM);
        }
        let buckets = usize::try_from(blocks / 2).map_err(|_| ENOMEM)?;
        let slots = usize::try_from(slots).map_err(|_| ENOMEM)?;
        let table = Elements::new(Slot::Free(NONE), slots)?;
        let index = Index::new(table, Elements::new(NONE, buckets)?, random_key());
        let claims = Claims::new(
            Elements::new(Claim::FREE, CLAIMS)?,
            Elements::new(NONE, CLAIM_BUCKETS)?,
            // CAST: Its lower half.
            (random_key(), random::number() as u32),
        );
        let medium = Ram::new(RamPages::new(count)?, blocks);
        let mut store = KBox::new(Store::new(index, claims, medium), GFP_KERNEL)?;
        if command.evicts {
            store.evict_objects();
        }
        let engine = Engine::new(store, Acting::new()?)?;
        let store = StoreOn::new((name, needed), self.queue.clone(), engine)?;
        pr_info!("store '{name}': {} MiB in memory\n", command.ram_mib);
        Ok(store)
    }

    /// Deletes the store with a name: its clients get `ENODEV`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, after a log line.
    pub(super) fn delete(&self, name: &[u8]) -> Result {
        let _changing = self.changing.lock();
        let mut list = self.list.lock();
        let is_it = |shown: &Shown| shown.store.name().to_bytes() == name;
        let place = list.iter().position(is_it);
        let shown = place.and_then(|place| list.remove(place).ok());
        drop(list);
        let Some(Shown { files, store }) = shown else {
            let name = ferro_proto::text::Escaped(name);
            pr_err!(
                "del_store: there is no store '{}'\n",
                format_args!("{name}")
            );
            return Err(ENOENT);
        };
        drop(files);
        store.clone().stop();
        pr_info!("store '{}' deleted\n", store.name());
        Ok(())
    }

    /// Deletes all of them: the module goes. Sleeps.
    pub(super) fn delete_all(&self) {
        let _changing = self.changing.lock();
        loop {
            let Some(Shown { files, store }) = self.list.lock().pop() else {
                break;
            };
            drop(files);
            store.stop();
        }
    }
}
