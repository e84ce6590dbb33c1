// SPDX-License-Identifier: GPL-2.0

//! Reads among peers that lose, repeat, delay and invent. [`Driver`] checks what must hold.

use proto::gfarm::cache::{
    pages::PageSet,
    reply::{
        Answer,
        Refusal, //
    },
    request::Role,
    requester::{
        event::{
            Event,
            Whom, //
        },
        READ_US_MAX, //
    }, //
};

use crate::chance::Chance;

use super::{
    super::message::node,
    driver::{
        holder,
        redirect,
        Driver,
        OWNER, //
    },
};

/// An answer that suits the request, more often than not.
fn answer(asked: PageSet, role: Role, chance: &mut Chance) -> Answer {
    if chance.below(4) != 0 {
        return match role {
            Role::Holder => Answer::Data { pages: asked },
            Role::Owner | Role::NamedOwner => redirect(chance.below(6) as u64 + 2, asked),
        };
    }
    any_answer(asked, chance)
}

/// Any answer, about pages that were asked for more often than not.
fn any_answer(asked: PageSet, chance: &mut Chance) -> Answer {
    let some = PageSet::from_words([chance.number(), chance.number(), 0, chance.number()]);
    let pages = match chance.below(4) {
        0 => some,
        1 => some.intersection(asked),
        _ => asked,
    };
    let number = chance.below(6) as u64 + 1;
    match chance.below(12) {
        0..=3 => Answer::Data { pages },
        4 | 5 => redirect(number, pages),
        6 => Answer::Redirect {
            holder: holder(number),
            pages: some.intersection(asked),
            fetch: asked.difference(some),
        },
        7 => Answer::OtherOwner(holder(number)),
        8 => Answer::Wait {
            wait_ms: 1 + chance.below(200) as u16,
            depth: chance.below(34) as u8,
        },
        9 => Answer::Busy {
            wait_ms: 1 + chance.below(50) as u16,
        },
        10 => Answer::Miss,
        _ if chance.below(2) == 0 => Answer::Refused(Refusal::Leaving),
        _ => Answer::Fetch { pages },
    }
}

/// Does one step of the driver, if it has something to do, else one of the network.
fn one_event(driver: &mut Driver, chance: &mut Chance) {
    if driver.is_stopping && chance.below(4) == 0 {
        driver.stop();
        return;
    }
    if let Some(asking) = driver.asking.filter(|_| chance.below(8) != 0) {
        match (asking.whom, chance.below(16)) {
            (_, 0) => drop(driver.step(Event::Unsent {
                retry_us: Some(500),
            })),
            (_, 1) => drop(driver.step(Event::Unsent { retry_us: None })),
            (Whom::Owner, 2..6) => {
                let answer = answer(asking.pages, asking.role, chance);
                driver.asking = None;
                driver.step(Event::Answered(answer));
                return;
            }
            (Whom::Owner, _) => return driver.send(OWNER),
            (Whom::Named(holder), _) => {
                let number = holder.node.get() / 0x1111_1111_1111_1111;
                return driver.send(number);
            }
        }
        if driver.asked.last() != Some(&asking) || driver.timer_us.is_some() {
            driver.asking = None;
        }
        return;
    }
    let (asked, role) = (driver.last().pages, driver.last().role);
    match chance.below(40) {
        0 if driver.timer_us.is_some() => drop(driver.expire()),
        1 => {
            driver.now_us += chance.below(5000) as u64;
            driver.step(Event::TimerFired);
        }
        2 => drop(driver.reply(answer(asked, role, chance))),
        4 => {
            let mut reply = driver.reply_of(answer(asked, role, chance));
            match chance.below(3) {
                0 => reply.id.tag ^= 1,
                1 => reply.id.cookie ^= 1,
                _ => reply.size_bytes ^= 1,
            }
            let from = node(chance.below(6) as u64 + 1);
            driver.replied(from, &reply);
        }
        5 => drop(driver.datagram(chance.number() as u16, chance.below(40))),
        6 if chance.below(100) == 0 => drop(driver.step(Event::Cancel)),
        7 if !driver.is_stopping => {
            // What does not belong here.
            let damaged = PageSet::EMPTY;
            let settled = Event::Settled { damaged };
            let stray = [Event::Start, settled, Event::Answered(Answer::Miss)];
            if role == Role::Holder && driver.is_posted {
                driver.step(stray[chance.below(3)]);
            }
        }
        8 if driver.count() > 0 => drop(driver.fragment(chance.below(driver.count()))),
        // In their order.
        _ => drop(driver.fragment(driver.used)),
    }
}

fn run(seed: u64) -> (PageSet, usize) {
    let mut chance = Chance::new(seed);
    let len = 1024 << chance.below(3);
    let mut driver = Driver::new(len);
    if chance.below(3) == 0 {
        driver.requester.compare();
        driver.damaged = PageSet::from_words([chance.number() & chance.number(), 0, 0, 0]);
    }
    driver.tells_sums = driver.requester.sum(0).is_some() ^ (chance.below(16) == 0);
    driver.step(Event::Start);
    let mut events = 0;
    while driver.over.is_none() {
        one_event(&mut driver, &mut chance);
        events += 1;
        assert!(events < 100_000, "a read without end");
        assert!(driver.now_us <= 7_000_000 + READ_US_MAX + 10_000_000);
    }
    let got = driver.over.unwrap();
    for event in [
        Event::Start,
        Event::Settled {
            damaged: PageSet::EMPTY,
        },
        Event::Stopped,
        Event::TimerFired,
        Event::Cancel,
    ] {
        driver.step(event);
    }
    driver.reply(Answer::Miss);
    (got, driver.asked.len())
}

#[test]
fn any_read_ends_once_with_pages_that_hold_their_bytes() {
    let (mut whole, mut some, mut none, mut asked) = (0, 0, 0, 0);
    for seed in 0..20_000 {
        let seen = std::panic::catch_unwind(|| run(seed));
        let Ok((got, asks)) = seen else {
            panic!("seed {seed}");
        };
        asked += asks;
        match got.len() {
            0 => none += 1,
            9 => whole += 1,
            _ => some += 1,
        }
    }
    // The worlds are such that all ends are reached.
    assert!(
        whole > 500 && some > 500 && none > 500,
        "{whole}, {some}, {none}"
    );
    assert!(asked > 60_000, "{asked}");
}
