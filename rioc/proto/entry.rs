// SPDX-License-Identifier: GPL-2.0

//! The entry of a slot, 32 bytes: what a log keeps of it. All integers are little-endian.
//!
//! The names of slots are their numbers, so an entry says nothing but what it is itself: links,
//! counts and lists are made anew from all entries. A slot that is free is zeroes.

use zerocopy::{
    little_endian::{
        U32,
        U64, //
    },
    FromBytes,
    FromZeros,
    Immutable,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    slot::{
        Blocks,
        Extent,
        InFile,
        Kept,
        Life,
        Object,
        Range,
        Slot,
        Stored,
        NONE, //
    },
    span::{
        ObjectId,
        IO_BLOCKS_MAX,
        OBJECT_BYTES_MAX, //
    },
    ticket::{
        Ticket,
        LANES_MAX, //
    },
};

/// The bytes of an entry.
pub const ENTRY_BYTES: usize = 32;

/// The entry of a slot.
pub type Entry = [u8; ENTRY_BYTES];

const OBJECT: u8 = 1;
const RANGE: u8 = 2;
const EXTENT: u8 = 3;
const TICKET: u8 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ObjectWire {
    kind: u8,
    life: u8,
    reserved: [u8; 2],
    backed: U32,
    size: U64,
    high: U64,
    low: U64,
}
const _: () = assert!(size_of::<ObjectWire>() == ENTRY_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RangeWire {
    kind: u8,
    first: u8,
    blocks: u8,
    /// 1 if it is in the file of its object, else 0.
    is_clean: u8,
    object: U32,
    block: U32,
    extent: U32,
    reserved2: [u8; 16],
}
const _: () = assert!(size_of::<RangeWire>() == ENTRY_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExtentWire {
    kind: u8,
    blocks: u8,
    reserved: [u8; 2],
    stamp: U32,
    place: U64,
    reserved2: [u8; 16],
}
const _: () = assert!(size_of::<ExtentWire>() == ENTRY_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TicketWire {
    /// The lower byte is the kind, the others the incarnation.
    kind_and_incarnation: U64,
    word: U64,
    client: [U64; 2],
}
const _: () = assert!(size_of::<TicketWire>() == ENTRY_BYTES);

/// An entry is not one that this code writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Returns the entry of a slot. An extent that only reads in flight still use is gone.
pub fn entry(slot: &Slot) -> Entry {
    let mut entry = [0; ENTRY_BYTES];
    match slot {
        Slot::Free(_) => (),
        Slot::Object(object) => {
            let wire = ObjectWire {
                kind: OBJECT,
                life: match object.life {
                    Life::Linked => 0,
                    Life::Hidden => 1,
                    Life::Doomed => 2,
                },
                reserved: [0; 2],
                backed: U32::new(object.backed),
                size: U64::new(object.size),
                high: U64::new(object.id.high),
                low: U64::new(object.id.low),
            };
            put(wire, &mut entry);
        }
        Slot::Range(range) => {
            let wire = RangeWire {
                kind: RANGE,
                first: range.first,
                blocks: range.blocks,
                is_clean: u8::from(range.in_file == InFile::Clean),
                object: U32::new(range.object),
                block: U32::new(range.block),
                extent: U32::new(range.extent),
                ..RangeWire::new_zeroed()
            };
            put(wire, &mut entry);
        }
        Slot::Extent(extent) if extent.references == 0 => (),
        Slot::Ticket(kept) if kept.word == 0 => (),
        Slot::Ticket(kept) => {
            let wire = TicketWire {
                kind_and_incarnation: U64::new(kept.incarnation << u8::BITS | u64::from(TICKET)),
                word: U64::new(kept.word),
                client: kept.client.map(U64::new),
            };
            put(wire, &mut entry);
        }
        Slot::Extent(extent) => {
            let wire = ExtentWire {
                kind: EXTENT,
                blocks: extent.blocks,
                stamp: U32::new(extent.stored.stamp),
                place: U64::new(extent.stored.place),
                ..ExtentWire::new_zeroed()
            };
            put(wire, &mut entry);
        }
    }
    entry
}

fn put(wire: impl IntoBytes + Immutable, entry: &mut Entry) {
    // The sizes are equal.
    let _ = wire.write_to(entry);
}

/// Returns the slot of an entry, without links, counts and references.
///
/// # Errors
///
/// Returns that it is none.
pub fn slot(entry: &Entry) -> Result<Slot, Malformed> {
    let [kind, ..] = *entry;
    let slot = match kind {
        0 => Slot::Free(NONE),
        OBJECT => Slot::Object(object(entry)?),
        RANGE => Slot::Range(range(entry)?),
        EXTENT => Slot::Extent(extent(entry)?),
        TICKET => Slot::Ticket(ticket(entry)?),
        _ => return Err(Malformed),
    };
    // Reserved bytes are zeroes, as those of a free slot are. Of an extent there is one more range
    // than none.
    let again = match slot {
        Slot::Extent(extent) => Slot::Extent(Extent {
            references: 1,
            ..extent
        }),
        other => other,
    };
    if self::entry(&again) == *entry {
        Ok(slot)
    } else {
        Err(Malformed)
    }
}

fn object(entry: &Entry) -> Result<Object, Malformed> {
    let wire = ObjectWire::ref_from_bytes(entry).map_err(|_| Malformed)?;
    let life = match wire.life {
        0 => Life::Linked,
        1 => Life::Hidden,
        2 => Life::Doomed,
        _ => return Err(Malformed),
    };
    if wire.size.get() > OBJECT_BYTES_MAX {
        return Err(Malformed);
    }
    Ok(Object {
        id: ObjectId {
            high: wire.high.get(),
            low: wire.low.get(),
        },
        size: wire.size.get(),
        root: NONE,
        next: NONE,
        blocks: 0,
        life,
        is_shrinking: false,
        uses: 0,
        backed: wire.backed.get(),
        is_cut: false,
        is_leaving: false,
        has_file: false,
        has_failed: false,
    })
}

fn is_blocks(blocks: u8) -> bool {
    (1..=IO_BLOCKS_MAX).contains(&usize::from(blocks))
}

fn range(entry: &Entry) -> Result<Range, Malformed> {
    let wire = RangeWire::ref_from_bytes(entry).map_err(|_| Malformed)?;
    let end = wire.block.get().checked_add(wire.blocks.into());
    if !is_blocks(wire.blocks) || end.is_none() {
        return Err(Malformed);
    }
    let place = (wire.object.get(), wire.block.get());
    let mut range = Range::new(place, wire.extent.get(), (wire.first, wire.blocks));
    if wire.is_clean == 1 {
        range.in_file = InFile::Clean;
    }
    Ok(range)
}

fn ticket(entry: &Entry) -> Result<Kept, Malformed> {
    let wire = TicketWire::ref_from_bytes(entry).map_err(|_| Malformed)?;
    let word = wire.word.get();
    let ticket = Ticket::from_word(word).ok_or(Malformed)?;
    if ticket.lane() >= LANES_MAX {
        return Err(Malformed);
    }
    Ok(Kept {
        client: wire.client.map(U64::get),
        word,
        incarnation: wire.kind_and_incarnation.get() >> u8::BITS,
        next: NONE,
    })
}

fn extent(entry: &Entry) -> Result<Extent, Malformed> {
    let wire = ExtentWire::ref_from_bytes(entry).map_err(|_| Malformed)?;
    if !is_blocks(wire.blocks) {
        return Err(Malformed);
    }
    Ok(Extent {
        stored: Stored {
            place: wire.place.get(),
            stamp: wire.stamp.get(),
        },
        references: 0,
        ranges: NONE,
        pins: 0,
        used: Blocks::of(0, wire.blocks),
        blocks: wire.blocks,
        uses: 0,
    })
}
