// SPDX-License-Identifier: GPL-2.0

//! Arrays that are assembled: their members, their disk, and what is done for both.
//!
//! | file | what |
//! |---|---|
//! | `assembly` | members are opened, arrays made and assembled |
//! | `core` | what all contexts share; the ends of IO |
//! | `engine` | one work item that carries out what the pure array decides |
//! | `prepare` | writes are made records, by several processors |
//! | `writes`, `reads` | requests |
//! | `upkeep` | a second work item: members return, segments are collected |
//! | `rewrite` | what is moved without the blocks that are not live |
//! | `acting` | IO that the array begins by itself |
//! | `submit` | IO of members, also of those that take no more just now |
//! | `one_by_one` | IO whose end is waited for |
//! | `queue` | the disk, as the block layer sees it |
//! | `announcing` | events of user space |
//! | `memory`, `tags`, `stats`, `work_queues` | what these are made of |

mod acting;
mod announcing;
mod assembly;
mod core;
mod engine;
mod memory;
mod one_by_one;
mod prepare;
mod queue;
mod reads;
mod rewrite;
mod stats;
mod submit;
mod tags;
mod upkeep;
mod work_queues;
mod writes;

use block_ext::{
    bdev::Holder,
    disk::{
        Disk,
        Live,
        OpensForbidden,
        Uevent, //
    },
};
use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        new_work,
        Work, //
    },
};
use kernel_ext::{
    memory as kernel_memory,
    sync::{
        atomic::Ordering::Relaxed,
        Completion, //
    },
    sysfs::{
        Directory,
        ShowBuffer, //
    },
    text::c_string, //
};

use seglog::members::MEMBERS;

use self::{
    core::Core,
    stats::STATS, //
};
pub(crate) use self::{
    queue::Queue,
    work_queues::{
        ArrayQueues,
        WorkQueues, //
    },
};
use crate::{
    arrays::Arrays,
    proto::{
        array::{
            is_silent,
            State, //
        },
        command::Command,
        geometry, //
    },
    shown::Shown as Words,
    sysfs, //
};

/// The disk of an array and its files, as long as it is not stopped.
struct Shown {
    files: Directory<Device>,
    disk: Disk<Queue, Live>,
}

/// An array that is assembled.
#[pin_data]
pub(crate) struct Device {
    arrays: Arc<Arrays>,
    core: Arc<Core>,
    uuid: [u8; 16],
    gone: Arc<Completion>,
    #[pin]
    shown: Mutex<Option<Shown>>,
    #[pin]
    announcing: Work<Device>,
}

impl Device {
    /// Assembles an array, or makes a new one. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `ABI/sysfs-class-rnbd-ec`, after a log line.
    pub(crate) fn assemble(
        command: &Command<'_>,
        (arrays, queues): (Arc<Arrays>, Arc<ArrayQueues>),
    ) -> Result<Arc<Self>> {
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let assembled = assembly::assemble(command, queues, gone.clone())?;
        let (core, completes) = (assembled.core.clone(), gone.clone());
        let device = Arc::pin_init(
            pin_init!(Self {
                arrays,
                core: assembled.core,
                uuid: assembled.uuid,
                gone: completes,
                shown <- new_mutex!(None, "rnbd_ec::Device::shown"),
                announcing <- new_work!("rnbd_ec::Device::announcing"),
            }),
            GFP_KERNEL,
        );
        device.inspect_err(|_| {
            Core::stop(&core);
            drop(core);
            gone.wait();
        })
    }

    /// Makes the disk and its files. An array that cannot be shown is stopped. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the block layer and of sysfs, after a log line.
    pub(crate) fn show(self: &Arc<Self>) -> Result {
        self.make_disk().inspect_err(|error| {
            pr_err!("{}: no disk can be made: {error:?}\n", self.name());
            self.finish();
        })
    }

