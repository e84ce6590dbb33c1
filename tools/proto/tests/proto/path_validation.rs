// SPDX-License-Identifier: GPL-2.0

//! Validation of a path: the server to which it leads, by what that says about each device.

use std::cell::RefCell;

use proto::{
    common::errno::Errno,
    rnbd::path_validation::{
        Answer,
        PathValidation,
        Verdict, //
    },
};

const ALL: [Answer; 5] = [
    Answer::Same,
    Answer::Opened(1),
    Answer::Opened(2),
    Answer::Refused,
    Answer::Missing,
];

fn verdict(answers: &[Answer]) -> Verdict {
    let validation = answers
        .iter()
        .fold(PathValidation::default(), |s, a| s.with(*a));
    validation.verdict()
}

#[test]
fn an_answer_is_a_number_a_refusal_or_none() {
    assert_eq!(Answer::new(3, Ok(3)), Answer::Same);
    assert_eq!(Answer::new(3, Ok(0)), Answer::Opened(0));
    // The connection, not the server: EINTR, EAGAIN, ENOMEM, ECONNABORTED, ETIMEDOUT, ERESTARTSYS.
    let silent = [4, 11, 12, 103, 110, 512];
    for errno in 1..1000 {
        let answer = Answer::new(3, Err(Errno::new(errno).unwrap()));
        let wanted = if silent.contains(&errno) {
            Answer::Missing
        } else {
            Answer::Refused
        };
        assert_eq!(answer, wanted, "errno {errno}");
    }
}

#[test]
fn only_devices_with_their_numbers_show_that_requests_are_safe() {
    assert_eq!(verdict(&[]), Verdict::SameServer);
    // All sessions of up to four devices.
    for count in 1..=4u32 {
        for code in 0..5usize.pow(count) {
            let answers: Vec<Answer> = (0..count).map(|n| ALL[code / 5usize.pow(n) % 5]).collect();
            let wanted = if answers.contains(&Answer::Missing) {
                Verdict::TryLater
            } else if answers.iter().all(|answer| *answer == Answer::Same) {
                Verdict::SameServer
            } else {
                Verdict::AskOthers
            };
            assert_eq!(verdict(&answers), wanted, "{answers:?}");
        }
    }
}

#[test]
fn two_paths_of_one_server_say_the_same() {
    for new in ALL {
        for old in ALL {
            let one = new.is_of_the_server_that_says(old);
            let wanted = match (new, old) {
                // No outage begins because a disk is silent, or another path is.
                (Answer::Missing, _) | (_, Answer::Missing) => None,
                (new, old) => Some(new == old),
            };
            assert_eq!(
                one, wanted,
                "{new:?} by the new path, {old:?} by the others"
            );
        }
    }
}

/// A server as both implementations number devices: the lowest number that is free, and never again
/// one that was closed by force.
#[derive(Clone, Default)]
struct Server {
    slots: Vec<Option<u32>>,
    retired: Vec<usize>,
    refuses: Vec<u32>,
}

impl Server {
    fn open(&mut self, device: u32) -> Result<u32, Errno> {
        if let Some(slot) = self.slots.iter().position(|s| *s == Some(device)) {
            return Ok(slot as u32);
        }
        if self.refuses.contains(&device) {
            return Err(Errno::EPERM);
        }
        let free = (0..).find(|n| {
            !self.retired.contains(n) && self.slots.get(*n).is_none_or(|slot| slot.is_none())
        });
        let free = free.unwrap();
        if free >= self.slots.len() {
            self.slots.resize(free + 1, None);
        }
        self.slots[free] = Some(device);
        Ok(free as u32)
    }

    fn force_close(&mut self, device: u32) {
        let slot = self.slots.iter().position(|s| *s == Some(device)).unwrap();
        self.slots[slot] = None;
        self.retired.push(slot);
    }
}

/// Asks by a new path, and by the others if need be: whether both lead to one server.
fn is_one_server(
    numbers: &[(u32, u32)],
    mut by_new: impl FnMut(u32) -> Result<u32, Errno>,
    mut by_others: impl FnMut(u32) -> Result<u32, Errno>,
) -> Option<bool> {
    let answers: Vec<Answer> = numbers
        .iter()
        .map(|&(device, number)| Answer::new(number, by_new(device)))
        .collect();
    match verdict(&answers) {
        Verdict::SameServer => Some(true),
        Verdict::TryLater => None,
        Verdict::AskOthers => {
            let mut asked = numbers.iter().zip(answers);
            asked.try_fold(true, |is_one, (&(device, number), answer)| {
                let others = Answer::new(number, by_others(device));
                Some(is_one && answer.is_of_the_server_that_says(others)?)
            })
        }
    }
}

/// A server with devices 0 to `count - 1` open under numbers from `gap` on, and those numbers.
fn server(count: u32, gap: u32) -> (Server, Vec<(u32, u32)>) {
    let mut server = Server::default();
    for other in 0..gap {
        server.open(100 + other).unwrap();
    }
    let numbers = (0..count).map(|d| (d, server.open(d).unwrap())).collect();
    for slot in server.slots.iter_mut().take(gap as usize) {
        *slot = None;
    }
    (server, numbers)
}

#[test]
fn a_fence_is_no_restart() {
    // Up to three devices, each of them open, fenced, or fenced and given to another client.
    for count in 1..=3u32 {
        for code in 0..3u32.pow(count) {
            for gap in [0, 2] {
                let (mut server, numbers) = server(count, gap);
                for device in 0..count {
                    let fate = code / 3u32.pow(device) % 3;
                    if fate > 0 {
                        server.force_close(device);
                    }
                    if fate > 1 {
                        server.refuses.push(device);
                    }
                }
                let server = RefCell::new(server);
                let open = |device| server.borrow_mut().open(device);
                let is_one = is_one_server(&numbers, open, open);
                assert_eq!(is_one, Some(true), "{count} {code} {gap}");
            }
        }
    }
}

#[test]
fn a_restart_is_no_fence() {
    for count in 1..=3u32 {
        for gap in [0, 2] {
            let (old, numbers) = server(count, gap);
            // The server was started anew, and gives its numbers in another order.
            let mut new = Server::default();
            for device in (0..count + 1).rev() {
                new.open(device).unwrap();
            }
            let moved = |&(device, number): &(u32, u32)| new.clone().open(device) != Ok(number);
            if !numbers.iter().any(moved) {
                // By chance all have their numbers: requests for them are safe there.
                continue;
            }
            let new = RefCell::new(new);
            let old = RefCell::new(old);
            let open = |device| new.borrow_mut().open(device);
            let open_old = |device| old.borrow_mut().open(device);
            let silent = |_| Err(Errno::ECONNABORTED);
            let is_one = is_one_server(&numbers, open, open_old);
            assert_eq!(is_one, Some(false), "{count} {gap}");
            let is_one = is_one_server(&numbers, open, silent);
            assert_eq!(is_one, None, "{count} {gap}");
        }
    }
}
