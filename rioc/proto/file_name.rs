// SPDX-License-Identifier: GPL-2.0

//! Names of the files of objects: both numbers of the object, 16 hexadecimal digits each.

use super::span::ObjectId;

/// The bytes of the name of a file.
pub const NAME_BYTES: usize = 32;
/// The digits of one number.
const DIGITS: usize = NAME_BYTES / 2;
/// The name of a file that a store makes, and removes, to see that it may write.
pub const PROBE: &[u8] = b".rioc";

/// Returns the name of the file of an object, and a NUL.
pub fn of(id: ObjectId) -> [u8; NAME_BYTES + 1] {
    let mut name = [0; NAME_BYTES + 1];
    let number = u128::from(id.high) << u64::BITS | u128::from(id.low);
    for (at, byte) in name.iter_mut().take(NAME_BYTES).rev().enumerate() {
        // CAST: Below 128; the digit is below 16.
        let digit = (number >> (4 * at as u32) & 15) as u8;
        *byte = match digit {
            0..=9 => b'0'.saturating_add(digit),
            _ => b'a'.saturating_add(digit.saturating_sub(10)),
        };
    }
    name
}

/// Returns the object whose file has this name; `None` if it is of none.
pub fn object(name: &[u8]) -> Option<ObjectId> {
    if name.len() != NAME_BYTES {
        return None;
    }
    let (high, low) = name.split_at(DIGITS);
    Some(ObjectId {
        high: number(high)?,
        low: number(low)?,
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit.wrapping_sub(b'0'),
            b'a'..=b'f' => digit.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        Some(number.wrapping_shl(4) | u64::from(digit))
    })
}
