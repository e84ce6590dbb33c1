// SPDX-License-Identifier: GPL-2.0

//! The limit of repairs.

use rnbd_ec::proto::budget::{
    Budget,
    Exhausted,
    REPAIRS_MAX, //
};

const MINUTE_MS: u64 = 60_000;

/// Returns the times of the repairs that were granted of those that were asked for, and of lines.
fn ask(times: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut budget, mut granted, mut lines) = (Budget::default(), Vec::new(), Vec::new());
    for now_ms in times {
        match budget.take(now_ms) {
            Ok(()) => granted.push(now_ms),
            Err(Exhausted { is_new: true }) => lines.push(now_ms),
            Err(Exhausted { is_new: false }) => {}
        }
    }
    (granted, lines)
}

/// Returns the most that any minute has.
fn most(times: &[u64]) -> usize {
    let of = |start: u64| {
        let each = times.iter();
        each.filter(|at| (start..start + MINUTE_MS).contains(at))
            .count()
    };
    times.iter().map(|start| of(*start)).max().unwrap_or(0)
}

#[test]
fn no_minute_has_more_repairs_than_the_limit() {
    let limit = REPAIRS_MAX as usize;
    // One, and the others just before that is a minute ago; then all at once.
    let late = (0..59).map(|n| 2 * MINUTE_MS - 59 + n);
    let border = std::iter::once(MINUTE_MS)
        .chain(late)
        .chain([2 * MINUTE_MS; 200]);
    let (granted, lines) = ask(border);
    assert_eq!((granted.len(), most(&granted), lines.len()), (61, limit, 1));
    // Whoever asks all the time has as many as in all minutes.
    for step in [1, 7, 250, 900, 1000] {
        let (granted, lines) = ask((0..10 * MINUTE_MS).step_by(step));
        assert_eq!(
            (granted.len(), most(&granted)),
            (10 * limit, limit),
            "{step}"
        );
        assert!(most(&lines) <= 1, "{step}: {lines:?}");
        assert_eq!(lines.is_empty(), step == 1000);
    }
    // Who asks less often than that gets all.
    let (granted, lines) = ask((0..10 * MINUTE_MS).step_by(1001));
    assert_eq!((granted.len(), lines.len()), (600, 0));
}
