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
    memory as kernel_memory,
    sync::{
        new_irq_lock,
        new_wait_queue,
        Completion,
        IrqLock,
        WaitQueue, //
    },
    sysfs::Directory,
    workqueue::{
        Flags,
        WorkQueue, //
    },
};

use super::{
    engine::Engine,
    files::{
        self,
        Filing, //
    },
    folders::{
        FolderUse,
        Folders, //
    },
    log::{
        self,
        OpenedStore, //
    },
    medium::Acting,
    memory::{
        claims,
        random_key,
        Elements,
        RamPages,
        Tables, //
    },
    one_device::LogDevice,
    store::{
        Backing,
        StoreOn,
        StoreService, //
    },
    sysfs, //
};
use crate::proto::{
    command::{
        Command,
        LogOn, //
    },
    format::slots_of,
    index::Index,
    medium::Ram,
    slot::{
        Slot,
        NONE, //
    },
    span::{
        ObjectId,
        BLOCK_BYTES, //
    },
    store::Store, //
};

/// A store in memory.
type InMemory = Store<Tables, Ram<RamPages>>;

/// A store and its files.
struct Shown {
    files: Directory<ShownStore>,
    store: Arc<dyn StoreService>,
}

/// A store, as its files know it.
pub(super) struct ShownStore(pub(super) Arc<dyn StoreService>);

/// The most stores that are added or deleted at a time: who adds more waits.
const CHANGING_MAX: usize = 64;

/// A store that is being added or deleted, for which no one else does so.
struct Changing<'a> {
    stores: &'a Stores,
    name: &'a [u8],
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut names = self.stores.changing.lock();
        let place = names.iter().position(|name| **name == *self.name);
        let name = place.and_then(|place| names.remove(place).ok());
        drop(names);
        drop(name);
        self.stores.changed.wake_all();
    }
}

/// All stores.
#[pin_data]
pub(crate) struct Stores {
    queue: Arc<WorkQueue>,
    /// See [`LogDevice`].
    owed: Arc<WorkQueue>,
    /// The queue of what is done with files, which may need memory that is dirty.
    file_queue: Arc<WorkQueue>,
    /// The folders in which stores have files.
    folders: Arc<Folders>,
    /// The names of those that are being added or deleted, whose devices may hang: others are not
    /// held up. There is room for [`CHANGING_MAX`].
    #[pin]
    changing: IrqLock<KVec<KVec<u8>>>,
    #[pin]
    changed: WaitQueue,
    #[pin]
    list: Mutex<KVec<Shown>>,
    /// Completes when nothing of a store that was deleted is left.
    #[pin]
    gone: Mutex<KVec<Arc<Completion>>>,
    /// The folder of their files.
    #[pin]
    folder: Mutex<Option<Directory<()>>>,
}

