// SPDX-License-Identifier: GPL-2.0

//! Numbers instead of things that are large, and found again quickly.

use std::{
    collections::HashMap,
    hash::{
        BuildHasherDefault,
        Hash,
        Hasher, //
    },
};

/// A hash of integers, which no one tries to fool.
#[derive(Clone, Copy, Default)]
pub(super) struct Integers(u64);

impl Hasher for Integers {
    fn finish(&self) -> u64 {
        // The map looks at the low bits and at the highest ones.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

/// Its builder.
pub(super) type Fast = BuildHasherDefault<Integers>;

/// The number of each thing: equal ones have the same.
pub(super) struct Names<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32, Fast>,
}

impl<T: Copy + Eq + Hash> Names<T> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::default(),
        }
    }

    /// The number of a thing.
    pub(super) fn number(&mut self, thing: T) -> u32 {
        *self.numbers.entry(thing).or_insert_with(|| {
            self.all.push(thing);
            (self.all.len() - 1) as u32
        })
    }

    /// The thing with a number.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}
