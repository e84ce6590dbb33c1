// SPDX-License-Identifier: GPL-2.0

//! A process of gfmd that has no room for another descriptor.

use proto::gfarm::{
    descriptors::FULL_MS_MIN,
    gfmd::{
        self,
        Refused, //
    },
    retry::{
        AtGfmd,
        Fault, //
    },
};

use super::{
    failed,
    faults,
    ready,
    server, //
};

/// A question that was asked just now.
fn asked(now_ms: u64) -> Refused {
    Refused {
        now_ms,
        asked_ms: now_ms,
        has_key: true,
        kept_ms: Some(FULL_MS_MIN),
    }
}

#[test]
fn an_answer_for_which_there_is_no_memory_costs_nobody_the_connection() {
    let gfmd = ready();
    assert!(!Fault::NO_MEMORY.ends_connection());
    assert!(!gfmd.gives_up(Fault::NO_MEMORY, asked(u64::MAX)));
    // It is asked again.
    assert_eq!(AtGfmd::decide(Fault::NO_MEMORY), AtGfmd::Wait);
}

#[test]
fn a_full_process_makes_way_for_another_but_not_at_once() {
    let joined_ms = 2;
    let mut gfmd = ready();
    let full_ms = joined_ms + FULL_MS_MIN;
    for fault in faults() {
        let reconnects = AtGfmd::decide(fault) == AtGfmd::Reconnect;
        let is_full = fault == server(24);
        for (now_ms, gives_up) in [
            (0, reconnects),
            (joined_ms, reconnects),
            (full_ms - 1, reconnects),
            (full_ms, reconnects || is_full),
            (u64::MAX, reconnects || is_full),
        ] {
            assert_eq!(gfmd.gives_up(fault, asked(now_ms)), gives_up, "{fault:?}");
        }
    }
    // The questions wait for the next one, which is made at once.
    assert_eq!(
        gfmd.step(failed(server(24), full_ms)),
        gfmd::Effect::StartIn { pause_ms: 0 }
    );
    gfmd.step(gfmd::Event::Timer);
    gfmd.step(gfmd::Event::Connected);
    gfmd.step(gfmd::Event::Authenticated);
    let now_ms = full_ms + 10;
    gfmd.step(gfmd::Event::Joined { now_ms });
    assert_eq!(gfmd.ready(), Some(2));
    assert!(!gfmd.gives_up(server(24), asked(now_ms + FULL_MS_MIN - 1)));
    assert!(gfmd.gives_up(server(24), asked(now_ms + FULL_MS_MIN)));
}

#[test]
fn a_full_process_is_kept_where_no_other_can_be_had() {
    let gfmd = ready();
    let old = asked(2 + FULL_MS_MIN);
    assert!(gfmd.gives_up(server(24), old));
    // The key has expired, or was revoked: gfmd would refuse the next connection.
    let without_key = Refused {
        has_key: false,
        ..old
    };
    assert!(!gfmd.gives_up(server(24), without_key));
    // It is full of what is in use, and another one would be, too.
    let kept_ms = None;
    assert!(!gfmd.gives_up(server(24), Refused { kept_ms, ..old }));
    // Or may be so, as the one before was.
    let kept_ms = Some(FULL_MS_MIN + 1);
    assert!(!gfmd.gives_up(server(24), Refused { kept_ms, ..old }));
    // Those that are lost anyway are so without one, too.
    assert!(gfmd.gives_up(server(98), without_key));
}

#[test]
fn a_full_process_is_replaced_also_if_nothing_waits_for_gfmd() {
    // Of `reconnect_timeout=0`.
    let failed = |fault, now_ms| gfmd::Event::Failed {
        fault,
        now_ms,
        timeout_ms: 0,
        random: 0,
    };
    let mut gfmd = ready();
    let full_ms = 2 + FULL_MS_MIN;
    let at_once = gfmd::Effect::StartIn { pause_ms: 0 };
    assert_eq!(gfmd.step(failed(server(24), full_ms)), at_once);
    // Only once: this is a gfmd that is not there.
    assert_eq!(gfmd.step(gfmd::Event::Timer), gfmd::Effect::Connect);
    let effect = gfmd.step(failed(Fault::Disconnected, full_ms + 1));
    assert!(matches!(effect, gfmd::Effect::FailWaiting(_)), "{effect:?}");
    let mut gfmd = ready();
    let effect = gfmd.step(failed(Fault::Disconnected, full_ms));
    assert!(matches!(effect, gfmd::Effect::FailWaiting(_)), "{effect:?}");
}

#[test]
fn a_question_leaves_one_full_process_only() {
    // A gfmd that takes 30 s to say that it is full, each time.
    let mut gfmd = ready();
    let asked_ms = 100_000;
    let mut now_ms = asked_ms;
    let mut left = 0;
    for _ in 0..3 {
        now_ms += FULL_MS_MIN + 1;
        let question = Refused {
            now_ms,
            asked_ms,
            has_key: true,
            kept_ms: Some(FULL_MS_MIN),
        };
        if !gfmd.gives_up(server(24), question) {
            break;
        }
        left += 1;
        gfmd.step(failed(server(24), now_ms));
        gfmd.step(gfmd::Event::Timer);
        gfmd.step(gfmd::Event::Connected);
        gfmd.step(gfmd::Event::Authenticated);
        gfmd.step(gfmd::Event::Joined { now_ms });
    }
    assert_eq!(left, 1);
}
