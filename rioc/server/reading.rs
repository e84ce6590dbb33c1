// SPDX-License-Identifier: GPL-2.0

//! Blocks that a step of a request reads before, and the data of answers.

use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;
use rtrs_server::Operation;
use seglog::{
    devices::Devices,
    Checksum, //
};
use zerocopy::IntoBytes;

use super::{
    medium::Kept,
    memory::{
        Crc,
        Tables, //
    },
    message::message_of,
    one_device::OneDevice, //
};
use crate::proto::{
    answer::{
        Listed,
        ReadHead,
        Short, //
    },
    body,
    index::{
        Refused,
        Source, //
    },
    message::Operation as Asked,
    slot::Stored,
    span::{
        ObjectId,
        Piece,
        Span,
        BLOCK_BYTES,
        IO_BLOCKS_MAX,
        IO_BYTES_MAX, //
    },
    store::{
        Block,
        Look,
        Store,
        OLD_MAX, //
    },
    wire, //
};

/// The names that are looked for at a time.
const NAMES: usize = 64;

/// The most blocks that one step reads.
const MISSING_MAX: usize = if IO_BLOCKS_MAX > OLD_MAX {
    IO_BLOCKS_MAX
} else {
    OLD_MAX
};

/// The place to which a block is read.
#[derive(Clone, Copy)]
enum Target {
    /// A block that stays in part.
    Old(usize),
    /// A piece of the answer.
    Answer(Piece),
}

/// A block that has to be read from the device.
#[derive(Clone, Copy)]
struct Missing {
    stored: Stored,
    block: u8,
    to: Target,
}

impl Missing {
    /// Returns where it is on the device, with its tag.
    fn place(&self) -> u64 {
        body::place_of(&self.stored, self.block)
    }
}

/// The error of an answer, and the batch that it waits for; without one the request is given up.
pub(super) type Failed = (u16, Option<u64>);

/// Memory for one step of one request.
pub(super) struct Scratch {
    /// The bytes that are written: a copy, which no client changes.
    pub(super) data: KVVec<u8>,
    pub(super) data_bytes: usize,
    /// The blocks that were read for what is written.
    pub(super) blocks: KBox<[Block; OLD_MAX]>,
    block: KBox<Block>,
    names: KVec<ObjectId>,
    missing: KVec<Missing>,
    /// The device of a log, and memory for blocks of it with their tags.
    device: Option<OneDevice>,
    tagged: KVVec<u8>,
    look: Option<Look>,
    /// The memory of the answer of a read.
    memory: Option<Arc<PageBlock>>,
    head: ReadHead,
    /// The batch that an answer waits for, if it is not the last one.
    result: Result<Option<u64>, Failed>,
}

const NOTHING: ReadHead = ReadHead {
    bytes: 0,
    size: 0,
    sums: [0; wire::READ_SUMS],
};

/// The error of blocks that cannot be read.
const EIO: u16 = Errno::EIO.get();

impl Scratch {
    /// Allocates it. Sleeps.
    #[inline(never)]
    pub(super) fn new(device: Option<OneDevice>) -> Result<KBox<Self>> {
        let scratch = KBox::new_uninit(GFP_KERNEL)?;
        let scratch = KBox::write(
            scratch,
            Self {
                data: KVVec::from_elem(0, IO_BYTES_MAX as usize, GFP_KERNEL)?,
                data_bytes: 0,
                blocks: KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?,
                block: KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?,
                names: KVec::from_elem(ObjectId::default(), NAMES, GFP_KERNEL)?,
                missing: KVec::with_capacity(MISSING_MAX, GFP_KERNEL)?,
                device,
                tagged: KVVec::from_elem(0, MISSING_MAX * body::TAGGED_BYTES, GFP_KERNEL)?,
                look: None,
                memory: None,
                head: NOTHING,
                result: Ok(None),
            },
        );
        Ok(scratch)
    }

    /// Reads what the next step of a request needs, as far as it is in memory: `old` are the blocks
    /// that stay in part.
    pub(super) fn prepare<D: Kept>(
        &mut self,
        store: &mut Store<Tables, D>,
        (operation, old): (&mut Operation, &[Option<Source>; OLD_MAX]),
    ) {
        (self.result, self.data_bytes) = (Ok(None), 0);
        self.missing.clear();
        for (place, source) in old.iter().enumerate() {
            if let Some(source) = source {
                let from = (&source.stored, source.first);
                self.look_for(store, from, Target::Old(place));
            }
        }
        let asked = message_of(operation).map(|message| match message.operation {
            Asked::Write { span, .. } => (None, span),
            Asked::Read { object, span } => (Some(object), span),
            _ => (None, Span::ALL),
        });
        match asked {
            Ok((Some(object), span)) => self.begin_read(store, operation, (object, &span)),
            Ok((None, span)) if span.is_io() => {
                // CAST: The bytes of one operation.
                self.data_bytes = span.bytes() as usize;
                let to = self.data.get_mut(..self.data_bytes);
                if operation.read_data(0, to.unwrap_or_default()).is_err() {
                    self.result = Err((EIO, None));
                }
            }
            _ => (),
        }
    }

