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
    proto::cache::{
        address::{
            Address,
            Group, //
        },
        breaker::Cut,
        counter::Counter, //
    }, //
};

forward_display! {
    Address,
    Cut,
}

/// `status`: whom the mount is connected with, and whether it asks other nodes.
struct Status {
    client: Arc<Client>,
    node: Option<View>,
}

impl Show for Status {
    fn show(&self, file: &SeqFile) -> Result {
        self.client
            .describe(&mut |line| seq_print!(file, "{line}\n"));
        match self.node.as_ref().map(View::cut) {
            Some(Some(cut)) => seq_print!(file, "cache: no node is asked: {cut}\n"),
            Some(None) => seq_print!(file, "cache: nodes are asked\n"),
            None => {}
        }
        if let Some((group, near, all)) = self.node.as_ref().and_then(View::group) {
            let group = group.get();
            seq_print!(file, "group {group}: {near} of {all} nodes\n");
        }
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

/// `ibstat`: what the node of the cooperative cache has counted; a write begins anew.
struct NodeCounters(View);

impl Show for NodeCounters {
    fn show(&self, file: &SeqFile) -> Result {
        let counters = self.0.counters();
        for counter in Counter::ALL {
            seq_print!(file, "{} {}\n", counter.name(), counters.get(*counter));
        }
        Ok(())
    }
}

impl Store for NodeCounters {
    fn store(&self, _bytes: &[u8]) -> Result {
        self.0.counters().clear();
        Ok(())
    }
}

/// `ibaddr`: this node and its peers, each a line, and lines that are written to add and to remove
/// peers. It has the keys of all queue pairs for messages: who knows one can keep a node from those
/// of others.
struct Addresses(View);

impl Show for Addresses {
    fn show(&self, file: &SeqFile) -> Result {
        self.0.addresses(&mut |address, state| match state {
            Some((state, group, pages)) => {
                let group = group.map_or(0, Group::get);
                seq_print!(
                    file,
                    "{address} state={state} group={group} pages={pages}\n"
                );
            }
            None => seq_print!(file, "{address}\n"),
        });
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
    _counters: Option<File<NodeCounters>>,
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
        let status = Arc::new(
            Status {
                client,
                node: node.clone(),
            },
            GFP_KERNEL,
        )?;
        let module = &crate::THIS_MODULE;
        let (addresses, of_node) = match node {
            Some(view) => {
                let of_node = Arc::new(NodeCounters(view.clone()), GFP_KERNEL)?;
                let of_node = File::writable(module, directory.clone(), c"ibstat", of_node)?;
                let addresses = Arc::new(Addresses(view), GFP_KERNEL)?;
                let addresses = File::private(module, directory.clone(), c"ibaddr", addresses)?;
                (Some(addresses), Some(of_node))
            }
            None => (None, None),
        };
        Ok(Self {
            _addresses: addresses,
            _counters: of_node,
            _status: File::new(module, directory.clone(), c"status", status)?,
            _stats: File::new(module, directory, c"stats", counters)?,
        })
    }
}
