// SPDX-License-Identifier: GPL-2.0

//! The steps of a read after the answers of owners, and without them.

use proto::gfarm::cache::{
    excluded::Reason,
    fragment::FragmentLen,
    pages::PageSet,
    reply::{
        Answer,
        Refusal, //
    },
    request::Role,
    requester::{
        event::{
            Effect,
            Event,
            Heard,
            Whom, //
        },
        Requester, //
    }, //
};

use super::{
    super::message::{
        node,
        wanted, //
    },
    driver::{
        all,
        data,
        holder,
        redirect,
        wait,
        Driver,
        HOLDER,
        ME,
        OVER_WITH_NOTHING,
        OWNER, //
    },
};

#[test]
fn what_no_node_has_is_fetched() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert_eq!(
        driver.reply(Answer::Fetch { pages: all() }),
        OVER_WITH_NOTHING
    );
}

#[test]
fn a_node_that_is_the_owner_asks_itself() {
    let mut driver = Driver::started(4096);
    driver.asking = None;
    let answer = redirect(HOLDER, all());
    assert!(matches!(
        driver.step(Event::Answered(answer)),
        Effect::Ask(_)
    ));
    driver.send(HOLDER);
    driver.fragments_but(&[]);
    driver.reply(data(all()));
    assert_eq!(driver.stop(), Effect::Over { got: all() });
    let mut driver = Driver::started(4096);
    let answer = Answer::Fetch { pages: all() };
    assert_eq!(driver.step(Event::Answered(answer)), OVER_WITH_NOTHING);
}

#[test]
fn the_near_owner_names_another_one_once() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert!(matches!(
        driver.reply(Answer::OtherOwner(holder(5))),
        Effect::Ask(_)
    ));
    assert_eq!(driver.last().whom, Whom::Named(holder(5)));
    assert_eq!(driver.last().role, Role::NamedOwner);
    driver.send(5);
    let again = Answer::OtherOwner(holder(6));
    assert!(
        matches!(driver.reply(again), Effect::Ask(_)),
        "at the near owner"
    );
    assert_eq!(driver.last().whom, Whom::Owner);
    let reason = driver.last().excluded.reason(node(5));
    assert_eq!(reason, Some(Reason::NoAnswer));
}

#[test]
fn a_busy_owner_is_asked_later() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    let at_us = driver.now_us + 30_000;
    let effect = driver.reply(Answer::Busy { wait_ms: 30 });
    assert_eq!(effect, Effect::Timer { at_us });
    driver.now_us += 29_999;
    assert_eq!(driver.step(Event::TimerFired), Effect::Timer { at_us });
    assert!(matches!(driver.expire(), Effect::Ask(_)));
    driver.send(OWNER);
    let effect = driver.reply(Answer::Busy { wait_ms: 2000 });
    assert_eq!(effect, OVER_WITH_NOTHING, "the read would be over by then");
}

#[test]
fn a_busy_holder_is_asked_again_after_a_pause() {
    let mut driver = Driver::at_holder(4096);
    driver.reply(Answer::Busy { wait_ms: 1 });
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    let reason = |driver: &Driver| driver.last().excluded.reason(node(HOLDER));
    assert_eq!(reason(&driver), Some(Reason::Busy));
    driver.send(OWNER);
    driver.reply(Answer::Busy { wait_ms: 5 });
    assert!(matches!(driver.expire(), Effect::Ask(_)));
    assert_eq!(reason(&driver), None);
}

#[test]
fn a_requester_begins_anew_where_it_is() {
    let mut driver = Driver::at_holder(1024);
    driver.fragments_but(&[3]);
    driver.reply(data(all()));
    let len = FragmentLen::new(1024).unwrap();
    let new = Requester::new(node(ME), wanted(), len).unwrap();
    assert_ne!(driver.requester, new);
    assert!(driver.requester.renew(&wanted()));
    assert_eq!(driver.requester, new);
}

#[test]
fn an_owner_that_knows_nothing_ends_the_read() {
    for answer in [
        Answer::Miss,
        Answer::Fetch {
            pages: PageSet::range(0, 1),
        },
    ] {
        let mut driver = Driver::started(4096);
        driver.send(OWNER);
        assert_eq!(driver.reply(answer), OVER_WITH_NOTHING);
    }
}

