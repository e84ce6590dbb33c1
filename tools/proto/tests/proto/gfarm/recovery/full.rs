// SPDX-License-Identifier: GPL-2.0

//! A process of gfmd that has no room for another descriptor.

use proto::gfarm::{
    gfmd,
    retry::AtGfmd, //
};

use super::{
    failed,
    faults,
    ready,
    server, //
};

#[test]
fn a_full_process_makes_way_for_another_but_not_at_once() {
    let joined_ms = 2;
    let mut gfmd = ready();
    let full_ms = joined_ms + gfmd::FULL_MS_MIN;
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
            assert_eq!(gfmd.gives_up(fault, now_ms), gives_up, "{fault:?}");
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
    assert!(!gfmd.gives_up(server(24), now_ms + gfmd::FULL_MS_MIN - 1));
    assert!(gfmd.gives_up(server(24), now_ms + gfmd::FULL_MS_MIN));
}
