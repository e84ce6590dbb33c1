// SPDX-License-Identifier: GPL-2.0

//! A line of a record, read back.

use proto::common::record::Words;

/// A line of a record, as far as a replay needs it: it compares the text of a step with
/// the one that it would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<E, O> {
    /// An event was handled.
    Step(E),
    /// The driver was about to do something.
    Did(O),
}

impl<E: Words, O: Words> Line<E, O> {
    /// Reads a line; returns `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, numbers) = text.split_once(' ')?;
        let is_number = |word| u64::from_str_radix(word, 16).is_ok();
        if !numbers.split(' ').all(is_number) {
            return None;
        }
        let mut words = numbers
            .split(' ')
            .filter_map(|word| u64::from_str_radix(word, 16).ok());
        match kind {
            "step" => Some(Self::Step(E::read(&mut words)?)),
            "did" => {
                let operation = O::read(&mut words)?;
                words.next().is_none().then_some(Self::Did(operation))
            }
            _ => None,
        }
    }
}
