// SPDX-License-Identifier: GPL-2.0

//! The order of OPEN, CLOSE and validations.

use std::collections::HashSet;

use proto::rnbd::admin_lock::{
    LockMode,
    LockState, //
    LostCloses,
    NumberCheck,
};

const ALL: [LockMode; 3] = [LockMode::Open, LockMode::Close, LockMode::Validate];

/// Returns whether a lock may be taken while one is held.
fn may_join(held: LockMode, mode: LockMode) -> bool {
    held == mode && held != LockMode::Validate
}

#[test]
fn only_opens_and_closes_among_themselves_share() {
    for held in ALL {
        for mode in ALL {
            let mut lock = LockState::NONE;
            assert!(lock.lock(held));
            assert_eq!(lock.lock(mode), may_join(held, mode), "{held:?} {mode:?}");
        }
    }
}

#[test]
fn a_lock_that_was_not_taken_is_given_back_by_giving_up() {
    for held in ALL {
        for mode in ALL.into_iter().filter(|mode| !may_join(held, *mode)) {
            let mut lock = LockState::NONE;
            assert!(lock.lock(held));
            let before = lock;
            assert!(!lock.lock(mode));
            assert!(!lock.give_up(mode), "nobody is left to be woken");
            assert_eq!(lock, before);
        }
    }
}

#[test]
fn the_last_end_frees_the_order() {
    for held in [LockMode::Open, LockMode::Close] {
        let mut lock = LockState::NONE;
        for _ in 0..3 {
            assert!(lock.lock(held));
        }
        assert!(!lock.lock(LockMode::Validate));
        for left in [2, 1, 0] {
            assert_eq!(lock.unlock(), left == 0);
            assert_eq!(lock.retry(LockMode::Validate), left == 0);
        }
        assert!(lock.unlock());
        assert_eq!(lock, LockState::NONE);
    }
}

#[test]
fn a_lost_close_makes_its_number_doubtful_until_nothing_is_lost() {
    let mut lost_closes = LostCloses::NONE;
    lost_closes.add(7);
    lost_closes.add(7);
    assert!(lost_closes.include(7, true));
    assert!(!lost_closes.include(8, true));
    assert!(!lost_closes.include(7, false));
    // Also later, when something else is lost.
    assert!(!lost_closes.include(7, true));
    assert_eq!(lost_closes, LostCloses::NONE);
}

#[test]
fn more_lost_closes_than_are_stored_make_every_number_doubtful() {
    let mut lost_closes = LostCloses::NONE;
    (0..8).for_each(|number| lost_closes.add(number));
    assert!((0..8).all(|number| lost_closes.include(number, true)));
    assert!(!lost_closes.include(8, true));
    // One that is stored needs no room.
    lost_closes.add(0);
    assert!(!lost_closes.include(8, true));
    lost_closes.add(8);
    assert!(lost_closes.include(8, true) && lost_closes.include(99, true));
    assert!(!lost_closes.include(99, false));
}

/// The threads of the model.
const THREADS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Idle,
    Waits(LockMode),
    Holds(LockMode),
}

type Model = (LockState, [Thread; THREADS]);

/// Returns whether a thread that waits in `mode` would get the lock now.
fn is_let_in((lock, _): &Model, mode: LockMode) -> bool {
    let mut lock = *lock;
    lock.retry(mode)
}

/// Returns what may happen next to one thread: the model after it, whether it took the lock, and
/// whether those that wait are woken.
fn steps((lock, threads): &Model, at: usize) -> Vec<(Model, bool, bool)> {
    let mut steps = Vec::new();
    let mut add = |lock: LockState, thread: Thread, took: bool, wakes: bool| {
        let mut threads = *threads;
        threads[at] = thread;
        steps.push(((lock, threads), took, wakes));
    };
    match threads[at] {
        Thread::Idle => {
            for mode in ALL {
                let mut lock = *lock;
                match lock.lock(mode) {
                    true => add(lock, Thread::Holds(mode), true, false),
                    false => add(lock, Thread::Waits(mode), false, false),
                }
            }
        }
        Thread::Waits(mode) => {
            let mut retried = *lock;
            match retried.retry(mode) {
                true => add(retried, Thread::Holds(mode), true, false),
                false => assert_eq!(retried, *lock, "it changes nothing"),
            }
            let mut left = *lock;
            let wakes = left.give_up(mode);
            add(left, Thread::Idle, false, wakes);
        }
        Thread::Holds(_) => {
            let mut lock = *lock;
            let wakes = lock.unlock();
            add(lock, Thread::Idle, false, wakes);
        }
    }
    steps
}

/// Returns all that threads can do, in any order.
fn reachable() -> Vec<Model> {
    let mut found = vec![(LockState::NONE, [Thread::Idle; THREADS])];
    let mut known: HashSet<String> = found.iter().map(|model| format!("{model:?}")).collect();
    let mut at = 0;
    while at < found.len() {
        for thread in 0..THREADS {
            for (model, ..) in steps(&found[at], thread) {
                if known.insert(format!("{model:?}")) {
                    found.push(model);
                }
            }
        }
        at += 1;
    }
    found
}

