// SPDX-License-Identifier: GPL-2.0

//! The session that is found for a server, and the values that are returned without one.

use std::{
    ffi::c_void,
    fs,
    path::{
        Path,
        PathBuf, //
    },
    ptr,
};

use ioc_client::{
    functions::*,
    sessions::{
        of_server,
        NotFound, //
    },
};

/// A folder that stands for `/sys/class`, and is removed.
struct Class(PathBuf);

impl Class {
    fn new(name: &str, paths: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("libioc-{name}-{}", std::process::id()));
        for (session, path) in paths {
            let sessions = root.join("rioc-client/ctl/sessions");
            fs::create_dir_all(sessions.join(session)).unwrap();
            let paths = root.join("rtrs-client").join(session).join("paths");
            fs::create_dir_all(paths.join(path)).unwrap();
        }
        Self(root)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_server_is_found_by_the_address_of_a_path() {
    let class = Class::new(
        "found",
        &[
            ("bb", "ip:10.0.0.1@ip:10.0.0.2"),
            ("bb", "ip:10.0.1.1@ip:10.0.1.2"),
            ("other", "ip:10.0.0.1@ip:10.0.0.22"),
            ("link", "ip:fe80::1%eth0@ip:fe80::2%eth0"),
            ("gid", "gid:fe80::1@gid:fe80::9"),
            ("two", "ip:10.0.0.1@ip:10.0.0.22"),
        ],
    );
    let found = |server| of_server(class.path(), server);
    assert_eq!(found("10.0.0.2"), Ok("bb".to_owned()));
    assert_eq!(found("10.0.1.2"), Ok("bb".to_owned()));
    assert_eq!(found("fe80::2"), Ok("link".to_owned()));
    assert_eq!(found("gid"), Ok("gid".to_owned()));
    // The address of the client itself is none of a server.
    assert_eq!(
        found("10.0.0.1"),
        Err(NotFound::None("10.0.0.1".to_owned()))
    );
    assert_eq!(found("fe80::9"), Err(NotFound::None("fe80::9".to_owned())));
    let several = vec!["other".to_owned(), "two".to_owned()];
    assert_eq!(found("10.0.0.22"), Err(NotFound::Several(several)));
}

#[test]
fn what_is_missing_is_told_with_the_command() {
    let none = of_server(Path::new("/no/such/folder"), "10.0.0.2").unwrap_err();
    assert!(none.to_string().contains("modprobe rioc_client"), "{none}");
    let class = Class::new("none", &[("bb", "ip:10.0.0.1@ip:10.0.0.2")]);
    let none = of_server(class.path(), "10.0.0.3").unwrap_err().to_string();
    assert!(none.contains("path=ip:10.0.0.3\" > /sys"), "{none}");
    let class = Class::new("several", &[("a", "x@ip:10.0.0.2"), ("b", "x@ip:10.0.0.2")]);
    let several = of_server(class.path(), "10.0.0.2").unwrap_err().to_string();
    assert!(
        several.contains("a, b") && several.contains("RIOC_SESSION"),
        "{several}"
    );
}

#[test]
fn a_header_declares_what_the_library_has() {
    let header = include_str!("../../include/ioc-client.h");
    let functions = include_str!("../../src/functions.rs");
    let manual = include_str!("../../../../Documentation/libioc.3");
    let name = |rest: &str| {
        let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        rest.split(end).next().unwrap().to_owned()
    };
    let has: Vec<_> = functions
        .split("extern \"C\" fn ")
        .skip(1)
        .map(name)
        .collect();
    assert_eq!(has.len(), 12);
    for function in has {
        assert!(
            header.contains(&format!("{function}(")),
            "{function} in the header"
        );
        assert!(
            manual.contains(&format!("{function}(")),
            "{function} in the manual"
        );
    }
}

#[test]
fn a_client_that_is_none_fails() {
    let none = ptr::null_mut();
    let mut bytes = [7u8; 8];
    let buffer = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: `NULL` is no client, and the buffer has its bytes.
    unsafe {
        assert!(ioc_client_init(c"192.0.2.1".as_ptr(), c"8556".as_ptr()).is_null());
        assert!(ioc_client_init(ptr::null(), ptr::null()).is_null());
        assert_eq!(ioc_client_obj_read(none, 1, 2, buffer, 8, 0), -1);
        assert_eq!(ioc_client_obj_write(none, 1, 2, buffer, 8, 0), -1);
        assert_eq!(ioc_client_obj_flush(none, 1, 2, 0, 0), -1);
        assert_eq!(ioc_client_obj_create(none, 1, 2), -1);
        assert_eq!(ioc_client_obj_cow(none, 1, 2, 3, 4, true, 0, 0), -1);
        assert_eq!(ioc_client_obj_range_register(none, 1, 2, 0, 8, true), -1);
        assert_eq!(
            ioc_client_obj_range_unregister(none, 1, 1, 2, 0, 8, true),
            -1
        );
        ioc_client_ping_pong(none, 1, 0, 0);
        ioc_client_fini(none);
    }
    assert_eq!(bytes, [7; 8]);
    ioc_client_set_passive_wait(none, true);
    assert!(!ioc_client_provider_name(none).is_null());
}