    /// Takes a block that is in memory, or notes that it is to be read.
    fn look_for<D: Kept>(
        &mut self,
        store: &Store<Tables, D>,
        (stored, block): (&Stored, u8),
        to: Target,
    ) {
        let found = store.medium().copy_block(stored, block, &mut self.block);
        let missing = Missing {
            stored: *stored,
            block,
            to,
        };
        match found {
            Ok(Some(sum)) => self.found(&to, Some(sum)),
            // There is room for all of a request.
            Ok(None) => drop(self.missing.push_within_capacity(missing)),
            Err(_) => self.lose(&to),
        }
    }

    /// A block cannot be read.
    fn lose(&mut self, to: &Target) {
        self.result = match to {
            Target::Old(_) => Err((EIO, None)),
            Target::Answer(_) => Err((EIO, self.result.ok().flatten())),
        };
    }

    /// A block was read, whose CRC is this; without one it is zeroes.
    fn found(&mut self, to: &Target, sum: Option<u32>) {
        let is_whole = matches!(to, Target::Answer(piece) if piece.is_whole());
        // A whole block is verified by the client.
        if sum.is_some_and(|sum| !is_whole && sum != Crc.crc32c(&*self.block)) {
            return self.lose(to);
        }
        match to {
            Target::Old(place) => {
                if let Some(to) = self.blocks.get_mut(*place) {
                    to.copy_from_slice(&*self.block);
                }
            }
            Target::Answer(piece) => {
                let bytes = self.block.get(piece.from as usize..piece.to as usize);
                let bytes = bytes.unwrap_or_default();
                let sum = sum.filter(|_| is_whole);
                let sum = sum.unwrap_or_else(|| Crc.crc32c(bytes));
                let reading = self.look.as_ref().and_then(|look| look.reading.span);
                let Some((span, memory)) = reading.zip(self.memory.as_ref()) else {
                    return;
                };
                let number = piece.block.saturating_sub(span.blocks().start);
                if let Some(to) = self.head.sums.get_mut(number as usize) {
                    *to = sum;
                }
                let block = u64::from(piece.block).saturating_mul(BLOCK_BYTES);
                let at = block.saturating_add(piece.from.into());
                let at = at.saturating_sub(span.offset());
                // CAST: Below the bytes of one operation.
                let at = (at as usize).saturating_add(wire::READ_ANSWER_BYTES as usize);
                let _ = memory.copy_in(at, bytes);
            }
        }
    }

    /// Begins to read bytes; returns the size of the object, the batch to wait for, and the bytes.
    #[inline(never)]
    fn look<D: Kept>(
        &mut self,
        store: &mut Store<Tables, D>,
        asked: (ObjectId, &Span),
    ) -> Result<(u64, u64, Option<Span>), (Errno, u64)> {
        // It is large: there is one of it on the stack.
        let found = store.read(asked);
        let looked = match &found {
            Ok(look) => Ok((look.reading.size, look.after, look.reading.span)),
            Err(failed) => Err(*failed),
        };
        self.look = found.ok();
        looked
    }

    #[inline(never)]
    fn begin_read<D: Kept>(
        &mut self,
        store: &mut Store<Tables, D>,
        operation: &mut Operation,
        (object, asked): (ObjectId, &Span),
    ) {
        let (size, after, span) = match self.look(store, (object, asked)) {
            Ok(found) => found,
            Err((errno, after)) => {
                self.result = Err((errno.get(), Some(after)));
                return;
            }
        };
        let bytes = ReadHead::bytes_of(asked, size);
        self.head = ReadHead {
            bytes,
            size,
            ..NOTHING
        };
        (self.result, self.memory) = (Ok(Some(after)), operation.pages().ok());
        let used = wire::READ_ANSWER_BYTES.saturating_add(bytes) as usize;
        let rest = (operation.data_len() as usize).saturating_sub(used);
        let _ = self.memory.as_ref().map(|memory| memory.zero(used, rest));
        let Some(span) = span else { return };
        let parts = |scratch: &Self, number: usize| {
            let look = scratch.look.as_ref()?;
            look.reading.parts().get(number).copied()
        };
        let mut number = 0usize;
        while let Some(part) = parts(self, number) {
            number = number.saturating_add(1);
            for skipped in 0..part.blocks {
                let to = Target::Answer(span.piece(part.block.saturating_add(skipped)));
                match part.source {
                    Some(source) => {
                        // CAST: Below the blocks of an extent.
                        let block = source.first.saturating_add(skipped as u8);
                        self.look_for(store, (&source.stored, block), to);
                    }
                    None => {
                        self.block.fill(0);
                        self.found(&to, None);
                    }
                }
            }
        }
    }