#[test]
fn whatever_threads_do_the_modes_exclude_each_other_and_none_sleeps_for_good() {
    let models = reachable();
    assert!(models.len() > 1000);
    for model in &models {
        let (lock, threads) = model;
        let holds = |thread: &Thread| match thread {
            Thread::Holds(mode) => Some(*mode),
            Thread::Idle | Thread::Waits(_) => None,
        };
        let held: Vec<LockMode> = threads.iter().filter_map(holds).collect();
        assert!(held.windows(2).all(|two| may_join(two[0], two[1])));
        let waits: Vec<LockMode> = ALL
            .into_iter()
            .filter(|mode| threads.contains(&Thread::Waits(*mode)))
            .collect();
        if held.is_empty() {
            let any = waits.iter().any(|mode| is_let_in(model, *mode));
            assert!(waits.is_empty() || any, "{model:?}: nobody goes on");
        }
        if let ([mode], [held]) = (&waits[..], &held[..]) {
            let may = may_join(*held, *mode);
            assert_eq!(is_let_in(model, *mode), may, "{model:?}");
        }
        if held.is_empty() && waits.is_empty() {
            assert_eq!(*lock, LockState::NONE);
        }
        for thread in 0..THREADS {
            for (after, _, wakes) in steps(model, thread) {
                let is_new = |mode: &LockMode| {
                    after.1.contains(&Thread::Waits(*mode))
                        && is_let_in(&after, *mode)
                        && !is_let_in(model, *mode)
                };
                let news = waits.iter().any(is_new);
                assert!(!news || wakes, "{model:?}, {after:?}: not woken");
            }
        }
    }
}

#[test]
fn who_waits_sees_few_others_go_first() {
    let others = THREADS - 1;
    let mut most = 0;
    for model in reachable() {
        let Thread::Waits(mode) = model.1[0] else {
            continue;
        };
        // The first one does nothing but wait, the others go on and on.
        let mut all = vec![(model, 0)];
        let mut known = HashSet::new();
        while let Some((model, before)) = all.pop() {
            most = most.max(before);
            assert!(before <= 3 * others, "{mode:?} is left behind: {model:?}");
            if is_let_in(&model, mode) {
                continue;
            }
            for other in 1..THREADS {
                for (model, took, _) in steps(&model, other) {
                    let next = (model, before + usize::from(took));
                    if known.insert(format!("{next:?}")) {
                        all.push(next);
                    }
                }
            }
        }
    }
    assert!(most > 1, "nobody has a turn before: {most}");
}

#[test]
fn a_validation_goes_before_the_next_open_and_after_it_the_open() {
    let (open, validate) = (LockMode::Open, LockMode::Validate);
    let mut lock = LockState::NONE;
    assert!(lock.lock(open));
    assert!(!lock.lock(validate));
    // A device that is opened after a silent one waits for the path.
    assert!(!lock.lock(open));
    assert!(lock.unlock());
    assert!(!lock.retry(open));
    assert!(lock.retry(validate));
    // As does the next path for the device.
    assert!(!lock.lock(validate));
    assert!(lock.unlock());
    assert!(!lock.retry(validate));
    assert!(lock.retry(open));
    assert!(lock.unlock());
    assert!(lock.retry(validate));
    assert!(lock.unlock());
    assert_eq!(lock, LockState::NONE);
}

#[test]
fn who_waited_for_one_that_gives_up_goes_on() {
    for shared in [LockMode::Open, LockMode::Close] {
        let mut lock = LockState::NONE;
        assert!(lock.lock(shared));
        assert!(!lock.lock(LockMode::Validate));
        assert!(!lock.lock(shared));
        assert!(lock.give_up(LockMode::Validate), "{shared:?}");
        assert!(lock.retry(shared));
    }
}

#[test]
fn a_number_of_before_an_outage_fences_no_disk() {
    // An outage comes between the server's answer and its thread. It disconnects all devices, and
    // then the next server gives the same number to another one. The thread looks at the other
    // device when so many of these two have happened, and at the outages later.
    const STEPS: u32 = 2;
    for looked in 0..=STEPS {
        for counted in looked..=STEPS {
            let is_of_another = looked == STEPS;
            let check = NumberCheck::new(is_of_another, || counted == 0, || false);
            let wanted = match is_of_another {
                true => NumberCheck::Outdated,
                // The state of the device says it when the number is to be used.
                false => NumberCheck::Use,
            };
            assert_eq!(check, wanted, "{looked} {counted}");
        }
    }
    // Without an outage both numbers are those of one server, at the same time.
    let check = NumberCheck::new(true, || true, || unreachable!("it is not used in any case"));
    assert_eq!(check, NumberCheck::OfTwo);
    let check = NumberCheck::new(false, || unreachable!("no other one has it"), || true);
    assert_eq!(check, NumberCheck::InDoubt);
}
