// SPDX-License-Identifier: GPL-2.0

//! The word by which a request knows that it is alone in its chunk: three paths of a session in
//! every order of their steps, while two of them enter it.

use std::collections::HashSet;

use proto::rtrs::fence::{
    look,
    Carriers,
    Look, //
};

const PATHS: usize = 3;
/// The requests of each path in the chunk. The first one's are before the others enter, and after.
const REQUESTS: [u8; PATHS] = [2, 1, 1];

/// Steps of the server, of which a test leaves some out.
#[derive(Clone, Copy)]
struct Rules {
    doubts: bool,
    deferred_stay_counted: bool,
}

const RULES: Rules = Rules {
    doubts: true,
    deferred_stay_counted: true,
};

/// The step that a path is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Take,
    Count,
    Look,
    /// Looks at a path; whether one had the chunk so far.
    Walk(usize, bool),
    Serve,
    Deferred,
    /// The end of a request, which was served or not.
    Discount(bool),
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Path {
    step: Step,
    left: u8,
    is_up: bool,
    has_peers: bool,
    is_taken: bool,
    is_counted: bool,
    /// The word as the path found it.
    carriers: Option<u32>,
    /// Requests of others that had been looked at when the context was taken.
    before: [bool; PATHS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    paths: [Path; PATHS],
    word: u32,
    /// The steps of the entering: two paths, three steps each.
    entered: usize,
}

impl World {
    fn new() -> Self {
        let path = |left| Path {
            step: Step::Take,
            left,
            is_up: true,
            has_peers: false,
            is_taken: false,
            is_counted: false,
            carriers: None,
            before: [false; PATHS],
        };
        Self {
            paths: REQUESTS.map(path),
            word: 0,
            entered: 0,
        }
    }

    /// The next step of the path that enters: the others are told, the words get the doubt, then
    /// requests can come.
    fn enter(mut self, rules: Rules) -> Option<Self> {
        let (who, step) = (1 + self.entered / 3, self.entered % 3);
        if who >= PATHS {
            return None;
        }
        match step {
            0 => self.paths[..=who]
                .iter_mut()
                .for_each(|p| p.has_peers = true),
            1 if rules.doubts => self.word |= Carriers::DOUBT,
            _ => {}
        }
        self.entered += 1;
        Some(self)
    }

    fn is_member(&self, path: usize) -> bool {
        self.entered / 3 >= path
    }

    fn decision(&self, at: usize, is_contested: impl FnOnce() -> bool) -> Look {
        let path = &self.paths[at];
        look(
            path.carriers.map(Carriers::before),
            || path.is_up,
            is_contested,
        )
    }

    fn served(&mut self, at: usize) -> Result<(), String> {
        for other in (0..PATHS).filter(|other| *other != at) {
            let them = &self.paths[other];
            if them.step == Step::Serve {
                return Err(format!("{other} and {at} are served: {self:?}"));
            }
            if self.paths[at].before[other] && them.step != Step::Release {
                return Err(format!("{at} is served before {other}: {self:?}"));
            }
        }
        self.paths[at].step = Step::Serve;
        Ok(())
    }

    /// Does the next step of a path; `None` if it has none.
    fn step(self, at: usize, rules: Rules) -> Result<Option<Self>, String> {
        let (path, mut next) = (self.paths[at], self);
        let own = &mut next.paths[at];
        match path.step {
            Step::Take => {
                if path.left == 0 || !path.is_up || !self.is_member(at) {
                    return Ok(None);
                }
                let has_looked = |them: Path| matches!(them.step, Step::Serve | Step::Deferred);
                own.before = self.paths.map(has_looked);
                (own.left, own.is_taken, own.step) = (path.left - 1, true, Step::Count);
            }
            Step::Count => {
                (own.carriers, own.is_counted) = (None, path.has_peers);
                if path.has_peers {
                    own.carriers = Some(self.word);
                    next.word += Carriers::ONE;
                }
                next.paths[at].step = Step::Look;
            }
            Step::Look => {
                let mut walks = false;
                let decision = self.decision(at, || {
                    walks = true;
                    false
                });
                match decision {
                    Look::Discard => own.step = Step::Discount(false),
                    _ if walks => own.step = Step::Walk(0, false),
                    _ => next.served(at)?,
                }
            }
            Step::Walk(PATHS, true) => {
                own.step = Step::Deferred;
                if !rules.deferred_stay_counted {
                    next.discount(at);
                }
            }
            Step::Walk(PATHS, false) => {
                next.word &= !Carriers::DOUBT;
                next.served(at)?;
            }
            Step::Walk(other, contested) => {
                let busy = other != at && self.is_member(other) && self.paths[other].is_taken;
                own.step = Step::Walk(other + 1, contested || busy);
                if busy {
                    next.paths[other].is_up = false;
                }
            }
            Step::Deferred => {
                own.carriers = Some(Carriers::DOUBT);
                own.step = Step::Look;
                if self.decision(at, || true) == Look::Defer && self.is_taken_by_others(at) {
                    // It would be deferred again.
                    return Ok(None);
                }
            }
            Step::Serve => own.step = Step::Discount(true),
            Step::Discount(_) => {
                own.step = Step::Release;
                next.discount(at);
            }
            Step::Release => {
                (own.step, own.is_taken) = (Step::Take, false);
                next.paths.iter_mut().for_each(|p| p.before[at] = false);
            }
        }
        Ok(Some(next))
    }

    fn discount(&mut self, at: usize) {
        if std::mem::replace(&mut self.paths[at].is_counted, false) {
            self.word -= Carriers::ONE;
        }
    }

    fn is_taken_by_others(&self, at: usize) -> bool {
        (0..PATHS).any(|other| other != at && self.paths[other].is_taken)
    }
}

/// Visits all states; returns their number and that of requests that were deferred.
fn explore(rules: Rules) -> Result<(usize, usize), String> {
    let (mut seen, mut todo) = (HashSet::new(), vec![World::new()]);
    let mut deferred = 0;
    while let Some(world) = todo.pop() {
        if !seen.insert(world) {
            continue;
        }
        deferred += usize::from(world.paths.iter().any(|p| p.step == Step::Deferred));
        todo.extend(world.enter(rules));
        for at in 0..PATHS {
            todo.extend(world.step(at, rules)?);
        }
    }
    Ok((seen.len(), deferred))
}

#[test]
fn in_every_order_a_chunk_has_one_request_and_later_ones_wait() {
    let (states, deferred) = explore(RULES).unwrap();
    assert!(states > 10_000 && deferred > 1_000, "{states}, {deferred}");
}

#[test]
fn without_the_doubt_a_request_that_was_not_counted_is_overlooked() {
    let rules = Rules {
        doubts: false,
        ..RULES
    };
    assert!(explore(rules).is_err());
}

#[test]
fn a_deferred_request_that_is_not_counted_is_overlooked() {
    let rules = Rules {
        deferred_stay_counted: false,
        ..RULES
    };
    assert!(explore(rules).is_err());
}
