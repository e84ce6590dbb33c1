// SPDX-License-Identifier: GPL-2.0

//! Reading of directories.
//!
//! gfmd returns entries with their attributes, so the kernel knows afterwards what the names stand
//! for: `ls -l` looks nothing up.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use vfs_ext::{
    Entries,
    Entry,
    Inode, //
};

use super::{
    attributes::Told,
    inode::{
        observe_at_once,
        stale_if_gone, //
    },
    name::inode,
    Gfarm, //
};
use crate::{
    net::{
        Place,
        Seen, //
    },
    proto::{
        attr::EntryName,
        listing::{
            Last,
            Next,
            Onward,
            Progress, //
        },
        name::Name, //
    }, //
};

/// The entries that are asked for at a time.
const PART_MAX: u32 = 512;

/// An open directory: the entries that were read and not emitted yet.
#[pin_data]
pub(crate) struct Listing {
    #[pin]
    part: Mutex<Part>,
}

/// Entries that follow one another.
#[derive(Default)]
struct Part {
    entries: KVVec<Listed>,
    /// The names, one behind the other.
    names: KVVec<u8>,
    /// The position of the first entry, and that behind the last one.
    first: u64,
    next: u64,
    /// The entry that came last, if the reader goes on behind one.
    last: Option<Last>,
    /// No entry follows.
    is_last: bool,
    /// The entries that were read up to here, from where the reader has begun.
    progress: Progress,
}

/// An entry, whose name is a range of [`Part::names`].
#[derive(Clone, Copy)]
struct Listed {
    begin: u32,
    end: u32,
    /// The position behind it.
    next: u64,
    told: Told,
}

impl Part {
    /// Goes on at a position, perhaps another one than that behind the last entry.
    fn go_to(&mut self, at: u64) {
        if at != self.next {
            self.progress = Progress::NEW;
            self.last = None;
        }
        self.clear(at);
    }

    fn clear(&mut self, at: u64) {
        self.entries.clear();
        self.names.clear();
        self.first = at;
        self.next = at;
        self.is_last = false;
    }

    /// Adds the entry at the next position.
    fn push(&mut self, name: EntryName<'_>, told: Told) -> Result {
        self.next = self.next.checked_add(1).ok_or(EOVERFLOW)?;
        // The VFS emits these two itself.
        let EntryName::Name(name) = name else {
            return Ok(());
        };
        let begin = u32::try_from(self.names.len())?;
        self.names.extend_from_slice(name.as_bytes(), GFP_KERNEL)?;
        let listed = Listed {
            begin,
            end: u32::try_from(self.names.len())?,
            next: self.next,
            told,
        };
        Ok(self.entries.push(listed, GFP_KERNEL)?)
    }

    fn name(&self, entry: &Listed) -> &[u8] {
        // CAST: From 32 bits to 64.
        let range = entry.begin as usize..entry.end as usize;
        self.names.get(range).unwrap_or_default()
    }

    /// Emits what is at and behind the position of the reader. Returns whether there was room for
    /// all of it.
    fn emit(&self, entries: &mut Entries<'_, Gfarm>) -> Result<bool> {
        let at = entries.position();
        for entry in self.entries.iter().filter(|entry| entry.next > at) {
            let has_room = entries.emit(Entry {
                name: self.name(entry),
                number: entry.told.observed.id.inum,
                kind: entry.told.attributes.kind,
                next: entry.next,
            })?;
            if !has_room {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Listing {
    /// Opens a directory; nothing is read yet.
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                part <- new_mutex!(Part::default(), "Listing::part"),
            }),
            GFP_KERNEL,
        )
    }

    /// Emits the entries from the position of the reader on, as long as there is room.
    pub(super) fn read(&self, dir: &Inode<Gfarm>, entries: &mut Entries<'_, Gfarm>) -> Result {
        let mut part = self.part.lock();
        // The position where the next request begins; entries behind the last one have none.
        let mut at = entries.position();
        // A reader that begins anew sees what is there now.
        let is_kept = at != 0 && (part.first..=part.next).contains(&at);
        if !is_kept {
            fetch(dir, &mut part, at, entries)?;
        }
        loop {
            if !part.emit(entries)? || part.is_last {
                return Ok(());
            }
            at = part.next;
            fetch(dir, &mut part, at, entries)?;
        }
    }
}

/// Reads the entries at and behind a position, and has the kernel remember them.
fn fetch(dir: &Inode<Gfarm>, part: &mut Part, at: u64, entries: &Entries<'_, Gfarm>) -> Result {
    let sb = dir.super_block();
    let mount = sb.data();
    let place = dir.data().place();
    part.go_to(at);
    if !Progress::may_ask(at) {
        part.is_last = true;
        return Ok(());
    }
    let mut onward = Onward::new(part.last, at);
    loop {
        let begin = onward.position();
        let mut progress = part.progress;
        let listed =
            mount.client().list(
                &place,
                begin,
                PART_MAX,
                &mut progress,
                |entry, query| match onward.entry(entry.name) {
                    true => part.push(entry.name, mount.told(&Seen::of_entry(entry, query))),
                    false => Ok(()),
                },
            );
        // Also after an error: what was emitted before it hides the error from the reader, who
        // comes again.
        part.progress = progress;
        // An answer that is not complete, or not believed, leaves nothing to emit.
        listed
            .map_err(stale_if_gone)
            .inspect_err(|_| part.clear(at))?;
        if let Next::Read(last) = onward.end(begin, PART_MAX) {
            part.last = last;
            break;
        }
    }
    // Nothing is new: the directory ends here.
    part.is_last = part.next == at;
    for entry in &part.entries {
        // Without memory, or if a file server would be waited for, the name is looked up when it is
        // used.
        let _ = remember(dir, &place, part.name(entry), &entry.told, entries);
    }
    Ok(())
}

/// Enters a name and its object into the kernel's cache, which saves a lookup.
fn remember(
    dir: &Inode<Gfarm>,
    parent: &Arc<Place>,
    name: &[u8],
    told: &Told,
    entries: &Entries<'_, Gfarm>,
) -> Result {
    let checked = Name::new(name).map_err(|reason| Error::from(reason.errno()))?;
    // Not for as long as a gfsd is silent: the directory is locked.
    let inode = inode(dir, parent, checked, told, observe_at_once)?;
    entries.remember(name, inode, told.age_ms())
}
