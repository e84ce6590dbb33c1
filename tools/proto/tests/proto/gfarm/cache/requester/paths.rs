// SPDX-License-Identifier: GPL-2.0

//! Each way that a read can go.

use proto::gfarm::cache::{
    excluded::{
        Excluded,
        Reason, //
    },
    pages::PageSet,
    reply::{
        Answer,
        Refusal, //
    },
    request::{
        RequestId,
        Role, //
    },
    requester::{
        event::{
            Effect,
            Event,
            Heard,
            Whom, //
        },
        DEPTH_MAX,
        QUIET_US_MAX,
        READ_US,
        READ_US_MAX, //
    }, //
};

use super::{
    super::message::node,
    driver::{
        all,
        data,
        holder,
        redirect,
        wait,
        Driver,
        HOLDER,
        OVER_WITH_NOTHING,
        OWNER,
        TIMING, //
    },
};

#[test]
fn pages_come_from_a_holder_that_the_owner_names() {
    let mut driver = Driver::started(1024);
    assert_eq!(driver.last().whom, Whom::Owner);
    assert_eq!(driver.last().pages, all());
    driver.send(OWNER);
    driver.now_us += 300;
    assert!(matches!(
        driver.reply(redirect(HOLDER, all())),
        Effect::Ask(_)
    ));
    assert_eq!(driver.last().whom, Whom::Named(holder(HOLDER)));
    assert_eq!(driver.last().role, Role::Holder);
    driver.send(HOLDER);
    driver.fragments_but(&[]);
    driver.now_us += 900;
    assert_eq!(driver.reply(data(all())), Effect::Stop);
    assert_eq!(driver.stop(), Effect::Over { got: all() });
    let took = |rtt_us| Heard::Answer {
        rtt_us: Some(rtt_us),
    };
    let expected = [(node(OWNER), took(300)), (node(HOLDER), took(900))];
    assert_eq!(driver.heard, expected);
}

#[test]
fn the_reply_may_come_before_the_fragments() {
    let mut driver = Driver::at_holder(4096);
    let effect = driver.reply(data(all()));
    let at_us = driver.now_us + u64::from(TIMING.grace_us);
    assert_eq!(effect, Effect::Timer { at_us });
    for index in 0..9 {
        let effect = driver.fragment(index);
        assert_eq!(effect == Effect::Stop, index == 8);
        driver.now_us += 900;
    }
    assert_eq!(driver.stop(), Effect::Over { got: all() });
}

#[test]
fn only_what_was_lost_is_asked_for_again() {
    let mut driver = Driver::at_holder(1024);
    driver.fragments_but(&[0, 9, 10, 35]);
    assert!(matches!(driver.reply(data(all())), Effect::Timer { .. }));
    assert_eq!(driver.expire(), Effect::Stop);
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    let lost: Vec<u8> = driver.last().pages.iter().collect();
    assert_eq!(lost, [0, 2, 255]);
    assert_eq!(driver.last().whom, Whom::Named(holder(HOLDER)));
    assert_eq!(driver.last().excluded.iter().count(), 0);
    driver.send(HOLDER);
    driver.fragments_but(&[]);
    driver.reply(data(driver.last().pages));
    assert_eq!(driver.stop(), Effect::Over { got: all() });
    let silences = driver.heard.iter().filter(|(_, h)| *h == Heard::Silence);
    assert_eq!(silences.count(), 0);
}

#[test]
fn a_holder_is_asked_again_while_that_brings_something() {
    let mut driver = Driver::at_holder(4096);
    for left in (3..9).rev() {
        driver.fragment(0);
        driver.reply(data(driver.last().pages));
        driver.expire();
        driver.stop();
        assert_eq!(driver.last().pages.len(), left);
        driver.send(HOLDER);
    }
    // Five times nothing arrives.
    for _ in 0..5 {
        driver.reply(data(driver.last().pages));
        driver.expire();
        if !matches!(driver.stop(), Effect::Ask(_)) {
            break;
        }
        driver.send(HOLDER);
    }
    let got = PageSet::range(0, 6);
    assert_eq!(driver.over, Some(got));
    assert_eq!(driver.asked.len(), 1 + 1 + 6 + 4);
}

#[test]
fn a_lost_reply_is_no_silence() {
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[]);
    assert_eq!(driver.expire(), Effect::Stop);
    assert!(
        matches!(driver.stop(), Effect::Ask(_)),
        "not verified, not taken"
    );
    assert_eq!(driver.last().pages, all());
    assert_eq!(driver.last().whom, Whom::Named(holder(HOLDER)));
    assert_eq!(driver.heard.len(), 1, "of the owner");
}

#[test]
fn a_reply_that_comes_while_the_queue_pair_stops_counts() {
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[]);
    assert_eq!(driver.expire(), Effect::Stop);
    assert_eq!(driver.reply(data(all())), Effect::Wait);
    assert_eq!(driver.stop(), Effect::Over { got: all() });
}

