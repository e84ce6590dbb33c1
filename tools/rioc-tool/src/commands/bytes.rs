// SPDX-License-Identifier: GPL-2.0

//! `rioc put`, `rioc get` and `rioc cow`.

use std::{
    fs::File,
    io::{
        self,
        Read,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
};

use anyhow::{
    bail,
    Context,
    Result, //
};
use rioc_device::wire;
use serde::Serialize;

use super::{
    Attached,
    CommandLine,
    Named, //
};
use crate::{
    object::{
        number,
        Object, //
    },
    show::print,
};

/// The bytes of one call: the kernel has some operations in flight for it.
const CALL_BYTES: usize = 4 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Put {
    #[command(flatten)]
    named: Named,
    /// The file; without one what comes in
    file: Option<PathBuf>,
    /// An object that is there is an error
    #[arg(long)]
    new: bool,
    /// Writes to this place of the object, and leaves the rest
    #[arg(long, value_parser = number)]
    offset: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    #[command(flatten)]
    named: Named,
    /// The file; without one it goes out
    file: Option<PathBuf>,
    /// The first byte
    #[arg(long, value_parser = number, default_value = "0")]
    offset: u64,
    /// The number of bytes, if not all
    #[arg(long, value_parser = number)]
    length: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Cow {
    /// The session
    session: String,
    /// The object that is copied
    source: Object,
    /// The object that is made, or written
    destination: Object,
    /// A destination that is there is an error
    #[arg(long, conflicts_with = "length")]
    new: bool,
    /// The first byte, if not the whole object is copied
    #[arg(long, value_parser = number, default_value = "0", requires = "length")]
    offset: u64,
    /// The number of bytes, if not the whole object is copied
    #[arg(long, value_parser = number)]
    length: Option<u64>,
    /// The first byte of the destination: the same place in a block of 4096 bytes
    #[arg(long, value_parser = number, requires = "length")]
    to: Option<u64>,
}

#[derive(Serialize)]
struct Moved {
    object: Object,
    bytes: u64,
}

/// Reads until the buffer is full, or all is read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0usize;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match from.read(room) {
            Ok(0) => break,
            Ok(bytes) => filled = filled.saturating_add(bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn open<T>(path: &Path, opened: io::Result<T>) -> Result<T> {
    opened.with_context(|| path.display().to_string())
}

pub(super) fn put(line: &CommandLine, args: &Put) -> Result<()> {
    let mut from: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(open(path, File::open(path))?),
        None => Box::new(io::stdin().lock()),
    };
    let attached = Attached::new(line, &args.named.session)?;
    let object = args.named.object;
    let create = |flags: u16| {
        attached.call(wire::CREATE, object, |asked| {
            (asked.lease, asked.flags) = (0, flags.into());
        })
    };
    if args.new {
        create(wire::FLAG_NEW)?;
    }
    let begin = args.offset.unwrap_or_default();
    let (mut at, mut buffer) = (begin, vec![0; CALL_BYTES]);
    loop {
        let bytes = fill(&mut from, &mut buffer).context("what is written cannot be read")?;
        let full = buffer.get(..bytes).unwrap_or_default();
        if full.is_empty() {
            break;
        }
        let (_, done) = attached.session.write(object.0, at, attached.lease, full);
        attached.explained(object, done)?;
        at = at.saturating_add(bytes as u64);
    }
    if at == begin && !args.new {
        create(0)?;
    }
    if args.offset.is_none() {
        attached.call(wire::TRUNCATE, object, |asked| asked.offset = at)?;
    }
    let bytes = at.saturating_sub(begin);
    print(line.output, &Moved { object, bytes }, "")
}

pub(super) fn get(line: &CommandLine, args: &Get) -> Result<()> {
    let attached = Attached::new(line, &args.named.session)?;
    let object = args.named.object;
    // Before the file is made: of an object that is not there nothing is left.
    let size = attached
        .call(wire::STAT, object, |asked| asked.lease = 0)?
        .size;
    let mut to: Box<dyn Write> = match &args.file {
        Some(path) => Box::new(open(path, File::create(path))?),
        None => Box::new(io::stdout().lock()),
    };
    let end = match args.length {
        Some(length) => args.offset.saturating_add(length).min(size),
        None => size,
    };
    let (mut at, mut buffer) = (args.offset, vec![0; CALL_BYTES]);
    while at < end {
        let bytes = buffer.len().min(end.saturating_sub(at) as usize);
        let room = buffer.get_mut(..bytes).unwrap_or_default();
        let (read, done) = attached.session.read(object.0, at, attached.lease, room);
        attached.explained(object, done)?;
        let read_bytes = room.get(..read as usize).unwrap_or_default();
        if read_bytes.is_empty() {
            bail!("object {object}: it was made shorter meanwhile: do it again");
        }
        to.write_all(read_bytes)
            .context("what was read cannot be written")?;
        at = at.saturating_add(read);
    }
    to.flush().context("what was read cannot be written")
}

pub(super) fn cow(line: &CommandLine, args: &Cow) -> Result<()> {
    let attached = Attached::new(line, &args.session)?;
    let destination = [args.destination.0.high, args.destination.0.low];
    match args.length {
        None => attached.call(wire::SNAPSHOT, args.source, |asked| {
            asked.destination = destination;
            asked.flags = if args.new { wire::FLAG_NEW.into() } else { 0 };
        })?,
        Some(length) => attached.call(wire::COPY, args.source, |asked| {
            asked.flags = wire::FLAG_CREATE.into();
            asked.destination = destination;
            (asked.offset, asked.length) = (args.offset, length);
            asked.destination_offset = args.to.unwrap_or(args.offset);
        })?,
    };
    Ok(())
}
