// SPDX-License-Identifier: GPL-2.0

//! Reads a kernel log from the standard input and replays the records that are in it. The
//! last line counts; the status is 1 if a record and the model disagree.

use std::{
    io::{
        self,
        Read, //
    },
    process::ExitCode,
};

fn main() -> io::Result<ExitCode> {
    let mut log = String::new();
    io::stdin().read_to_string(&mut log)?;
    let verdict = replay::judge(&log);
    println!("{verdict}");
    Ok(ExitCode::from(u8::from(!verdict.wrong.is_empty())))
}
