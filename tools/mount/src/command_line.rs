// SPDX-License-Identifier: GPL-2.0

//! The arguments of a mount helper: `mount.gfarm SOURCE DIRECTORY [-fnrsvw] [-o OPTIONS]`.

use crate::Failure;

/// The text that `--help` prints.
pub const HELP: &str = "\
usage: mount.gfarm SOURCE DIRECTORY [-f] [-n] [-r] [-s] [-v] [-o OPTION[=VALUE],...]

Mounts a Gfarm file system for reading. mount(8) runs it: mount -t gfarm SOURCE DIRECTORY -o ...

  SOURCE  HOST[:PORT][,HOST[:PORT]...], the metadata servers (gfmd);
          'none': those of gfarm2.conf
  -f      do everything but the mount
  -s      skip options that the kernel does not know
  -v      say what is done
  -n, -r  nothing more than without: there is no mtab, and nothing is written

Options are in mount.gfarm(8); user=NAME is required. With cc=on,cc_keyfile=FILE the mount reads
pages from other nodes over RDMA, and gives them its own; ib_*= and cc_*= say how.
";

/// A call.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The metadata servers, or `none`.
    pub source: String,
    /// The mount point.
    pub directory: String,
    /// All that follows `-o`, separated by commas.
    pub options: String,
    /// Do everything but the mount.
    pub is_fake: bool,
    /// Skip options that are not known.
    pub is_sloppy: bool,
    /// Say what is done.
    pub is_verbose: bool,
}

/// The request that the arguments make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A mount.
    Mount(CommandLine),
    /// The help.
    Help,
    /// The version.
    Version,
}

/// Parses the arguments after the program's name.
///
/// # Errors
///
/// Returns [`Failure::Usage`] for an unknown flag, or if the source or the directory is missing.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Request, Failure> {
    let mut line = CommandLine::default();
    let mut words = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Request::Help),
            "-V" | "--version" => return Ok(Request::Version),
            "-o" => {
                let value = arguments.next().ok_or_else(|| needs_value("-o"))?;
                add(&mut line.options, &value);
            }
            // mount(8) names the type, and the namespace that it has entered already.
            "-t" | "-N" => drop(arguments.next().ok_or_else(|| needs_value(&argument))?),
            flags if flags.len() > 1 && flags.starts_with('-') => take_flags(&mut line, flags)?,
            _ => words.push(argument),
        }
    }
    let mut words = words.into_iter();
    let (Some(source), Some(directory), None) = (words.next(), words.next(), words.next()) else {
        return Err(Failure::Usage(format!(
            "a source and a directory are needed\n{HELP}"
        )));
    };
    line.source = source;
    line.directory = directory;
    Ok(Request::Mount(line))
}

fn take_flags(line: &mut CommandLine, flags: &str) -> Result<(), Failure> {
    if let Some(value) = flags.strip_prefix("-o") {
        add(&mut line.options, value);
        return Ok(());
    }
    for flag in flags.chars().skip(1) {
        match flag {
            'f' => line.is_fake = true,
            's' => line.is_sloppy = true,
            'v' => line.is_verbose = true,
            'n' | 'r' | 'w' => {}
            other => {
                let text = format!("there is no flag -{other}: try mount.gfarm --help");
                return Err(Failure::Usage(text));
            }
        }
    }
    Ok(())
}

fn add(options: &mut String, more: &str) {
    if !options.is_empty() {
        options.push(',');
    }
    options.push_str(more);
}

fn needs_value(flag: &str) -> Failure {
    Failure::Usage(format!("{flag} needs a value"))
}
