// SPDX-License-Identifier: GPL-2.0

//! The files of a mount below `/proc/fs/gfarm/ID`, where the ID is the minor number of its device
//! in `/proc/self/mountinfo`.

use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    str::CString,
    sync::Arc, //
};
use vfs_ext::proc::{
    Directory,
    File,
    Show, //
};

use crate::net::Client;

/// `status`: whom the mount is connected with.
struct Status {
    client: Arc<Client>,
}

impl Show for Status {
    fn show(&self, file: &SeqFile) -> Result {
        self.client
            .describe(&mut |line| seq_print!(file, "{line}\n"));
        Ok(())
    }
}

/// `stats`: what the mount has done.
struct Counters(Arc<Client>);

impl Show for Counters {
    fn show(&self, file: &SeqFile) -> Result {
        self.0
            .stats()
            .for_each(&mut |line| seq_print!(file, "{line}\n"));
        Ok(())
    }
}

/// The files of a mount, which are removed when this is dropped.
pub(super) struct StateFiles {
    _status: File<Status>,
    _stats: File<Counters>,
}

impl StateFiles {
    /// Makes the files.
    pub(super) fn new(device_minor: u32, client: &Arc<Client>) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("fs/gfarm/{device_minor}"))?;
        let directory = Directory::new(&name, None)?;
        let client = client.clone();
        let counters = Arc::new(Counters(client.clone()), GFP_KERNEL)?;
        let status = Arc::new(Status { client }, GFP_KERNEL)?;
        let module = &crate::THIS_MODULE;
        Ok(Self {
            _status: File::new(module, directory.clone(), c"status", status)?,
            _stats: File::new(module, directory, c"stats", counters)?,
        })
    }
}
