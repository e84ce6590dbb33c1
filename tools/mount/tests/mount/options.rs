// SPDX-License-Identifier: GPL-2.0

use mount_gfarm::options::{
    sort,
    Sorted,
    Word, //
};
use rustix::mount::MountAttrFlags;

fn sorted(text: &str) -> Sorted {
    sort(text, false).unwrap()
}

fn word(name: &str, value: Option<&str>) -> Word {
    Word {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    }
}

#[test]
fn each_option_goes_to_who_uses_it() {
    let found = sorted(
        "rw,user,_netdev,x-systemd.automount,nosuid,nodev,noexec,dev,user=alice,readahead=256,\
         ra_async,keyfile=/k,config=/c",
    );
    let words = [
        word("username", Some("alice")),
        word("readahead", Some("256")),
        word("ra_async", None),
    ];
    assert_eq!(found.words, words);
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    assert_eq!(found.attributes, attributes);
    assert_eq!(found.key_file.as_deref(), Some("/k"));
    assert_eq!(found.config.as_deref(), Some("/c"));
    assert!(!found.is_remount);
}

#[test]
fn what_the_vfs_takes_is_passed_on() {
    let label = "system_u:object_r:tmp_t:s0:c1,c2";
    let found = sorted(&format!(
        "user=alice,context=\"{label}\",seclabel,lazytime,sync,rootcontext=a:b:c"
    ));
    let words = [
        word("username", Some("alice")),
        word("context", Some(label)),
        word("lazytime", None),
        word("sync", None),
        word("rootcontext", Some("a:b:c")),
    ];
    assert_eq!(found.words, words);
}

#[test]
fn the_last_value_counts() {
    let found = sorted("user=alice,username=bob");
    assert_eq!(found.value_of("username"), Some("bob"));
}

#[test]
fn what_the_kernel_would_refuse_is_refused_in_its_words() {
    for (text, said) in [
        ("user=alice,bogus=1", "unknown option 'bogus'"),
        ("readahead=0", "readahead=0 is not in 1..=16384"),
        ("keyfile", "option keyfile needs a value"),
        ("cc_keyfile", "option cc_keyfile needs a value"),
        ("connections", "option connections needs a value"),
    ] {
        let why = sort(text, false).unwrap_err();
        assert_eq!(why.to_string(), said, "{text}");
        assert_eq!(why.code(), 1);
    }
}

#[test]
fn options_that_go_together_are_looked_at_together() {
    let why = sort("user=alice,cc=on", false).unwrap_err();
    assert!(why.to_string().contains("add cc_key=DESCRIPTION"), "{why}");
    assert_eq!(why.code(), 1);
    let why = sort("user=alice,ib_sl=0", false).unwrap_err();
    assert!(why.to_string().contains("ib_sl= has no effect"), "{why}");
    let node = sorted("user=alice,cc=on,cc_key=gfarm:cache,ib_sl=0");
    assert_eq!(node.value_of("cc_key"), Some("gfarm:cache"));
    assert_eq!(node.words.len(), 4);
    // What /proc/mounts shows has no key.
    assert!(sorted("remount,username=alice,cc=on,ib_sl=0").is_remount);
}

#[test]
fn a_sloppy_mount_skips_what_is_unknown_and_nothing_else() {
    let found = sort("user=alice,bogus=1", true).unwrap();
    assert_eq!(found.skipped, ["bogus"]);
    assert!(sort("readahead=0", true).is_err());
}

#[test]
fn a_long_list_is_passed_in_parts() {
    let entry = |n: usize| format!("fs{n:03}.example.org/10.0.0.{n}");
    let list = (1..=30).map(entry).collect::<Vec<_>>().join("+");
    let found = sorted(&format!("user=alice,hosts={list}"));
    let parts: Vec<&str> = found.words[1..]
        .iter()
        .map(|word| {
            assert_eq!(word.name, "hosts");
            word.value.as_deref().unwrap()
        })
        .collect();
    assert!(parts.len() > 1);
    assert!(parts.iter().all(|part| part.len() <= 255), "{parts:?}");
    assert_eq!(parts.join("+"), list);
}
