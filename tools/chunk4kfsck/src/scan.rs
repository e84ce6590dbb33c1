// SPDX-License-Identifier: GPL-2.0

//! Reads a medium from its start to its end, and judges each chunk.

use std::io::{
    self,
    Read, //
};

use chunk4k::{
    Chunk,
    Defect,
    CHUNK_LEN, //
};

use crate::rules::{
    Rules,
    Verdict, //
};

/// The number of chunks that one read brings: 1 MiB.
const BATCH_CHUNKS: usize = 256;

/// A chunk that is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The place of the chunk; the first is 0.
    pub index: u64,
    /// The rule that the chunk breaks.
    pub defect: Defect,
}

/// The result of a scan: counts of all chunks, and the first bad ones.
#[derive(Debug, Default)]
pub struct Found {
    /// Chunks that are as they must be.
    pub good: u64,
    /// Chunks that were never written.
    pub blank: u64,
    /// Chunks that are bad.
    pub bad: u64,
    /// The first of them.
    pub listed: Vec<Bad>,
    /// Bytes behind the last whole chunk: the medium was cut.
    pub rest_bytes: usize,
}

impl Found {
    /// Returns whether nothing is bad.
    pub const fn is_clean(&self) -> bool {
        self.bad == 0 && self.rest_bytes == 0
    }

    /// Returns how many chunks there are.
    pub const fn chunks(&self) -> u64 {
        self.good + self.blank + self.bad
    }

    fn add(&mut self, index: u64, verdict: Verdict, list_max: usize) {
        match verdict {
            Verdict::Good => self.good += 1,
            Verdict::Blank => self.blank += 1,
            Verdict::Bad(defect) => {
                self.bad += 1;
                if self.listed.len() < list_max {
                    self.listed.push(Bad { index, defect });
                }
            }
        }
    }
}

/// Judges all chunks of `medium`, lists at most `list_max` of the bad ones, and tells `progress`
/// now and then how many were judged.
///
/// # Errors
///
/// Returns the error of reading; what was found before it is lost.
pub fn scan(
    mut medium: impl Read,
    rules: &Rules,
    list_max: usize,
    mut progress: impl FnMut(u64),
) -> io::Result<Found> {
    let mut found = Found::default();
    let mut buffer = vec![0; BATCH_CHUNKS * CHUNK_LEN];
    loop {
        let len = fill(&mut medium, &mut buffer)?;
        let (whole, rest) = buffer.get(..len).unwrap_or_default().as_chunks_of();
        for chunk in whole {
            let index = found.chunks();
            found.add(index, rules.judge(index, chunk), list_max);
        }
        progress(found.chunks());
        if len < buffer.len() {
            found.rest_bytes = rest;
            return Ok(found);
        }
    }
}

/// Splits bytes into chunks.
trait AsChunksOf {
    /// Returns the whole chunks, and how many bytes are left.
    fn as_chunks_of(&self) -> (impl Iterator<Item = &Chunk>, usize);
}

impl AsChunksOf for [u8] {
    fn as_chunks_of(&self) -> (impl Iterator<Item = &Chunk>, usize) {
        let whole = self.chunks_exact(CHUNK_LEN);
        let rest = whole.remainder().len();
        (whole.filter_map(|chunk| chunk.try_into().ok()), rest)
    }
}

/// Reads until the buffer is full or the medium ends.
fn fill(medium: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(free) = buffer.get_mut(len..).filter(|free| !free.is_empty()) {
        match medium.read(free) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
