// SPDX-License-Identifier: GPL-2.0

//! Payloads: the number and the version of each block, and what makes them as long as data are.

use rnbd_ec::proto::codec::{
    plain_bytes,
    Codec, //
};

use crate::history::Version;

/// The bytes of a block that was compressed, at least.
const SHORT_BYTES: usize = 16;

fn stride(codec: Codec) -> usize {
    match codec {
        Codec::Raw => plain_bytes(1),
        Codec::Lz4 => SHORT_BYTES,
    }
}

/// Makes the payload of blocks; `more` bytes are added for each that is compressed.
pub(crate) fn encode(codec: Option<Codec>, blocks: &[(usize, Version)], more: usize) -> Vec<u8> {
    let Some(codec) = codec else {
        return Vec::new();
    };
    let mut payload = vec![0; stride(codec) * blocks.len()];
    for (part, (block, version)) in payload.chunks_mut(stride(codec)).zip(blocks) {
        part[..8].copy_from_slice(&(*block as u64).to_le_bytes());
        part[8..16].copy_from_slice(&version.to_le_bytes());
    }
    if codec == Codec::Lz4 {
        payload.resize(payload.len() + more * blocks.len(), 7);
    }
    payload
}

/// Returns the blocks of a payload.
pub(crate) fn decode(codec: Codec, payload: &[u8], count: u32) -> Vec<(usize, Version)> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let parts = payload.chunks(stride(codec)).take(count as usize);
    parts
        .map(|part| (word(&part[..8]) as usize, word(&part[8..16])))
        .collect()
}
