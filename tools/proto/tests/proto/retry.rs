// SPDX-License-Identifier: GPL-2.0

//! Requests that were not sent, or not answered.

use proto::{
    common::errno::Errno,
    rnbd::retry::{
        may_wait,
        pause_ms,
        NotSent,
        AGAIN_MS, //
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

#[test]
fn a_request_that_comes_back_often_leaves_time_to_the_others() {
    for lost in 0..u8::MAX {
        assert!(pause_ms(lost) <= pause_ms(lost + 1));
    }
    assert_eq!(pause_ms(2), AGAIN_MS, "two outages in a row delay nothing");
    // In ten seconds, with connections that are lost at once.
    let mut sent_ms = 0;
    let rounds = (1..).take_while(|lost| {
        sent_ms += pause_ms(*lost);
        sent_ms < 10_000
    });
    assert!(rounds.count() <= 6);
    assert!(
        pause_ms(u8::MAX) <= 8000,
        "it is sent soon when the reason is gone"
    );
}
