// SPDX-License-Identifier: GPL-2.0

//! Questions to gfmd and their answers stay in step, and nobody waits for ever: in each order in
//! which those who ask, the workers, gfmd and the network can go on.

mod model;

use std::collections::HashMap;

use proto::gfarm::conversation::{
    Conversation,
    Receiver, //
};

use model::World;

type Asked = Conversation<u8, &'static str>;

/// Begins to send the next question of a queue of so many.
fn begin(asked: &mut Asked, queued: u8) -> (u8, usize, bool) {
    let next = asked.next(|at| (0..queued).nth(at)).unwrap();
    (next.question, next.bytes, next.is_first)
}

#[test]
fn questions_are_sent_once_and_in_their_order() {
    let mut asked = Asked::NEW;
    assert_eq!(asked.receiver(0), Receiver::Rest);
    assert_eq!(asked.receiver(2), Receiver::HaveSent);
    assert_eq!(begin(&mut asked, 2), (0, 0, true));
    assert_eq!(asked.receiver(2), Receiver::Receive);
    assert_eq!(asked.sent(), None);
    assert_eq!(begin(&mut asked, 2), (1, 0, false));
    assert_eq!(asked.sent(), None);
    assert_eq!(asked.next(|at| (0..2).nth(at)), None);
    assert!(asked.is_owed() && !asked.is_behind(2) && asked.is_behind(3));
    assert_eq!(asked.answered("first"), Some("first"));
    assert_eq!(asked.answered("second"), Some("second"));
    assert!(!asked.is_owed());
}

#[test]
fn the_rest_of_a_question_comes_before_the_next_one() {
    let mut asked = Asked::NEW;
    begin(&mut asked, 2);
    asked.left(5);
    assert_eq!(begin(&mut asked, 2), (0, 5, false));
    // The next one is killed in it as well.
    asked.left(7);
    assert_eq!(begin(&mut asked, 2), (0, 7, false));
    assert_eq!(asked.sent(), None);
    assert_eq!(begin(&mut asked, 2), (1, 0, false));
}

#[test]
fn a_question_of_which_nothing_was_sent_is_not_begun() {
    let mut asked = Asked::NEW;
    begin(&mut asked, 1);
    asked.left(0);
    // What comes now is no answer, and gfmd has to be silent before the question is sent.
    assert!(!asked.is_owed() && asked.is_behind(1));
    assert_eq!(begin(&mut asked, 1), (0, 0, true));
    // Behind one that was sent it has to wait for the answer to that.
    asked.sent();
    begin(&mut asked, 2);
    asked.left(0);
    assert_eq!(asked.answered("first"), Some("first"));
    assert_eq!(asked.receiver(1), Receiver::HaveSent);
    assert_eq!(begin(&mut asked, 2), (0, 0, true));
    // The receiver has taken it for begun already: the rest is all of it.
    assert_eq!(asked.answered("stray"), None);
    asked.left(0);
    assert_eq!(begin(&mut asked, 0), (0, 0, false));
    assert_eq!(asked.sent(), Some((0, "stray")));
}

#[test]
fn nothing_is_sent_on_a_connection_that_is_broken() {
    let mut asked = Asked::NEW;
    begin(&mut asked, 2);
    asked.left(5);
    asked.broken();
    assert!(asked.is_owed() && !asked.is_behind(2));
    assert_eq!(asked.next(|at| (0..2_u8).nth(at)), None);
    assert_eq!(asked.lost(), (1, None));
    assert!(asked.is_behind(2));
    assert_eq!(begin(&mut asked, 2), (0, 0, true));
}

#[test]
fn a_question_that_is_refused_early_is_given_back_when_the_rest_was_sent() {
    let mut asked = Asked::NEW;
    begin(&mut asked, 1);
    asked.left(5);
    assert_eq!(asked.answered("no"), None);
    // It has left the queue, and gfmd owes nothing; the rest is to be sent.
    assert_eq!(asked.receiver(0), Receiver::HaveSent);
    assert_eq!(begin(&mut asked, 0), (0, 5, false));
    assert_eq!(asked.sent(), Some((0, "no")));
    assert_eq!(asked.receiver(0), Receiver::Rest);
    // Or when there is nobody any more who needs the rest.
    begin(&mut asked, 1);
    asked.left(5);
    assert_eq!(asked.answered("no"), None);
    assert_eq!(asked.lost(), (0, Some((0, "no"))));
    // The answer to one before it is none to that which was begun.
    begin(&mut asked, 2);
    asked.sent();
    begin(&mut asked, 2);
    assert_eq!(asked.answered("yes"), Some("yes"));
    assert_eq!(asked.answered("no"), None);
}

#[test]
fn what_was_sent_is_asked_again_after_a_loss() {
    let mut asked = Asked::NEW;
    begin(&mut asked, 3);
    asked.sent();
    begin(&mut asked, 3);
    asked.left(2);
    assert_eq!(asked.lost(), (2, None));
    assert_eq!(begin(&mut asked, 3), (0, 0, true));
    // The first one leaves the queue, and the connection is lost.
    assert!(asked.dropped());
    assert_eq!(asked.lost(), (0, None));
    assert!(!asked.dropped());
}

