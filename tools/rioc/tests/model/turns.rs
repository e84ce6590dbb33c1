// SPDX-License-Identifier: GPL-2.0

//! Work that a store does by itself goes on beside requests that never end.

use rioc::proto::turns::Turns;

use crate::{
    requests::Ask,
    serving::in_memory, //
};

/// A client that reads all the time does not keep what was deleted.
#[test]
fn a_write_that_waits_for_a_delete_ends_beside_reads() {
    let mut rig = in_memory(200, 4, 1);
    assert_eq!(rig.errno(0, Ask::Write(1, 0, 8192, true), 0), 0);
    assert_eq!(rig.errno(0, Ask::Write(2, 0, 8192, true), 0), 0);
    assert_eq!(rig.errno(0, Ask::Delete(1), 0), 0);
    let write = rig.request(1, Ask::Write(3, 0, 8192, true), 0);
    let write = rig.send(write).unwrap();
    rig.step(write);
    assert!(rig.answer().is_empty());
    let mut turns = Turns::default();
    for _ in 0..100 {
        if turns.is_due() {
            turns.rest();
            let _ = rig.store.reap((&mut rig.begun, &crate::disk::Crc));
            rig.step(write);
        }
        rig.begin_read(2, 0, 4096);
        rig.end_read(0);
        turns.request();
    }
    assert!(!rig.answer().is_empty(), "the write waits for ever");
}
