// SPDX-License-Identifier: GPL-2.0

//! The rules of a medium, by which each of its chunks is judged.

use chunk4k::{
    extended,
    is_blank,
    strict,
    Chunk,
    Defect, //
};

use crate::checksums::Fast;

/// The layout of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The layout of the CRC32/UMR example, which leaves the meaning of its reserved bytes open.
    Strict {
        /// The reserved bytes must be 0.
        reserved_zero: bool,
    },
    /// The layout with object and generation, which tells chunks of other objects and old ones.
    Extended {
        /// The object to which all chunks must belong.
        object: Option<u128>,
        /// The least generation.
        generation_min: u64,
    },
}

/// The rules for all chunks of a medium, as the user has asked for them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Their layout.
    pub layout: Layout,
    /// The number of the first chunk.
    pub first_id: u64,
    /// Chunks that were never written are bad.
    pub all_written: bool,
}

/// The judgement of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The chunk keeps all rules.
    Good,
    /// All zero: never written.
    Blank,
    /// The chunk breaks a rule.
    Bad(Defect),
}

impl Rules {
    /// Judges the chunk at place `index` of the medium.
    pub fn judge(&self, index: u64, chunk: &Chunk) -> Verdict {
        let id = self.first_id.wrapping_add(index);
        let checked = match self.layout {
            Layout::Strict { reserved_zero } => strict::decode::<Fast>(chunk)
                .and_then(|metadata| metadata.of(id))
                .and_then(|metadata| match reserved_zero {
                    true => metadata.unreserved(),
                    false => Ok(metadata),
                })
                .map(|_| ()),
            Layout::Extended {
                object,
                generation_min,
            } => extended::decode::<Fast>(chunk)
                .and_then(|(metadata, _)| {
                    metadata.check(&extended::Expected {
                        id,
                        object,
                        generation_min,
                    })
                })
                .map(|_| ()),
        };
        match checked {
            Ok(()) => Verdict::Good,
            Err(_) if is_blank(chunk) && !self.all_written => Verdict::Blank,
            Err(defect) => Verdict::Bad(defect),
        }
    }
}
