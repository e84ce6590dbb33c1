// SPDX-License-Identifier: GPL-2.0

//! `mount.gfarm`: see the library.

use std::{
    collections::HashMap,
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
            ids_of: &ids_of,
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

/// Asks a database of the system, which need not be a file; one line for each name that is known.
fn entries(database: &str, names: &[String]) -> String {
    let arguments = [database, "--"].map(str::to_owned);
    let arguments = arguments.iter().chain(names);
    let found = Command::new("getent").args(arguments).output();
    found.map_or_else(
        |_| String::new(),
        |found| String::from_utf8_lossy(&found.stdout).into_owned(),
    )
}

fn home_of(account: &str) -> Option<PathBuf> {
    let line = entries("passwd", &[account.to_owned()]);
    let home = line.trim_end().split(':').nth(5)?;
    (!home.is_empty()).then(|| PathBuf::from(home))
}

fn ids_of(database: &str, names: &[String]) -> HashMap<String, u32> {
    // Without a name it would tell of all.
    if names.is_empty() {
        return HashMap::new();
    }
    let id = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    entries(database, names).lines().filter_map(id).collect()
}
