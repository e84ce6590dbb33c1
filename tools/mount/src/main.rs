// SPDX-License-Identifier: GPL-2.0

//! `mount.gfarm`: see the library.

use std::{
    env,
    path::PathBuf,
    process::{
        Command,
        ExitCode, //
    },
    time::SystemTime,
};

use mount_gfarm::{
    command_line::{
        self,
        CommandLine,
        Request, //
    },
    kernel,
    plan::{
        Plan,
        Surroundings, //
    },
    servers,
    Failure, //
};

fn main() -> ExitCode {
    let done = match command_line::parse(env::args().skip(1)) {
        Ok(Request::Help) => {
            print!("{}", command_line::HELP);
            Ok(())
        }
        Ok(Request::Version) => {
            println!("mount.gfarm {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Ok(Request::Mount(line)) => mount(&line),
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mount.gfarm: {why}");
            ExitCode::from(why.code())
        }
    }
}

fn mount(line: &CommandLine) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let plan = Plan::new(
        line,
        &Surroundings {
            config_file: env::var_os("GFARM_CONFIG_FILE").map(PathBuf::from),
            home: env::var_os("HOME").map(PathBuf::from),
            home_of: &home_of,
            look_up: &servers::look_up,
            now_s: now.map_or(0, |now| now.as_secs()),
        },
    )?;
    for warning in &plan.warnings {
        eprintln!("mount.gfarm: {warning}");
    }
    if line.is_verbose {
        println!("mount.gfarm: {plan:?}");
    }
    if line.is_fake {
        return Ok(());
    }
    kernel::carry_out(&plan)
}

/// Asks the system's databases of users, which need not be files.
fn home_of(account: &str) -> Option<PathBuf> {
    let found = Command::new("getent")
        .args(["passwd", "--", account])
        .output()
        .ok()?;
    let line = String::from_utf8(found.stdout).ok()?;
    let home = line.trim_end().split(':').nth(5)?;
    (!home.is_empty()).then(|| PathBuf::from(home))
}
