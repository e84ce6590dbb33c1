// SPDX-License-Identifier: GPL-2.0

//! A survey of what three members hold: each stored block is judged, and so is its parity.

use std::io;

use serde::Serialize;

use crate::matrix::Matrix;
use crate::members::Storage;
use crate::sbc::Geometry;
use crate::stored;

/// The findings.
#[derive(Debug, Default, Serialize)]
pub struct Survey {
    /// Length of a block.
    pub block_bytes: u32,
    /// Blocks that there are.
    pub blocks: u32,
    /// Blocks that can be read, with the right parity.
    pub good: u32,
    /// Blocks that were never written.
    pub blank: u32,
    /// Blocks that cannot be read.
    pub bad: u32,
    /// Blocks whose parity is not that of their halves.
    pub stale_parity: u32,
    /// Streams of all blocks that can be read. The rest of them is padding: what compression has
    /// saved, and the format stores nevertheless.
    pub compressed_bytes: u64,
    /// The first of the blocks that are not good.
    pub listed: Vec<Listed>,
}

/// A block that is not good.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// Its number.
    pub block: u32,
    /// The reason why it is not good.
    pub reason: String,
}

/// Reads all blocks; names the first `list_max` that are not good.
///
/// # Errors
///
/// Returns the error of a member.
pub fn survey<S: Storage>(
    members: [&S; 3],
    geometry: &Geometry,
    matrix: &Matrix,
    list_max: usize,
) -> io::Result<Survey> {
    let half = geometry.half_bytes as usize;
    let mut found = Survey {
        block_bytes: geometry.block_bytes(),
        blocks: geometry.blocks,
        ..Survey::default()
    };
    let (mut area, mut data) = (vec![0; 3 * half], vec![0; 2 * half]);
    let mut expected = vec![0; half];
    for number in 0..geometry.blocks {
        let offset = u64::from(number) * half as u64;
        for (member, to) in members.iter().zip(area.chunks_exact_mut(half)) {
            member.read(offset, to)?;
        }
        let (halves, parity) = area.split_at(2 * half);
        let (first, second) = halves.split_at(half);
        matrix.create(first, second, &mut expected);
        let reason = match stored::decode(halves, &mut data) {
            _ if expected != parity => {
                found.stale_parity += 1;
                "its parity is not that of its halves".to_owned()
            }
            Err(_) if stored::is_blank(halves) => {
                found.blank += 1;
                continue;
            }
            Err(defect) => {
                found.bad += 1;
                defect.to_string()
            }
            Ok(compressed) => {
                found.good += 1;
                found.compressed_bytes += compressed as u64;
                continue;
            }
        };
        if found.listed.len() < list_max {
            let block = number;
            found.listed.push(Listed { block, reason });
        }
    }
    Ok(found)
}

impl Survey {
    /// Whether each block is good or was never written.
    pub const fn is_clean(&self) -> bool {
        self.bad == 0 && self.stale_parity == 0
    }
}