impl Stores {
    /// None. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queue = WorkQueue::new(c"rioc_server", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?;
        let queue = Arc::new(queue, GFP_KERNEL)?;
        let owed = WorkQueue::new(c"rioc_server_owed", Flags::UNBOUND, 0)?;
        let owed = Arc::new(owed, GFP_KERNEL)?;
        let file_queue = WorkQueue::new(c"rioc_files", Flags::UNBOUND, 0)?;
        let file_queue = Arc::new(file_queue, GFP_KERNEL)?;
        let folders = new_mutex!(KVec::new(), "rioc_server::Stores::folders");
        let folders = Arc::pin_init(folders, GFP_KERNEL)?;
        let names = KVec::with_capacity(CHANGING_MAX, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                queue,
                owed,
                file_queue,
                folders,
                changing <- new_irq_lock!(names, "rioc_server::Stores::changing"),
                changed <- new_wait_queue!(),
                list <- new_mutex!(KVec::new(), "rioc_server::Stores::list"),
                gone <- new_mutex!(KVec::new(), "rioc_server::Stores::gone"),
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

    /// Lets no one else add or delete a store of this name. Sleeps, and can be killed.
    fn begin_to_change<'a>(&'a self, name: &'a [u8]) -> Result<Changing<'a>> {
        let mut own = KVec::with_capacity(name.len(), GFP_KERNEL)?;
        own.extend_from_slice(name, GFP_KERNEL)?;
        let mut own = Some(own);
        self.changed.wait_until_killable(|| {
            let mut names = self.changing.lock();
            let is_free = names.len() < CHANGING_MAX && !names.iter().any(|other| **other == *name);
            if let Some(own) = own.take_if(|_| is_free) {
                // There is room.
                let _ = names.push_within_capacity(own);
            }
            is_free
        })?;
        Ok(Changing { stores: self, name })
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
        let name = command.name;
        let _changing = self.begin_to_change(name.as_bytes())?;
        if self.find(name.as_bytes()).is_some() {
            pr_err!("add_store: '{name}' is there: choose another name=, or delete it first\n");
            return Err(EEXIST);
        }
        let store = self.make(&command)?;
        self.show(&store).inspect_err(|error| {
            pr_err!("add_store: '{name}': no files can be made: {error:?}\n");
            let _ = self.stop(&store);
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

    /// Makes a store on a log.
    #[inline(never)]
    fn make_on_log(&self, name: &str, on: &LogOn<'_>) -> Result<Arc<dyn StoreService>> {
        let device = LogDevice {
            device: log::open(name, on)?,
            owed: self.owed.clone(),
        };
        let opened = log::assemble(name, on, &device)?;
        self.begin_on_log(name, opened)
    }

    /// Begins a store on a log that was opened.
    #[inline(never)]
    fn begin_on_log(&self, name: &str, opened: OpenedStore) -> Result<Arc<dyn StoreService>> {
        let engine = Engine::new(opened.store, opened.acting)?;
        let of = (name, opened.memory_bytes);
        let queues = (self.queue.clone(), self.file_queue.clone());
        let store = StoreOn::new(of, queues, engine, (Some(opened.device), None))?;
        store.run_log();
        Ok(store)
    }

    /// Makes a store.
    fn make(&self, command: &Command<'_>) -> Result<Arc<dyn StoreService>> {
        let name = command.name;
        if let Some(on) = &command.log {
            if command.ram_mib > 0 {
                pr_warn!(
                    "add_store: '{name}': ram_mib= is not used: blocks are read from the log\n"
                );
            }
            return self.make_on_log(name, on);
        }
        self.make_in_memory(command)
    }

    /// Makes a store in memory.
    #[inline(never)]
    fn make_in_memory(&self, command: &Command<'_>) -> Result<Arc<dyn StoreService>> {
        let name = command.name;
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
        let medium = Ram::new(RamPages::new(count)?, blocks);
        let mut store = KBox::new(Store::new(index, claims()?, medium), GFP_KERNEL)?;
        if command.evicts {
            store.evict_objects();
        }
        let filing = match command.backing {
            Some(path) => Some(self.adopt(name, path, &mut store)?),
            None => None,
        };
        let engine = Engine::new(store, Acting::new(None)?)?;
        let queues = (self.queue.clone(), self.file_queue.clone());
        let store = StoreOn::new((name, needed), queues, engine, (None, filing))?;
        pr_info!("store '{name}': {} MiB in memory\n", command.ram_mib);
        Ok(store)
    }

    /// Takes in the objects of a folder.
    #[inline(never)]
    fn adopt(&self, name: &str, path: &[u8], store: &mut InMemory) -> Result<Backing> {
        let mut folder = files::open(name, path)?;
        let shown = ferro_proto::text::Escaped(path);
        let used = FolderUse::new(&self.folders, folder.identity()).inspect_err(|error| {
            pr_err!(
                "add_store: '{name}': backing={}: {error:?}: if a store has it: give each its own \
                 folder\n",
                format_args!("{shown}")
            );
        })?;
        // Not before: that of a store that has not ended may hang.
        files::probe(&folder).inspect_err(|error| {
            pr_err!(
                "add_store: '{name}': backing={}: cannot be written: {error:?}: mount it for \
                 writing, make room, and move away a file .rioc\n",
                format_args!("{shown}")
            );
        })?;
        let slots = store.index().slots().count();
        let objects_max = slots as usize;
        let found = files::objects(&mut folder, objects_max);
        let (found, others) = found.map_err(|(error, of)| {
            let Some(ObjectId { high, low }) = of else {
                pr_err!(
                    "add_store: '{name}': backing={}: cannot be read: {error:?}\n",
                    format_args!("{shown}")
                );
                return error;
            };
            pr_err!(
                "add_store: '{name}': backing={}: {high:016x}{low:016x} is no object: {error:?}: \
                 move it away\n",
                format_args!("{shown}")
            );
            error
        })?;
        store.back();
        for of in found.iter() {
            store.adopt(*of).map_err(|refused| {
                let error = Error::from(refused.errno());
                pr_err!(
                    "add_store: '{name}': backing={}: its objects do not fit in {slots} slots: \
                     {error:?}: give more ram_mib=\n",
                    format_args!("{shown}")
                );
                error
            })?;
        }
        pr_info!(
            "store '{name}': {} objects in {}, {others} other names\n",
            found.len(),
            format_args!("{shown}")
        );
        Ok(Backing::new(Filing::new(folder)?, used))
    }

    /// Deletes the store with a name: its clients get `ENODEV`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, after a log line; `ERESTARTSYS` if the task is killed.
    pub(super) fn delete(&self, name: &[u8]) -> Result {
        let _changing = self.begin_to_change(name)?;
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
        self.stop(&store)?;
        pr_info!("store '{}' deleted\n", store.name());
        Ok(())
    }

    /// Ends a store. The removal of the module waits for the end of its last IO, which may still be
    /// on its way out.
    fn stop(&self, store: &Arc<dyn StoreService>) -> Result {
        let stopped = store.clone().stop(&self.owed);
        let mut gone = self.gone.lock();
        gone.retain(|gone| !gone.is_done());
        if gone.push(store.gone(), GFP_KERNEL).is_err() {
            pr_warn!(
                "store '{}': no memory to note that it was deleted\n",
                store.name()
            );
        }
        stopped
    }

    /// Deletes all of them: the module goes, and no one adds or deletes any. Sleeps.
    pub(super) fn delete_all(&self) {
        loop {
            let Some(Shown { files, store }) = self.list.lock().pop() else {
                break;
            };
            drop(files);
            let _ = self.stop(&store);
        }
        while let Some(gone) = self.gone.lock().pop() {
            gone.wait();
        }
    }
}
