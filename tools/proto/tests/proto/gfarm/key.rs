// SPDX-License-Identifier: GPL-2.0

//! The line of a key file.

use proptest::prelude::*;
use proto::gfarm::key::{
    is_due,
    KeyError,
    SharedKey, //
};

fn line(expire: &str, digits: usize) -> String {
    format!("{expire} {}", "a5".repeat(digits).split_at(digits).0)
}

fn read(text: &str) -> Result<SharedKey, KeyError> {
    let mut key = SharedKey::empty();
    key.read(text.as_bytes()).map(|()| key)
}

#[test]
fn a_line_is_read() {
    for text in [line("6ce20b9e", 64), format!(" {}\n", line("6CE20B9E", 64))] {
        let key = read(&text).unwrap();
        assert_eq!((key.expire, key.secret), (0x6ce2_0b9e, [0xa5; 32]));
    }
}

#[test]
fn other_lines_are_refused() {
    for (text, error) in [
        (String::new(), KeyError::Words),
        ("6ce20b9e".to_owned(), KeyError::Words),
        (line("6ce20b9", 64), KeyError::Expire),
        (line("6ce20b9e0", 64), KeyError::Expire),
        (line("+ce20b9e", 64), KeyError::Expire),
        (line("6ce20b9e", 63), KeyError::Secret),
        (line("6ce20b9e", 65), KeyError::Secret),
        (line("6ce20b9e", 66), KeyError::Secret),
        (line("6ce20b9e", 64) + " x", KeyError::Secret),
        (line("6ce20b9e", 62) + "xy", KeyError::Secret),
    ] {
        assert_eq!(read(&text), Err(error), "{text}");
        assert!(error.to_string().contains("gfkey") && error.errno().get() == 22);
    }
}

#[test]
fn the_secret_is_not_shown() {
    let key = read(&line("00000010", 64)).unwrap();
    assert_eq!(format!("{key:?}"), "SharedKey { expire: 16, .. }");
}

#[test]
fn what_is_no_key_leaves_nothing_of_a_secret() {
    let mut key = SharedKey::empty();
    let broken = line("00000010", 62) + "5x";
    assert_eq!(key.read(broken.as_bytes()), Err(KeyError::Secret));
    assert_eq!(key.secret, [0; 32]);
    key.read(line("00000010", 64).as_bytes()).unwrap();
    assert_ne!(key.secret, [0; 32]);
    key.wipe();
    assert_eq!(key.secret, [0; 32]);
}

/// A type that is copied is not wiped: the copies are not.
#[test]
fn a_key_is_wiped_with_its_drop() {
    assert!(std::mem::needs_drop::<SharedKey>());
}

#[test]
fn a_key_expires_when_the_servers_say() {
    let key = SharedKey {
        expire: 100,
        secret: [0; 32],
    };
    assert!(!key.is_expired(99) && key.is_expired(100) && key.is_expired(u64::MAX));
}

#[test]
fn a_key_is_due_a_day_before_it_expires() {
    let day = 24 * 3600;
    assert_eq!(is_due(1_000_000, 1_000_000 - day - 1), None);
    assert_eq!(is_due(1_000_000, 1_000_000 - day), Some(day));
    assert_eq!(is_due(1_000_000, u64::MAX), Some(0));
    assert_eq!(is_due(0, 0), Some(0));
    assert_eq!(is_due(u32::MAX, 0), None);
}

proptest! {
    #[test]
    fn a_key_is_what_was_written(expire: u32, secret: [u8; 32]) {
        let digits: String = secret.iter().map(|b| format!("{b:02x}")).collect();
        let key = read(&format!("{expire:08x} {digits}\n"));
        prop_assert_eq!(key, Ok(SharedKey { expire, secret }));
    }
}
