// SPDX-License-Identifier: GPL-2.0

//! Maps of owners: the local user and group that a file of Gfarm belongs to.

use proto::gfarm::{
    id_map::{
        IdMap,
        Maps,
        Mounter,
        Standing,
        Text,
        INVALID_ID,
        MAP_LEN_MAX, //
    },
    options::Options,
};

#[derive(Debug, Default, PartialEq)]
struct Bytes(Vec<u8>);

impl Text for Bytes {
    fn get(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend(bytes);
        true
    }
}

/// Returns what the options of a mount say.
fn parse(text: &str) -> Result<(Options, Maps<Bytes>), String> {
    let (mut options, mut maps) = (Options::default(), Maps::default());
    for word in text.split(',') {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.as_bytes(), Some(value.as_bytes())),
            None => (word.as_bytes(), None),
        };
        let taken = maps.set(name, value);
        taken
            .unwrap_or_else(|| options.set(name, value))
            .map_err(|e| e.to_string())?;
    }
    Ok((options, maps))
}

/// The number of who has none here.
const NONE: u32 = INVALID_ID;

const MOUNTER: Mounter = Mounter {
    uid: 1000,
    gid: 100,
};

fn owner(options: &str, user: &str, group: &str) -> (u32, u32) {
    let (options, maps) = parse(options).unwrap();
    (
        MOUNTER.uid_of(user.as_bytes(), &options, &maps),
        MOUNTER.gid_of(group.as_bytes(), &options, &maps),
    )
}

#[test]
fn names_have_the_numbers_that_the_options_say() {
    let map = "user=alice,usermap=bob/7+carol/8+bob/9,groupmap=staff/70+alice/0";
    for (options, user, group, expected) in [
        ("user=alice", "alice", "alice", (1000, NONE)),
        ("user=alice", "bob", "staff", (NONE, NONE)),
        (map, "alice", "staff", (1000, 70)),
        (map, "bob", "alice", (7, 0)),
        (map, "carol", "Staff", (8, NONE)),
        (map, "bo", "staf", (NONE, NONE)),
        (map, "", "", (NONE, NONE)),
        // Who is in the list is that user, also the user of the mount.
        ("user=alice,usermap=alice/5", "alice", "alice", (5, NONE)),
        // These are for all, whatever the lists say.
        ("user=alice,uid=0,usermap=bob/7", "bob", "bob", (0, NONE)),
        ("user=alice,gid=3,groupmap=bob/7", "bob", "bob", (NONE, 3)),
    ] {
        assert_eq!(owner(options, user, group), expected, "{options} {user}");
    }
}

#[test]
fn a_mount_is_for_who_mounts_unless_others_are_let_in() {
    let standing = |text: &str, user| MOUNTER.standing(user, &parse(text).unwrap().0);
    for (text, others) in [
        ("user=u", Standing::Stranger),
        ("user=u,allow_other", Standing::Other),
    ] {
        for user in [0, 7, NONE] {
            assert_eq!(standing(text, user), others);
        }
        assert_eq!(standing(text, 1000), Standing::Own);
        assert_eq!(standing(&format!("{text},uid=7"), 7), Standing::Own);
        assert_eq!(standing(&format!("{text},usermap=u/7"), 7), others);
    }
}

#[test]
fn a_list_is_shown_as_it_was_given() {
    let text = "user=u,usermap=a.b@c/1+/2+x/4294967294,groupmap=g/0";
    assert!(parse(text).is_err(), "a name is empty");
    let shown = parse(&text.replace("+/2", "")).unwrap().1.to_string();
    assert_eq!(shown, ",usermap=a.b@c/1+x/4294967294,groupmap=g/0");
    for wrong in [
        "",
        "+",
        "a",
        "a/",
        "/1",
        "a/x",
        "a/-1",
        "a/1+",
        "a/1/2",
        "a b/1",
        "a\\b/1",
        "a/4294967295",
    ] {
        assert_eq!(IdMap::parse(wrong.as_bytes()), None, "{wrong}");
        for name in ["usermap", "groupmap"] {
            let error = parse(&format!("user=u,{name}={wrong}")).err().unwrap();
            assert!(error.contains(name), "{error}");
        }
    }
    let long = |len: usize| parse(&format!("user=u,usermap={}/1", "x".repeat(len)));
    assert!(long(255).is_ok());
    assert!(long(256).is_err(), "no such name");
}

#[test]
fn lists_that_are_given_in_parts_are_one() {
    let parts = "user=u,usermap=a/1,hosts=fs1/10.0.0.1,groupmap=g/2,\
                 usermap=b/3+c/4,hosts=fs2/::1,usermap=d/5";
    let (options, maps) = parse(parts).unwrap();
    let shown = format!("{options}{maps}");
    let lists = ",hosts=fs1/10.0.0.1+fs2/::1,usermap=a/1+b/3+c/4+d/5,groupmap=g/2";
    assert!(shown.ends_with(lists), "{shown}");
    assert_eq!(options.hosts().find(b"fs2"), Some("::1".parse().unwrap()));
    let grown = |count: usize| parse(&vec!["groupmap=abcde/1"; count].join(","));
    let (_, maps) = grown(MAP_LEN_MAX / 8).unwrap();
    assert_eq!(maps.to_string().len(), ",groupmap=".len() + MAP_LEN_MAX - 1);
    let error = grown(MAP_LEN_MAX / 8 + 1).err().unwrap();
    assert!(error.contains("of up to 16384 bytes"), "{error}");
}

#[test]
fn a_remount_shows_the_same_without_the_key() {
    let parse = |text: &str| Options::parse(text.as_bytes()).unwrap();
    let in_force = parse("user=u,key=gfarm:u,readahead=64");
    assert!(parse("user=u,readahead=64").is_shown_as(&in_force));
    assert!(parse("user=u,key=other,readahead=64").is_shown_as(&in_force));
    assert!(!parse("user=u").is_shown_as(&in_force));
    assert!(!parse("user=u,readahead=64,uid=0").is_shown_as(&in_force));
}
