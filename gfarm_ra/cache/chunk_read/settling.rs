// SPDX-License-Identifier: GPL-2.0

//! The end of a transfer: pages are put together, compared, and given to the reader.

use rdma_transfer::Received;
use vfs_ext::{
    FileSystem,
    Selection, //
};

use super::{
    super::{
        endpoint::Incoming,
        inbox::{
            Inbox,
            Landed, //
        }, //
    },
    ChunkRead,
    Hold, //
};
use crate::proto::cache::{
    counter::Counter,
    pages::PageSet,
    reassembly::{
        Move,
        Place, //
    },
    request::Wanted,
    requester::event::{
        Effect,
        Event, //
    }, //
};

impl<I: Incoming, T: FileSystem> ChunkRead<'_, I, T> {
    /// Puts fragments at their places, and gives the pages to the subrequest that are sound.
    #[inline(never)]
    pub(super) fn settle(&mut self, complete: PageSet) -> Effect {
        let mut damaged = PageSet::EMPTY;
        let mut came = PageSet::EMPTY;
        if let Hold::Received(received) = &mut self.hold {
            let place = |place| match place {
                Place::Slot(slot) => rdma_transfer::Place::Slot(slot.into()),
                Place::Spare => rdma_transfer::Place::Spare,
            };
            let mut moved = Ok(());
            while let Some(Move { from, to }) = self.inbox.next_move() {
                moved = moved.and_then(|()| received.copy(place(from), place(to)));
            }
            if moved.is_ok() {
                if self.requests.sums.is_some() {
                    let pages = (self.pages, complete);
                    damaged = compare(received, &self.inbox, &self.wanted, pages);
                }
                came = deliver(received, self.pages, complete.difference(damaged));
            }
        }
        // CAST: At most 256.
        let pages = came.len() as u64;
        let counters = self.requests.endpoint.counters();
        counters.add(Counter::PeerPages, pages);
        self.note_sums(came, damaged);
        if let Some(node) = self.credit {
            self.requests.peers.with(|table| table.gave(node, pages));
        }
        self.take_back();
        self.step(Event::Settled { damaged })
    }

    /// Keeps the sums of pages that have come, and says which were damaged.
    fn note_sums(&self, came: PageSet, damaged: PageSet) {
        let Some(sums) = self.requests.sums.as_deref() else {
            return;
        };
        if let Some(came) = self.wanted.part(came) {
            sums.put(&came, |page| self.inbox.sum(page).unwrap_or(0));
        }
        if !damaged.is_empty() {
            let from = self.credit;
            let from = from.and_then(|node| self.requests.peers.holder(node));
            sums.say_peer(&self.wanted, damaged, from);
        }
    }
}

/// Returns which of the `complete` pages, among those that are received, do not have their sums.
fn compare<T: FileSystem>(
    received: &mut Received<Landed, Selection<T>>,
    inbox: &Inbox,
    wanted: &Wanted,
    (pages, complete): (PageSet, PageSet),
) -> PageSet {
    let mut damaged = PageSet::EMPTY;
    for (number, page) in (0u16..).zip(pages.iter()) {
        if !complete.contains(page) {
            continue;
        }
        let found = received.crc32c(number, wanted.page_len(page)).ok();
        if found.is_none() || found != inbox.sum(page) {
            damaged.insert(page);
        }
    }
    damaged
}

/// Gives the sound ones of the pages that are received to the subrequest. Returns those that it has
/// taken: another one is read from the file server.
fn deliver<T: FileSystem>(
    received: &mut Received<Landed, Selection<T>>,
    pages: PageSet,
    sound: PageSet,
) -> PageSet {
    // CAST: At most 256.
    let count = pages.len() as u16;
    if sound == pages && received.deliver(0..count).is_ok() {
        return sound;
    }
    let mut came = PageSet::EMPTY;
    for (number, page) in (0u16..).zip(pages.iter()) {
        let row = number..number.saturating_add(1);
        if sound.contains(page) && received.deliver(row).is_ok() {
            came.insert(page);
        }
    }
    came
}
