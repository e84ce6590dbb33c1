// SPDX-License-Identifier: GPL-2.0

//! The number of times that a lost request is sent again.

use proto::rtrs::failover::{
    Resent,
    RESENDS_MAX, //
};

#[test]
fn a_request_is_sent_again_so_often_and_then_given_back() {
    for first in [Resent::NEVER, Resent::REMADE] {
        let mut resent = first;
        for _ in 0..RESENDS_MAX {
            resent = resent.again(true).unwrap();
            assert!(resent.was_lost() && resent.is_failover());
            assert_eq!(resent.again(false), None, "there is no other path");
        }
        assert_eq!(resent.again(true), None);
        assert_eq!(first.again(false), None);
    }
}

#[test]
fn only_a_request_that_was_lost_in_its_chunk_releases_it() {
    assert!(!Resent::NEVER.was_lost() && !Resent::NEVER.is_failover());
    assert!(Resent::REMADE.was_lost() && !Resent::REMADE.is_failover());
}
