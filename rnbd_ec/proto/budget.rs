// SPDX-License-Identifier: GPL-2.0

//! Limits how often segments are repaired: a member that goes on to lie, or to give errors, would
//! have the same data written again and again.

/// The time in which at most [`REPAIRS_MAX`] segments are repaired, in milliseconds: any such time,
/// wherever it begins.
const PERIOD_MS: u64 = 60_000;
/// The segments that are repaired in that time.
pub const REPAIRS_MAX: u32 = 60;

/// The repairs that were asked for lately.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The times from which on each of the last repairs does not count any more.
    counts_until_ms: [u64; REPAIRS_MAX as usize],
    /// The oldest one of them.
    oldest: usize,
    /// The time until which no line is due.
    told_until_ms: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            counts_until_ms: [0; REPAIRS_MAX as usize],
            oldest: 0,
            told_until_ms: 0,
        }
    }
}

/// No repair is left now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Whether none was refused for so long: there is a log line then.
    pub is_new: bool,
}

impl Budget {
    /// Takes one.
    ///
    /// # Errors
    ///
    /// Returns that nothing is left until the oldest of the last ones is as long ago.
    pub fn take(&mut self, now_ms: u64) -> Result<(), Exhausted> {
        let until_ms = now_ms.saturating_add(PERIOD_MS);
        match self.counts_until_ms.get_mut(self.oldest) {
            Some(oldest) if *oldest <= now_ms => *oldest = until_ms,
            _ => {
                let is_new = self.told_until_ms <= now_ms;
                if is_new {
                    self.told_until_ms = until_ms;
                }
                return Err(Exhausted { is_new });
            }
        }
        let next = self.oldest.saturating_add(1);
        self.oldest = if next < self.counts_until_ms.len() {
            next
        } else {
            0
        };
        Ok(())
    }
}
