// SPDX-License-Identifier: GPL-2.0

//! The sums of pages: made of what a file server has sent, compared when a node has sent it.

use ferro_proto::forward_display;
use kernel::{
    alloc::KVVec,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    memory,
    ratelimit::RateLimit, //
};
use vfs_ext::Folios;

use super::counters::Counters;
use crate::proto::{
    cache::{
        address::Port,
        counter::Counter,
        pages::{
            PageSet,
            CHUNK_LEN,
            PAGES, //
        },
        reply::Holder,
        request::Wanted,
        sums::{
            Entry,
            SumTable,
            Verify,
            WAYS, //
        },
    },
    identity::ContentId,
};

forward_display! {
    Port,
}

/// The most chunks whose sums are kept: 17 MiB for 16 GiB of pages.
const CHUNKS_MAX: u64 = 16_384;

/// Limits the lines about damaged pages of this node.
static OWN: RateLimit = RateLimit::new(60_000, 1);

/// Limits those about pages of others.
static PEERS: RateLimit = RateLimit::new(60_000, 1);

/// The sums that a mount knows.
#[pin_data]
pub(crate) struct Sums {
    verify: Verify,
    counters: Arc<Counters>,
    #[pin]
    table: Mutex<SumTable<KVVec<Entry>>>,
}

impl Sums {
    /// Allocates room for the sums of as many pages as the machine has memory for, up to a limit;
    /// `None` if none are to be made. Sleeps.
    pub(super) fn new(verify: Verify, counters: &Arc<Counters>) -> Result<Option<Arc<Self>>> {
        if verify == Verify::Off {
            return Ok(None);
        }
        let chunks = (memory::total_bytes() / CHUNK_LEN).min(CHUNKS_MAX);
        // CAST: At most `CHUNKS_MAX`.
        let count = (chunks as usize).next_multiple_of(WAYS);
        let table = SumTable::new(KVVec::from_elem(Entry::EMPTY, count, GFP_KERNEL)?);
        let this = Arc::pin_init(
            pin_init!(Self {
                verify,
                counters: counters.clone(),
                table <- new_mutex!(table, "Sums::table"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Some(this))
    }

    /// Takes the sum of a page of the file, by its number, which a file server has sent as one of a
    /// content of this size. Sleeps for a lock.
    pub(crate) fn made(&self, id: ContentId, size_bytes: u64, page: u64, sum: u32) {
        // CAST: Below 256.
        let of_chunk = (page % PAGES as u64) as u8;
        let pages = PageSet::range(of_chunk, 1);
        if let Ok(wanted) = Wanted::new(id, size_bytes, page / PAGES as u64, pages) {
            self.put(&wanted, |_| sum);
        }
    }

    /// Takes the sums of the pages that are wanted. Sleeps for a lock.
    pub(super) fn put(&self, wanted: &Wanted, sum_of: impl Fn(u8) -> u32) {
        self.table.lock().put(wanted, sum_of);
    }

    /// Returns the pages, of those that are wanted, whose sums are known.
    pub(super) fn known(&self, wanted: &Wanted) -> PageSet {
        self.table.lock().known(wanted)
    }

    /// Calls `with` with the sums of the pages that are wanted, with a lock held; `None` if not all
    /// are known any more.
    pub(super) fn with<R>(&self, wanted: &Wanted, with: impl FnOnce(&Entry) -> R) -> Option<R> {
        let mut table = self.table.lock();
        let has_all = table.known(wanted) == wanted.pages();
        table
            .find(wanted)
            .filter(|_| has_all)
            .map(|entry| with(entry))
    }

    /// Returns which pages are compared.
    pub(super) const fn verify(&self) -> Verify {
        self.verify
    }

    /// Compares pages of this node that are about to be given: those that are wanted, which are in
    /// `folios`. Returns those that are damaged.
    pub(super) fn damaged(&self, wanted: &Wanted, folios: &Folios) -> PageSet {
        let (mut damaged, held) = (PageSet::EMPTY, wanted.pages());
        let lens = held.iter().map(|page| wanted.page_len(page));
        for (page, found) in held.iter().zip(folios.sums(lens)) {
            if self.table.lock().is_damaged(wanted, page, found) {
                damaged.insert(page);
            }
        }
        if let Some(damaged) = wanted.part(damaged) {
            self.say_own(&damaged);
        }
        damaged
    }

    #[cold]
    fn say_own(&self, damaged: &Wanted) {
        let (count, inum) = (damaged.pages().len(), damaged.id().file.inum);
        // CAST: At most 256.
        self.counters.add(Counter::OwnDamaged, count as u64);
        if OWN.allow().is_some() {
            pr_err!(
                "{count} pages of inode {inum} were damaged in the page cache of this machine, and \
                 dropped: test its memory\n"
            );
        }
    }

    /// Counts pages of another node that are not what a file server had sent.
    #[cold]
    pub(super) fn say_peer(&self, wanted: &Wanted, damaged: PageSet, from: Option<Holder>) {
        let (count, inum) = (damaged.len(), wanted.id().file.inum);
        // CAST: At most 256.
        self.counters.add(Counter::PeerDamaged, count as u64);
        if let (Some(from), Some(_)) = (from, PEERS.allow()) {
            let port = from.address.port();
            pr_err!(
                "{count} pages of inode {inum} from the node {port} were damaged, and \
                 read from the file server: mount there with cc_verify=2, and test its memory\n"
            );
        }
    }
}
