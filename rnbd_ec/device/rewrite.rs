// SPDX-License-Identifier: GPL-2.0

//! Records of which some blocks are not live: only the others are written again.

use core::ops::Range;

use kernel::prelude::*;
use kernel_ext::lz4::{
    self,
    Compressor, //
};
use seglog::record::Record;

use super::prepare::{
    store,
    NOTHING as NO_RECORD, //
};
use crate::proto::{
    codec::{
        plain_bytes,
        Codec,
        Compression, //
    },
    collector::{
        is_gain,
        run_of,
        runs,
        RUNS_MAX, //
    },
    geometry::UNIT_BYTES,
};

/// The memory for one record at a time.
pub(super) struct Rewriter {
    plain: KVec<u8>,
    stored: KVec<u8>,
    compressor: Compressor,
    parts: [(Record, Range<usize>); RUNS_MAX],
    count: usize,
}

const NOTHING: (Record, Range<usize>) = (NO_RECORD, 0..0);

impl Rewriter {
    /// Allocates the memory. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            plain: KVec::from_elem(0, UNIT_BYTES, GFP_KERNEL)?,
            stored: KVec::from_elem(0, UNIT_BYTES, GFP_KERNEL)?,
            compressor: Compressor::new()?,
            parts: [NOTHING; RUNS_MAX],
            count: 0,
        })
    }

    /// Makes records of the live blocks of a record; whether they take less room than it.
    pub(super) fn rewrite(
        &mut self,
        record: &Record,
        payload: &[u8],
        compression: Compression,
    ) -> bool {
        self.count = 0;
        if record.skipped == 0 {
            return false;
        }
        let bytes = self.make(record, payload, compression);
        bytes.is_some_and(|bytes| is_gain(record, bytes))
    }

    /// Returns the bytes of the records.
    fn make(&mut self, record: &Record, payload: &[u8], compression: Compression) -> Option<usize> {
        let all = plain_bytes(record.count);
        let plain = self.plain.get_mut(..all)?;
        match Codec::from_number(record.codec).ok()? {
            Codec::Raw if payload.len() == all => plain.copy_from_slice(payload),
            Codec::Raw => return None,
            Codec::Lz4 if lz4::decompress(payload, plain) == Some(all) => {}
            Codec::Lz4 => return None,
        }
        let (mut at, mut sum) = (0, 0usize);
        for run in runs(record) {
            let from = self
                .plain
                .get(plain_bytes(run.start)..plain_bytes(run.end))?;
            let to = self.stored.get_mut(at..);
            let (codec, bytes) = store(from, to, &mut self.compressor, compression).ok()?;
            let bytes_of_payload = u16::try_from(bytes).ok()?;
            let part = run_of(record, &run, (codec, bytes_of_payload));
            sum = sum.saturating_add(part.bytes());
            let end = at.saturating_add(bytes);
            *self.parts.get_mut(self.count)? = (part, at..end);
            self.count = self.count.saturating_add(1);
            at = end;
        }
        Some(sum)
    }

    /// Returns the records that were made, with their payloads.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.parts.iter().take(self.count).map(|(record, payload)| {
            let payload = self.stored.get(payload.clone());
            (record, payload.unwrap_or_default())
        })
    }
}
