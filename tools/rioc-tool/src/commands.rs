// SPDX-License-Identifier: GPL-2.0

//! The commands.

mod bytes;
mod check;
mod lease;
mod top;

use std::{
    env,
    io,
    path::PathBuf, //
};

use anyhow::{
    anyhow,
    Context,
    Result, //
};
use clap::{
    Parser,
    Subcommand, //
};
use rioc_device::{
    request,
    wire,
    Request,
    Session, //
};
use serde::Serialize;

use crate::{
    advice,
    object::{
        number,
        Object, //
    },
    show::{
        print,
        Output, //
    },
};

/// Objects of a store of a server, over a session of rioc_client.
///
/// An OBJECT is two numbers, as 10:20. Within `rioc lease` all commands use its lease.
#[derive(Debug, Parser)]
#[command(name = "rioc", version)]
pub struct CommandLine {
    /// Form of what is printed
    #[arg(short, long, value_enum, global = true, default_value_t = Output::Text)]
    output: Output,
    /// The device of the client
    #[arg(long, global = true, default_value = "/dev/rioc")]
    device: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the store of a session, and what it promises
    Info {
        /// The session
        session: String,
    },
    /// Writes a file to an object, which has its size then
    Put(bytes::Put),
    /// Reads an object
    Get(bytes::Get),
    /// Copies an object, or bytes of it, by reference
    Cow(bytes::Cow),
    /// Lists the objects
    Ls {
        /// The session
        session: String,
    },
    /// Shows the size of an object, and how much of it is no hole
    Stat(Named),
    /// Removes objects
    Rm {
        /// The session
        session: String,
        /// The objects
        #[arg(required = true)]
        objects: Vec<Object>,
    },
    /// Makes an object longer or shorter
    Truncate {
        #[command(flatten)]
        named: Named,
        /// Its size in bytes
        #[arg(value_parser = number)]
        size: u64,
    },
    /// Writes an object back to the files of the store
    Flush(Named),
    /// Runs a command under a lease of an object
    Lease(lease::Args),
    /// Shows what sessions and stores of this machine do
    Top(top::Args),
    /// Checks the log of a store that is not in use: reads all of its objects, and writes nothing
    Check(check::Args),
}

/// An object of a session.
#[derive(Debug, clap::Args)]
struct Named {
    /// The session
    session: String,
    /// The object
    object: Object,
}

/// A session that is attached, and what its errors are told with.
struct Attached {
    name: String,
    session: Session,
    /// The lease of the command in which this one runs; 0 without one.
    lease: u32,
}

impl Attached {
    fn new(line: &CommandLine, name: &str) -> Result<Self> {
        let opened = Session::open(&line.device);
        let device = line.device.display().to_string();
        let file = opened.map_err(|error| anyhow!(advice::opening(&error, &device)))?;
        let session = Session::attach(file, name)
            .map_err(|error| anyhow!(advice::attaching(&error, name)))?;
        let lease = match env::var(lease::VARIABLE) {
            Ok(lease) => lease.parse().context(lease::VARIABLE)?,
            Err(_) => 0,
        };
        Ok(Self {
            name: name.to_owned(),
            session,
            lease,
        })
    }

    /// Tells what to do about an error.
    fn explained<T>(&self, object: Object, done: io::Result<T>) -> Result<T> {
        let object = object.to_string();
        done.map_err(|error| anyhow!(advice::operating(&error, &self.name, &object)))
    }

    /// Carries out an operation without bytes.
    fn call(&self, kind: u8, object: Object, change: impl FnOnce(&mut Request)) -> Result<Request> {
        let mut asked = request(kind, object.0);
        asked.lease = self.lease;
        change(&mut asked);
        self.explained(object, self.session.call(asked))
    }
}

#[derive(Serialize)]
struct Info<'a> {
    session: &'a str,
    durable: bool,
    backing: bool,
    boot: u64,
    io_bytes_max: u32,
}

#[derive(Serialize)]
struct Stat {
    object: Object,
    size: u64,
    stored: u64,
}

/// The bytes of a block.
const BLOCK_BYTES: u64 = 4096;

/// Runs a command; returns the exit status.
///
/// # Errors
///
/// Returns why it was not done, and what to type next.
pub fn run(line: &CommandLine) -> Result<u8> {
    match &line.command {
        Command::Info { session } => info(line, session)?,
        Command::Put(args) => bytes::put(line, args)?,
        Command::Get(args) => bytes::get(line, args)?,
        Command::Cow(args) => bytes::cow(line, args)?,
        Command::Ls { session } => list(line, session)?,
        Command::Stat(named) => {
            let attached = Attached::new(line, &named.session)?;
            let object = named.object;
            let found = attached.call(wire::STAT, object, |asked| asked.lease = 0)?;
            let (size, stored) = (found.size, found.blocks.saturating_mul(BLOCK_BYTES));
            let stat = Stat {
                object,
                size,
                stored,
            };
            print(
                line.output,
                &stat,
                &format!("{object}  {size} bytes, {stored} stored"),
            )?;
        }
        Command::Rm { session, objects } => {
            let attached = Attached::new(line, session)?;
            for object in objects {
                attached.call(wire::DELETE, *object, |_| {})?;
            }
        }
        Command::Truncate { named, size } => {
            let attached = Attached::new(line, &named.session)?;
            attached.call(wire::TRUNCATE, named.object, |asked| asked.offset = *size)?;
        }
        Command::Flush(named) => {
            let attached = Attached::new(line, &named.session)?;
            attached.call(wire::FLUSH, named.object, |asked| asked.lease = 0)?;
        }
        Command::Top(args) => top::top(args, line.output)?,
        Command::Lease(args) => return lease::lease(line, args),
        Command::Check(args) => return check::check(args, line.output),
    }
    Ok(0)
}

fn info(line: &CommandLine, session: &str) -> Result<()> {
    let attached = Attached::new(line, session)?.session.attached;
    let info = Info {
        session,
        durable: attached.state & rioc_device::DURABLE != 0,
        backing: attached.state & rioc_device::BACKING != 0,
        boot: attached.boot,
        io_bytes_max: attached.io_bytes_max,
    };
    let durable = match info.durable {
        true => "durable",
        false => "in the server's memory",
    };
    let flush = match info.backing {
        true => "; rioc flush writes an object to a file there",
        false => "",
    };
    print(
        line.output,
        &info,
        &format!("{session}: what is acknowledged is {durable}{flush}"),
    )
}

fn list(line: &CommandLine, session: &str) -> Result<()> {
    let attached = Attached::new(line, session)?;
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let listed = attached.session.list(from);
        let (names, next) = listed.with_context(|| format!("session {session}"))?;
        for object in names.into_iter().map(Object) {
            print(line.output, &object, &object.to_string())?;
        }
        cursor = next;
    }
    Ok(())
}
