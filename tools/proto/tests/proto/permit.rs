// SPDX-License-Identifier: GPL-2.0

//! Permits: chunk ids are shared out among IO and admin messages.

use proto::rtrs::permit::{
    AnswerWaits,
    Partition, //
};

#[test]
fn every_id_belongs_to_admin_messages_or_to_io_and_none_to_both() {
    for depth in 2..=65535u16 {
        let p = Partition::new(depth);
        let (admin, io) = (p.admin_ids(), p.io_ids());
        assert!(!p.is_shared());
        assert_eq!(Partition::from_word(p.to_word()), p);
        assert_eq!((admin.start, admin.end, io.end), (0, io.start, depth));
        assert_eq!(admin.len(), usize::from((depth / 2).min(8)));
        assert_eq!(io.len(), usize::from(p.io_depth()));
        assert!(!admin.is_empty() && !io.is_empty());
    }
}

#[test]
fn d22_a_session_of_one_chunk_shares_its_only_id() {
    let p = Partition::new(1);
    assert!(p.is_shared());
    assert_eq!((p.admin_ids(), p.io_ids()), (0..1, 0..1));
    assert_eq!((p.io_id(0), p.tag(0)), (Some(0), Some(0)));
    assert_eq!(p.io_id(1), None);
}

#[test]
fn tags_and_ids_are_two_names_of_one_request() {
    for depth in [1, 2, 3, 15, 16, 17, 512, 65535u16] {
        let p = Partition::new(depth);
        for tag in 0..u32::from(p.io_depth()) {
            let id = p.io_id(tag).unwrap();
            assert!(p.io_ids().contains(&id));
            assert_eq!(p.tag(id), Some(tag));
        }
        for tag in [u32::from(p.io_depth()), 65536, u32::MAX] {
            assert_eq!(p.io_id(tag), None);
        }
        for id in 0..=u16::MAX {
            assert_eq!(p.tag(id).is_some(), p.io_ids().contains(&id));
        }
    }
}

#[test]
fn messages_that_may_wait_for_long_leave_ids_to_others() {
    for depth in 1..=65535u16 {
        let p = Partition::new(depth);
        let all = p.admin_ids().end;
        let [device, requests, nothing] = [
            AnswerWaits::ForDevice,
            AnswerWaits::ForRequests,
            AnswerWaits::ForNothing,
        ]
        .map(|waits| p.admin_ids_end(waits));
        assert_eq!(nothing, all);
        assert_eq!(requests, all.saturating_sub(1).max(1));
        assert_eq!(device, all.saturating_sub(2).max(1));
    }
    assert_eq!(Partition::new(512).admin_ids_end(AnswerWaits::ForDevice), 6);
}

#[test]
fn a_session_without_chunks_has_no_ids() {
    let p = Partition::new(0);
    assert_eq!((p.admin_ids().len(), p.io_depth()), (0, 0));
    assert_eq!((p.io_id(0), p.tag(0)), (None, None));
    assert_eq!(p.admin_ids_end(AnswerWaits::ForDevice), 0);
}
