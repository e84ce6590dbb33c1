// SPDX-License-Identifier: GPL-2.0

//! The count of descriptors: how many there may be, and which tasks fail for want of one.

use proto::gfarm::descriptors::{
    Count,
    Late,
    FULL_MS_MIN,
    TELLS_MIN, //
};

#[test]
fn a_task_waits_while_there_are_as_many_as_there_may_be() {
    let mut count = Count::new(2);
    assert!(count.try_take() && count.try_take() && !count.try_take());
    assert!(count.is_full());
    // One that is there already counts, too.
    count.exceed();
    count.give_back(false);
    assert!(!count.try_take());
    count.give_back(false);
    assert!(!count.is_full() && count.try_take() && !count.try_take());
    count.begin_wait();
    count.begin_wait();
    count.end_wait();
    assert_eq!(count.wanted(), 1);
}

#[test]
fn so_many_files_give_theirs_back_as_are_waited_for() {
    for (max, more) in [(1, 0), (63, 0), (64, 1), (720, 11)] {
        let mut count = Count::new(max);
        count.begin_wait();
        assert_eq!(count.wanted(), 0);
        (0..max).for_each(|_| assert!(count.try_take()));
        assert_eq!(count.wanted(), 1 + more);
        count.begin_wait();
        assert_eq!(count.wanted(), 2 + more);
        // Those that gfmd is to close are waited for.
        count.begin_closing();
        assert_eq!(count.wanted(), 1 + more);
        count.begin_wait();
        count.give_back(true);
        assert_eq!(count.wanted(), 2 + more);
        (0..3).for_each(|_| count.end_wait());
        assert_eq!(count.wanted(), 0);
    }
}

#[test]
fn a_full_process_has_files_give_theirs_back_until_there_is_room() {
    let mut count = Count::new(720);
    (0..250).for_each(|_| assert!(count.try_take()));
    assert!(count.lower() && !count.lower());
    // A task waits that only looks at a name.
    count.begin_wait();
    assert!(count.is_full());
    let mut given = 0;
    while count.wanted() != 0 {
        count.begin_closing();
        count.give_back(true);
        given += 1;
    }
    assert!((31..40).contains(&given) && count.try_take(), "{given}");
    // Of the next process that is news, and of one with few it says nothing.
    count.renew();
    assert!(count.lower());
    let mut count = Count::new(720);
    assert!(!count.lower());
}

#[test]
fn a_task_that_is_late_fails_only_if_none_is_being_closed() {
    let mut count = Count::new(1);
    assert!(count.try_take());
    assert_eq!(count.late(), Late::Fail);
    count.begin_closing();
    assert_eq!(count.late(), Late::Wait);
    // Of a file that was opened anew: its second one was closed, and the first one is not.
    count.exceed();
    count.begin_closing();
    count.give_back(true);
    assert_eq!(count.late(), Late::Wait);
    count.give_back(true);
    assert_eq!(count.late(), Late::Has);
    assert_eq!(count.late(), Late::Fail);
}

#[test]
fn a_task_does_not_wait_for_a_close_that_makes_no_room() {
    let mut count = Count::new(1);
    assert!(count.try_take());
    // Beside the maximum: of a task that was killed.
    count.exceed();
    count.begin_closing();
    assert_eq!(count.late(), Late::Fail);
    count.begin_closing();
    assert_eq!(count.late(), Late::Wait);
}

#[test]
fn a_full_process_tells_how_many_there_may_be() {
    // Of gfmd's `max_open_files 256`, with some for walks; the mount has more files than that.
    let limit = 250;
    let mut count = Count::new(720);
    let (mut open, mut refused) = (0, 0);
    for _ in 0..2000 {
        if count.try_take() {
            open += 1;
            if open > limit {
                // The right is taken before gfmd refuses, and given back after that.
                count.lower();
                count.give_back(false);
                open -= 1;
                refused += 1;
                assert!(count.kept_ms().is_none());
            }
        } else {
            // A file that was not read for the longest time gives its own back.
            count.give_back(false);
            open -= 1;
        }
    }
    assert_eq!(refused, 1);
    // The next process may have room for more, or for as many.
    count.renew();
    assert!(count.try_take() && count.kept_ms().is_none());
}

/// Processes of gfmd with room for so many descriptors, of which each has lost some when it is full
/// for the first time. Returns how many of them were given up, and how many questions were refused.
fn processes(count: &mut Count, limits: &[(usize, usize)]) -> (usize, usize) {
    let (mut given_up, mut refused) = (0, 0);
    for (limit, lost) in limits {
        count.renew();
        // What is open is opened there when it is read: nothing of the process before counts.
        let mut open = 0;
        for _ in 0..5000 {
            if !count.try_take() {
                count.give_back(false);
                open -= 1;
                continue;
            }
            open += 1;
            if open + lost <= *limit {
                continue;
            }
            // It is old enough to be given up.
            if count.kept_ms().is_some() {
                count.give_up();
                given_up += 1;
                break;
            }
            count.lower();
            count.give_back(false);
            open -= 1;
            refused += 1;
        }
        (0..open).for_each(|_| count.give_back(false));
    }
    (given_up, refused)
}