    fn make_disk(self: &Arc<Self>) -> Result {
        let layout = self.core.with_engine(|engine| engine.layout());
        let names = (self.core.name(), &self.uuid);
        let mut disk = queue::make(&self.core, names, &layout.ok_or(ENODEV)?)?.add()?;
        self.link(&mut disk);
        let files = sysfs::files(&disk, self.clone())?;
        let reference = (*disk).clone();
        // A stop finds the disk under this lock, and ends the announcing, which keeps the array: it
        // must have begun by then.
        let mut shown = self.shown.lock();
        *shown = Some(Shown { files, disk });
        self.begin_announcing();
        drop(shown);
        // The block layer has logged what it could not read.
        let _ = kernel_memory::without_io(|| reference.scan_partitions());
        Ok(())
    }

    /// Shows which devices the disk is made of.
    fn link(&self, disk: &mut Disk<Queue, Live>) {
        // Not under the engine's lock, as memory may be freed by a write to this disk.
        let devices = KVec::with_capacity(MEMBERS, GFP_KERNEL);
        let linked = devices.map_err(Error::from).and_then(|mut devices| {
            self.core.with_engine(|engine| {
                for device in engine.means.devices.iter().flatten() {
                    // There is room.
                    let _ = devices.push_within_capacity(device.clone());
                }
            });
            disk.set_made_of(&devices)
        });
        if let Err(error) = linked {
            pr_warn!(
                "{}: its members are not shown in sysfs: {error:?}\n",
                self.name()
            );
        }
    }

    /// Forbids opens of the disk, which is to be stopped.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is open, after a log line; `ENODEV` if it was stopped.
    pub(crate) fn begin_stop(&self) -> Result<OpensForbidden<Queue>> {
        self.forbid_open().inspect_err(|error| {
            if *error == EBUSY {
                pr_err!("{}: stop: it is open: unmount it first\n", self.name());
            }
        })
    }

    /// Forbids opens of the disk as [`Self::begin_stop`] does, without a log line.
    pub(crate) fn forbid_open(&self) -> Result<OpensForbidden<Queue>> {
        let shown = self.shown.lock();
        let idle = shown.as_ref().map(|shown| shown.disk.forbid_open_if_idle());
        idle.unwrap_or(Err(ENODEV))
    }

    /// Removes the disk, which cannot be opened any more, and makes all durable. Sleeps.
    pub(crate) fn finish_stop(&self, forbidden: OpensForbidden<Queue>) {
        // The removal of the files waits for who writes `replace`, who waits for the upkeep.
        self.core.begin_stop();
        self.end_announcing();
        let taken = self.shown.lock().take();
        if let Some(Shown { files, disk }) = taken {
            drop(files);
            disk.remove();
        }
        drop(forbidden);
        self.finish();
    }

    /// Ends what the array does; its disk was removed. Sleeps.
    pub(crate) fn finish(&self) {
        Core::stop(&self.core);
        pr_info!("{}: stopped\n", self.name());
    }

    /// Returns the arrays that it is one of.
    pub(crate) fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// Returns the name of its disk.
    pub(crate) fn name(&self) -> &CStr {
        self.core.name()
    }

    /// Puts a new device in the place of the member that is missing. Sleeps.
    ///
    /// # Errors
    ///
    /// As for the file `replace`, after a log line.
    pub(crate) fn replace(&self, path: &[u8]) -> Result {
        let shown = Escaped(path);
        let holder = Holder::new()?;
        let device = assembly::open_member(&c_string(path)?, &holder);
        let device = device.inspect_err(|wrong| {
            pr_err!("{}: replace: {shown}: {wrong}\n", self.name());
        })?;
        let layout = self
            .core
            .with_engine(|engine| engine.layout())
            .ok_or(ENODEV)?;
        let shape = assembly::shape_of(&device);
        geometry::check_place(&shape, &layout).map_err(|why| {
            pr_err!("{}: replace: {shown}: {}\n", self.name(), Words(why));
            EINVAL
        })?;
        let device = Arc::new(device, GFP_KERNEL)?;
        let core = &self.core;
        let replaced = core.with_upkeep(|upkeep| upkeep.replace(core, device));
        let member = replaced.unwrap_or(Err(ENODEV)).inspect_err(|error| {
            pr_err!("{}: replace: {shown}: not done: {error:?}\n", self.name());
        })?;
        pr_info!("{}: member {member} is {shown} from now on\n", self.name());
        if let Some(shown) = &mut *self.shown.lock() {
            self.link(&mut shown.disk);
            shown.disk.uevent(Uevent::Change);
        }
        Ok(())
    }

