// SPDX-License-Identifier: GPL-2.0

//! `pi-sidecar import` and `export`: data blocks to and from files.

use std::{
    fs::File,
    io::{
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
use proto::sidecar::{
    replay::Outcome,
    Block,
    BLOCK_BYTES, //
};

use super::{
    open,
    report, //
};
use crate::{
    checksum::Crc64Nvme,
    device::FileDevice,
    session::Session, //
};

/// Blocks that are read or written together: 124 KiB, as an IO of rnbd at most.
const CHUNK_BLOCKS: usize = 31;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The block device or file with the sidecar
    device: PathBuf,
    /// The file with the data
    file: PathBuf,
    /// The first data block
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The number of data blocks; default: to the end of the data
    #[arg(long)]
    blocks: Option<u64>,
}

fn session(path: &Path, out: &mut impl Write) -> Result<Session<FileDevice, Crc64Nvme>> {
    let opened = Session::open(open(path)?, Crc64Nvme);
    let (session, outcome) = opened.with_context(|| path.display().to_string())?;
    if outcome != Outcome::default() {
        report(&outcome, out)?;
    }
    Ok(session)
}

/// Reads up to a chunk of blocks from a file, the last one filled up with zeroes.
fn read_blocks(file: &mut File, blocks_max: usize) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    while blocks.len() < blocks_max {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        file.take(BLOCK_BYTES as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        bytes.resize(BLOCK_BYTES, 0);
        let block: Option<Block> = bytes.try_into().ok();
        blocks.extend(block);
    }
    Ok(blocks)
}

/// Writes a file to the data blocks.
///
/// # Errors
///
/// Returns why it could not be done.
pub(super) fn import(args: &Args, out: &mut impl Write) -> Result<bool> {
    let mut file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let mut session = session(&args.device, out)?;
    let (mut first, mut left) = (args.first, args.blocks.unwrap_or(u64::MAX));
    while left != 0 {
        let blocks_max = usize::try_from(left).unwrap_or(usize::MAX);
        let mut blocks = read_blocks(&mut file, blocks_max.min(CHUNK_BLOCKS))?;
        if blocks.is_empty() {
            break;
        }
        let written = session.write(first, &mut blocks);
        written.with_context(|| format!("data block {first}"))?;
        let count = blocks.len() as u64;
        (first, left) = (first.saturating_add(count), left.saturating_sub(count));
    }
    session.flush()?;
    session.close()?;
    writeln!(
        out,
        "{} data blocks written",
        first.saturating_sub(args.first)
    )?;
    Ok(true)
}

/// Reads the data blocks to a file.
///
/// # Errors
///
/// Returns why it could not be done.
pub(super) fn export(args: &Args, out: &mut impl Write) -> Result<bool> {
    let mut session = session(&args.device, out)?;
    let mut file = File::create(&args.file).with_context(|| args.file.display().to_string())?;
    let end = match args.blocks {
        Some(blocks) => args.first.saturating_add(blocks),
        None => session.data_blocks(),
    };
    if end > session.data_blocks() {
        bail!("the device has {} data blocks", session.data_blocks());
    }
    let mut first = args.first;
    while first < end {
        let count = end.saturating_sub(first).min(CHUNK_BLOCKS as u64);
        let mut blocks = vec![[0; BLOCK_BYTES]; usize::try_from(count)?];
        session.read(first, &mut blocks)?;
        for block in &blocks {
            file.write_all(block)?;
        }
        first = first.saturating_add(count);
    }
    session.close()?;
    writeln!(out, "{} data blocks read", end.saturating_sub(args.first))?;
    Ok(true)
}
