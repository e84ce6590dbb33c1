// SPDX-License-Identifier: GPL-2.0

//! Which message that invalidates a key proves that the key of a request is invalid.

use proto::rtrs::invalidation::Invalidations;

const KEY: u32 = 0x1234_5601;

/// A region has the same key again after 256 registrations.
const KEY_LATER: u32 = KEY;

#[test]
fn a_message_of_256_registrations_ago_proves_nothing() {
    let mut connection = Invalidations::NONE;
    let sent_at = connection.count();
    assert!(!connection.prove(KEY, sent_at));
    connection = connection.and(KEY);
    assert!(connection.prove(KEY, sent_at));
    // It was kept for later: the region was registered 256 times for requests on other connections.
    let sent_at = connection.count();
    assert!(!connection.prove(KEY_LATER, sent_at));
    connection = connection.and(KEY_LATER);
    assert!(connection.prove(KEY_LATER, sent_at));
}

#[test]
fn a_message_about_another_key_proves_nothing() {
    let connection = Invalidations::NONE.and(KEY ^ 0x100);
    assert!(!connection.prove(KEY, 0));
    assert!(!connection.and(KEY).and(KEY ^ 0x100).prove(KEY, 0));
    // Nor does the absence of one about the key 0.
    assert!(!Invalidations::NONE.prove(0, 0));
}

#[test]
fn the_count_wraps_to_the_safe_side() {
    let full = Invalidations::from_bits(u64::from(u32::MAX) << 32);
    assert_eq!(full.count(), u32::MAX);
    let wrapped = full.and(KEY);
    assert_eq!(wrapped.count(), 0);
    assert!(wrapped.prove(KEY, u32::MAX));
    assert!(!wrapped.prove(KEY, 0));
    assert_eq!(Invalidations::from_bits(wrapped.to_bits()), wrapped);
}