#[test]
fn an_owner_that_answers_what_no_owner_does_is_excluded() {
    for answer in [
        data(all()),
        wait(10),
        Answer::Fetch {
            pages: PageSet::range(0, 256),
        },
        redirect(HOLDER, PageSet::range(100, 1)),
        Answer::Redirect {
            holder: holder(HOLDER),
            pages: all(),
            fetch: PageSet::range(100, 1),
        },
        Answer::Refused(Refusal::Invalid),
    ] {
        let mut driver = Driver::started(4096);
        driver.send(OWNER);
        assert!(matches!(driver.reply(answer), Effect::Ask(_)), "{answer:?}");
        let reason = driver.last().excluded.reason(node(OWNER));
        assert_eq!(reason, Some(Reason::NoAnswer));
    }
}

#[test]
fn a_silent_owner_is_asked_twice_and_then_another() {
    let mut driver = Driver::started(4096);
    for (silences, excluded) in [(1, 0), (2, 1)] {
        driver.send(OWNER);
        assert!(matches!(driver.expire(), Effect::Ask(_)));
        assert_eq!(driver.last().excluded.iter().count(), excluded);
        let heard = driver
            .heard
            .iter()
            .filter(|h| **h == (node(OWNER), Heard::Silence));
        assert_eq!(heard.count(), silences);
    }
    for _ in 0..2 {
        driver.send(5);
        assert!(matches!(driver.expire(), Effect::Ask(_)));
    }
    driver.send(6);
    assert_eq!(driver.expire(), OVER_WITH_NOTHING, "the fifth one in a row");
}

#[test]
fn an_owner_is_sent_a_request_three_times_before_it_is_silent() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert!(!driver.is_retry);
    let begun_us = driver.now_us;
    for again in 1..=2 {
        let effect = driver.expire_once();
        assert!(matches!(effect, Effect::Again { .. }), "{effect:?}");
        assert_eq!(driver.now_us, begun_us + again * 12_500);
        assert!(driver.is_retry, "it may have noted this node already");
        assert!(driver.heard.is_empty());
    }
    assert_eq!(driver.sends, 3);
    // Any of the three may be the one that is answered, so the time says nothing.
    driver.now_us += 1;
    assert!(matches!(
        driver.reply(redirect(HOLDER, all())),
        Effect::Ask(_)
    ));
    assert_eq!(
        driver.heard,
        [(node(OWNER), Heard::Answer { rtt_us: None })]
    );
    // A holder is asked once, as it would send the pages once more.
    driver.send(HOLDER);
    let asked_us = driver.now_us;
    assert_eq!(driver.expire_once(), Effect::Stop);
    assert_eq!((driver.sends, driver.now_us), (1, asked_us + 50_000));
}

#[test]
fn pages_in_the_hands_of_nobody_are_fetched_and_the_others_asked_for() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    let pages = PageSet::range(0, 8);
    let effect = driver.reply(Answer::Redirect {
        holder: holder(HOLDER),
        pages,
        fetch: all().difference(pages),
    });
    assert!(matches!(effect, Effect::Ask(_)));
    assert_eq!(driver.last().pages, pages);
    driver.send(HOLDER);
    driver.fragments_but(&[]);
    driver.reply(data(pages));
    assert_eq!(driver.stop(), Effect::Over { got: pages });
}

#[test]
fn the_node_itself_is_no_holder() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert_eq!(driver.reply(redirect(ME, all())), OVER_WITH_NOTHING);
}

#[test]
fn a_request_that_cannot_be_sent_is_sent_later_or_elsewhere() {
    let mut driver = Driver::started(4096);
    let at_us = driver.now_us + 700;
    let retry_us = Some(700);
    assert_eq!(
        driver.step(Event::Unsent { retry_us }),
        Effect::Timer { at_us }
    );
    assert!(matches!(driver.expire(), Effect::Ask(_)));
    let retry_us = None;
    assert_eq!(
        driver.step(Event::Unsent { retry_us }),
        OVER_WITH_NOTHING,
        "no owner"
    );
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    driver.reply(redirect(HOLDER, all()));
    assert!(matches!(
        driver.step(Event::Unsent { retry_us }),
        Effect::Ask(_)
    ));
    let reason = driver.last().excluded.reason(node(HOLDER));
    assert_eq!(reason, Some(Reason::NoAnswer));
}

