// SPDX-License-Identifier: GPL-2.0

//! `rnbd-ec status`.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{
        Path,
        PathBuf, //
    },
};

use anyhow::{
    Context,
    Result, //
};
use serde::Serialize;

use super::Status;
use crate::show::{
    self,
    Output, //
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Folder where sysfs is mounted
    #[arg(long, default_value = "/sys")]
    sysfs: PathBuf,
}

#[derive(Serialize)]
struct MemberRow {
    member: u64,
    state: String,
    device: Option<String>,
}

/// An array, as JSON has it.
#[derive(Serialize)]
pub(super) struct Array {
    name: String,
    pub(super) uuid: String,
    state: String,
    what: Option<String>,
    members: Vec<MemberRow>,
    stats: BTreeMap<String, u64>,
}

impl Array {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn status(&self) -> Status {
        match self.state.as_str() {
            "clean" => Status::Clean,
            "failed" => Status::Damaged,
            _ => Status::Degraded,
        }
    }
}

/// Returns the arrays that are assembled, by their names. One that is stopped meanwhile is left
/// out.
///
/// # Errors
///
/// Returns that sysfs cannot be read.
pub(super) fn arrays(sysfs: &Path) -> Result<Vec<Array>> {
    let block = sysfs.join("block");
    let entries = fs::read_dir(&block).with_context(|| block.display().to_string())?;
    let mut arrays = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        arrays.extend(array(name, &entry.path().join("ec")));
    }
    arrays.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(arrays)
}

fn array(name: String, folder: &Path) -> Option<Array> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let state = read("state")?;
    let (state, what) = match state.trim().split_once(": ") {
        Some((state, what)) => (state.to_owned(), Some(what.to_owned())),
        None => (state.trim().to_owned(), None),
    };
    let members = read("members")?;
    let members = members.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (member, state) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let device = words.next().filter(|name| *name != "-");
        Some(MemberRow {
            member,
            state,
            device: device.map(str::to_owned),
        })
    });
    let stats = read("stats")?;
    let stats = stats.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_owned(), value.trim().parse().ok()?))
    });
    Some(Array {
        name,
        uuid: read("uuid")?.trim().to_owned(),
        state,
        what,
        members: members.collect(),
        stats: stats.collect(),
    })
}

/// Shows the arrays that are assembled.
///
/// # Errors
///
/// Returns that sysfs cannot be read.
pub(super) fn status(args: &Args, out: &mut impl Write) -> Result<Status> {
    let arrays = arrays(&args.sysfs)?;
    match args.output {
        Output::Json => writeln!(out, "{}", show::json(&arrays)?)?,
        Output::Table if arrays.is_empty() => writeln!(out, "no array is assembled")?,
        Output::Table => arrays.iter().try_for_each(|array| print(array, out))?,
    }
    let worst = arrays.iter().map(Array::status).max();
    Ok(worst.unwrap_or(Status::Clean))
}

fn print(array: &Array, out: &mut impl Write) -> Result<()> {
    let what = array.what.iter().map(|what| format!(": {what}"));
    let what: String = what.collect();
    writeln!(out, "{}: {}{what}", array.name, array.state)?;
    writeln!(out, "  uuid: {}", array.uuid)?;
    let members = array.members.iter().map(|member| {
        let device = member.device.as_deref().unwrap_or("-");
        vec![
            format!("  member {}", member.member),
            device.to_owned(),
            member.state.clone(),
        ]
    });
    let members: Vec<Vec<String>> = members.collect();
    write!(out, "{}", show::table(&members))?;
    let stats = array.stats.iter();
    let stats = stats.map(|(key, value)| vec![format!("  {key}"), value.to_string()]);
    let stats: Vec<Vec<String>> = stats.collect();
    write!(out, "{}", show::table(&stats))?;
    Ok(())
}
