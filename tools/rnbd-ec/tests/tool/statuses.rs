// SPDX-License-Identifier: GPL-2.0

//! `status`: what the module shows in sysfs.

use crate::{
    image::{
        Folder,
        UUID_TEXT, //
    },
    json,
    says, //
};

fn array(folder: &Folder, name: &str, (state, members): (&str, &str)) {
    for (file, text) in [
        ("state", state),
        ("members", members),
        ("stats", "reads 7\nwrites 12\ntable_bytes 4096\n"),
        ("uuid", &format!("{UUID_TEXT}\n")),
    ] {
        folder.write(&format!("block/{name}/ec/{file}"), text);
    }
}

const ALL: &str = "0 in_sync rnbd2\n1 in_sync rnbd0\n2 in_sync rnbd1\n";
const TWO: &str = "0 in_sync rnbd2\n1 missing -\n2 in_sync rnbd1\n";

#[test]
fn arrays_are_shown_with_their_members_and_counts() {
    let folder = Folder::new("status");
    folder.write("block/sda/size", "1\n");
    let sysfs = folder.path("");
    let words = &["status", "--sysfs", sysfs.to_str().unwrap()];
    says(words, &[], (0, &["no array is assembled\n"]));
    assert_eq!(json(words, &[], 0), serde_json::json!([]));
    array(&folder, "ec0", ("clean\n", ALL));
    let lines: &[&str] = &[
        "ec0: clean\n",
        "member 1  rnbd0  in_sync\n",
        "  writes       12\n",
        UUID_TEXT,
    ];
    says(words, &[], (0, lines));
    array(&folder, "ec1", ("resyncing: member 1\n", ALL));
    says(
        words,
        &[],
        (1, &["ec0: clean\n", "ec1: resyncing: member 1\n"]),
    );
    let what = "degraded: member 1 is missing: bring it back, or write a new device to replace\n";
    array(&folder, "ec1", (what, TWO));
    says(
        words,
        &[],
        (1, &[&format!("ec1: {what}"), "member 1  -      missing\n"]),
    );
    let found = json(words, &[], 1);
    assert_eq!(found[0]["name"], "ec0");
    assert_eq!(found[1]["state"], "degraded");
    assert_eq!(found[1]["members"][1]["device"], serde_json::Value::Null);
    assert_eq!(found[1]["members"][2]["device"], "rnbd1");
    assert_eq!(found[1]["stats"]["writes"], 12);
    array(&folder, "ec2", ("failed: fewer than two\n", TWO));
    says(words, &[], (4, &["ec2: failed: fewer than two\n"]));
    let none = folder.path("none");
    let words = &["status", "--sysfs", none.to_str().unwrap()];
    says(words, &[], (8, &["No such file"]));
}
