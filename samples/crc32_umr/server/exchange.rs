// SPDX-License-Identifier: GPL-2.0

//! One request, from its message to its response.

use core::ops::Range;

use chunk4k::{
    strict::Metadata,
    Checksums,
    Defect,
    MetadataBytes,
    CHUNK_LEN,
    DATA_LEN,
    METADATA_LEN,
    RESERVED_LEN, //
};
use kernel::prelude::*;
use kernel_ext::{
    crc,
    pages::PageBlock,
    sync::atomic::Ordering::Relaxed, //
};
use rdma::*;

use super::{
    connection::{
        Handler,
        State,
        Why,
        ELEMENTS,
        REQUESTS_MAX,
        RESPONSE_AT,
        SIGNATURE_AT,
        TAG_SEND, //
    },
    LOG_LIMIT, //
};
use crate::proto::{
    request::{
        Memory,
        Operation,
        Request,
        HEAD_LEN,
        PLAIN_LEN,
        REST_LEN,
        SIGNATURE_LEN, //
    },
    response::{
        self,
        Status, //
    },
    view::pieces,
    Violation, //
};

/// The kernel's checksums.
struct Kernel;

impl Checksums for Kernel {
    fn crc32(before: u32, bytes: &[u8]) -> u32 {
        crc::crc32(before, bytes)
    }

    fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        crc::crc32c(before, bytes)
    }
}

/// The end of a request: an answer to the peer, or the end of the connection.
enum Stop {
    Answer(Status),
    End(Why),
}

impl From<Why> for Stop {
    fn from(why: Why) -> Self {
        Self::End(why)
    }
}

/// An error of this machine's memory or numbers, which are checked: it cannot happen.
impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::End(Why::Failed("a request cannot be served", error))
    }
}

impl State {
    /// Serves the request in receive `tag`, a message of `len_bytes`. Sleeps.
    pub(super) fn serve(&self, qp: &Qp<Handler>, tag: u32, len_bytes: u32) -> Result<(), Why> {
        let request = self.parse(tag, len_bytes)?;
        let done = match request.blocks(self.target.store().chunks()) {
            None => Err(Stop::Answer(Status::Range)),
            Some(blocks) => match request.operation() {
                Operation::Read(_) => self.load(&request, &blocks),
                Operation::WriteInline { signature } => self
                    .unpack(tag, request.size())
                    .and_then(|()| self.keep(&request, &blocks, signature)),
                Operation::WriteRdma { signature, memory } => self
                    .fetch(qp, request.size(), memory)
                    .and_then(|()| self.keep(&request, &blocks, signature)),
            },
        };
        let status = match done {
            Ok(()) => Status::Done,
            Err(Stop::Answer(status)) => status,
            Err(Stop::End(why)) => return Err(why),
        };
        // Before the response, after which the peer may send the next request.
        let posted = self.receive(qp, tag);
        posted.map_err(|error| Why::Failed("a receive is refused", error))?;
        self.respond(qp, &request, status)
    }

    /// Reads the message in receive `tag`, all but its payload.
    fn parse(&self, tag: u32, len_bytes: u32) -> Result<Request, Why> {
        let (mut head, mut rest) = ([0; HEAD_LEN], [0; REST_LEN]);
        let short = Violation::Length {
            found: len_bytes,
            expected: PLAIN_LEN,
        };
        // CAST: a few bytes.
        let at = len_bytes.checked_sub(PLAIN_LEN).ok_or(short)?;
        let read = self
            .received
            .read(tag, 0, &mut head)
            .and_then(|()| self.received.read(tag, at + HEAD_LEN as u32, &mut rest));
        read.map_err(|error| Why::Failed("a message is not there", error))?;
        Ok(Request::parse::<Kernel>(len_bytes, &head, &rest)?)
    }

    /// Copies the payload of the message in receive `tag` to the chunks.
    fn unpack(&self, tag: u32, size: u16) -> Result<(), Stop> {
        let mut bounce = self.bounce.lock();
        // CAST: a few bytes.
        let mut from = HEAD_LEN as u32;
        for piece in pieces(size) {
            let bytes = bounce.get_mut(..piece.len_bytes as usize).ok_or(EINVAL)?;
            self.received.read(tag, from, bytes)?;
            self.staging.block().copy_in(piece.offset as usize, bytes)?;
            from = from.saturating_add(piece.len_bytes);
        }
        Ok(())
    }

    /// Reads the peer's memory into the data of the chunks. Nothing is copied: an element of the
    /// gather list is the data of a chunk.
    fn fetch(&self, qp: &Qp<Handler>, size: u16, memory: Memory) -> Result<(), Stop> {
        let mut space = WrBuffer::<REQUESTS_MAX, ELEMENTS>::new();
        let mut batch = qp.batch(&mut space);
        self.each_list(size, None, memory, |list, from, is_last| {
            batch.read(TAG_SEND, list, from, SendFlags::signaled(is_last));
        });
        Ok(self.run(batch)?)
    }

