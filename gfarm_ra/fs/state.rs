// SPDX-License-Identifier: GPL-2.0

//! The files of a mount below `/proc/fs/gfarm/ID`, where the ID is the minor number of its device
//! in `/proc/self/mountinfo`.

use ferro_proto::forward_display;
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
    Show,
    Store, //
};

use crate::{
    cache::View,
    net::Client,
    proto::cache::address::Address, //
};

forward_display! {
    Address,
}

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

/// `ibaddr`: this node and its peers, each a line, and lines that are written to add peers.
struct Addresses(View);

impl Show for Addresses {
    fn show(&self, file: &SeqFile) -> Result {
        self.0
            .addresses(&mut |address| seq_print!(file, "{address}\n"));
        Ok(())
    }
}

impl Store for Addresses {
    fn store(&self, bytes: &[u8]) -> Result {
        self.0.edit(bytes)
    }
}

/// The files of a mount, which are removed when this is dropped.
pub(super) struct StateFiles {
    _addresses: Option<File<Addresses>>,
    _status: File<Status>,
    _stats: File<Counters>,
}

impl StateFiles {
    /// Makes the files.
    pub(super) fn new(device_minor: u32, client: &Arc<Client>, node: Option<View>) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("fs/gfarm/{device_minor}"))?;
        let directory = Directory::new(&name, None)?;
        let client = client.clone();
        let counters = Arc::new(Counters(client.clone()), GFP_KERNEL)?;
        let status = Arc::new(Status { client }, GFP_KERNEL)?;
        let module = &crate::THIS_MODULE;
        let addresses = match node {
            Some(view) => {
                let addresses = Arc::new(Addresses(view), GFP_KERNEL)?;
                let directory = directory.clone();
                Some(File::writable(module, directory, c"ibaddr", addresses)?)
            }
            None => None,
        };
        Ok(Self {
            _addresses: addresses,
            _status: File::new(module, directory.clone(), c"status", status)?,
            _stats: File::new(module, directory, c"stats", counters)?,
        })
    }
}
