// SPDX-License-Identifier: GPL-2.0

//! The events that user space is told.

use rnbd_ec::proto::array::{
    Event,
    News,
    View, //
};
use seglog::members::Members;

const CLEAN: View = View {
    live: Members::ALL,
    returning: Members::NONE,
};

/// All that is to be told.
fn told(news: &mut News) -> Vec<(Event, &'static str)> {
    let all = std::iter::from_fn(|| news.next_event());
    all.map(|(event, view)| (event, view.state().word()))
        .collect()
}

#[test]
fn each_change_of_a_member_is_told_once() {
    let mut news = News::default();
    assert!(!news.note(CLEAN, None));
    let two = Members::ALL.minus(Members::of(1));
    let degraded = View { live: two, ..CLEAN };
    assert!(news.note(degraded, None));
    assert_eq!(degraded.member(1), "missing");
    assert_eq!(told(&mut news), [(Event::Member(1), "degraded")]);
    assert!(!news.note(degraded, None));
    let resyncing = View {
        returning: Members::of(1),
        ..degraded
    };
    assert!(news.note(resyncing, None));
    assert_eq!(
        (resyncing.member(1), resyncing.member(0)),
        ("resyncing", "in_sync")
    );
    assert_eq!(told(&mut news), [(Event::Member(1), "resyncing")]);
    // Of what could not be told in time the last is: nothing grows.
    let failed = View {
        live: Members::of(0),
        ..CLEAN
    };
    assert!(news.note(failed, None) && news.note(CLEAN, None));
    let clean = [1, 2].map(|member| (Event::Member(member), "clean"));
    assert_eq!(told(&mut news), clean);
    assert!(news.note(failed, None));
    let dead = [1, 2].map(|member| (Event::Member(member), "failed"));
    assert_eq!(told(&mut news), dead);
    assert_eq!(told(&mut news), []);
}

#[test]
fn a_threshold_is_told_when_it_is_passed_and_again_when_it_was_left() {
    let mut news = News::default();
    let mut passes = |used| {
        assert_eq!(news.note(CLEAN, Some(used)), !{
            let told = told(&mut news.clone());
            told.is_empty()
        });
        let told = told(&mut news);
        told.into_iter().map(|(event, _)| event).collect::<Vec<_>>()
    };
    let each = [79, 80, 79, 81, 76, 89, 90, 88, 90, 85, 84, 96, 100];
    let told: Vec<_> = each.into_iter().flat_map(&mut passes).collect();
    assert_eq!(told, [80, 90, 84, 96].map(Event::Used));
    let each = [91, 90, 85, 76, 75, 74, 80, 200];
    let told: Vec<_> = each.into_iter().flat_map(&mut passes).collect();
    assert_eq!(told, [85, 76, 74, 80, 200].map(Event::Used));
    assert!(!news.note(CLEAN, Some(99)));
    assert!(news.note(CLEAN, None));
    assert_eq!(news.next_event(), Some((Event::Used(0), CLEAN)));
}
