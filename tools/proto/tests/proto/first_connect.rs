// SPDX-License-Identifier: GPL-2.0

//! The first connect of a path: what is tried again, and that it ends.

use proto::rtrs::{
    first_connect::{
        Failure,
        FirstConnect, //
    },
    CONNECT_TIMEOUT_MS,
};

/// Lets every attempt fail so, each as late as it may; returns the pauses and the time that passed.
fn play(failure: Failure) -> (Vec<u32>, u32) {
    let (mut first, mut pauses, mut passed_ms) = (FirstConnect::UNTRIED, Vec::new(), 0);
    loop {
        let took_ms = first.address_ms();
        passed_ms += took_ms;
        match first.failed(failure, took_ms) {
            Some(pause_ms) => pauses.push(pause_ms),
            None => return (pauses, passed_ms),
        }
    }
}

#[test]
fn an_address_is_looked_for_again_until_the_time_is_over() {
    let (pauses, passed_ms) = play(Failure::NoAddress);
    assert_eq!((pauses, passed_ms), (vec![0; 7], CONNECT_TIMEOUT_MS));
}

#[test]
fn memory_is_asked_for_again_for_three_seconds() {
    let (pauses, _) = play(Failure::NoMemory);
    assert_eq!(pauses, [200, 400, 800, 1600]);
}

#[test]
fn anything_else_is_final() {
    let mut first = FirstConnect::UNTRIED;
    assert_eq!(first.failed(Failure::Other, 0), None);
}

#[test]
fn every_order_of_failures_ends() {
    for order in 0u32..1 << 16 {
        let (mut first, mut attempts) = (FirstConnect::UNTRIED, 1);
        let ends = (0..16).any(|turn| {
            let failure = if order >> turn & 1 == 0 {
                Failure::NoAddress
            } else {
                Failure::NoMemory
            };
            // A clock that stands still.
            assert!(
                first.address_ms() > 0,
                "an attempt without time to find the address"
            );
            attempts += 1;
            first.failed(failure, 0).is_none()
        });
        assert!(ends, "{attempts} attempts in the order {order:#018b}");
    }
}
