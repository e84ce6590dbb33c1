// SPDX-License-Identifier: GPL-2.0

//! The times for which members have owed the end of an IO.

use rnbd_ec::proto::progress::Progress;
use seglog::members::Members;

#[test]
fn a_member_owes_from_when_it_had_nothing_to_do_or_an_end() {
    let mut progress = Progress::default();
    assert_eq!(progress.owed_ms(1, 5000), 0);
    progress.note_ios(Members::of(1), 5000);
    assert_eq!(
        (progress.owed_ms(1, 5700), progress.owed_ms(0, 5700)),
        (700, 0)
    );
    // More of it changes nothing, an end does.
    progress.note_ios(Members::of(1), 5800);
    assert_eq!(progress.owed_ms(1, 5900), 900);
    progress.note_end(1, 6000);
    assert_eq!(progress.owed_ms(1, 6100), 100);
    progress.note_ios(Members::NONE, 6200);
    assert_eq!(progress.owed_ms(1, 9000), 0);
    progress.note_ios(Members::of(1), 9000);
    assert_eq!(progress.owed_ms(1, 9001), 1);
}
