// SPDX-License-Identifier: GPL-2.0

//! The lines of `connect` and `disconnect`.

use ferro_proto::errno::Errno;
use rioc::proto::connect::{
    Line,
    LineError,
    PORT, //
};
use rtrs_core::proto::settings::Setting;

#[test]
fn a_line_names_session_paths_and_store() {
    let line = Line::parse(b" sessname=bb path=ip:10.0.0.1  path=ip:10.0.1.2@ip:10.0.1.1\n");
    let line = line.unwrap();
    assert_eq!(
        (line.session, line.store, line.port),
        (&b"bb"[..], &b"bb"[..], PORT)
    );
    assert_eq!((line.path_count, line.paths().count()), (2, 2));
    let line = Line::parse(b"store=x dest_port=9 fast_io_fail_tmo=7 path=ip:::1 sessname=bb");
    let line = line.unwrap();
    assert_eq!((line.store, line.port), (&b"x"[..], 9));
    assert_eq!(line.settings.get(Setting::FastIoFailTmo), 7);
}

#[test]
fn a_wrong_line_is_told_what_to_write() {
    for (line, wanted) in [
        ("path=ip:10.0.0.1", "session missing: add sessname=NAME"),
        ("sessname=bb", "path missing: add path=ip:ADDRESS"),
        ("sessname=bb path", "unknown or empty option 'path'"),
        (
            "sessname=bb device_path=x",
            "unknown or empty option 'device_path=x'",
        ),
        ("sessname=a/b path=ip:10.0.0.1", "choose another sessname="),
        ("sessname=bb path=10.0.0.1", "write path=ip:ADDRESS"),
        (
            "sessname=bb path=ip:10.0.0.1 dest_port=9",
            "before the first path=",
        ),
        ("dest_port=0", "write 1 to 65535"),
        ("fast_io_fail_tmo=soon", "'soon': "),
    ] {
        let error = Line::parse(line.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(wanted), "{line}: {error}");
    }
    let long = format!("sessname=bb path=ip:::1 store={}", "s".repeat(33));
    let error = Line::parse(long.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("add store=NAME"));
    assert_eq!(error.errno(), Errno::EINVAL);
    let mut many = "sessname=bb".to_owned();
    many.push_str(&" path=ip:10.0.0.1".repeat(200));
    assert_eq!(Line::parse(many.as_bytes()), Err(LineError::TooManyPaths));
}

#[test]
fn only_a_session_is_disconnected() {
    assert_eq!(Line::session(b"sessname=bb\n"), Ok(&b"bb"[..]));
    assert_eq!(Line::session(b""), Err(LineError::NoSession));
    let error = Line::session(b"sessname=bb path=ip:::1").unwrap_err();
    assert!(error.to_string().contains("only sessname=NAME is needed"));
}
