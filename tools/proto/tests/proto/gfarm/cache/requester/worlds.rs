// SPDX-License-Identifier: GPL-2.0

//! Every small world: each datagram of one exchange with a holder is lost, comes in time, twice, or
//! so late that the queue pair is being stopped.

use proto::gfarm::cache::{
    pages::PageSet,
    reply::Answer,
    requester::event::Effect, //
};

use super::driver::{
    redirect,
    Driver,
    HOLDER,
    OWNER, //
};

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    InTime,
    Twice,
    Late,
}

const FATES: [Fate; 4] = [Fate::Lost, Fate::InTime, Fate::Twice, Fate::Late];

/// One exchange about `count` pages, of a fragment each. The number says what happens to each
/// fragment and to the reply, before which of the fragments the reply comes, and from which end.
fn exchange(count: usize, number: usize) {
    let mut rest = number;
    let mut draw = |ways: usize| {
        let drawn = rest % ways;
        rest /= ways;
        drawn
    };
    let mut driver = Driver::started(4096);
    driver.send(OWNER);
    let pages = driver.wanted.pages().lowest(count);
    driver.reply(redirect(HOLDER, pages));
    driver.send(HOLDER);
    let fates: Vec<Fate> = (0..count).map(|_| FATES[draw(4)]).collect();
    let reply = FATES[draw(4)];
    let place = draw(count + 1);
    let is_backwards = draw(2) == 1;
    let of = |at: usize| if is_backwards { count - 1 - at } else { at };
    for at in 0..=count {
        if at == place {
            for _ in 0..[0, 1, 2, 0][reply as usize] {
                driver.reply(Answer::Data { pages });
            }
        }
        for _ in 0..[0, 1, 2, 0][fates.get(of(at.min(count - 1))).map_or(0, |f| *f as usize)] {
            if at < count {
                driver.fragment(of(at));
            }
        }
    }
    while !driver.is_stopping {
        driver.expire();
    }
    for (index, fate) in fates.iter().enumerate() {
        if *fate == Fate::Late {
            driver.fragment(index);
        }
    }
    if reply == Fate::Late {
        driver.reply(Answer::Data { pages });
    }
    let slots = driver.used;
    let effect = driver.stop();
    let asked = driver.last().pages;
    let has_reply = reply != Fate::Lost;
    // A repetition takes the slot of a later one.
    let is_crowded = fates.contains(&Fate::Twice);
    let mut expected = PageSet::EMPTY;
    for (index, fate) in fates.iter().enumerate() {
        if has_reply && *fate != Fate::Lost {
            expected.insert(index as u8);
        }
    }
    let got = match effect {
        Effect::Over { got } => got,
        Effect::Ask(_) if driver.last().whom == driver.asked[0].whom => pages,
        Effect::Ask(_) => pages.difference(asked),
        effect => panic!("{effect:?}"),
    };
    let seen = format!("{fates:?}, reply {reply:?} at {place}, {slots} slots");
    assert!(slots <= count);
    if !is_crowded && has_reply {
        assert_eq!(got, expected, "{seen}");
    } else if has_reply {
        assert!(got.is_subset(expected), "{seen}");
    }
}

#[test]
fn each_page_is_taken_that_has_arrived_and_no_other() {
    for count in 1..=4 {
        for number in 0..4usize.pow(count as u32 + 1) * (count + 1) * 2 {
            exchange(count, number);
        }
    }
}

#[test]
fn so_with_five_fragments() {
    for number in 0..4usize.pow(6) * 6 * 2 {
        exchange(5, number);
    }
}