/// Rules of the driver; without one of them something goes wrong.
#[derive(Clone, Copy)]
struct Rules {
    /// The receiver has another task send.
    receiver_does_not_send: bool,
    /// A task that waits for room to send has the worker receive.
    sender_has_answers_taken: bool,
    /// A question that is answered is given back when it was sent to its end.
    given_back_when_whole: bool,
    /// The closer sends what fills the queue.
    closer_makes_room: bool,
    /// A sender that cannot go on says so.
    sender_tells_of_the_end: bool,
    /// The receiver compares the number of `umount -f` with that which another one has seen.
    interrupts_are_kept: bool,
    /// Bytes behind an answer end the connection, and fail no question.
    strays_fail_no_question: bool,
    /// The questions of the first task, and the descriptors that are to be closed.
    asks: u8,
    closes: u8,
    /// Tasks that may be killed, and connections that may be lost.
    kills: u8,
    losses: u8,
    /// The times that all that waits is made to fail, and that gfmd tells more than it was asked.
    interrupts: u8,
    strays: u8,
}

/// The driver as it is.
const ALL: Rules = Rules {
    receiver_does_not_send: true,
    sender_has_answers_taken: true,
    given_back_when_whole: true,
    closer_makes_room: true,
    sender_tells_of_the_end: true,
    interrupts_are_kept: true,
    strays_fail_no_question: true,
    asks: 2,
    closes: 0,
    kills: 1,
    losses: 1,
    interrupts: 0,
    strays: 0,
};

/// The findings of all orders.
#[derive(Debug)]
struct Found {
    worlds: usize,
    out_of_step: Option<&'static str>,
    /// The number of those from which no order leads to the end.
    stuck: usize,
}

/// Goes all ways from the beginning.
fn explore(rules: Rules) -> Found {
    let mut numbers = HashMap::from([(World::new(rules), 0)]);
    let mut worlds = vec![World::new(rules)];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut at = 0;
    while at < worlds.len() {
        let world = worlds[at].clone();
        if world.is_over() {
            ends.push(at);
        }
        for next in world.nexts(rules) {
            if let out_of_step @ Some(_) = next.out_of_step {
                return Found {
                    worlds: at,
                    out_of_step,
                    stuck: 0,
                };
            }
            let number = *numbers.entry(next.clone()).or_insert_with(|| {
                worlds.push(next);
                before.push(Vec::new());
                worlds.len() - 1
            });
            before[number].push(at);
        }
        at += 1;
    }
    let mut leads = vec![false; worlds.len()];
    while let Some(end) = ends.pop() {
        if !std::mem::replace(&mut leads[end], true) {
            ends.extend(&before[end]);
        }
    }
    Found {
        worlds: worlds.len(),
        out_of_step: None,
        stuck: leads.iter().filter(|leads| !**leads).count(),
    }
}

/// The driver with tasks that ask so often, descriptors, tasks that are killed, and losses.
fn driver(asks: u8, closes: u8, kills: u8, losses: u8) -> Rules {
    Rules {
        asks,
        closes,
        kills,
        losses,
        ..ALL
    }
}

fn interrupted() -> Rules {
    Rules {
        interrupts: 1,
        ..driver(1, 0, 1, 0)
    }
}

fn strayed() -> Rules {
    Rules {
        strays: 1,
        ..driver(2, 0, 0, 0)
    }
}

#[test]
fn no_order_gets_out_of_step_or_stuck() {
    for rules in [
        driver(2, 0, 1, 1),
        driver(1, 1, 0, 1),
        driver(1, 1, 2, 0),
        driver(1, 2, 1, 0),
        interrupted(),
        strayed(),
    ] {
        let found = explore(rules);
        assert!(found.out_of_step.is_none(), "{found:?}");
        assert_eq!(found.stuck, 0, "{found:?}");
        assert!(found.worlds > 10_000, "{found:?}");
    }
}

#[test]
fn who_receives_and_sends_gets_stuck() {
    let found = explore(Rules {
        receiver_does_not_send: false,
        ..driver(1, 0, 0, 1)
    });
    assert!(found.stuck != 0, "{found:?}");
}

#[test]
fn who_waits_to_send_and_has_nobody_receive_gets_stuck() {
    let found = explore(Rules {
        sender_has_answers_taken: false,
        ..driver(1, 0, 0, 0)
    });
    assert!(found.stuck != 0, "{found:?}");
}

#[test]
fn a_question_that_is_given_back_with_its_answer_gets_out_of_step() {
    let found = explore(Rules {
        given_back_when_whole: false,
        ..driver(2, 0, 1, 1)
    });
    assert!(found.out_of_step.is_some(), "{found:?}");
}

#[test]
fn a_closer_that_waits_for_room_and_sends_nothing_gets_stuck() {
    let found = explore(Rules {
        closer_makes_room: false,
        ..driver(1, 1, 2, 0)
    });
    assert!(found.stuck != 0, "{found:?}");
}

#[test]
fn an_end_that_who_sends_keeps_to_itself_gets_stuck() {
    let found = explore(Rules {
        sender_tells_of_the_end: false,
        ..driver(1, 0, 1, 1)
    });
    assert!(found.stuck != 0, "{found:?}");
}

#[test]
fn a_question_that_an_interrupt_has_not_failed_is_asked_again() {
    let found = explore(Rules {
        interrupts_are_kept: false,
        ..interrupted()
    });
    assert!(found.out_of_step.is_some(), "{found:?}");
}

#[test]
fn bytes_behind_an_answer_that_fail_the_next_question_are_those_of_another() {
    let found = explore(Rules {
        strays_fail_no_question: false,
        ..strayed()
    });
    assert!(found.out_of_step.is_some(), "{found:?}");
}
