// SPDX-License-Identifier: GPL-2.0

//! The boot in which a server runs, by which a client sees that it was restarted.

use proto::rnbd::boot::Boot;

const ID: &[u8] = b"9f0c3c6e-6c0b-4f8b-9d53-3a1b9b9b8a11\n";

#[test]
fn a_boot_is_known_by_the_kernels_id_and_does_not_show_it() {
    let boot = Boot::from_kernel(ID).unwrap();
    assert_eq!(Boot::from_kernel(ID.trim_ascii()), Some(boot));
    let other = Boot::from_kernel(b"9f0c3c6e-6c0b-4f8b-9d53-3a1b9b9b8a12\n").unwrap();
    assert_ne!(boot, other);
    let shown = format!("{:016x}", boot.get());
    let digits: Vec<u8> = ID.iter().copied().filter(u8::is_ascii_hexdigit).collect();
    for part in digits.windows(8) {
        assert!(!shown.as_bytes().windows(8).any(|w| w == part));
    }
    assert_eq!(Boot::from_kernel(b"\n"), None);
    assert_eq!(Boot::from_number(0), None);
}

#[test]
fn only_two_known_boots_are_known_to_differ() {
    let all = [None, Boot::from_number(1), Boot::from_number(2)];
    for before in all {
        for now in all {
            let differ = before.is_some() && now.is_some() && before != now;
            assert_eq!(Boot::is_another(before, now), differ);
        }
    }
}
