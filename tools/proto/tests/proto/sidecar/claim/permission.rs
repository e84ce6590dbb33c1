// SPDX-License-Identifier: GPL-2.0

//! Permission to begin IO: none is begun at the end of a lease, and none after it.

use proto::sidecar::claim::permission::{
    Begin,
    Trouble,
    Use, //
};

const END_MS: u64 = 4000;
const TROUBLES: [Trouble; 3] = [Trouble::None, Trouble::Failing, Trouble::Lost];

#[test]
fn no_io_is_begun_at_the_end_of_a_lease() {
    for trouble in TROUBLES {
        for now_ms in [0, END_MS - 1, END_MS, END_MS + 1, u64::MAX] {
            let begin = Use::at(now_ms, END_MS, trouble).begin();
            let expected = match trouble {
                // It is another server's, whatever the clock says.
                Trouble::Lost => Begin::Refuse,
                _ if now_ms < END_MS => Begin::Now,
                // It does not answer: the requests wait, and what they want is done later.
                Trouble::None => Begin::Wait,
                // It answers with errors: so do they.
                Trouble::Failing => Begin::Refuse,
            };
            assert_eq!(begin, expected, "{trouble:?} at {now_ms}");
        }
        // Before the first lease.
        assert_ne!(Use::at(0, 0, trouble).begin(), Begin::Now);
    }
}

#[test]
fn no_background_work_is_begun_that_would_be_refused() {
    for trouble in TROUBLES {
        for now_ms in [0, END_MS] {
            let now = Use::at(now_ms, END_MS, trouble);
            let is_over = now == Use::Lost;
            let expected = now.begin() == Begin::Now || is_over;
            assert_eq!(now.begins_background_work(), expected, "{now:?}");
        }
    }
}

#[test]
fn each_trouble_has_its_number() {
    for trouble in TROUBLES {
        assert_eq!(Trouble::from_raw(trouble.into_raw()), trouble);
    }
    assert_eq!(Trouble::from_raw(3), Trouble::None);
}