    /// Whether something is on the device only.
    pub(super) fn needs_device(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether its device owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        self.device.as_ref().is_some_and(OneDevice::is_owed)
    }

    /// Reads what is on the device only, without the lock. Sleeps.
    pub(super) fn fetch(&mut self) {
        let mut first = 0;
        while first < self.missing.len() {
            first = self.fetch_run(first);
        }
        self.missing.clear();
    }

    /// Reads blocks that are side by side, which is one read of the device; returns the number of
    /// the next one.
    fn fetch_run(&mut self, first: usize) -> usize {
        let all = self.missing.get(first..).unwrap_or_default();
        let Some(from) = all.first().map(Missing::place) else {
            return first;
        };
        let places = (0u64..).map(|skipped| {
            let bytes = skipped.saturating_mul(body::TAGGED_BYTES as u64);
            from.saturating_add(bytes)
        });
        let run = all.iter().zip(places);
        let count = run.take_while(|(one, place)| one.place() == *place).count();
        let end = first.saturating_add(count);
        let bytes = count.saturating_mul(body::TAGGED_BYTES);
        let is_read = match (&mut self.device, self.tagged.get_mut(..bytes)) {
            (Some(device), Some(to)) => device.read(0, from, to).is_ok(),
            _ => false,
        };
        for (number, at) in (first..end).zip((0..bytes).step_by(body::TAGGED_BYTES)) {
            let Some(Missing { stored, to, .. }) = self.missing.get(number).copied() else {
                break;
            };
            let tagged = self.tagged.get(at..).filter(|_| is_read);
            let found = tagged.and_then(|bytes| body::block_unread(bytes, &stored).ok());
            let sum = found.map(|(sum, bytes)| {
                self.block.copy_from_slice(bytes);
                sum
            });
            match sum {
                Some(sum) => self.found(&to, Some(sum)),
                None => self.lose(&to),
            }
        }
        end
    }

    /// Ends what was read for a request, and writes its answer; returns the batch that this waits
    /// for, if it is not the last one.
    ///
    /// # Errors
    ///
    /// Returns the error of the answer.
    #[inline(never)]
    pub(super) fn end<D: Kept>(
        &mut self,
        store: &mut Store<Tables, D>,
        operation: &mut Operation,
    ) -> Result<Option<u64>, Failed> {
        if let Some(look) = self.look.take() {
            store.end_read(look.reading);
        }
        self.memory = None;
        let mut result = core::mem::replace(&mut self.result, Ok(None))?;
        let Ok(message) = message_of(operation) else {
            return Ok(result);
        };
        let written = match message.operation {
            Asked::Read { span, .. } => {
                let memory = operation.memory().ok_or((EIO, result))?;
                memory.copy_in(0, self.head.to_wire(&span).as_bytes())
            }
            Asked::Stat { object } => {
                let found = store.index().stat(object);
                let failed = |why: Refused| (why.errno().get(), Some(store.after(object)));
                let stat = found.map_err(failed)?;
                result = Some(store.after(object));
                let short = Short {
                    lease: 0,
                    size: stat.size,
                    blocks: stat.blocks,
                };
                operation.write_reply(short.to_wire(wire::STAT).as_bytes())
            }
            Asked::Ping => {
                result = Some(0);
                let short = Short::default();
                operation.write_reply(short.to_wire(wire::PING).as_bytes())
            }
            Asked::List { cursor, count_max } => self.list(store, operation, (cursor, count_max)),
            _ => Ok(()),
        };
        written.map(|()| result).map_err(|_| (EIO, result))
    }

    fn list<D: Kept>(
        &mut self,
        store: &Store<Tables, D>,
        operation: &mut Operation,
        (mut cursor, count_max): (u32, u32),
    ) -> Result {
        operation.write_reply(&[])?;
        let memory = operation.pages()?;
        let mut listed = Listed {
            count: 0,
            next: None,
        };
        loop {
            let room = count_max.saturating_sub(listed.count) as usize;
            let names = self.names.get_mut(..room.min(NAMES)).unwrap_or_default();
            let (count, next) = store.index().list(cursor, names);
            for name in names.iter().take(count) {
                let before = listed.count.saturating_mul(wire::LISTED_BYTES);
                let at = wire::ANSWER_BYTES.saturating_add(before);
                memory.copy_in(at as usize, wire::Id::from(*name).as_bytes())?;
                listed.count = listed.count.saturating_add(1);
            }
            listed.next = next;
            match next {
                Some(next) if count == NAMES => cursor = next,
                _ => break,
            }
        }
        memory.copy_in(0, listed.to_wire().as_bytes())
    }
}
