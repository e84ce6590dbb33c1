// SPDX-License-Identifier: GPL-2.0

use proto::common::errno::Errno;
use proto::rtrs::{
    heartbeat::Heartbeat,
    outage::FastIoFail,
    settings::{
        Setting,
        SettingText, //
        Settings,
    }, //
};

#[test]
fn every_default_is_within_its_range_and_comes_back_as_it_is_shown() {
    for (number, setting) in Setting::ALL.into_iter().enumerate() {
        assert_eq!(setting as usize, number);
        assert!(setting.range().contains(&setting.default()), "{setting:?}");
        assert_eq!(Setting::by_name(setting.name().as_bytes()), Some(setting));
        let range = setting.range();
        for value in [*range.start(), setting.default(), *range.end()] {
            let shown = format!("{}\n", SettingText(setting, value));
            assert_eq!(setting.parse(shown.as_bytes()), Ok(value), "{setting:?}");
        }
    }
    assert_eq!(Setting::by_name(b"max_reconnect"), None);
    assert_eq!(Setting::by_name(b""), None);
}

#[test]
fn what_is_outside_is_refused_and_the_reason_names_the_range() {
    for setting in Setting::ALL {
        let range = setting.range();
        let outside = [i64::from(*range.start()) - 1, i64::from(*range.end()) + 1];
        for value in outside.map(|v| v.to_string()) {
            let refused = setting.parse(value.as_bytes()).unwrap_err();
            assert_eq!(refused.errno(), Errno::EINVAL, "{setting:?} {value}");
        }
        for word in ["", "\n", "x", "1 2", "-"] {
            let refused = setting.parse(word.as_bytes()).unwrap_err();
            assert_eq!(refused.errno(), Errno::EINVAL, "{setting:?} {word}");
        }
        // As kstrtoint() of the C driver.
        for word in ["99999999999", "-99999999999", "99999999999999999999"] {
            let refused = setting.parse(word.as_bytes()).unwrap_err();
            assert_eq!(refused.errno(), Errno::ERANGE, "{setting:?} {word}");
        }
        let text = setting.parse(b"x").unwrap_err().to_string();
        assert!(text.contains(setting.name()), "{text}");
        assert!(text.contains(&range.end().to_string()), "{text}");
    }
    assert!(Setting::MaxReconnectAttempts.parse(b"off").is_err());
    assert_eq!(Setting::FastIoFailTmo.parse(b"off\n"), Ok(-1));
}

#[test]
fn a_set_of_settings_keeps_what_was_set() {
    let mut settings = Settings::default();
    assert_eq!(settings.heartbeat(), Heartbeat::CLIENT);
    assert_eq!(settings.fast_io_fail(), FastIoFail::DEFAULT);
    settings.set(Setting::HeartbeatIntervalMs, 250);
    settings.set(Setting::HeartbeatMissedMax, 9);
    settings.set(Setting::FastIoFailTmo, -1);
    let heartbeat = Heartbeat {
        interval_ms: 250,
        missed_max: 9,
    };
    assert_eq!(settings.heartbeat(), heartbeat);
    assert_eq!(settings.fast_io_fail(), FastIoFail::Off);
    assert_eq!(settings.get(Setting::ReconnectDelayMs), 1000);
    assert_ne!(settings, Settings::default());
}

#[test]
fn a_silent_peer_is_noticed_within_five_seconds_and_a_half() {
    // The tick that asks comes up to an interval after the last word; the one after `missed_max`
    // more gives up.
    let heartbeat = Heartbeat::CLIENT;
    assert!((heartbeat.missed_max + 2) * heartbeat.interval_ms <= 5500);
}