#[test]
fn fragments_that_come_slowly_move_the_end() {
    let mut driver = Driver::at_holder(4096);
    let start_us = driver.now_us;
    for index in 0..8 {
        driver.now_us += 30_000;
        driver.fragment(index);
        while driver.timer_us.is_some_and(|at_us| at_us <= driver.now_us) {
            if driver.expire() == Effect::Stop {
                // Four times the time limit.
                assert!(driver.now_us - start_us >= 200_000);
                assert!(index >= 5);
                return;
            }
        }
    }
    panic!("a peer that sends slowly is waited for without end");
}

#[test]
fn a_holder_that_has_nothing_is_excluded() {
    for (answer, reason) in [
        (Answer::Miss, Reason::NotHere),
        (Answer::Busy { wait_ms: 9 }, Reason::Busy),
        (Answer::Refused(Refusal::Leaving), Reason::NoAnswer),
        // What only owners answer.
        (Answer::OtherOwner(holder(4)), Reason::NoAnswer),
        (Answer::Fetch { pages: all() }, Reason::NoAnswer),
        (redirect(4, all()), Reason::NoAnswer),
        // More than was asked for.
        (data(PageSet::range(0, 256)), Reason::NoAnswer),
    ] {
        let mut driver = Driver::at_holder(4096);
        assert_eq!(driver.reply(answer), Effect::Stop);
        assert!(matches!(driver.stop(), Effect::Ask(_)));
        assert_eq!(driver.last().whom, Whom::Owner);
        let excluded: Vec<_> = driver.last().excluded.iter().collect();
        assert_eq!(excluded, [(node(HOLDER), reason)], "{answer:?}");
    }
}

#[test]
fn a_holder_that_is_silent_twice_is_excluded_and_noted() {
    let mut driver = Driver::at_holder(4096);
    for reason in [None, Some(Reason::NoAnswer)] {
        assert_eq!(driver.expire(), Effect::Stop);
        assert_eq!(driver.heard.last(), Some(&(node(HOLDER), Heard::Silence)));
        assert!(matches!(driver.stop(), Effect::Ask(_)));
        assert_eq!(driver.last().whom, Whom::Owner);
        assert_eq!(driver.last().excluded.reason(node(HOLDER)), reason);
        driver.send(OWNER);
        // The owner insists: the first time it may be right.
        let effect = driver.reply(redirect(HOLDER, all()));
        if reason.is_some() {
            assert_eq!(effect, OVER_WITH_NOTHING);
        } else {
            assert!(matches!(effect, Effect::Ask(_)));
            driver.send(HOLDER);
        }
    }
}

#[test]
fn a_holder_that_is_the_owner_remains_the_owner_after_a_loss() {
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    driver.reply(redirect(OWNER, all()));
    driver.send(OWNER);
    assert_eq!(driver.expire(), Effect::Stop);
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    assert_eq!(driver.last().whom, Whom::Owner);
    assert_eq!(driver.last().excluded, Excluded::NONE);
}

#[test]
fn a_holder_with_some_of_the_pages_gives_these() {
    let mut driver = Driver::at_holder(4096);
    let some = PageSet::range(2, 3);
    for index in 2..5 {
        driver.fragment(index);
    }
    assert_eq!(driver.reply(data(some)), Effect::Stop);
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    assert_eq!(driver.last().whom, Whom::Owner);
    assert_eq!(driver.last().pages, all().difference(some));
    let reason = driver.last().excluded.reason(node(HOLDER));
    assert_eq!(reason, Some(Reason::NotHere));
    driver.send(OWNER);
    let pages = all().difference(some);
    assert_eq!(
        driver.reply(Answer::Fetch { pages }),
        Effect::Over { got: some }
    );
}

#[test]
fn pages_that_were_not_sent_are_not_taken() {
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[]);
    let some = PageSet::range(0, 1);
    assert_eq!(driver.reply(data(some)), Effect::Stop);
    driver.stop();
    assert_eq!(driver.last().pages, all().difference(some));
}

#[test]
fn another_size_is_another_content() {
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[]);
    let mut reply = driver.reply_of(data(all()));
    reply.size_bytes -= 1;
    let from = node(HOLDER);
    assert_eq!(driver.replied(from, &reply), Effect::Stop);
    assert!(matches!(driver.stop(), Effect::Ask(_)));
    let reason = driver.last().excluded.reason(node(HOLDER));
    assert_eq!(reason, Some(Reason::NotHere));
}

#[test]
fn a_reply_to_another_request_changes_nothing() {
    for role in [Role::Owner, Role::Holder] {
        let mut driver = if role == Role::Owner {
            let mut driver = Driver::started(4096);
            driver.send(OWNER);
            driver
        } else {
            Driver::at_holder(4096)
        };
        let before = driver.requester.clone();
        let honest = driver.reply_of(Answer::Miss);
        let RequestId { tag, cookie } = honest.id;
        for (from, tag, cookie) in [
            (node(9), tag, cookie),
            (driver.to, tag ^ 1, cookie),
            (driver.to, tag, cookie ^ 1 << 63),
        ] {
            let mut reply = honest;
            reply.id = RequestId { tag, cookie };
            assert_eq!(driver.replied(from, &reply), Effect::Wait);
            assert_eq!(driver.requester, before);
        }
        assert_ne!(driver.reply(Answer::Miss), Effect::Wait);
    }
}

