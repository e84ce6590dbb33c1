// SPDX-License-Identifier: GPL-2.0

//! Parity of two halves: each byte is the sum of those of the halves, times a coefficient each, in
//! the field of 256 elements whose polynomial is 0x11d.
//!
//! The rows are those that ISA-L constructs for two data blocks and one of redundancy. NVIDIA does
//! not publish the rows of its hardware. That of Vandermonde is (1, 1), as any construction has it.

use clap::ValueEnum;
use serde::Serialize;

/// The construction of the coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MatrixType {
    /// Both coefficients are 1: the parity is the XOR of the halves
    Vandermonde,
    /// The inverse of the row's number XOR the column's: 1/2 and 1/3
    Cauchy,
}

/// One of the halves of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Half {
    /// The first, on `data_1`
    #[value(name = "data-1")]
    First,
    /// The second, on `data_2`
    #[value(name = "data-2")]
    Second,
}

/// The products of each byte with one element.
type Products = [u8; 256];

/// Makes parity, and halves from it.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Products with the coefficients.
    row: [Products; 2],
    /// Products with their inverses.
    inverse: [Products; 2],
}

const fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

/// The inverse is the 254th power.
const fn inverse(a: u8) -> u8 {
    let mut power = 1;
    let mut n = 0;
    while n < 254 {
        power = times(power, a);
        n += 1;
    }
    power
}

fn products(coefficient: u8) -> Products {
    std::array::from_fn(|byte| times(coefficient, byte as u8))
}

fn product(products: &Products, byte: u8) -> u8 {
    // A byte is within the table.
    products.get(usize::from(byte)).copied().unwrap_or(0)
}

impl MatrixType {
    /// The coefficients of the first and the second half.
    pub const fn row(self) -> [u8; 2] {
        match self {
            Self::Vandermonde => [1, 1],
            Self::Cauchy => [inverse(2), inverse(2 ^ 1)],
        }
    }
}

impl Matrix {
    /// A matrix of this type.
    pub fn new(kind: MatrixType) -> Self {
        Self {
            row: kind.row().map(products),
            inverse: kind.row().map(|element| products(inverse(element))),
        }
    }

    /// Makes the parity of two halves.
    pub fn create(&self, first: &[u8], second: &[u8], parity: &mut [u8]) {
        let [of_first, of_second] = &self.row;
        for ((to, &a), &b) in parity.iter_mut().zip(first).zip(second) {
            *to = product(of_first, a) ^ product(of_second, b);
        }
    }

    /// Makes a half from the other one and the parity.
    pub fn recover(&self, lost: Half, other: &[u8], parity: &[u8], half: &mut [u8]) {
        let [first, second] = &self.row;
        let [by_first, by_second] = &self.inverse;
        let (of_other, inverse) = match lost {
            Half::First => (second, by_first),
            Half::Second => (first, by_second),
        };
        for ((to, &a), &p) in half.iter_mut().zip(other).zip(parity) {
            *to = product(inverse, p ^ product(of_other, a));
        }
    }
}
