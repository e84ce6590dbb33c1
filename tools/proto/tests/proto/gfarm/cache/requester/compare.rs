// SPDX-License-Identifier: GPL-2.0

//! Pages that are compared with the sums which their holder tells.

use proto::gfarm::cache::{
    excluded::Reason,
    pages::PageSet,
    requester::event::{
        Effect,
        Event, //
    }, //
};

use super::{
    super::message::node,
    driver::{
        all,
        data,
        redirect,
        Driver,
        HOLDER,
        OVER_WITH_NOTHING,
        OWNER, //
    },
};

/// Pages 2 and 5 of the nine.
fn two() -> PageSet {
    PageSet::range(2, 1).union(PageSet::range(5, 1))
}

fn reason(driver: &Driver) -> Option<Reason> {
    driver.last().excluded.reason(node(HOLDER))
}

#[test]
fn a_holder_is_asked_for_sums_and_an_owner_is_not() {
    let driver = Driver::comparing(4096);
    assert!(driver.requester.ask_of(node(HOLDER)).wants_sums);
    assert!(
        !Driver::at_holder(4096)
            .requester
            .ask_of(node(HOLDER))
            .wants_sums
    );
    let mut driver = Driver::new(4096);
    driver.requester.compare();
    driver.step(Event::Start);
    assert!(!driver.requester.ask_of(node(OWNER)).wants_sums);
}

#[test]
fn pages_that_have_their_sums_are_taken() {
    for len in [256, 1024, 4096] {
        let mut driver = Driver::comparing(len);
        driver.fragments_but(&[]);
        assert_eq!(driver.reply(data(all())), Effect::Stop);
        assert_eq!(driver.stop(), Effect::Over { got: all() });
    }
}

#[test]
fn a_damaged_page_is_read_from_the_file_server() {
    for len in [256, 1024, 4096] {
        let mut driver = Driver::comparing(len);
        driver.damaged = two();
        driver.fragments_but(&[]);
        driver.reply(data(all()));
        let got = all().difference(two());
        // No other node is asked for it: it may have it from this one.
        assert_eq!(driver.stop(), Effect::Over { got });
    }
}

#[test]
fn who_has_only_damaged_pages_gives_none() {
    let mut driver = Driver::comparing(4096);
    driver.damaged = all();
    driver.fragments_but(&[]);
    driver.reply(data(all()));
    assert_eq!(driver.stop(), OVER_WITH_NOTHING);
}

#[test]
fn the_other_pages_are_asked_for_elsewhere() {
    let some = PageSet::range(0, 4);
    let mut driver = Driver::comparing(4096);
    driver.damaged = two();
    driver.fragments_but(&[]);
    driver.reply(data(some));
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    assert_eq!(reason(&driver), Some(Reason::NotHere));
    let rest = all().difference(some);
    assert_eq!(driver.last().pages, rest);
    // By another holder whose pages are sound.
    driver.damaged = PageSet::EMPTY;
    driver.send(OWNER);
    driver.reply(redirect(4, rest));
    driver.send(4);
    driver.fragments_but(&[]);
    driver.reply(data(rest));
    let got = all().difference(PageSet::range(2, 1));
    assert_eq!(driver.stop(), Effect::Over { got });
}

#[test]
fn lost_pages_beside_damaged_ones_are_asked_for_again() {
    let mut driver = Driver::comparing(4096);
    driver.damaged = two();
    driver.fragments_but(&[0]);
    driver.reply(data(all()));
    driver.expire();
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    assert_eq!(driver.last().pages, PageSet::range(0, 1));
}

#[test]
fn pages_without_sums_are_not_taken_nor_sums_that_were_not_asked_for() {
    for compares in [true, false] {
        let mut driver = match compares {
            true => Driver::comparing(4096),
            false => Driver::at_holder(4096),
        };
        driver.tells_sums = !compares;
        driver.fragments_but(&[]);
        driver.reply(data(all()));
        assert!(matches!(driver.stop(), Effect::Ask(_)), "{compares}");
        assert_eq!(reason(&driver), Some(Reason::NoAnswer));
        assert_eq!(driver.last().pages, all());
    }
}

#[test]
fn sums_of_a_reply_that_does_not_count_change_nothing() {
    let mut driver = Driver::comparing(4096);
    driver.reply(data(all()));
    let before = driver.requester.clone();
    // It comes twice; once for another request, once from another node.
    let reply = driver.reply_of(data(two()));
    assert_eq!(driver.replied(driver.to, &reply), Effect::Wait);
    let mut other = reply;
    other.id.cookie ^= 1;
    assert_eq!(driver.replied(driver.to, &other), Effect::Wait);
    assert_eq!(driver.replied(node(9), &reply), Effect::Wait);
    assert_eq!(driver.requester, before);
}

#[test]
fn pages_whose_moves_were_not_made_are_not_called_damaged() {
    let mut driver = Driver::comparing(4096);
    driver.fragments_but(&[0]);
    driver.reply(data(all()));
    driver.expire();
    driver.is_posted = false;
    driver.step(Event::Stopped);
    let damaged = all();
    let settled = driver.step(Event::Settled { damaged });
    assert!(matches!(settled, Effect::Ask(_)));
    assert_eq!((driver.last().pages, reason(&driver)), (all(), None));
}
