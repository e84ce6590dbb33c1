// SPDX-License-Identifier: GPL-2.0

use std::{
    fs,
    path::Path, //
};

use mount_gfarm::config::Config;

fn read(text: &str) -> Config {
    let mut config = Config::default();
    config.take(Path::new("/etc/gfarm2.conf"), text);
    config
}

#[test]
fn the_server_and_the_key() {
    let config = read(
        "# a comment\n\n spool /var/spool/gfarm # another\nmetadb_server_host gfmd.example.org\n\
         metadb_server_port 10601\nshared_key_file \"/etc/a key\"\n",
    );
    assert_eq!(config.servers(), ["gfmd.example.org:10601"]);
    assert_eq!(config.key_file.as_deref(), Some("/etc/a key"));
}

#[test]
fn a_list_of_servers_may_go_over_lines() {
    let config = read("metadb_server_list one:601 \\\n two:602\nmetadb_server_host other\n");
    assert_eq!(config.servers(), ["one:601", "two:602"]);
}

#[test]
fn the_first_statement_holds() {
    let mut config = read("metadb_server_host first\n");
    config.take(
        Path::new("/etc/other"),
        "metadb_server_host second\nmetadb_server_port 7\n",
    );
    assert_eq!(config.servers(), ["first:7"]);
}

#[test]
fn quotes_and_backslashes() {
    let key = |text: &str| read(&format!("shared_key_file {text}")).key_file.unwrap();
    assert_eq!(key(r#"'a"b' c"#), "a\"b");
    assert_eq!(key(r#""a'\"b""#), "a'\"b");
    assert_eq!(key(r"a\ b#c"), "a b#c");
    assert_eq!(key("''"), "");
}

#[test]
fn what_does_not_exist_is_left_out_unless_it_is_named() {
    let none = Path::new("/nonexistent/gfarm2.conf");
    let config = Config::load(None, Some(none.to_owned()), None).unwrap();
    assert!(!config.files.contains(&none.to_owned()));
    let why = Config::load(Some(none), None, None).unwrap_err();
    assert!(
        why.to_string().starts_with("/nonexistent/gfarm2.conf: "),
        "{why}"
    );
}

#[test]
fn the_users_file_is_read_before_the_systems() {
    let home = std::env::temp_dir().join(format!("mount-gfarm-config-{}", std::process::id()));
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join(".gfarm2rc"), "metadb_server_host mine\n").unwrap();
    let config = Config::load(None, None, Some(&home)).unwrap();
    fs::remove_dir_all(&home).unwrap();
    assert_eq!(config.files.first(), Some(&home.join(".gfarm2rc")));
    assert_eq!(config.server_host.as_deref(), Some("mine"));
}
