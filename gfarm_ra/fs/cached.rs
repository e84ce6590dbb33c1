// SPDX-License-Identifier: GPL-2.0

//! The pages of files that the kernel has cached, for other nodes.

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use vfs_ext::{
    ActiveRefs,
    Folios,
    Inode,
    Key,
    Kind, //
};

use super::Gfarm;
use crate::{
    cache::PageCache,
    proto::cache::{
        pages::{
            PageSet,
            CHUNK_LEN, //
        },
        request::Wanted,
        responder::take_of_content, //
    }, //
};

/// The number of pages of a chunk.
// CAST: From 64 bits to 64.
const PAGES_OF_CHUNK: u64 = CHUNK_LEN / PAGE_SIZE as u64;

/// The page cache of a mount, as other nodes see it.
pub(super) struct CachedPages(pub(super) Arc<ActiveRefs<Gfarm>>);

impl PageCache for CachedPages {
    fn cached(&self, wanted: &Wanted, folios: &mut Folios) -> Option<(PageSet, u64)> {
        let found = self
            .0
            .with(|sb| take(&*sb.find_inode(key_of(wanted))?, wanted, folios));
        found.flatten()
    }

    fn drop_pages(&self, held: &Wanted, damaged: PageSet, folios: &Folios) {
        self.0.with(|sb| {
            let Some(inode) = sb.find_inode(key_of(held)) else {
                return;
            };
            for page in damaged.iter() {
                // What stays has another sum than its content, so no one is given it: the next
                // request finds it again.
                inode.drop_page(folios, held.pages().rank(page));
            }
        });
    }
}

/// Returns the key of the inode whose pages are wanted: a file keeps it through all generations.
fn key_of(wanted: &Wanted) -> Key {
    Key {
        number: wanted.id().file.inum,
        generation: 0,
    }
}

/// Takes the pages of an inode that are wanted, if its label says that they are of that content.
fn take(inode: &Inode<Gfarm>, wanted: &Wanted, folios: &mut Folios) -> Option<(PageSet, u64)> {
    if inode.kind() != Kind::Regular {
        return None;
    }
    let node = inode.data();
    take_of_content(
        || node.holds(wanted.id()),
        || pages_of(inode, wanted, folios),
    )
}

/// Takes the pages of an inode that are wanted, of whichever content they are; returns which, and
/// the size in bytes.
fn pages_of(inode: &Inode<Gfarm>, wanted: &Wanted, folios: &mut Folios) -> Option<(PageSet, u64)> {
    let size_bytes = inode.size();
    let first = wanted.chunk().checked_mul(PAGES_OF_CHUNK)?;
    let (mut held, mut next) = (PageSet::EMPTY, 0u16);
    for page in wanted.pages().iter() {
        if u16::from(page) < next {
            continue;
        }
        // CAST: At most 256.
        let row = wanted.pages().run(page) as u16;
        let taken = folios.take(inode, first.checked_add(page.into())?, row);
        held = held.union(PageSet::range(page, taken.into()));
        next = u16::from(page).saturating_add(taken);
    }
    Some((held, size_bytes))
}
