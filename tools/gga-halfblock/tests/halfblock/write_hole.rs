// SPDX-License-Identifier: GPL-2.0

//! The write hole: three half blocks are overwritten one after the other, and nothing tells whether
//! they belong together.

use gga_halfblock::matrix::{Half, Matrix, MatrixType};
use gga_halfblock::sbc::Geometry;
use gga_halfblock::survey::survey;
use gga_halfblock::worker::Recovery;

use crate::memory::Members;
use crate::noise;

const HALF: usize = 2048;
const BLOCK: usize = 2 * HALF;

const HEALTHY: Recovery = Recovery::EveryNth(0);
const FIRST_LOST: Recovery = Recovery::Always(Half::First);
const SECOND_LOST: Recovery = Recovery::Always(Half::Second);

/// A block whose first bytes are stored as they are, up to within the second half.
fn block() -> Vec<u8> {
    let mut data = vec![b'.'; BLOCK];
    data[..3600].copy_from_slice(&noise(9, 3600));
    data
}

/// The power fails when both halves are written, and the parity is not. All is well, until the
/// first half is lost: what is rebuilt has a wrong byte where nothing was written, and no error.
#[test]
fn a_crash_before_the_parity_gives_wrong_bytes_when_a_half_is_lost() {
    let members = Members::new(HALF as u32, 1);
    let old = block();
    members.write(&old).unwrap();
    assert_eq!(members.read(FIRST_LOST, BLOCK), Ok(old.clone()));

    let mut new = old.clone();
    new[2500] ^= 0x40;
    *members.power.writes.lock().unwrap() = 2;
    let failed = members.write(&new).unwrap_err();
    assert_eq!(failed, "block 0: data_p: error 17");

    assert_eq!(members.read(HEALTHY, BLOCK), Ok(new.clone()));
    let rebuilt = members.read(FIRST_LOST, BLOCK).unwrap();
    assert_ne!(rebuilt, old);
    assert_ne!(rebuilt, new);
    let wrong: Vec<usize> = (0..BLOCK).filter(|&at| rebuilt[at] != new[at]).collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!(rebuilt[wrong[0]], old[wrong[0]] ^ 0x40);
    assert!(wrong[0] < HALF && old[wrong[0]] == new[wrong[0]]);
    // The other half is lost: its old byte is there again.
    assert_eq!(members.read(SECOND_LOST, BLOCK), Ok(old));

    // Only who reads everything sees it.
    let geometry = Geometry {
        half_bytes: HALF as u32,
        blocks: 1,
    };
    let each = [0, 1, 2].map(|index| members.member(index));
    let matrix = Matrix::new(MatrixType::Vandermonde);
    let found = survey([&each[0], &each[1], &each[2]], &geometry, &matrix, 1).unwrap();
    assert_eq!(
        (found.good, found.stale_parity, found.is_clean()),
        (0, 1, false)
    );
}

/// Each member has the old half block, the new one, or a torn one. Of the 27 states two are
/// consistent: those in which all are old, or all new. In the others what is read depends on which
/// half is lost, or is neither.
#[test]
fn of_27_states_after_a_crash_two_are_consistent() {
    let members = Members::new(HALF as u32, 1);
    let old = block();
    let mut new = old.clone();
    for at in [100, 900, 1500, 2100, 2600, 3500] {
        new[at] ^= 0xff;
    }
    let halves = |data: &[u8]| {
        members.write(data).unwrap();
        members
            .bytes
            .each_ref()
            .map(|bytes| bytes.lock().unwrap().clone())
    };
    let states = [halves(&old), halves(&new)];
    let half = |member: usize, state: usize| match state {
        2 => [
            &states[1][member][..HALF / 2],
            &states[0][member][HALF / 2..],
        ]
        .concat(),
        _ => states[state][member].clone(),
    };
    let (mut consistent, mut silent, mut neither) = (0, 0, 0);
    for state in 0..27 {
        for (member, place) in [(0, 1), (1, 3), (2, 9)] {
            *members.bytes[member].lock().unwrap() = half(member, state / place % 3);
        }
        let reads = [HEALTHY, FIRST_LOST, SECOND_LOST].map(|how| members.read(how, BLOCK));
        let all = |is: &Vec<u8>| reads.iter().all(|read| read.as_ref() == Ok(is));
        let is_old_or_new = |read: &Vec<u8>| *read == old || *read == new;
        consistent += usize::from(all(&old) || all(&new));
        silent += usize::from(reads.iter().flatten().any(|read| !is_old_or_new(read)));
        neither += usize::from(!reads.iter().flatten().any(is_old_or_new));
    }
    assert_eq!(consistent, 2);
    assert!(silent >= 13, "{silent}");
    assert!(neither >= 1, "{neither}");
}
