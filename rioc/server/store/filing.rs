// SPDX-License-Identifier: GPL-2.0

//! The work item of files: one thing after the other is done with them, without the lock.

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

use kernel_ext::sysfs::ShowBuffer;

use super::{
    super::{
        files::{
            self,
            Filing, //
        },
        folders::FolderUse,
        medium::Kept,
        LOG_LIMIT, //
    },
    StoreOn, //
};
use crate::proto::store::FileWork;

/// The files of objects, and the use of their folder: dropped last.
pub(in crate::server) struct Backing {
    filing: Filing,
    _used: FolderUse,
}

impl Backing {
    /// Begins with a folder that is used.
    pub(in crate::server) const fn new(filing: Filing, used: FolderUse) -> Self {
        Self {
            filing,
            _used: used,
        }
    }
}

impl<D: Kept> WorkItem<2> for StoreOn<D> {
    type Pointer = Arc<StoreOn<D>>;

    fn run(store: Arc<Self>) {
        let mut filing = store.filing.lock();
        if let Some(Backing { filing, .. }) = &mut *filing {
            while store.file_one(filing) {}
        }
    }
}

impl<D: Kept> StoreOn<D> {
    /// Does the next thing with files; returns whether there may be more. Sleeps.
    fn file_one(self: &Arc<Self>, filing: &mut Filing) -> bool {
        let begun = self.with_engine(|engine| Ok(engine.begin_file()));
        let Some((tag, work)) = begun.ok().flatten() else {
            let goes_on = self.with_engine(|engine| Ok(engine.goes_on_filing()));
            let goes_on = goes_on.unwrap_or_default();
            if !goes_on {
                self.clone().kick();
            }
            return goes_on;
        };
        let done = match &work {
            FileWork::Fetch(fetch) => filing.fetch(fetch),
            FileWork::Leave(leaving) => filing.leave(leaving, |source, to| {
                self.with_engine(|engine| engine.copy_blocks(source, to))
            }),
            FileWork::Remove(object) => filing.remove(*object),
        };
        let is_read = matches!(work, FileWork::Fetch(_));
        let bytes = match &work {
            FileWork::Fetch(fetch) => filing.fetched(fetch),
            _ => &[],
        };
        let result = done.map(|()| bytes).map_err(files::errno);
        let is_failing = self.with_engine(|engine| {
            engine.end_file((tag, work), result);
            Ok(engine.store.failing().is_some())
        });
        self.tell(filing, (done, is_read), is_failing.unwrap_or_default());
        self.clone().kick();
        true
    }

    /// Tells that files fail, or do no more.
    fn tell(&self, filing: &mut Filing, (done, is_read): (Result, bool), is_failing: bool) {
        let name = &*self.name;
        match done {
            Err(error) if is_read => {
                if let Some(suppressed) = LOG_LIMIT.allow() {
                    pr_err!(
                        "store '{}': a file cannot be read: {error:?}: what needs it is EIO \
                         ({suppressed} more were)\n",
                        name
                    );
                }
            }
            Err(error) if !filing.is_failing => {
                filing.is_failing = true;
                // A client may have a file that is too long, and cut it, again and again.
                if let Some(suppressed) = LOG_LIMIT.allow() {
                    pr_err!(
                        "store '{}': a file cannot be written: {error:?}: nothing is lost while \
                         the store is there: make room, or repair it, and flush again \
                         ({suppressed} more were)\n",
                        name
                    );
                }
            }
            Ok(()) if filing.is_failing && !is_failing && !is_read => {
                filing.is_failing = false;
                if LOG_LIMIT.allow().is_some() {
                    pr_info!("store '{}': files are written again\n", name);
                }
            }
            _ => (),
        }
    }

    /// Writes all that is dirty, as the store ends. Sleeps.
    pub(super) fn end_files(self: &Arc<Self>) {
        let mut filing = self.filing.lock();
        let Some(Backing { filing, .. }) = &mut *filing else {
            return;
        };
        let _ = self.with_engine(|engine| {
            engine.store.end_files();
            Ok(())
        });
        while self.file_one(filing) {}
        let left = self.with_engine(|engine| Ok(engine.store.index().unwritten()));
        let (left, name) = (left.unwrap_or_default(), &*self.name);
        if left > 0 {
            pr_err!(
                "store '{}': {left} blocks were not written to files, and are lost\n",
                name
            );
        }
    }

    /// Prints the state of files.
    pub(super) fn show_files(&self, page: &mut ShowBuffer<'_>) -> Result {
        let failing = self.with_engine(|engine| Ok(engine.store.failing()));
        match failing.ok().flatten() {
            Some(errno) => writeln!(
                page,
                "failing: its files give error {}: what was not flushed lasts until the \
                 store ends",
                errno.get()
            ),
            None => writeln!(page, "files: what was flushed is there after a crash"),
        }
    }

    /// Prints the statistics of files, if there are any.
    pub(super) fn show_file_stats(
        &self,
        page: &mut ShowBuffer<'_>,
        (dirty, clean, hits): (u64, u64, u64),
    ) -> Result {
        match self.is_backed {
            true => writeln!(page, "dirty {dirty}\nclean {clean}\nhits {hits}"),
            false => Ok(()),
        }
    }
}
