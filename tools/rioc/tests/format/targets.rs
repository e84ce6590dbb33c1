// SPDX-License-Identifier: GPL-2.0

//! Rules that must hold for any bytes at all. Run for a moment by `fuzz.rs`, whose bytes are nearly
//! right, and for as long as one likes by `tools/fuzz`, which includes this file.

use rioc::proto::{
    answer::{
        Attached,
        Listed,
        ReadHead,
        Short, //
    },
    body,
    entry::{
        self,
        Entry,
        ENTRY_BYTES, //
    },
    index::{
        Changes,
        Index, //
    },
    message::{
        Direction,
        Message,
        Operation, //
    },
    slot::{
        Blocks,
        Slot,
        Stored,
        NONE, //
    },
    span::{
        Span,
        OBJECT_BYTES_MAX, //
    },
    wire, //
};
use zerocopy::IntoBytes;

/// The bytes that an answer of a read is to.
pub(crate) fn asked() -> Span {
    Span::new(4095, 8194).unwrap()
}

fn is_span(span: &Span) -> bool {
    span.bytes() > 0 && span.end() <= OBJECT_BYTES_MAX
}

/// A message is refused, or keeps its promises and has no other bytes than these; whether it is
/// taken.
pub(crate) fn message(bytes: &[u8], (direction, data_bytes): (Direction, u32)) -> bool {
    let message = match Message::parse(bytes, (direction, data_bytes)) {
        Ok(message) => message,
        Err(malformed) => {
            assert!(malformed.errno().get() > 0);
            return false;
        }
    };
    assert_eq!(message.operation.data_bytes(), data_bytes);
    let mut again = [0; wire::REQUEST_BYTES_MAX];
    let len = message.write(&mut again).unwrap();
    match message.operation {
        Operation::Read { span, .. } => assert!(is_span(&span) && span.is_io()),
        Operation::Write { span, sums, .. } => {
            assert!(is_span(&span) && span.is_io());
            assert_eq!(sums.iter().count(), span.block_count() as usize);
        }
        Operation::Copy { span, offset, .. } => {
            assert!(is_span(&span) && is_span(&span.moved_to(offset).unwrap()));
        }
        Operation::Truncate { size, .. } => assert!(size <= OBJECT_BYTES_MAX),
        // All behind an offset can be said in two ways.
        Operation::Flush { span, .. } | Operation::Lease { span, .. } => {
            assert!(is_span(&span));
            if span.end() == OBJECT_BYTES_MAX {
                return true;
            }
        }
        Operation::Attach { store } => {
            assert!((1..=32).contains(&store.len()) && !store.contains(&0));
        }
        _ => (),
    }
    assert_eq!(again[..len], *bytes);
    true
}

/// An answer is refused, or keeps its promises.
pub(crate) fn answer(bytes: &[u8]) {
    let asked = asked();
    if let Ok(head) = ReadHead::parse(bytes, &asked) {
        assert!(u64::from(head.bytes) <= asked.bytes() && head.size <= OBJECT_BYTES_MAX);
        assert_eq!(head.to_wire(&asked).as_bytes(), &bytes[..160]);
    }
    if let Ok(attached) = Attached::parse(bytes) {
        assert!((1..=114_688).contains(&attached.io_bytes_max));
        assert_eq!(attached.to_wire().as_bytes(), &bytes[..64]);
    }
    for kind in [wire::STAT, wire::LEASE, wire::PING] {
        if let Ok(short) = Short::parse(bytes, kind) {
            assert!(short.size <= OBJECT_BYTES_MAX);
            assert_eq!(short.to_wire(kind).as_bytes(), &bytes[..64]);
        }
    }
    if let Ok((listed, names)) = Listed::parse(bytes, 3) {
        assert!(listed.count <= 3 && names.len() == listed.count as usize);
    }
}

/// A user to whom nothing matters.
struct Nothing;

impl Changes for Nothing {
    fn changed(&mut self, _slot: u32) {}

    fn freed(&mut self, _stored: Stored, _blocks: Blocks) {}
}

/// A table of entries is refused, or is that of an index that ends its steps and can be made empty;
/// whether it is taken.
pub(crate) fn table(entries: &[Entry]) -> bool {
    let mut memory = vec![Slot::Free(NONE); entries.len()];
    for (slot, entry) in memory.iter_mut().zip(entries) {
        match entry::slot(entry) {
            Ok(parsed) => *slot = parsed,
            Err(entry::Malformed) => return false,
        }
        assert!(matches!(slot, Slot::Extent(_)) || entry::entry(slot) == *entry);
    }
    let Ok(mut index) = Index::restore(memory, [NONE; 2], [5, 6]) else {
        return false;
    };
    let slots = 0..entries.len() as u32;
    for (slot, entry) in slots.clone().zip(entries) {
        let is_kept = index.entry(slot) == *entry;
        assert!(is_kept || index.slots().object(slot).is_some());
    }
    for slot in slots {
        while !index.trim(slot, &mut Nothing) {}
    }
    while index.reap(&mut Nothing) {}
    let mut names = vec![Default::default(); entries.len()];
    let (count, next) = index.list(0, &mut names);
    assert_eq!(next, None);
    for name in &names[..count] {
        index.delete(*name, &mut Nothing).unwrap();
    }
    while index.reap(&mut Nothing) {}
    // Clients are forgotten by their names.
    let slots = index.slots();
    let tickets = (0..slots.count()).filter(|slot| slots.ticket(*slot).is_some());
    let free = slots.free_count() as usize;
    assert_eq!(free + tickets.count(), entries.len());
    true
}

/// A body is refused, or assigns what is in it.
pub(crate) fn batch(bytes: &[u8]) {
    let mut slots = [Slot::Free(NONE); 4];
    let is_assigned = body::assign(&mut slots, bytes).is_ok();
    let Ok(all) = body::assignments(bytes) else {
        assert!(!is_assigned);
        return;
    };
    assert!(all.clone().count() <= bytes.len() / body::ASSIGNMENT_BYTES);
    let is_there = all.clone().all(|(slot, _)| slot < 4);
    assert!(is_there || !is_assigned);
}

/// All of these, of bytes of which the first one says which.
#[allow(dead_code, reason = "the target of `tools/fuzz`")]
pub(crate) fn any(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    match which % 5 {
        0 => answer(bytes),
        1 => batch(bytes),
        2 => {
            let entries = bytes.chunks_exact(ENTRY_BYTES).take(4000);
            let entries: Vec<Entry> = entries.map(|e| e.try_into().unwrap()).collect();
            table(&entries);
        }
        direction => {
            let Some((data_bytes, bytes)) = bytes.split_first_chunk() else {
                return;
            };
            let direction = match direction {
                3 => Direction::Read,
                _ => Direction::Write,
            };
            message(bytes, (direction, u32::from_le_bytes(*data_bytes)));
        }
    }
}
