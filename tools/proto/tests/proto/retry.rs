// SPDX-License-Identifier: GPL-2.0

//! Requests that were not sent, or not answered.

use proto::{
    common::errno::Errno,
    rnbd::retry::{
        may_wait,
        NotSent, //
    },
};

#[test]
fn a_request_that_was_not_sent_waits_where_it_can_and_fails_where_it_cannot() {
    for number in 1..600 {
        let errno = Errno::new(number).unwrap();
        for may_recover in [false, true] {
            let expected = match number {
                // EALREADY; EAGAIN, ENOMEM, EBUSY; ECONNABORTED.
                114 => NotSent::WaitForChunk,
                11 | 12 | 16 => NotSent::Requeue,
                103 if may_recover => NotSent::Requeue,
                _ => NotSent::Fail,
            };
            assert_eq!(NotSent::new(errno, may_recover), expected, "{number}");
        }
    }
}

#[test]
fn a_request_waits_up_to_its_limit() {
    assert!(may_wait(true, 10, Some(10)) && !may_wait(true, 11, Some(10)));
    assert!(may_wait(true, 0, Some(0)) && may_wait(true, u64::MAX, None));
    assert!(!may_wait(false, 0, None));
}
