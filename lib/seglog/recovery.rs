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
        Accepted,
        Chain,
        Scratch, //
    },
    cursor::Cursor,
    devices::Devices,
    epoch::{
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
    slots,
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        lose,
        note_batch,
        read_page,
        Table, //
    },
    ArrayTag,
    Checksum, //
};

/// An assembly.
pub struct Recovery<'a, D, C> {
    pub(crate) chain: Chain<'a, D, C>,
    pub(crate) superblocks: [Option<Superblock>; MEMBERS],
    /// The epochs of the devices that count, and those that members were told before.
    pub(crate) held: Held,
    pub(crate) before: Held,
    /// The members of which a slot may hide a newer one.
    pub(crate) hiding: Members,
    pub(crate) choice: Choice,
    pub(crate) start: Start,
    /// The devices that the array knows.
    pub(crate) known: [Device; MEMBERS],
    pub(crate) end: Cursor,
    /// The cursor at which the first batch of this incarnation is expected.
    first: Cursor,
    /// Superblocks are missing that may say more: those that are left may be older than the log.
    pub(crate) may_be_older: bool,
    pub(crate) is_forced: bool,
    /// Gives up what may be newer than what was found.
    pub(crate) gives_up: bool,
}

/// The result of an assembly.
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
    /// Reads the superblocks of the members that are there, and chooses the epoch. An epoch that a
    /// damaged slot hides is on another member, too: if one is missing the user may give it up. Two
    /// such slots may hide it on both: [`Self::walk`] refuses what is older than the log.
    ///
    /// # Errors
    ///
    /// Returns why the array cannot be assembled from them.
    // A frame of its own: both are large.
    #[inline(never)]
    pub fn examine(
        devices: &'a mut D,
        (present, is_forced): (Members, bool),
        columns: Scratch<'a>,
        crc: &'a C,
    ) -> Result<Self, Fault<D::Error>> {
        let mut superblocks = [None; MEMBERS];
        let hidden = slots::superblocks(devices, present, &mut superblocks, crc)?;
        let mut all = superblocks.iter().flatten();
        let none = Fault::NoQuorum(NoQuorum {
            present,
            force_helps: false,
        });
        let first = *all.next().ok_or(none)?;
        if let Some(other) = all.find(|other| !first.is_of_same_array(other)) {
            return Err(Fault::OtherArray(other.member));
        }
        let choice = slots::choose(&superblocks, hidden.hiding, is_forced)?;
        for superblock in superblocks.iter().flatten() {
            let checked = superblock.check_room(&choice.epoch);
            checked.map_err(|why| Fault::Superblock(superblock.member, why))?;
        }
        let may_be_older = hidden.may_be_older || choice.is_forked;
        let mut recovery = Self {
            chain: Chain {
                devices,
                crc,
                columns,
                layout: first.layout,
                tag: first.tag,
                in_sync: choice.in_sync,
                trusted: choice.in_sync,
                incarnation: choice.epoch.incarnation,
                later: None,
                may_be_hidden: may_be_older || !hidden.hiding.is_empty(),
                gives_up: false,
                left_out: 0..0,
                lived: None,
            },
            held: slots::held(&superblocks),
            before: hidden.before,
            superblocks,
            hiding: hidden.hiding,
            choice,
            start: first.start,
            known: [Device::default(); MEMBERS],
            end: first.start.cursor,
            first: first.start.cursor,
            may_be_older: may_be_older && !is_forced,
            is_forced,
            gives_up: may_be_older && is_forced,
        };
        recovery.stand_on(choice);
        Ok(recovery)
    }

    /// Returns the layout of the array.
    pub fn layout(&self) -> &Layout {
        &self.chain.layout
    }

    /// Returns what the batches of the array have.
    pub fn tag(&self) -> ArrayTag {
        self.chain.tag
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
            let members = self.chain.layout.page_members(page);
            for member in members.and(self.choice.in_sync).iter() {
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
        let (layout, crc) = (self.chain.layout, self.chain.crc);
        self.walk_by(table, |table, of, column| {
            record::assign(table, of, column, &layout, crc)
        })
    }

    /// Does so for a user whose bodies have something else than records: `assign` gets each data
    /// column, its head included.
    ///
    /// # Errors
    ///
    /// Returns what [`Self::walk`] does.
    pub fn walk_by<T: Table>(
        &mut self,
        table: &mut T,
        mut assign: impl FnMut(&mut T, (&Head, usize), &[u8]) -> Result<(), record::Malformed>,
    ) -> Result<(), Fault<D::Error>> {
        self.check_not_begun()?;
        let (mut cursor, mut opened) = match self.walk_once(table, &mut assign) {
            Err(why) if self.is_told_by_force(&why) => {
                self.give_up();
                self.forget(table);
                self.walk_once(table, &mut assign)?
            }
            walked => walked?,
        };
        for _ in 0..MEMBERS {
            let Some(lived) = self.chain.lived.take() else {
                break;
            };
            self.stand_on_others(lived, table)?;
            (cursor, opened) = self.walk_once(table, &mut assign)?;
        }
        if let Some((sequence, _)) = self.chain.lived {
            return Err(Fault::Superseded { sequence });
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
        if again.is_none() {
            self.check_next()?;
        }
        self.first = again.unwrap_or(cursor);
        // A use that a crash has taken from the log has its number again, and a device that was
        // taken back at that time may have its columns then.
        let next = self.first.segment_sequence.saturating_add(1);
        for device in &mut self.known {
            device.since = device.since.min(next);
        }
        Ok(())
    }

    /// Follows the log with the members that are chosen. Returns its end, and where its last batch
    /// was expected if that is the first one of an incarnation.
    fn walk_once<T: Table>(
        &mut self,
        table: &mut T,
        assign: &mut impl FnMut(&mut T, (&Head, usize), &[u8]) -> Result<(), record::Malformed>,
    ) -> Result<(Cursor, Option<Cursor>), Fault<D::Error>> {
        self.load_table(table)?;
        let mut cursor = self.start.cursor;
        let mut opened = None;
        // Each segment behind the start is written once.
        let last_use = u64::from(self.chain.layout.parts().segments);
        let last_use = cursor.segment_sequence.saturating_add(last_use);
        loop {
            let next = self.chain.next(&cursor);
            let Some(accepted) = next.map_err(|why| self.named(why))? else {
                break;
            };
            let head = &accepted.head;
            let sequence = head.sequence;
            if head.segment_sequence > last_use {
                return Err(Fault::Endless { sequence });
            }
            opened = (head.incarnation > cursor.incarnation).then_some(cursor);
            for column in head.data_columns() {
                let of = self
                    .chain
                    .columns
                    .get(member_of(head.place.segment, column));
                let bytes = of.and_then(|bytes| bytes.get(..head.column_bytes(&self.chain.layout)));
                let bytes = bytes.ok_or(Fault::Scratch)?;
                assign(table, (head, column), bytes)
                    .map_err(|record::Malformed| Fault::Malformed { sequence })?;
            }
            let members = head.live.and(self.choice.in_sync);
            note_batch(table, head, members, &self.chain.layout);
            cursor = cursor.behind(head, accepted.hash);
        }
        Ok((cursor, opened))
    }

    /// Returns the next batch of the log that was followed, and the members in sync that have to be
    /// given their column of it.
    fn accepted(
        &mut self,
        cursor: &Cursor,
    ) -> Result<Option<(Accepted, Members)>, Fault<D::Error>> {
        if *cursor == self.end {
            return Ok(None);
        }
        let accepted = self.chain.next(cursor)?.ok_or(Fault::Damaged {
            sequence: cursor.sequence,
        })?;
        let used = accepted.head.used.and(self.choice.in_sync);
        let missing = used.minus(accepted.whole);
        Ok(Some((accepted, missing)))
    }

    /// Tells, after [`Self::walk`], the batches of the log in their order, each with the members in
    /// sync that [`Self::commit`] would give their column of it. Writes nothing.
    ///
    /// # Errors
    ///
    /// Returns that members give something else than before.
    pub fn follow(&mut self, mut see: impl FnMut(&Head, Members)) -> Result<(), Fault<D::Error>> {
        let mut cursor = self.start.cursor;
        while let Some((accepted, missing)) = self.accepted(&cursor)? {
            see(&accepted.head, missing);
            cursor = cursor.behind(&accepted.head, accepted.hash);
        }
        Ok(())
    }

    /// Makes what was found durable, as the state that this assembly begins with: `id` is a random
    /// number, the identifier of its epoch.
    ///
    /// # Errors
    ///
    /// Returns the error of a member; the array can be assembled again.
    pub fn commit(&mut self, id: u64) -> Result<(), Fault<D::Error>> {
        if self.gives_up {
            let begun = self.latest_begun();
            self.choice = self.choice.behind_what_is_given_up(begun);
        }
        let (next, in_sync) = (self.choice.assembly(id), self.choice.in_sync);
        // Who may have failed by what a slot hides: that is written over next.
        let suspects = in_sync.minus(self.chain.trusted);
        if !suspects.is_empty() {
            self.complete(suspects)?;
        }
        self.write_epoch(self.choice.epoch, self.choice.behind)?;
        self.clear_left_out()?;
        // What a slot hides may be shown again if this is cut off, so it is written over first.
        let hiding = self.hiding.and(in_sync);
        self.write_epoch(next, hiding)?;
        self.write_epoch(next, in_sync.minus(hiding))?;
        self.complete(in_sync)
    }

    /// Gives members the columns that they lack of accepted batches, and flushes.
    fn complete(&mut self, members: Members) -> Result<(), Fault<D::Error>> {
        let mut cursor = self.start.cursor;
        while let Some((accepted, missing)) = self.accepted(&cursor)? {
            let head = &accepted.head;
            let at = self.chain.layout.at(head.place).unwrap_or_default();
            for member in missing.or(accepted.covered).and(members).iter() {
                // All that it is used on have the same of a mirror.
                let own = head.used.iter().find(|used| *used == member);
                let own = own.or(head.used.iter().next());
                let of = own.and_then(|own| self.chain.columns.get(own));
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

    pub(crate) fn flush(&mut self) -> Result<(), Fault<D::Error>> {
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
    // A frame of its own, as for `examine`.
    #[inline(never)]
    pub fn open(&mut self, id: u64, free: u32) -> Result<Opened, Fault<D::Error>> {
        let epoch = self.choice.assembly(id);
        let cursor = Cursor {
            unit: 0,
            incarnation: epoch.incarnation,
            ..self.first
        };
        let live = self.choice.in_sync;
        let mut log = Log::new(self.chain.layout, self.chain.tag, cursor, live);
        let [bytes, _, _] = &mut self.chain.columns;
        let bytes = bytes
            .get_mut(..self.chain.layout.unit_bytes())
            .ok_or(Fault::Scratch)?;
        bytes.fill(0);
        let body = self
            .chain
            .crc
            .crc32c(bytes.get(HEAD_BYTES..).unwrap_or_default());
        let batch = (Kind::over_all(&self.chain.layout), live, 1);
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
        self.flush()?;
        live.iter().for_each(|member| log.flushed(member));
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
