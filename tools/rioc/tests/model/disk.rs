// SPDX-License-Identifier: GPL-2.0

//! A device with a volatile cache. Power leaves any part of what is not durable, torn at 8 bytes.

use seglog::devices::Devices;

use crate::random::Random;

const WORD: usize = 8;

#[derive(Clone)]
struct Write {
    /// The batch whose end is waited for; 0 of others.
    batch: u64,
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Disk {
    durable: Vec<u8>,
    /// What has ended and is not flushed, in its order.
    cache: Vec<Write>,
    flying: Vec<Write>,
}

impl Disk {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            durable: vec![0; bytes],
            cache: Vec::new(),
            flying: Vec::new(),
        }
    }

    /// A batch is on its way.
    pub(crate) fn begin(&mut self, batch: u64, at: u64, bytes: Vec<u8>) {
        let at = at as usize;
        self.flying.push(Write { batch, at, bytes });
    }

    /// Ends a write, in any order; returns its batch.
    pub(crate) fn end_one(&mut self, random: &mut Random) -> Option<u64> {
        if self.flying.is_empty() {
            return None;
        }
        let ended = self.flying.swap_remove(random.below(self.flying.len()));
        let batch = ended.batch;
        self.cache.push(ended);
        Some(batch)
    }

    /// Whether something else than batches is on its way.
    pub(crate) fn has_others(&self) -> bool {
        self.flying.iter().any(|write| write.batch == 0)
    }

    pub(crate) fn flush_cache(&mut self) {
        for write in self.cache.drain(..) {
            self.durable[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    /// Reads what was written, also what is on its way.
    pub(crate) fn look(&self, at: u64, to: &mut [u8]) {
        let at = at as usize;
        to.copy_from_slice(&self.durable[at..at + to.len()]);
        for write in self.cache.iter().chain(&self.flying) {
            let start = at.max(write.at);
            let end = (at + to.len()).min(write.at + write.bytes.len());
            if start < end {
                to[start - at..end - at]
                    .copy_from_slice(&write.bytes[start - write.at..end - write.at]);
            }
        }
    }

    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        let writes: Vec<_> = self.cache.drain(..).chain(self.flying.drain(..)).collect();
        for write in writes {
            let kind = random.below(4);
            for (number, word) in write.bytes.chunks(WORD).enumerate() {
                let is_there = match kind {
                    0 => false,
                    1 => true,
                    2 => random.below(2) == 0,
                    // The first part of it.
                    _ => number * 3 < write.bytes.len() / WORD,
                };
                if is_there {
                    let at = write.at + number * WORD;
                    self.durable[at..at + word.len()].copy_from_slice(word);
                }
            }
        }
    }
}

impl Devices for Disk {
    type Error = &'static str;

    fn bytes(&self, _member: usize) -> u64 {
        self.durable.len() as u64
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), &'static str> {
        assert_eq!(member, 0);
        self.look(at, to);
        Ok(())
    }

    fn write(
        &mut self,
        member: usize,
        at: u64,
        from: &[u8],
        fua: bool,
    ) -> Result<(), &'static str> {
        assert_eq!(member, 0);
        let (at, bytes) = (at as usize, from.to_vec());
        if fua {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        } else {
            self.cache.push(Write {
                batch: 0,
                at,
                bytes,
            });
        }
        Ok(())
    }

    fn flush(&mut self, _member: usize) -> Result<(), &'static str> {
        self.flush_cache();
        Ok(())
    }
}
