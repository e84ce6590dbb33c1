// SPDX-License-Identifier: GPL-2.0

//! The outage of a session without a connected path: IO waits, and fails at its deadline.

use proptest::prelude::*;
use proto::common::text::NumberError;
use proto::rtrs::outage::{
    Effect,
    Event,
    FastIoFail,
    Outage, //
};

fn down(now_ms: u64, setting: FastIoFail) -> (Outage, Effect) {
    Outage::Up.step(Event::LastPathDown { now_ms, setting })
}

fn changed(outage: Outage, now_ms: u64, setting: FastIoFail) -> (Outage, Effect) {
    outage.step(Event::SettingChanged { now_ms, setting })
}

fn queueing(since_ms: u64, until_ms: Option<u64>) -> (Outage, Effect) {
    (
        Outage::Queueing { since_ms, until_ms },
        Effect::Queue { until_ms },
    )
}

#[test]
fn io_waits_until_the_deadline_and_fails_then() {
    let (outage, effect) = down(5_000, FastIoFail::After(7));
    assert_eq!((outage, effect), queueing(5_000, Some(12_000)));
    // Too early: a timer of another time.
    let early = outage.step(Event::DeadlinePassed { now_ms: 11_999 });
    assert_eq!(early, queueing(5_000, Some(12_000)));
    let (outage, effect) = outage.step(Event::DeadlinePassed { now_ms: 12_000 });
    assert_eq!(effect, Effect::FailQueued);
    assert_eq!(outage, Outage::Failing { since_ms: 5_000 });
    assert_eq!(outage.step(Event::PathUp), (Outage::Up, Effect::Resume));
}

#[test]
fn a_path_in_time_resumes_and_its_late_timer_does_nothing() {
    let (outage, _) = down(0, FastIoFail::DEFAULT);
    let (up, effect) = outage.step(Event::PathUp);
    assert_eq!((up, effect), (Outage::Up, Effect::Resume));
    for late in [Event::DeadlinePassed { now_ms: u64::MAX }, Event::PathUp] {
        assert_eq!(up.step(late), (Outage::Up, Effect::Ignore));
    }
}

#[test]
fn off_waits_for_ever_and_0_not_at_all() {
    let (outage, effect) = down(3, FastIoFail::Off);
    assert_eq!((outage, effect), queueing(3, None));
    let timer = Event::DeadlinePassed { now_ms: u64::MAX };
    assert_eq!(outage.step(timer), (outage, Effect::Ignore));
    let failing = (Outage::Failing { since_ms: 3 }, Effect::FailQueued);
    assert_eq!(down(3, FastIoFail::After(0)), failing);
}

#[test]
fn a_new_setting_counts_from_the_beginning_of_the_outage() {
    let (outage, _) = down(1_000, FastIoFail::After(10));
    let longer = changed(outage, 4_000, FastIoFail::After(20));
    assert_eq!(longer, queueing(1_000, Some(21_000)));
    assert_eq!(
        changed(longer.0, 5_000, FastIoFail::Off),
        queueing(1_000, None)
    );
    let failing = Outage::Failing { since_ms: 1_000 };
    let shorter = changed(outage, 4_000, FastIoFail::After(3));
    assert_eq!(shorter, (failing, Effect::FailQueued));
    // Shorter still changes nothing; longer takes IO in again.
    let again = changed(failing, 5_000, FastIoFail::After(0));
    assert_eq!(again, (failing, Effect::Ignore));
    assert_eq!(
        changed(failing, 5_000, FastIoFail::After(5)),
        queueing(1_000, Some(6_000))
    );
    let up = changed(Outage::Up, 9_000, FastIoFail::After(0));
    assert_eq!(up, (Outage::Up, Effect::Ignore));
}

