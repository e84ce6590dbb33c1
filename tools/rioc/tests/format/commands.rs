// SPDX-License-Identifier: GPL-2.0

//! The line that adds a store: what it says, and what is wrong with others.

use rioc::proto::{
    command::{
        Command,
        LogOn,
        Wrong, //
    },
    file_name,
    span::ObjectId, //
};

fn parse(line: &str) -> Result<Command<'_>, Wrong<'_>> {
    Command::parse(line.as_bytes())
}

#[test]
fn a_store_is_in_memory_or_on_a_log() {
    let in_memory = Command {
        name: "bb",
        ram_mib: 64,
        evicts: true,
        log: None,
        backing: None,
    };
    assert_eq!(parse(" ram_mib=64  name=bb evict=objects\n"), Ok(in_memory));
    let log = |is_new, is_forced| {
        Some(LogOn {
            device: b"/dev/pmem0",
            is_new,
            is_forced,
        })
    };
    let on_log = Command {
        name: "a_B-9",
        ram_mib: 0,
        evicts: false,
        log: log(false, false),
        backing: None,
    };
    assert_eq!(parse("name=a_B-9 log=/dev/pmem0"), Ok(on_log));
    let new = parse("name=a_B-9 log=/dev/pmem0 mode=create force=1");
    assert_eq!(new.unwrap().log, log(true, true));
    let there = parse("name=a_B-9 log=/dev/pmem0 mode=assemble force=0");
    assert_eq!(there, Ok(on_log));
}

#[test]
fn objects_have_files_in_a_folder() {
    let backed = parse("name=bb ram_mib=8 backing=/srv/objects").unwrap();
    assert_eq!(backed.backing, Some(b"/srv/objects".as_slice()));
    let ids = [
        (0, 0),
        (1, 2),
        (u64::MAX, u64::MAX),
        (0xfedc_ba98_7654_3210, 0x0a0b),
    ];
    for (high, low) in ids {
        let id = ObjectId { high, low };
        let name = file_name::of(id);
        let text = format!("{high:016x}{low:016x}\0");
        assert_eq!(name.as_slice(), text.as_bytes());
        assert_eq!(file_name::object(&name[..file_name::NAME_BYTES]), Some(id));
    }
    for (line, says) in [
        ("backing=mnt ram_mib=1", "backing=mnt is no path"),
        ("backing=/mnt", "objects have no place"),
        ("ram_mib=1 backing=/mnt evict=objects", "leave out one"),
    ] {
        let line = format!("name=bb {line}");
        let wrong = parse(&line).expect_err(&line);
        assert_eq!(wrong.errno().get(), 22, "{line}");
        assert!(wrong.to_string().contains(says), "{line}: {wrong}");
    }
    let upper = "A".repeat(32);
    for other in [
        ".rioc",
        "",
        "0123",
        &upper,
        &"g".repeat(32),
        &"0".repeat(33),
    ] {
        assert_eq!(file_name::object(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_is_wrong_is_told_with_what_to_write() {
    let long = "n".repeat(33);
    let path = format!("/{}", "d".repeat(255));
    for (line, errno, says) in [
        (
            "name=bb ram_mib=1 size=5",
            22,
            "unknown or empty option 'size=5': known are name=",
        ),
        ("name=bb ram_mib=", 22, "unknown or empty option 'ram_mib='"),
        ("ram_mib=1", 22, "name missing: add name=NAME"),
        ("name=a/b ram_mib=1", 22, "name=a/b is not 1 to 32 letters"),
        (&format!("name={long}"), 36, "is not 1 to 32 letters"),
        ("name=bb ram_mib=-1", 22, "ram_mib=-1 is not in 0..=1048576"),
        ("name=bb ram_mib=1048577", 22, "ram_mib=1048577 is not in"),
        ("name=bb", 22, "objects have no place: add ram_mib=MIB"),
        ("name=bb ram_mib=0", 22, "objects have no place"),
        (
            "name=bb log=pmem0",
            22,
            "log=pmem0 is no path that begins with '/'",
        ),
        (&format!("name=bb log={path}"), 36, "is no path"),
        (
            "name=bb ram_mib=1 evict=all",
            22,
            "evict=all is unknown: write objects",
        ),
        (
            "name=bb log=/dev/a mode=new",
            22,
            "mode=new is unknown: write assemble or create",
        ),
        (
            "name=bb log=/dev/a force=yes",
            22,
            "force=yes is not 0 or 1",
        ),
        (
            "name=bb ram_mib=1 mode=create",
            22,
            "mode= is for a log: leave it out, or add log=",
        ),
        ("name=bb ram_mib=1 force=0", 22, "force= is for a log"),
        (
            "name=bb ram_mib=1 log=/dev/a evict=objects",
            22,
            "leave out one",
        ),
        (
            "name=bb ram_mib=1 log=/dev/a backing=/mnt",
            95,
            "backing= beside log= is not built",
        ),
    ] {
        let wrong = parse(line).expect_err(line);
        assert_eq!(wrong.errno().get(), errno, "{line}");
        let text = wrong.to_string();
        assert!(text.contains(says), "{line}: {text}");
    }
}
