// SPDX-License-Identifier: GPL-2.0

//! The assembly of an array, with the recovery of its log.
//!
//! 1. [`Recovery::examine`] reads the superblocks and chooses the epoch.
//! 2. [`Recovery::walk`] follows the log and assigns entries. So far nothing was written: an array
//!    that is refused is left as it is.
//! 3. [`Recovery::commit`] writes the epoch of this assembly, then the columns that accepted
//!    batches lack, and flushes. What was accepted stays accepted from then on.
//! 4. [`Recovery::open`] writes the first batch of the incarnation, and flushes. What older
//!    incarnations have left behind the end of the log is never looked at again.

use super::{
    batch::{
        copy,
        Head,
        Kind,
        HEAD_BYTES, //
    },
    chain::{
        Chain,
        Scratch, //
    },
    cursor::Cursor,
    devices::Devices,
    epoch::{
        choose,
        Choice,
        Epoch,
        Held,
        NoQuorum, //
    },
    fault::Fault,
    identity::Device,
    layout::Layout,
    log::{
        Log,
        Wait, //
    },
    members::{
        member_of,
        Members,
        MEMBERS, //
    },
    record,
    superblock::{
        newer,
        Start,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    table::{
        lose,
        note_batch,
        page_members,
        read_page,
        Table, //
    },
    Checksum, //
};

/// An assembly.
pub struct Recovery<'a, D, C> {
    chain: Chain<'a, D, C>,
    superblocks: [Option<Superblock>; MEMBERS],
    choice: Choice,
    start: Start,
    /// The devices that the array knows.
    known: [Device; MEMBERS],
    end: Cursor,
    /// Where the first batch of this incarnation is expected.
    first: Cursor,
}

/// What an assembly has led to.
pub struct Opened {
    /// The log, to be written.
    pub log: Log,
    /// The superblocks of the members that live, as they were written.
    pub superblocks: [Option<Superblock>; MEMBERS],
    /// The epoch of this assembly.
    pub epoch: Epoch,
    /// The start that they name.
    pub start: Start,
    /// The first batch of this incarnation.
    pub first: Head,
}

impl<'a, D: Devices, C: Checksum> Recovery<'a, D, C> {
    /// Reads the superblocks of the members that are there, and chooses the epoch.
    ///
    /// # Errors
    ///
    /// Returns why the array cannot be assembled from them.
    pub fn examine(
        devices: &'a mut D,
        present: Members,
        columns: Scratch<'a>,
        crc: &'a C,
    ) -> Result<Self, Fault<D::Error>> {
        let mut superblocks = [None; MEMBERS];
        for (member, to) in (0..MEMBERS).zip(&mut superblocks) {
            if present.contains(member) {
                *to = Some(superblock(devices, member, crc)?);
            }
        }
        let mut all = superblocks.iter().flatten();
        let none = Fault::NoQuorum(NoQuorum { present });
        let first = *all.next().ok_or(none)?;
        if let Some(other) = all.find(|other| !first.is_of_same_array(other)) {
            return Err(Fault::OtherArray(other.member));
        }
        let held: Held = superblocks.map(|superblock| superblock.map(|s| s.epoch));
        let choice = choose(&held).map_err(Fault::NoQuorum)?;
        for superblock in superblocks.iter().flatten() {
            let checked = superblock.check_room(&choice.epoch);
            checked.map_err(|why| Fault::Superblock(superblock.member, why))?;
        }
        let starts = superblocks.iter().flatten();
        let starts = starts
            .filter(|s| choice.in_sync.contains(s.member))
            .map(|s| s.start);
        let start = starts
            .max_by_key(|start| start.generation)
            .unwrap_or(first.start);
        // Of two that name different devices one was written before the other one was taken back.
        let known = [0, 1, 2].map(|member: usize| {
            let in_sync = superblocks.iter().flatten();
            let in_sync = in_sync.filter(|s| choice.in_sync.contains(s.member));
            let devices = in_sync.filter_map(|s| s.devices.get(member).copied());
            devices
                .max_by_key(|device| device.since)
                .unwrap_or_default()
        });
        Ok(Self {
            chain: Chain {
                devices,
                crc,
                columns,
                layout: first.layout,
                tag: first.tag,
                in_sync: choice.in_sync,
                incarnation: choice.epoch.incarnation,
            },
            superblocks,
            choice,
            start,
            known,
            end: start.cursor,
            first: start.cursor,
        })
    }

    /// Returns the layout of the array.
    pub fn layout(&self) -> &Layout {
        &self.chain.layout
    }

    /// Returns the members that are there and in sync.
    pub fn in_sync(&self) -> Members {
        self.choice.in_sync
    }

    /// Returns where the first batch of this incarnation will be expected, when the log was
    /// followed.
    pub fn opens_at(&self) -> &Cursor {
        &self.first
    }

