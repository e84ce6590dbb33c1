// SPDX-License-Identifier: GPL-2.0

//! Names and paths.

use proptest::prelude::*;
use proto::gfarm::name::{
    Name,
    NameError,
    Path, //
};

#[test]
fn odd_names_are_names() {
    for name in [
        "a",
        " ",
        " a b ",
        "...",
        ".a",
        "a.",
        "\n",
        "\u{1f600}",
        "名前",
        "-rf",
        "a\\b",
        "%s",
        "~",
    ] {
        assert_eq!(
            Name::new(name.as_bytes()).unwrap().as_bytes(),
            name.as_bytes()
        );
    }
    // No encoding is asked for.
    assert!(Name::new(b"\xff\xfe\x80").is_ok());
    assert!(Name::new(&[b'x'; 255]).is_ok());
}

#[test]
fn what_is_no_name_is_refused() {
    for (name, error, errno) in [
        (&b""[..], NameError::Empty, 22),
        (b".", NameError::Dots, 22),
        (b"..", NameError::Dots, 22),
        (b"a/b", NameError::Byte, 22),
        (b"/", NameError::Byte, 22),
        (b"a\0", NameError::Byte, 22),
        (&[b'x'; 256], NameError::TooLong, 36),
    ] {
        assert_eq!(Name::new(name), Err(error));
        assert_eq!(error.errno().get(), errno);
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn a_path_is_its_names() {
    let names = |path: &'static str| -> Vec<&[u8]> {
        let path = Path::new(path.as_bytes()).unwrap();
        path.names().map(Name::as_bytes).collect()
    };
    assert_eq!(names(""), Vec::<&[u8]>::new());
    assert_eq!(names("///"), Vec::<&[u8]>::new());
    assert_eq!(names("a"), [b"a"]);
    assert_eq!(names("/a//b c/d/"), [&b"a"[..], b"b c", b"d"]);
    assert_eq!(Path::new(b"a/../b"), Err(NameError::Dots));
    assert_eq!(Path::new(b"./a"), Err(NameError::Dots));
    assert_eq!(Path::new(b"a\0b"), Err(NameError::Byte));
    let long = [&b"a/"[..], &[b'x'; 256]].concat();
    assert_eq!(Path::new(&long), Err(NameError::TooLong));
    assert_eq!(Path::new(b"").unwrap().names().count(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_names_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let is_name = (1..=255).contains(&bytes.len()) && !bytes.contains(&0)
            && !bytes.contains(&b'/') && bytes != b"." && bytes != b"..";
        prop_assert_eq!(Name::new(&bytes).is_ok(), is_name);
        if let Ok(path) = Path::new(&bytes) {
            for name in path.names() {
                prop_assert!(Name::new(name.as_bytes()).is_ok());
            }
        }
    }
}