#[test]
fn a_closed_session_stays_closed() {
    let (waiting, _) = down(0, FastIoFail::Off);
    for before in [Outage::Up, waiting, Outage::Failing { since_ms: 0 }] {
        let closed = before.step(Event::Closed);
        assert_eq!(closed, (Outage::Closed, Effect::FailQueued));
    }
    let setting = FastIoFail::Off;
    for event in [
        Event::PathUp,
        Event::LastPathDown { now_ms: 1, setting },
        Event::DeadlinePassed { now_ms: 1 },
        Event::SettingChanged { now_ms: 1, setting },
        Event::Closed,
    ] {
        let after = Outage::Closed.step(event);
        assert_eq!(after, (Outage::Closed, Effect::Ignore));
    }
}

#[test]
fn the_setting_is_a_word_or_seconds_and_can_be_written_back() {
    for (written, setting, shown) in [
        ("off\n", FastIoFail::Off, "off"),
        ("-1", FastIoFail::Off, "off"),
        ("0", FastIoFail::After(0), "0"),
        ("600\n", FastIoFail::DEFAULT, "600"),
        ("86400", FastIoFail::After(86_400), "86400"),
    ] {
        assert_eq!(FastIoFail::parse(written.as_bytes()), Ok(setting));
        assert_eq!(setting.to_string(), shown);
        assert_eq!(FastIoFail::parse(shown.as_bytes()), Ok(setting));
        assert_eq!(FastIoFail::from_i32(setting.to_i32()), setting);
    }
    for (written, error) in [
        ("-2", NumberError::Range),
        ("86401", NumberError::Range),
        ("99999999999", NumberError::Range),
        ("on", NumberError::Invalid),
        ("OFF", NumberError::Invalid),
        ("", NumberError::Invalid),
        ("5s", NumberError::Invalid),
    ] {
        assert_eq!(FastIoFail::parse(written.as_bytes()), Err(error));
    }
    assert_eq!(FastIoFail::from_i32(i32::MIN), FastIoFail::Off);
    assert_eq!(FastIoFail::from_i32(i32::MAX), FastIoFail::After(86_400));
    assert_eq!(FastIoFail::After(u32::MAX).to_i32(), 86_400);
}

fn any_event() -> impl Strategy<Value = (u8, u64, i32)> {
    (0..4u8, 0..20_000u64, -1..12i32)
}

proptest! {
    /// Against the rule in plain words: without a path, IO fails once so many seconds are over, by
    /// the current setting, at any query.
    #[test]
    fn every_history_goes_by_the_plain_rule(events in prop::collection::vec(any_event(), 1..60)) {
        let (mut now_ms, mut since, mut setting) = (0u64, None, FastIoFail::After(5));
        let (mut outage, mut timer) = (Outage::Up, None);
        for (kind, later, raw) in events {
            now_ms += later;
            let event = match kind {
                0 => { since = None; Event::PathUp }
                1 => { since = since.or(Some(now_ms)); Event::LastPathDown { now_ms, setting } }
                2 => {
                    setting = FastIoFail::from_i32(raw);
                    Event::SettingChanged { now_ms, setting }
                }
                _ => Event::DeadlinePassed { now_ms },
            };
            let (next, effect) = outage.step(event);
            match effect {
                Effect::Queue { until_ms } => timer = until_ms,
                Effect::Resume | Effect::FailQueued => timer = None,
                Effect::Ignore => {}
            }
            outage = next;
            // A timer that is due fires before the query.
            if timer.is_some_and(|t| t <= now_ms) {
                let (next, effect) = outage.step(Event::DeadlinePassed { now_ms });
                prop_assert_eq!(effect, Effect::FailQueued);
                (outage, timer) = (next, None);
            }
            let over = match (since, setting) {
                (Some(since), FastIoFail::After(s)) => now_ms >= since + u64::from(s) * 1000,
                _ => false,
            };
            prop_assert_eq!(matches!(outage, Outage::Failing { .. }), over);
            prop_assert_eq!(outage == Outage::Up, since.is_none());
        }
    }
}