#[test]
fn a_reader_that_leaves_ends_the_read_in_each_state() {
    // Before the start, with a request to send, at an owner, in a pause.
    assert_eq!(Driver::new(4096).step(Event::Cancel), OVER_WITH_NOTHING);
    assert_eq!(Driver::started(4096).step(Event::Cancel), OVER_WITH_NOTHING);
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert_eq!(driver.step(Event::Cancel), OVER_WITH_NOTHING);
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    driver.reply(Answer::Busy { wait_ms: 1 });
    assert_eq!(driver.step(Event::Cancel), OVER_WITH_NOTHING);
    // At a holder, while the queue pair stops, while fragments are moved.
    let mut driver = Driver::at_holder(4096);
    assert_eq!(driver.step(Event::Cancel), Effect::Stop);
    assert_eq!(driver.step(Event::Cancel), Effect::Wait);
    assert_eq!(driver.stop(), OVER_WITH_NOTHING);
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[3]);
    driver.reply(data(all()));
    driver.expire();
    assert_eq!(driver.step(Event::Cancel), Effect::Wait);
    assert!(
        matches!(driver.stop(), Effect::Over { .. }),
        "the rest is not asked for"
    );
}

#[test]
fn a_read_of_too_many_fragments_is_not_made() {
    let pages = PageSet::range(0, 65);
    let wanted = proto::gfarm::cache::request::Wanted::new(wanted().id(), 1 << 20, 0, pages);
    let of = |bytes| FragmentLen::new(bytes).unwrap();
    let new = |bytes| Requester::new(node(ME), wanted.unwrap(), of(bytes));
    assert!(new(1024).is_none());
    assert!(new(2048).is_some());
}

#[test]
fn an_owner_is_told_that_it_was_asked_before() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    assert!(!driver.is_retry);
    driver.reply(redirect(HOLDER, all()));
    driver.send(HOLDER);
    assert!(!driver.is_retry);
    driver.reply(Answer::Miss);
    driver.stop();
    driver.send(5);
    assert!(!driver.is_retry, "another node is the owner by now");
    driver.reply(Answer::OtherOwner(holder(OWNER)));
    driver.send(OWNER);
    assert!(driver.is_retry);
    driver.reply(redirect(5, all()));
    driver.send(5);
    assert!(!driver.is_retry, "it is asked as a holder");
    let owners: Vec<_> = driver.requester.owners().iter().collect();
    assert_eq!(owners, [node(OWNER), node(5)]);
}

#[test]
fn the_node_itself_is_an_owner_that_was_asked() {
    let mut driver = Driver::started(4096);
    assert!(!driver.requester.ask_of(node(ME)).is_retry);
    driver.asking = None;
    driver.step(Event::Answered(Answer::Busy { wait_ms: 1 }));
    driver.expire();
    assert!(driver.requester.ask_of(node(ME)).is_retry);
}

#[test]
fn the_last_four_owners_are_remembered() {
    let mut driver = Driver::started(4096);
    for owner in [4, 5, 4, 6, 7, 8] {
        driver.send(owner);
        driver.reply(Answer::Busy { wait_ms: 1 });
        driver.expire();
    }
    let owners: Vec<_> = driver.requester.owners().iter().collect();
    assert_eq!(owners, [5, 6, 7, 8].map(node));
}

#[test]
fn a_node_that_other_reads_have_lost_is_not_asked() {
    let mut driver = Driver::new(4096);
    driver.requester.avoid(node(OWNER));
    assert!(matches!(driver.step(Event::Start), Effect::Ask(_)));
    let lost = driver.last().excluded.reason(node(OWNER));
    assert_eq!(lost, Some(Reason::NoAnswer));
    // Another owner does not send the read there.
    driver.send(HOLDER);
    assert_eq!(driver.reply(redirect(OWNER, all())), OVER_WITH_NOTHING);
    // The next read of the requester has nothing to do with it.
    let wanted = driver.wanted;
    assert!(driver.requester.renew(&wanted));
    let effect = driver.requester.step(Event::Start, 0).effect;
    let Effect::Ask(asking) = effect else {
        panic!("{effect:?}");
    };
    assert_eq!(asking.excluded.iter().next(), None);
}
