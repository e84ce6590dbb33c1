// SPDX-License-Identifier: GPL-2.0

use mount_gfarm::{
    command_line::{
        parse,
        CommandLine,
        Request, //
    },
    Failure, //
};

fn call(words: &[&str]) -> Result<Request, Failure> {
    parse(words.iter().map(|word| (*word).to_owned()))
}

fn mount(words: &[&str]) -> CommandLine {
    match call(words) {
        Ok(Request::Mount(line)) => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn as_mount_calls_it() {
    let line = mount(&[
        "gfmd:601",
        "/mnt",
        "-sv",
        "-t",
        "gfarm",
        "-o",
        "rw,user=alice",
        "-n",
    ]);
    assert_eq!(
        line,
        CommandLine {
            source: "gfmd:601".to_owned(),
            directory: "/mnt".to_owned(),
            options: "rw,user=alice".to_owned(),
            is_fake: false,
            is_sloppy: true,
            is_verbose: true,
        }
    );
}

#[test]
fn options_of_several_flags_are_joined() {
    assert_eq!(mount(&["-oa=1", "-o", "b", "s", "d"]).options, "a=1,b");
}

#[test]
fn help_needs_nothing_else() {
    assert_eq!(call(&["--help"]), Ok(Request::Help));
    assert_eq!(call(&["s", "-V"]), Ok(Request::Version));
}

#[test]
fn what_is_missing_or_unknown_is_said() {
    for (words, said) in [
        (&["s"][..], "a source and a directory are needed"),
        (&[], "a source and a directory are needed"),
        (&["s", "d", "more"], "a source and a directory are needed"),
        (&["s", "d", "-o"], "-o needs a value"),
        (&["s", "d", "-x"], "there is no flag -x"),
    ] {
        let why = call(words).unwrap_err();
        assert!(why.to_string().starts_with(said), "{words:?}: {why}");
        assert_eq!(why.code(), 1, "{words:?}");
    }
}
