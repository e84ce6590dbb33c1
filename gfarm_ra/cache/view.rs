// SPDX-License-Identifier: GPL-2.0

//! The state of a node, as the files below `/proc` show it.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    counters::Counters,
    node::{
        Node,
        Shared, //
    },
    now_us, //
};
use crate::proto::cache::{
    address::{
        Address,
        Group, //
    },
    breaker::Cut,
    ibaddr::{
        edits,
        Edit, //
    },
    peer::Standing, //
};

/// The state of a peer, in a word, the part of the network that it is in, if that is known, and the
/// number of pages that have come from it.
pub(crate) type PeerState = (&'static str, Option<Group>, u64);

/// The peers that are written under one lock of the table, for which messages of all peers wait:
/// any local user may read them as often as the user likes.
const LINES_MAX: usize = 64;

/// A handle by which the files below `/proc` show a node.
#[derive(Clone)]
pub(crate) struct View(Arc<Shared>);

impl View {
    /// Returns a view of a node, which it may outlive, and then sees nothing.
    pub(crate) fn of(node: &Node) -> Self {
        Self(node.shared.clone())
    }

    /// Calls `line` with the address of this node, and then with that of each peer, how it is,
    /// where, and how many pages have come from it; a peer that was registered by hand and has not
    /// answered yet is `unknown`. Of peers that come or go meanwhile one may be left out, or come
    /// twice.
    pub(crate) fn addresses(&self, line: &mut dyn FnMut(&Address, Option<PeerState>)) {
        let Some(peers) = self.0.attached().map(|attached| attached.peers.clone()) else {
            return;
        };
        line(&peers.me().address, None);
        let mut shown = 0_usize;
        loop {
            let first = shown;
            peers.with(|table| {
                for peer in table.peers().skip(first).take(LINES_MAX) {
                    let state = peer.standing().map_or("unknown", Standing::name);
                    line(&peer.address(), Some((state, peer.group(), peer.pages())));
                    shown = shown.saturating_add(1);
                }
            });
            if shown == first {
                return;
            }
        }
    }

    /// Returns why no other node is asked; `None` if they are, or there is no device any more.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.0.attached()?.requests.cut()
    }

    /// Returns the part of the network that this node is in, and the numbers of nodes that live
    /// there and in all.
    pub(crate) fn group(&self) -> Option<(Group, usize, usize)> {
        let attached = self.0.attached()?;
        Some(attached.peers.with(|table| {
            let (group, population) = (table.me().group, table.population());
            (group, population.of(group), population.all())
        }))
    }

    /// Returns what it has counted.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Registers peers by hand, or removes them: lines of `ibaddr`, until the first that is wrong.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if the device has gone, or what is wrong with a line.
    pub(crate) fn edit(&self, written: &[u8]) -> Result {
        let attached = self.0.attached.lock();
        let attached = attached.as_ref().ok_or(ENODEV)?;
        let me = attached.peers.me().address;
        let edited = edits(written, me).try_for_each(|edit| {
            let done = edit.and_then(|edit| {
                attached.peers.with(|table| match edit {
                    Edit::Add(address) => table.add(address, now_us()),
                    Edit::Remove(address) => table.remove(address),
                })
            });
            done.map_err(Error::from)
        });
        attached.membership.look();
        edited
    }
}
