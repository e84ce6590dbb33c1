// SPDX-License-Identifier: GPL-2.0

//! The file on the server that a client's device name means.

use proptest::prelude::*;
use proto::rnbd::path_name::{
    common_folder,
    join,
    PathNameError,
    PATH_LEN_MAX, //
};

fn joined(search: &str, session: &str, device: &str) -> Result<String, PathNameError> {
    let mut out = vec![0xee; PATH_LEN_MAX];
    let path = join(
        search.as_bytes(),
        session.as_bytes(),
        device.as_bytes(),
        &mut out,
    )?;
    Ok(path.to_str().unwrap().to_owned())
}

#[test]
fn a_device_lies_below_the_search_path() {
    for (search, device, path) in [
        ("/", "dev/ram0", "/dev/ram0"),
        ("/dev", "ram0", "/dev/ram0"),
        ("/dev/", "/ram0", "/dev/ram0"),
        ("//dev///", "//disk//by-id///x", "/dev/disk/by-id/x"),
        ("/", "/dev/ram0", "/dev/ram0"),
        ("dev", "ram0", "dev/ram0"),
        ("", "dev/ram0", "/dev/ram0"),
    ] {
        assert_eq!(joined(search, "s", device).as_deref(), Ok(path));
    }
}

#[test]
fn a_session_can_have_its_own_directory() {
    for (search, path) in [
        ("/srv/%SESSNAME%", "/srv/host1/vol"),
        ("/srv/%SESSNAME%/", "/srv/host1/vol"),
        ("%SESSNAME%", "host1/vol"),
        ("/srv/%SESSNAME%/disks", "/srv/host1/disks/vol"),
        ("/srv/a%SESSNAME%b", "/srv/ahost1b/vol"),
        // Only the first; the name itself is not looked at again.
        ("/%SESSNAME%/%SESSNAME%", "/host1/%SESSNAME%/vol"),
        ("/srv/%SESSNAME", "/srv/%SESSNAME/vol"),
    ] {
        assert_eq!(joined(search, "host1", "vol").as_deref(), Ok(path));
    }
    assert_eq!(
        joined("/%SESSNAME%", "%SESSNAME%", "v").as_deref(),
        Ok("/%SESSNAME%/v")
    );
}

#[test]
fn two_dots_are_refused_wherever_they_stand() {
    for device in ["..", "../etc", "a/../b", "a..b", "a/..", "...", "/.."] {
        assert_eq!(joined("/dev", "s", device), Err(PathNameError::Parent));
    }
    assert_eq!(joined("/dev", "s", "./a.b").as_deref(), Ok("/dev/./a.b"));
}

#[test]
fn an_empty_name_or_one_with_a_nul_is_refused() {
    assert_eq!(joined("/dev", "s", ""), Err(PathNameError::Name));
    assert_eq!(joined("/dev", "s", "a\0b"), Err(PathNameError::Name));
    assert_eq!(PathNameError::Name.errno().get(), 22);
}

#[test]
fn a_path_of_4095_bytes_fits_and_a_longer_one_does_not() {
    let name = |len| "x".repeat(len);
    assert_eq!(joined("/dev", "s", &name(4090)).map(|p| p.len()), Ok(4095));
    assert_eq!(
        joined("/dev", "s", &name(4091)),
        Err(PathNameError::TooLong)
    );
    // Slashes that go do not count.
    let slashes = format!("/dev{}", "/".repeat(5000));
    assert_eq!(joined(&slashes, "s", "ram0").as_deref(), Ok("/dev/ram0"));
}

#[test]
fn a_search_path_has_a_folder_that_all_sessions_share() {
    let folder = |path: &str| String::from_utf8(common_folder(path.as_bytes()).to_vec()).unwrap();
    assert_eq!(folder("/dev"), "/dev");
    assert_eq!(folder("/dev/mapper/"), "/dev/mapper/");
    assert_eq!(folder("/dev/%SESSNAME%/vols"), "/dev/");
    assert_eq!(folder("/srv/disk-%SESSNAME%"), "/srv/");
    assert_eq!(folder("%SESSNAME%"), "/");
    assert_eq!(folder("/"), "/");
    assert_eq!(folder(""), "/");
}

proptest! {
    #[test]
    fn no_name_leads_out_of_the_search_path(
        session in "[a-z%]{1,9}",
        device in "[a-z./]{0,20}",
        room in 0..40usize,
    ) {
        let mut out = vec![0xee; room];
        let search = b"/srv/%SESSNAME%";
        match join(search, session.as_bytes(), device.as_bytes(), &mut out) {
            Ok(path) => {
                let path = path.to_str().unwrap();
                let prefix = format!("/srv/{session}/");
                prop_assert!(path.starts_with(&prefix), "{}", path);
                prop_assert!(!path.contains("..") && !path.contains("//"));
                let plain = format!("/srv/{session}/{device}");
                let collapsed = plain.split('/').filter(|p| !p.is_empty());
                let parts = path.split('/').filter(|p| !p.is_empty());
                prop_assert!(parts.eq(collapsed));
            }
            Err(PathNameError::Parent) => prop_assert!(device.contains("..")),
            Err(PathNameError::Name) => prop_assert!(device.is_empty()),
            Err(PathNameError::TooLong) => {
                prop_assert!(room < 7 + session.len() + device.len());
            }
        }
    }
}
