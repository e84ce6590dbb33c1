// SPDX-License-Identifier: GPL-2.0

//! The manual page and the table of options say the same.

use proto::gfarm::setting::Setting;

const MANUAL: &str = include_str!("../../../../Documentation/mount.gfarm.8");

/// Returns the text below the heading of an option.
fn entry(name: &str) -> &'static str {
    let heading = format!(".TP\n.BI {name}= ");
    let begin = MANUAL
        .find(&heading)
        .unwrap_or_else(|| panic!("{name} is not in the manual page"));
    let rest = &MANUAL[begin + 4..];
    &rest[..rest.find("\n.TP").unwrap_or(rest.len())]
}

#[test]
fn every_number_has_its_range_and_default() {
    for setting in Setting::ALL {
        let (low, high) = (*setting.range().start(), *setting.range().end());
        let text = entry(setting.name()).replace('\n', " ");
        let range = format!("{low} to {high}");
        let default = format!("default {}", setting.default());
        let zero = setting.zero().map(|meaning| format!("0 is {meaning}"));
        for wanted in [Some(range), Some(default), zero].into_iter().flatten() {
            assert!(
                text.contains(&wanted),
                "{}: '{wanted}' is not in: {text}",
                setting.name()
            );
        }
    }
}

#[test]
fn every_other_option_is_there() {
    for name in ["allow_other", "nocto"] {
        assert!(MANUAL.contains(&format!("\n.TP\n.B {name}\n")), "{name}");
    }
    for name in [
        "user",
        "key",
        "keyfile",
        "config",
        "uid",
        "gid",
        "usermap",
        "groupmap",
        "hosts",
        "cc",
        "cc_key",
        "cc_keyfile",
        "ib_devname",
    ] {
        entry(name);
    }
}