    /// Returns from where the log is followed.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Loads the dump of the table.
    fn load_table(&mut self, table: &mut impl Table) -> Result<(), Fault<D::Error>> {
        let pages = if self.start.generation == 0 {
            0
        } else {
            self.chain.layout.pages()
        };
        let page_bytes = self.chain.layout.parts().page_bytes as usize;
        for page in 0..pages {
            let at = self.chain.layout.page(self.start.area, page);
            let with = (&self.chain.layout, self.chain.tag);
            let [to, _, _] = &mut self.chain.columns;
            let to = to.get_mut(..page_bytes).ok_or(Fault::Scratch)?;
            let mut is_there = false;
            for member in page_members(page).and(self.choice.in_sync).iter() {
                let is_read = !is_there && self.chain.devices.read(member, at, to).is_ok();
                is_there |=
                    is_read && read_page(to, (page, &self.start), table, with, self.chain.crc);
            }
            if !is_there {
                return Err(Fault::Page(page));
            }
        }
        Ok(())
    }

    /// Loads the table, follows the log, and assigns what its records say.
    ///
    /// # Errors
    ///
    /// Returns why the log cannot be used. Nothing was written.
    pub fn walk(&mut self, table: &mut impl Table) -> Result<(), Fault<D::Error>> {
        self.load_table(table)?;
        let mut cursor = self.start.cursor;
        let mut opened = None;
        // Each segment behind the start is written once.
        let last_use = u64::from(self.chain.layout.parts().segments);
        let last_use = cursor.segment_sequence.saturating_add(last_use);
        while let Some(accepted) = self.chain.next(&cursor)? {
            let head = &accepted.head;
            if head.segment_sequence > last_use {
                return Err(Fault::Endless {
                    sequence: head.sequence,
                });
            }
            opened = (head.incarnation > cursor.incarnation).then_some(cursor);
            for column in head.data_columns() {
                let of = self
                    .chain
                    .columns
                    .get(member_of(head.place.segment, column));
                let bytes = of.and_then(|bytes| bytes.get(..head.column_bytes(&self.chain.layout)));
                let bytes = bytes.ok_or(Fault::Scratch)?;
                record::assign(
                    table,
                    (head, column),
                    bytes,
                    &self.chain.layout,
                    self.chain.crc,
                )
                .map_err(|record::Malformed| Fault::Malformed {
                    sequence: head.sequence,
                })?;
            }
            let members = head.live.and(self.choice.in_sync);
            note_batch(table, head, members, &self.chain.layout);
            cursor = cursor.behind(head, accepted.hash);
        }
        self.check_end(&cursor)?;
        for (member, device) in self.known.iter().enumerate() {
            let layout = &self.chain.layout;
            lose(table, Members::of(member), 0..device.since, layout);
        }
        self.end = cursor;
        // An incarnation that has written nothing else is begun again in its place: else assemblies
        // alone would use up the segments.
        let again = opened.filter(|_| !self.is_followed(&cursor));
        self.first = again.unwrap_or(cursor);
        // A use that a crash has taken from the log has its number again, and a device that was
        // taken back at that time may have its columns then.
        let next = self.first.segment_sequence.saturating_add(1);
        for device in &mut self.known {
            device.since = device.since.min(next);
        }
        Ok(())
    }

    /// Whether there is a head behind the end of the log, in its segment.
    fn is_followed(&mut self, end: &Cursor) -> bool {
        let from = (end.segment, end.unit);
        self.chain
            .find(from, end.segment_sequence, |_| true)
            .is_some()
    }

    /// Checks that nothing behind the end of the log says that it was longer.
    fn check_end(&mut self, end: &Cursor) -> Result<(), Fault<D::Error>> {
        let says_more = |head: &Head| head.durable >= end.sequence;
        let here = (end.unit > 0).then_some((end.segment, end.unit));
        let here = here.and_then(|from| self.chain.find(from, end.segment_sequence, says_more));
        let use_of_next = end.segment_sequence.saturating_add(1);
        let next = self.chain.find((end.next, 0), use_of_next, says_more);
        match here.or(next) {
            Some(_) => Err(Fault::Damaged {
                sequence: end.sequence,
            }),
            None => Ok(()),
        }
    }

