// SPDX-License-Identifier: GPL-2.0

//! Lines that are written to `ibaddr`.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use proto::gfarm::cache::{
    address::Address,
    ibaddr::{
        edits,
        Edit, //
    },
};

use super::address::gid;

fn all(text: &str) -> Vec<Result<Edit, Errno>> {
    edits(text.as_bytes(), me()).collect()
}

fn me() -> Address {
    Address::new(gid(9), 0, 18, 222, 7).unwrap()
}

fn lid_only() -> Address {
    Address::new([0; 16], 3, 17, 111, 2).unwrap()
}

fn with_gid() -> Address {
    Address::new(gid(1), 3, 17, 111, 2).unwrap()
}

#[test]
fn lines_of_2014_are_taken() {
    let line = "lid=3 qpn=17 psn=0 qkey=111 sl=2\n";
    assert_eq!(all(line), [Ok(Edit::Add(lid_only()))]);
    // Other lines are skipped, also in between, and the text behind a line.
    let text = format!("# peers\n{line}\nhello lid=9\nlid=3 qpn=17 psn=5 qkey=111 sl=2 ok?\n");
    assert_eq!(all(&text), [Ok(Edit::Add(lid_only())); 2]);
    // A line without an end is ignored.
    assert_eq!(all(line.trim_end()), []);
    assert_eq!(all(""), []);
    assert_eq!(all(&format!("{line}lid=nonsense")).len(), 1);
}

#[test]
fn a_gid_is_first_or_last() {
    let expected = [Ok(Edit::Add(with_gid()))];
    for line in [
        "gid=fe80::1 lid=3 qpn=17 qkey=111 sl=2\n",
        "lid=3 qpn=17 psn=0 qkey=111 sl=2 gid=fe80::1\n",
        "add lid=3 qpn=17 psn=0 qkey=111 sl=2 gid=fe80:0:0:0:0:0:0:1 state=alive\n",
        "  gid=fe80::1\tlid=3 qpn=17 psn=0 qkey=111 sl=2 gid=fe80::1\n",
    ] {
        assert_eq!(all(line), expected, "{line}");
    }
    let line = "remove gid=fe80::1 lid=3 qpn=17 qkey=111 sl=2\n";
    assert_eq!(all(line), [Ok(Edit::Remove(with_gid()))]);
}

#[test]
fn a_line_that_begins_with_a_gid_may_leave_out_what_nodes_have_in_common() {
    let address = |lid, qkey, sl| Ok(Edit::Add(Address::new(gid(1), lid, 17, qkey, sl).unwrap()));
    for (line, expected) in [
        ("add gid=fe80::1 qpn=17 qkey=5", address(0, 5, 7)),
        ("gid=fe80::1 qpn=17 qkey=5", address(0, 5, 7)),
        ("gid=fe80::1 lid=3 qpn=17 qkey=5", address(3, 5, 7)),
        (
            "gid=fe80::1 qpn=17 qkey=5 sl=2 state=alive",
            address(0, 5, 2),
        ),
        ("gid=fe80::1 qpn=17 psn=0 qkey=111", address(0, 111, 7)),
    ] {
        assert_eq!(all(&format!("{line}\n")), [expected], "{line}");
    }
    let removed = all("remove gid=fe80::1 qpn=17\n");
    let place = Address::new(gid(1), 0, 17, 222, 7).unwrap();
    assert_eq!(removed, [Ok(Edit::Remove(place))]);
}

#[test]
fn what_is_partly_right_is_refused() {
    for line in [
        "lid=3",
        "lid=3 qpn=17 psn=0 qkey=111",
        "lid=3 qpn=17 psn=x qkey=111 sl=2",
        "lid=3 qpn=-17 psn=0 qkey=111 sl=2",
        "lid=3 qpn=0x11 psn=0 qkey=111 sl=2",
        "lid=65536 qpn=17 psn=0 qkey=111 sl=2",
        "lid=3 qpn=16777216 psn=0 qkey=111 sl=2",
        "lid=3 qpn=17 psn=0 qkey=2147483648 sl=2",
        "lid=3 qpn=17 psn=0 qkey=111 sl=16",
        "lid=3 qpn=17 psn=0 qkey=111 sl=256",
        "lid=0 qpn=17 psn=0 qkey=111 sl=2",
        "lid=3 psn=0 qpn=17 qkey=111 sl=2",
        "gid=fe80::1",
        "gid=fe80 lid=3 qpn=17 psn=0 qkey=111 sl=2",
        "gid=ff02::1 lid=3 qpn=17 psn=0 qkey=111 sl=2",
        "gid=fe80::1 lid=3 qpn=17 psn=0 qkey=111 sl=2 gid=fe80::2",
        "lid=3 qpn=17 psn=0 qkey=111 sl=2 gid=10.0.0.1",
        "add",
        "remove",
        "remove all",
        "add qpn=17",
        "add gid=fe80::1",
        "add gid=fe80::1 qpn=17",
        "gid=fe80::1 qpn=17",
        "add gid=fe80::1 qpn=x",
        "add gid=fe80::1 qpn=17 qkey=0",
        "add gid=fe80::1 qpn=17 sl=16",
        "add gid=fe80::1 lid=65536 qpn=17",
    ] {
        assert_eq!(all(&format!("{line}\n")), [Err(Errno::EINVAL)], "{line}");
    }
}

#[test]
fn an_error_ends_the_edits() {
    let good = "lid=3 qpn=17 psn=0 qkey=111 sl=2\n";
    let text = format!("{good}lid=bad\n{good}");
    let expected = [Ok(Edit::Add(lid_only())), Err(Errno::EINVAL)];
    assert_eq!(all(&text), expected);
}

proptest! {
    #[test]
    fn what_is_shown_can_be_written(
        gid in any::<[u8; 16]>(), lid in any::<u16>(), qpn in 0u32..1 << 24, qkey in any::<u32>(),
        sl in 0u8..16,
    ) {
        if let Some(address) = Address::new(gid, lid, qpn, qkey, sl) {
            prop_assert_eq!(all(&format!("{address}\n")), [Ok(Edit::Add(address))]);
        }
    }

    #[test]
    fn no_text_is_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = edits(&text, me()).count();
        let line = [b"lid=3 qpn=17 psn=0 qkey=111 sl=2 gid=", &text[..], b"\n"].concat();
        let _ = edits(&line, me()).count();
    }
}