#[test]
fn a_process_that_fills_slowly_is_given_up_once() {
    // Nothing is lost; gfmd has less room than the mount may use.
    let mut count = Count::new(720);
    let (given_up, refused) = processes(&mut count, &[(250, 0); 20]);
    assert_eq!(given_up, 1);
    assert!(refused < 20, "{refused}");
    // gfmd is started anew with less room.
    let (given_up, _) = processes(&mut count, &[(100, 0); 20]);
    assert!(given_up <= 1, "{given_up}");
    // And with more.
    assert_eq!(processes(&mut count, &[(2000, 0); 5]), (0, 0));
}

#[test]
fn processes_that_lose_descriptors_are_given_up_each_time() {
    // All but a few, and most, of those that there is room for.
    for (lost, refused_max) in [(990, 0), (900, 10)] {
        let mut count = Count::new(720);
        let worlds = [(1000, lost); 10];
        let (given_up, refused) = processes(&mut count, &worlds);
        assert!(given_up == 10 || lost == 900, "{given_up}");
        assert!(refused <= refused_max * worlds.len(), "{refused}");
    }
    // One that had many open, and is full with few, has lost some also if the one before it was
    // full with as few.
    let mut count = Count::new(720);
    assert_eq!(processes(&mut count, &[(1000, 900)]), (1, 0));
    count.renew();
    (0..700).for_each(|_| assert!(count.try_take()));
    (0..600).for_each(|_| count.give_back(false));
    assert!(count.kept_ms().is_some());
}

#[test]
fn a_process_that_loses_descriptors_is_found_after_some_errors() {
    // It was told full once, and keeps each descriptor that is closed from then on.
    let mut count = Count::new(720);
    (0..720).for_each(|_| assert!(count.try_take()));
    let mut errors = 0;
    while count.kept_ms().is_none() || errors == 0 {
        count.lower();
        while count.is_full() {
            count.give_back(false);
        }
        assert!(count.try_take());
        errors += 1;
    }
    assert!(errors < 10, "{errors}");
    // One that has few is full of others: nothing is learned of it.
    let mut count = Count::new(720);
    (0..30).for_each(|_| assert!(count.try_take()));
    count.lower();
    assert!(count.kept_ms().is_some() && !count.is_full());
}

#[test]
fn a_gfmd_with_room_for_few_is_left_seldom() {
    // `max_open_files 40`; each process is full at once, for a day.
    let mut count = Count::new(720);
    let (mut now_ms, mut given_up) = (0, 0);
    while now_ms < 86_400_000 {
        count.renew();
        (0..40).for_each(|_| assert!(count.try_take()));
        now_ms += count.kept_ms().unwrap();
        count.give_up();
        given_up += 1;
        (0..40).for_each(|_| count.give_back(false));
    }
    assert!((24..=32).contains(&given_up), "{given_up}");
    // One that had room for many was there since.
    count.renew();
    (0..TELLS_MIN).for_each(|_| assert!(count.try_take()));
    (0..24).for_each(|_| count.give_back(false));
    count.renew();
    assert_eq!(count.kept_ms(), Some(FULL_MS_MIN));
    // Far fewer than there was room for before are lost ones each time.
    let mut count = Count::new(720);
    for open in [40, 19, 8, 3] {
        count.renew();
        (0..open).for_each(|_| assert!(count.try_take()));
        assert_eq!(count.kept_ms(), Some(FULL_MS_MIN));
        count.give_up();
        (0..open).for_each(|_| count.give_back(false));
    }
}

/// Lets a task come too late after each number of steps of others, and returns whether it fails.
///
/// A batch goes through the closer: its files hand their descriptors over, the closer takes them,
/// asks gfmd, gets the answer, and ends their rights, one after the other.
fn fails_after(steps: usize, batch: usize) -> bool {
    let mut count = Count::new(batch);
    (0..batch).for_each(|_| assert!(count.try_take()));
    let mut left = steps;
    let mut goes_on = || {
        left = left.saturating_sub(1);
        left != 0
    };
    count.begin_closing();
    for _ in 1..batch {
        count.begin_closing();
        if !goes_on() {
            return count.late() == Late::Fail;
        }
    }
    // Taken, asked, answered: nothing that the count has to know of.
    for _ in 0..3 {
        if !goes_on() {
            return count.late() == Late::Fail;
        }
    }
    for _ in 0..batch {
        if !goes_on() {
            return count.late() == Late::Fail;
        }
        count.give_back(true);
    }
    count.late() == Late::Fail
}

#[test]
fn no_moment_of_a_batch_of_closes_fails_an_open() {
    for batch in 1..=16 {
        for steps in 0..2 * batch + 5 {
            assert!(!fails_after(steps, batch), "{steps} of {batch}");
        }
    }
}
