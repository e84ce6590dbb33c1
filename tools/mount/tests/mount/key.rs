// SPDX-License-Identifier: GPL-2.0

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf, //
};

use mount_gfarm::key::{
    file_of,
    read, //
};

const EXPIRE_S: u64 = 0x7000_0000;

/// A file that is gone with the value.
pub(crate) struct KeyFile(pub(crate) PathBuf);

impl KeyFile {
    pub(crate) fn new(name: &str, text: &str, mode: u32) -> Self {
        let path = std::env::temp_dir().join(format!("mount-gfarm-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Self(path)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn line() -> String {
    format!("{EXPIRE_S:08x} {}", "5a".repeat(32))
}

#[test]
fn a_good_key_is_its_line() {
    let file = KeyFile::new("good", &format!("{}\n", line()), 0o600);
    assert_eq!(read(&file.0, EXPIRE_S - 1), Ok(line()));
}

#[test]
fn a_key_that_is_of_no_use_is_refused_with_the_cure() {
    for (name, text, mode, now_s, said) in [
        ("expired", line(), 0o600, EXPIRE_S, "gfkey -f -p"),
        ("open", line(), 0o640, 0, "chmod 600"),
        (
            "short",
            "70000000 5a5a".to_owned(),
            0o600,
            0,
            "run gfkey -c",
        ),
        ("empty", String::new(), 0o600, 0, "run gfkey -c"),
        ("long", "0".repeat(5000), 0o600, 0, "is no key file"),
    ] {
        let file = KeyFile::new(name, &text, mode);
        let why = read(&file.0, now_s).unwrap_err();
        assert!(why.to_string().contains(said), "{name}: {why}");
        assert!(
            !why.to_string().contains("5a5a5a"),
            "{name}: the key is shown"
        );
        assert_eq!(why.code(), 1);
    }
}

#[test]
fn a_key_that_is_missing_is_named() {
    let why = read(&PathBuf::from("/nonexistent/key"), 0).unwrap_err();
    assert!(
        why.to_string()
            .starts_with("/nonexistent/key: no such key file"),
        "{why}"
    );
}

#[test]
fn which_file() {
    let home = || Some(PathBuf::from("/home/alice"));
    let own = || Some(PathBuf::from("/root"));
    let of = |option, configured, home, own| file_of(option, configured, home, own).unwrap();
    assert_eq!(
        of(Some("/a"), Some("/b"), home(), own()),
        PathBuf::from("/a")
    );
    assert_eq!(of(None, Some("/b"), home(), own()), PathBuf::from("/b"));
    let name = |home: &str| PathBuf::from(format!("{home}/.gfarm_shared_key"));
    assert_eq!(of(None, None, home(), own()), name("/home/alice"));
    assert_eq!(of(None, None, None, own()), name("/root"));
    assert!(file_of(None, None, None, None).is_err());
}