    /// Checks the data in the chunks against its checksum, and puts the chunks on the medium.
    fn keep(&self, request: &Request, blocks: &Range<u64>, signature: u32) -> Result<(), Stop> {
        let pages = self.staging.block();
        let computed = self.checksum(request.size())?;
        if computed != signature {
            self.target.figures().bad_payloads.fetch_add(1, Relaxed);
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "connection {}: request {}: its data has the checksum {computed:#010x}, and \
                     not {signature:#010x}\n",
                    self.number,
                    request.id()
                );
            }
            return Err(Stop::Answer(Status::Payload));
        }
        if let Some(rest) = pieces(request.size()).last().map(|last| last.rest()) {
            pages.zero(rest.offset as usize, rest.len_bytes as usize)?;
        }
        let medium = self.target.store().medium();
        self.io(medium.read(blocks, &self.old))?;
        for (at, id) in chunks_of(blocks) {
            let kept = open(&self.old, at)?.and_then(|old| old.of(id));
            // The bytes of a bad chunk are worth nothing.
            let reserved = kept.map_or([0; RESERVED_LEN], |old| *old.reserved());
            let data_crc = pages.crc32(0, at, DATA_LEN)?;
            let sealed = Metadata::new(id, reserved).seal::<Kernel>(data_crc);
            pages.copy_in(at + DATA_LEN, &sealed)?;
        }
        self.io(medium.write(blocks, pages))?;
        let count = blocks.end.saturating_sub(blocks.start);
        self.target
            .figures()
            .written_chunks
            .fetch_add(count, Relaxed);
        Ok(())
    }

    /// Reads chunks from the medium, checks them, and computes the checksum of their data.
    fn load(&self, request: &Request, blocks: &Range<u64>) -> Result<(), Stop> {
        let pages = self.staging.block();
        self.io(self.target.store().medium().read(blocks, pages))?;
        for (at, id) in chunks_of(blocks) {
            if let Err(defect) = open(pages, at)?.and_then(|metadata| metadata.of(id)) {
                self.target.figures().bad_chunks.fetch_add(1, Relaxed);
                if LOG_LIMIT.allow().is_some() {
                    pr_err!("chunk {id} is bad: {defect}\n");
                }
                return Err(Stop::Answer(match defect {
                    Defect::Id { .. } => Status::Place,
                    _ => Status::Chunk,
                }));
            }
        }
        let signature = self.checksum(request.size())?;
        self.answers
            .write(0, SIGNATURE_AT, &signature.to_le_bytes())?;
        let count = blocks.end.saturating_sub(blocks.start);
        self.target.figures().read_chunks.fetch_add(count, Relaxed);
        Ok(())
    }

    /// Sends the response, behind the data of a request to read that was done.
    fn respond(&self, qp: &Qp<Handler>, request: &Request, status: Status) -> Result<(), Why> {
        let bytes = response::encode(request.id(), status);
        let written = self.answers.write(0, RESPONSE_AT, &bytes);
        written.map_err(|error| Why::Failed("a response cannot be written", error))?;
        let mut space = WrBuffer::<REQUESTS_MAX, ELEMENTS>::new();
        let mut batch = qp.batch(&mut space);
        if let (Operation::Read(memory), Status::Done) = (request.operation(), status) {
            let tail = self.answers.segment(0, SIGNATURE_AT, SIGNATURE_LEN);
            self.each_list(request.size(), Some(tail), memory, |list, to, _| {
                batch.write(TAG_SEND, list, to, SendFlags::NONE);
            });
        }
        // CAST: a few bytes.
        let message = self.answers.segment(0, RESPONSE_AT, response::LEN as u32);
        batch.send(TAG_SEND, &[message], SendFlags::SIGNALED);
        self.run(batch)
    }

    /// Calls `add` with the gather lists of a stream of `size` bytes and `tail`, the peer's memory
    /// for each, and whether it is the last.
    fn each_list<'a>(
        &'a self,
        size: u16,
        tail: Option<Segment<'a>>,
        memory: Memory,
        mut add: impl FnMut(&[Segment<'a>], RemoteAddr, bool),
    ) {
        let mut all = [self.staging.for_device(0, 0).segment(); ELEMENTS];
        let segments = pieces(size).map(|piece| {
            let part = self.staging.for_device(piece.offset, piece.len_bytes);
            part.segment()
        });
        let mut count = 0;
        for (place, segment) in all.iter_mut().zip(Iterator::chain(segments, tail)) {
            *place = segment;
            count += 1;
        }
        let mut lists = all
            .get(..count)
            .unwrap_or_default()
            .chunks(self.elements_max);
        let mut addr = memory.address;
        while let Some(list) = lists.next() {
            let key = memory.key;
            add(list, RemoteAddr { addr, key }, lists.len() == 0);
            let len_bytes = list.iter().map(|segment| u64::from(segment.len())).sum();
            // The request was checked: it does not go beyond the last address.
            addr = addr.saturating_add(len_bytes);
        }
    }

    /// Returns the checksum of the stream of `size` bytes in the chunks.
    fn checksum(&self, size: u16) -> Result<u32> {
        pieces(size).try_fold(0, |before, piece| {
            // What RDMA has written.
            self.staging.for_cpu(piece.offset, piece.len_bytes);
            let block = self.staging.block();
            block.crc32(before, piece.offset as usize, piece.len_bytes as usize)
        })
    }

    /// Answers a request that the medium has failed.
    fn io(&self, done: Result) -> Result<(), Stop> {
        done.map_err(|error| {
            if LOG_LIMIT.allow().is_some() {
                pr_err!("the medium failed: {error:?}\n");
            }
            Stop::Answer(Status::Io)
        })
    }
}

/// Returns where each chunk is in memory, and its number.
fn chunks_of(blocks: &Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    (0..).step_by(CHUNK_LEN).zip(blocks.clone())
}

/// Opens the chunk at `at`. The outer error is that there is none in the pages.
fn open(pages: &PageBlock, at: usize) -> Result<Result<Metadata, Defect>> {
    let mut bytes: MetadataBytes = [0; METADATA_LEN];
    pages.copy_out(at + DATA_LEN, &mut bytes)?;
    let data_crc = pages.crc32(0, at, DATA_LEN)?;
    Ok(Metadata::open::<Kernel>(&bytes, data_crc))
}