    /// Fails a member by hand, which does not return until `None` is said, or it is replaced.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if too few others are in sync, or one of them does not answer, after a log line.
    pub(crate) fn fail(&self, member: Option<usize>) -> Result {
        let core = &self.core;
        let done = core.with_running(|engine| engine.fail(core, member));
        Core::kick(core);
        done.ok_or(ENODEV)?
    }

    /// Prints the member that was failed by hand.
    pub(crate) fn show_failed(&self, page: &mut ShowBuffer<'_>) -> Result {
        match self.core.with_engine(|engine| engine.array.kept_out()) {
            Some(Some(member)) => writeln!(page, "{member}"),
            _ => writeln!(page, "none"),
        }
    }

    /// Prints the state in words.
    pub(crate) fn show_state(&self, page: &mut ShowBuffer<'_>) -> Result {
        let looked = self
            .core
            .with_engine(|engine| (engine.array.view(), engine.array.kept_out()));
        let Some((view, kept_out)) = looked else {
            return writeln!(page, "stopping");
        };
        let word = view.state().word();
        match view.state() {
            State::Clean => writeln!(page, "{word}"),
            State::Degraded(member) if kept_out == Some(member) => writeln!(
                page,
                "{word}: member {member} was failed by hand: write none to fail, or a new device \
                 to replace"
            ),
            State::Degraded(member) => writeln!(
                page,
                "{word}: member {member} is missing: bring it back, or write a new device to \
                 replace"
            ),
            State::Resyncing(member) => writeln!(page, "{word}: member {member}"),
            State::Failed => writeln!(
                page,
                "{word}: fewer than two members are in sync: stop it, and assemble it when they \
                 are there"
            ),
        }
    }

    /// Prints a line for each member, with for how long it has not answered.
    pub(crate) fn show_members(&self, page: &mut ShowBuffer<'_>) -> Result {
        let shown = self.core.with_engine(|engine| -> Result {
            let view = engine.array.view();
            for (member, owed_ms) in engine.owed_ms(&self.core).into_iter().enumerate() {
                let word = view.member(member);
                let device = engine.means.devices.get(member).and_then(Option::as_ref);
                let name = device.and_then(|device| device.name()).unwrap_or(c"-");
                page.write_fmt(fmt!("{member} {word} {name}"))?;
                if is_silent(owed_ms) {
                    write!(page, " has not answered for {owed_ms} ms")?;
                }
                writeln!(page)?;
            }
            Ok(())
        });
        shown.unwrap_or(Ok(()))
    }

    /// Prints the statistics.
    pub(crate) fn show_stats(&self, page: &mut ShowBuffer<'_>) -> Result {
        for (stat, name) in STATS {
            writeln!(page, "{name} {}", self.core.stats.get(stat))?;
        }
        let layout = self.core.with_engine(|engine| engine.layout());
        if let Some(layout) = layout {
            writeln!(page, "table_bytes {}", geometry::table_bytes(&layout))?;
        }
        Ok(())
    }

    /// Prints the UUID.
    pub(crate) fn show_uuid(&self, page: &mut ShowBuffer<'_>) -> Result {
        for (place, byte) in self.uuid.iter().enumerate() {
            let dash = if matches!(place, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(page, "{dash}{byte:02x}")?;
        }
        writeln!(page)
    }

    /// Returns how many reads there are to one that is rebuilt.
    pub(crate) fn recover_every_n(&self) -> u32 {
        self.core.recover_every_n.load(Relaxed)
    }

    /// Sets that number; 0 for none.
    pub(crate) fn set_recover_every_n(&self, n: u32) {
        self.core.recover_every_n.store(n, Relaxed);
    }

    /// Returns what completes when no IO has a reference to it any more.
    pub(crate) fn gone(&self) -> &Arc<Completion> {
        &self.gone
    }
}
