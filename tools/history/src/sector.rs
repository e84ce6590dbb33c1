// SPDX-License-Identifier: GPL-2.0

//! The content of a sector, which tells who wrote it, where it belongs, and which write it was.

/// Bytes in a sector.
pub(crate) const SECTOR_SIZE: usize = 512;

const WORDS: usize = SECTOR_SIZE / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"ferrohst");
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The identity of a sector's content.
///
/// On the disk: eight bytes each, little-endian: magic, run, sector, writer, generation; then a
/// filler that is another one in each write; at the end a checksum over all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The run of this program that wrote it.
    pub(crate) run: u64,
    /// The sector's number on the disk.
    pub(crate) sector: u64,
    /// The thread that wrote it.
    pub(crate) writer: u64,
    /// The number of writes of its unit so far, this one included.
    pub(crate) generation: u64,
}

/// The reason why there is no stamp to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The sector does not begin as one of this program.
    NoMagic,
    /// The sector begins as one of this program, and goes on as something else.
    BadChecksum,
}

/// Mixes a word into a running value; each bit of both changes about half of the result.
fn mix(value: u64, word: u64) -> u64 {
    let mixed = (value ^ word).wrapping_mul(ODD);
    mixed ^ (mixed >> 29)
}

impl Stamp {
    /// Writes the sector; what does not fit in `bytes` is left out.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        let head = [MAGIC, self.run, self.sector, self.writer, self.generation];
        let salt = head.into_iter().fold(ODD, mix);
        let filler = (0u64..).map(|at| salt.wrapping_add(at.wrapping_mul(ODD)));
        let mut sum = 0;
        let words = head.into_iter().chain(filler);
        for (at, (place, word)) in bytes.chunks_exact_mut(8).zip(words).enumerate() {
            let last = at == WORDS - 1;
            sum = mix(sum, word);
            place.copy_from_slice(&(if last { sum } else { word }).to_le_bytes());
        }
    }

    /// Reads a sector that `write` has made.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let word = |at: usize| -> u64 {
            let place = bytes.get(8 * at..8 * at + 8);
            place
                .and_then(|place| place.try_into().ok())
                .map_or(0, u64::from_le_bytes)
        };
        if word(0) != MAGIC {
            return Err(Unreadable::NoMagic);
        }
        let stamp = Self {
            run: word(1),
            sector: word(2),
            writer: word(3),
            generation: word(4),
        };
        let mut wanted = [0; SECTOR_SIZE];
        stamp.write(&mut wanted);
        if wanted == bytes {
            Ok(stamp)
        } else {
            Err(Unreadable::BadChecksum)
        }
    }
}
