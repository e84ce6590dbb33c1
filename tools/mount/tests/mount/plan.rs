// SPDX-License-Identifier: GPL-2.0

use std::{
    io,
    net::SocketAddr,
    path::PathBuf, //
};

use mount_gfarm::{
    command_line::CommandLine,
    plan::{
        Plan,
        Surroundings, //
    },
    Failure, //
};

use crate::key::{
    line,
    KeyFile, //
};

fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        "gfmd" => Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]),
        _ => Err(io::Error::other("not known")),
    }
}

fn plan(source: &str, options: &str) -> Result<Plan, Failure> {
    let line = CommandLine {
        source: source.to_owned(),
        directory: "/mnt".to_owned(),
        options: options.to_owned(),
        ..CommandLine::default()
    };
    Plan::new(
        &line,
        &Surroundings {
            config_file: Some(PathBuf::from("/nonexistent")),
            home: None,
            home_of: &|_| None,
            ids_of: &|database, names| {
                let id = |name: &String| {
                    Some((name.clone(), name.strip_prefix(database)?.parse().ok()?))
                };
                names.iter().filter_map(id).collect()
            },
            look_up: &look_up,
            now_s: 1,
        },
    )
}

#[test]
fn a_mount_with_the_key_of_a_file() {
    let file = KeyFile::new("plan", &line(), 0o600);
    let found = plan("gfmd", &format!("user=alice,keyfile={}", file.0.display())).unwrap();
    assert_eq!(found.source, "10.0.0.1:601");
    let key = found.key.as_ref().unwrap();
    assert_eq!(
        (key.description.as_str(), key.line()),
        ("gfarm:alice", line().as_str())
    );
    assert!(!format!("{found:?}").contains("5a5a"), "-v shows the key");
}

#[test]
fn a_node_of_the_cache_with_the_key_of_a_file() {
    let own = KeyFile::new("own", &line(), 0o600);
    let file = KeyFile::new("cache", &format!("{}\n", "5a".repeat(16)), 0o600);
    let options = |path: &KeyFile| {
        let (own, path) = (own.0.display(), path.0.display());
        format!("user=alice,keyfile={own},cc=on,cc_keyfile={path}")
    };
    let found = plan("gfmd", &options(&file)).unwrap();
    let key = found.cache_key.as_ref().unwrap();
    assert_eq!(
        (key.description.as_str(), key.line()),
        ("gfarm:cache", "5a".repeat(16).as_str())
    );
    let passed = found
        .words
        .iter()
        .map(|word| (word.name.as_str(), word.value.as_deref()));
    let passed: Vec<_> = passed.collect();
    assert!(
        passed.contains(&("cc_key", Some("gfarm:cache"))),
        "{passed:?}"
    );
    assert!(!passed.iter().any(|(name, _)| *name == "cc_keyfile"));
    assert!(!format!("{found:?}").contains("5a5a"), "-v shows the key");
    for (name, text, mode, said) in [
        ("open", "5a".repeat(16), 0o644, "chmod 600"),
        (
            "short",
            "5a".repeat(15),
            0o600,
            "is not 32 hexadecimal digits",
        ),
        (
            "none",
            "zz".repeat(16),
            0o600,
            "is not 32 hexadecimal digits",
        ),
    ] {
        let bad = KeyFile::new(&format!("cache-{name}"), &text, mode);
        let why = plan("gfmd", &options(&bad)).unwrap_err().to_string();
        assert!(why.contains(said) && !why.contains("5a5a"), "{name}: {why}");
    }
    let gone = KeyFile(PathBuf::from("/nonexistent/key"));
    let why = plan("gfmd", &options(&gone)).unwrap_err().to_string();
    assert!(why.contains("no such key file"), "{why}");
}

#[test]
fn the_maps_of_gfarm2_conf_come_behind_those_of_the_options() {
    let users: String = (0..900)
        .map(|n| format!("user{n} passwd{n}\n"))
        .chain(["# none\nbob nobody\ncarol\n".to_owned()])
        .collect();
    let users = KeyFile::new("users", &users, 0o644);
    let groups = KeyFile::new("groups", "staff group50 # here\n", 0o644);
    let (user_map, group_map) = (users.0.display(), groups.0.display());
    let text = format!("local_user_map {user_map}\nlocal_group_map {group_map}\n");
    let config = KeyFile::new("maps", &text, 0o644);
    let options = format!(
        "user=alice,key=k,usermap=user0/7,config={}",
        config.0.display()
    );
    let found = plan("gfmd", &options).unwrap();
    let of = |name: &str| {
        let parts = found.words.iter().filter(|word| word.name == name);
        let parts: Vec<_> = parts.filter_map(|word| word.value.as_deref()).collect();
        assert!(parts.iter().all(|part| part.len() <= 255), "{parts:?}");
        parts.join("+")
    };
    assert!(of("usermap").starts_with("user0/7+user0/0+user1/1+"));
    assert!(of("usermap").ends_with("+user899/899"));
    assert_eq!(of("groupmap"), "staff/50");
    let warnings = found.warnings.join("\n");
    for said in ["902: left out: nobody is not", "903: left out: not two"] {
        assert!(warnings.contains(said), "{warnings}");
    }
    drop(groups);
    let why = plan("gfmd", &options).unwrap_err().to_string();
    assert!(why.contains("mount-gfarm-groups"), "{why}");
}

#[test]
fn a_key_in_a_keyring_needs_no_file() {
    assert_eq!(plan("gfmd", "user=alice,key=mine").unwrap().key, None);
}

#[test]
fn a_remount_needs_neither_names_nor_keys() {
    let found = plan("elsewhere", "remount,actimeo=3").unwrap();
    assert!(found.is_remount && found.source.is_empty() && found.key.is_none());
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
}

#[test]
fn a_remount_brings_the_key_that_the_file_has_now() {
    let file = KeyFile::new("remount", &line(), 0o600);
    let options = |path: &str| format!("remount,username=alice,keyfile={path}");
    let found = plan("gfmd", &options(&file.0.display().to_string())).unwrap();
    assert_eq!(found.key.unwrap().line(), line());
    let found = plan("gfmd", &options("/nonexistent/key")).unwrap();
    assert!(found.key.is_none());
    assert!(
        found.warnings[0].contains("the key stays as it is: /nonexistent/key"),
        "{:?}",
        found.warnings
    );
    let found = plan("gfmd", "remount,username=alice,key=mine").unwrap();
    assert!(found.key.is_none() && found.warnings.is_empty());
}

#[test]
fn what_is_missing_is_said() {
    for (source, options, said) in [
        ("gfmd", "", "add -o user=NAME"),
        ("gfmd", "user=alice", "add -o keyfile=FILE"),
        ("elsewhere", "user=alice,key=k", "elsewhere: not known"),
    ] {
        let why = plan(source, options).unwrap_err().to_string();
        assert!(why.contains(said), "{source} {options}: {why}");
    }
}
