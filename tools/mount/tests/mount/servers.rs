// SPDX-License-Identifier: GPL-2.0

use std::{
    io,
    net::SocketAddr,
    path::Path, //
};

use mount_gfarm::{
    config::Config,
    servers::{
        look_up,
        named,
        resolve,
        SOURCE_LEN_MAX, //
    },
};

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn addresses_need_no_name_server() {
    let found = resolve(
        &owned(&["127.0.0.1", "127.0.0.1:10601", "[::1]:7"]),
        look_up,
        &mut Vec::new(),
    );
    assert_eq!(
        found.as_deref(),
        Ok("127.0.0.1:601,127.0.0.1:10601,[::1]:7")
    );
}

#[test]
fn a_server_that_is_not_known_is_passed_over() {
    let some = |host: &str, port| match host {
        "two" => Ok(vec![SocketAddr::from(([10, 0, 0, 2], port)); 2]),
        _ => Err(io::Error::other("no such name")),
    };
    let mut warnings = Vec::new();
    let found = resolve(&owned(&["one", "two:5"]), some, &mut warnings);
    assert_eq!(found.as_deref(), Ok("10.0.0.2:5"));
    assert!(
        warnings[0].contains("left out: one: no such name") && warnings.len() == 1,
        "{warnings:?}"
    );
    let why = resolve(&owned(&["one", "three"]), some, &mut warnings).unwrap_err();
    assert!(
        why.to_string()
            .contains("one: no such name; three: no such name"),
        "{why}"
    );
    assert_eq!(why.code(), 32);
}

#[test]
fn what_is_no_server_is_refused() {
    for text in ["", "a b", "host:0", "host:70000", "[1.2.3.4]", "[::1"] {
        let why = resolve(&owned(&[text]), look_up, &mut Vec::new()).unwrap_err();
        assert!(
            why.to_string().contains("is no HOST[:PORT]"),
            "{text}: {why}"
        );
        assert_eq!(why.code(), 1);
    }
}

#[test]
fn as_many_addresses_as_the_kernel_takes() {
    let many = |_: &str, port| {
        let address = |n: u8| SocketAddr::from(([10, 0, 0, n], port));
        Ok((1..=100).map(address).collect())
    };
    let mut warnings = Vec::new();
    let found = resolve(&owned(&["gfmd"]), many, &mut warnings).unwrap();
    assert!(
        warnings[0].contains("left out: gfmd: the kernel takes 255 bytes") && warnings.len() == 1,
        "{warnings:?}"
    );
    assert!(
        found.len() <= SOURCE_LEN_MAX && found.len() > SOURCE_LEN_MAX - 20,
        "{found}"
    );
    assert!(
        found
            .split(',')
            .all(|part| part.parse::<SocketAddr>().is_ok()),
        "{found}"
    );
}

#[test]
fn the_source_none_stands_for_the_configuration() {
    let mut config = Config::default();
    let why = named("none", &config).unwrap_err();
    assert!(why.to_string().contains("metadb_server_host"), "{why}");
    config.take(Path::new("/c"), "metadb_server_list a:1 b:2");
    assert_eq!(named("none", &config), Ok(owned(&["a:1", "b:2"])));
    assert_eq!(named("c,d:3", &config), Ok(owned(&["c", "d:3"])));
}