#[test]
fn a_holder_that_waits_itself_is_waited_for() {
    let mut driver = Driver::at_holder(4096);
    let start_us = driver.now_us;
    while driver.now_us < start_us + 2 * QUIET_US_MAX {
        let at_us = driver.now_us + 100_000;
        let effect = driver.reply(wait(100));
        assert_eq!(effect, Effect::Timer { at_us });
        driver.now_us += 66_000;
    }
    let (_, heard) = driver.heard.last().unwrap();
    assert_eq!(
        *heard,
        Heard::Answer { rtt_us: None },
        "the wait says nothing"
    );
    driver.fragments_but(&[]);
    assert_eq!(driver.reply(data(all())), Effect::Stop);
    assert_eq!(
        driver.heard.last(),
        Some(&(node(HOLDER), Heard::Answer { rtt_us: None }))
    );
    assert_eq!(driver.stop(), Effect::Over { got: all() });
}

#[test]
fn a_read_without_news_ends_after_two_seconds() {
    let mut driver = Driver::at_holder(4096);
    let at_us = driver.now_us + QUIET_US_MAX;
    assert_eq!(driver.reply(wait(60_000)), Effect::Timer { at_us });
    assert_eq!(driver.expire(), Effect::Stop);
    assert_eq!(driver.stop(), OVER_WITH_NOTHING);
    let silences = driver.heard.iter().filter(|(_, h)| *h == Heard::Silence);
    assert_eq!(silences.count(), 0, "it has said that it takes longer");
    let kept = driver.heard.iter().filter(|(_, h)| *h == Heard::Kept);
    assert_eq!(kept.count(), 0, "it was not waited for as long as for any");
}

/// One that keeps each read for long and then has nothing is no better than one that says nothing.
#[test]
fn a_holder_that_gives_nothing_after_long_counts_as_one_that_keeps_reads() {
    for (times, last) in [(10, Answer::Miss), (20, Answer::Miss), (20, data(all()))] {
        let mut driver = Driver::at_holder(4096);
        for _ in 0..times {
            driver.reply(wait(1000));
            driver.now_us += 100_000;
        }
        driver.reply(last);
        let kept = driver.heard.iter().filter(|(_, h)| *h == Heard::Kept);
        let expected = usize::from(times == 20 && last == Answer::Miss);
        assert_eq!(kept.count(), expected, "{times} {last:?}");
    }
}

#[test]
fn a_holder_that_waits_without_end_is_left() {
    for limit_us in [READ_US, 700_000, READ_US_MAX, u64::MAX] {
        is_left_after(limit_us, limit_us.min(READ_US_MAX));
    }
}

fn is_left_after(limit_us: u64, read_us: u64) {
    let mut driver = Driver::at_holder_within(limit_us, 4096);
    let end_us = driver.now_us + read_us;
    while driver.now_us < end_us - 500_000 {
        driver.now_us += 400_000;
        let at_us = end_us.min(driver.now_us + 1_000_000);
        assert_eq!(driver.reply(wait(1000)), Effect::Timer { at_us });
    }
    assert_eq!(driver.expire(), Effect::Stop);
    assert_eq!(driver.now_us, end_us);
    assert_eq!(driver.heard.last(), Some(&(node(HOLDER), Heard::Kept)));
    assert_eq!(driver.stop(), OVER_WITH_NOTHING);
}

#[test]
fn nodes_that_wait_in_a_circle_are_left() {
    let mut driver = Driver::at_holder(4096);
    let wait_ms = 100;
    let depth = DEPTH_MAX;
    assert_eq!(driver.reply(Answer::Wait { wait_ms, depth }), Effect::Stop);
    assert_eq!(driver.stop(), OVER_WITH_NOTHING);
}

#[test]
fn a_holder_that_waited_and_fell_silent_is_excluded() {
    let mut driver = Driver::at_holder(4096);
    driver.reply(wait(100));
    assert_eq!(driver.expire(), Effect::Stop);
    assert_eq!(driver.heard.last(), Some(&(node(HOLDER), Heard::Silence)));
    driver.stop();
    let reason = driver.last().excluded.reason(node(HOLDER));
    assert_eq!(reason, Some(Reason::NoAnswer));
}

#[test]
fn pages_whose_moves_were_not_made_are_not_taken() {
    let mut driver = Driver::at_holder(4096);
    driver.fragments_but(&[0]);
    driver.reply(data(all()));
    driver.expire();
    driver.is_posted = false;
    let complete = all().difference(PageSet::range(0, 1));
    assert_eq!(driver.step(Event::Stopped), Effect::Settle { complete });
    let damaged = PageSet::EMPTY;
    let settled = Event::Settled { damaged };
    assert!(matches!(driver.step(settled), Effect::Ask(_)));
    assert_eq!(driver.last().pages, all());
}
