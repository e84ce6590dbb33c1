// SPDX-License-Identifier: GPL-2.0

//! A session's settings, which may change at any time.

use kernel_ext::sync::atomic::{
    AtomicI32,
    Ordering, //
};

use rtrs_core::proto::settings::{
    Setting,
    Settings,
    COUNT, //
};

/// The values, one for each setting.
pub(crate) struct SharedSettings([AtomicI32; COUNT]);

impl SharedSettings {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(Setting::ALL.map(|setting| AtomicI32::new(settings.get(setting))))
    }

    /// Returns the value of a setting. Any context.
    pub(crate) fn get(&self, setting: Setting) -> i32 {
        match self.0.get(setting as usize) {
            Some(value) => value.load(Ordering::Relaxed),
            None => setting.default(),
        }
    }

    /// Changes a setting to a value that [`Setting::parse`] returned.
    pub(crate) fn set(&self, setting: Setting, value: i32) {
        if let Some(old) = self.0.get(setting as usize) {
            old.store(value, Ordering::Relaxed);
        }
    }

    /// Returns all settings.
    pub(crate) fn snapshot(&self) -> Settings {
        let mut settings = Settings::default();
        for setting in Setting::ALL {
            settings.set(setting, self.get(setting));
        }
        settings
    }
}