    /// Makes what was found durable, as the state that this assembly begins with: `id` is a random
    /// number, the identifier of its epoch.
    ///
    /// # Errors
    ///
    /// Returns the error of a member; the array can be assembled again.
    pub fn commit(&mut self, id: u64) -> Result<(), Fault<D::Error>> {
        self.write_epoch(self.choice.epoch, self.choice.behind)?;
        self.write_epoch(self.choice.assembly(id), self.choice.in_sync)?;
        let mut cursor = self.start.cursor;
        while cursor != self.end {
            let accepted = self.chain.next(&cursor)?.ok_or(Fault::Damaged {
                sequence: cursor.sequence,
            })?;
            let head = &accepted.head;
            let at = self.chain.layout.at(head.place).unwrap_or_default();
            let missing = head.used.and(self.choice.in_sync).minus(accepted.whole);
            for member in missing.iter() {
                let of = self.chain.columns.get(member);
                let column = of.and_then(|of| of.get(..head.column_bytes(&self.chain.layout)));
                let column = column.ok_or(Fault::Scratch)?;
                self.chain
                    .devices
                    .write(member, at, column, false)
                    .map_err(|e| Fault::Io(member, e))?;
            }
            cursor = cursor.behind(head, accepted.hash);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Fault<D::Error>> {
        for member in self.choice.in_sync.iter() {
            self.chain
                .devices
                .flush(member)
                .map_err(|e| Fault::Io(member, e))?;
        }
        Ok(())
    }

    /// Writes an epoch, and the start, to members.
    fn write_epoch(&mut self, epoch: Epoch, to: Members) -> Result<(), Fault<D::Error>> {
        for superblock in self.superblocks.iter_mut().flatten() {
            let member = superblock.member;
            if to.contains(member) {
                superblock.start = self.start;
                *superblock = superblock.with_devices(self.known, epoch);
                let at = Layout::slot(superblock.slot());
                let bytes = superblock.bytes(self.chain.crc);
                self.chain
                    .devices
                    .write(member, at, &bytes, true)
                    .map_err(|e| Fault::Io(member, e))?;
            }
        }
        Ok(())
    }

    /// Writes the first batch of this incarnation, in a segment of its own, and opens the log. The
    /// segment is the one that the log names as the next; `free` will follow it: one without
    /// anything live that is not in use.
    ///
    /// # Errors
    ///
    /// Returns the error of a member, or that `free` is not possible; the array can be assembled
    /// again.
    pub fn open(self, id: u64, free: u32) -> Result<Opened, Fault<D::Error>> {
        let epoch = self.choice.assembly(id);
        let cursor = Cursor {
            unit: 0,
            incarnation: epoch.incarnation,
            ..self.first
        };
        let live = self.choice.in_sync;
        let mut log = Log::new(self.chain.layout, self.chain.tag, cursor, live);
        let [bytes, _, _] = self.chain.columns;
        let bytes = bytes
            .get_mut(..self.chain.layout.unit_bytes())
            .ok_or(Fault::Scratch)?;
        bytes.fill(0);
        let body = self
            .chain
            .crc
            .crc32c(bytes.get(HEAD_BYTES..).unwrap_or_default());
        let batch = (Kind::Striped, live, 1);
        let begun = log.begin(batch, [body; MEMBERS], Some(free), self.chain.crc);
        let begun = begun.map_err(|_: Wait| Fault::NoSegment)?;
        let (head, _) = begun.head.bytes(self.chain.tag, self.chain.crc);
        copy(bytes.get_mut(..HEAD_BYTES).ok_or(Fault::Scratch)?, &head);
        for member in live.iter() {
            let written = self.chain.devices.write(member, begun.at, bytes, false);
            written.map_err(|e| Fault::Io(member, e))?;
            log.written(begun.head.sequence, member);
        }
        log.acknowledge();
        log.flush();
        for member in live.iter() {
            self.chain
                .devices
                .flush(member)
                .map_err(|e| Fault::Io(member, e))?;
            log.flushed(member);
        }
        log.end_flush();
        log.opened(self.first);
        Ok(Opened {
            log,
            superblocks: self
                .superblocks
                .map(|s| s.filter(|s| live.contains(s.member))),
            epoch,
            start: self.start,
            first: begun.head,
        })
    }
}

/// Reads the superblock of a member: the newer of its slots.
fn superblock<D: Devices>(
    devices: &mut D,
    member: usize,
    crc: &impl Checksum,
) -> Result<Superblock, Fault<D::Error>> {
    let mut slot = |number: u8| {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let read = devices.read(member, Layout::slot(number), &mut bytes);
        // An older epoch would be taken for the one that cannot be read.
        read.map_err(|e| Fault::Io(member, e))?;
        Ok(Superblock::parse(&bytes, number, crc))
    };
    let found = newer(slot(0)?, slot(1)?).map_err(|why| Fault::Superblock(member, why))?;
    let (needed, has) = (found.layout.end_bytes(), devices.bytes(member));
    if has < needed {
        return Err(Fault::Truncated {
            member,
            needed,
            found: has,
        });
    }
    if found.member != member {
        return Err(Fault::OtherMember {
            given: member,
            found: found.member,
        });
    }
    Ok(found)
}
