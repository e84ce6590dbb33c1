// SPDX-License-Identifier: GPL-2.0

//! The server of a mount: it answers subrequests as the options of the mount say.

use super::{
    lent,
    tree,
    Ferrotest,
    Mount,
    ABORTED, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    errno::{
        ECONNRESET,
        ESTALE, //
    },
    sync::atomic::Ordering::Relaxed, //
};
use vfs_ext::{
    End,
    Subrequest, //
};

/// The number of times that one part of a file is asked for again.
const RETRIES_MAX: u8 = 20;

/// The time that a server sleeps before it looks whether it is told to stop.
const TURN_MS: u32 = 5;

/// Takes a subrequest, and answers it in this task or in a worker.
pub(super) fn begin(subrequest: Subrequest<Ferrotest>) {
    let mount = subrequest.inode().super_block().data();
    let stats = &mount.stats;
    stats.pending.fetch_add(1, Relaxed);
    if subrequest.retries() > 0 {
        stats.retries.fetch_add(1, Relaxed);
    }
    let turn = stats.reads.fetch_add(1, Relaxed) + 1;
    if mount.options.inline {
        serve(subrequest, turn);
        return;
    }
    // The unmount waits for the subrequest, and the drop of the queue for the rest of the closure.
    // Without memory the closure is dropped, and the subrequest with it.
    let queue = super::Arc::from(mount);
    let _ = queue
        .queue
        .try_spawn(GFP_KERNEL, move || serve(subrequest, turn));
}

fn is_turn(every: Option<u32>, turn: u64) -> bool {
    every.is_some_and(|every| turn.checked_rem(every.into()) == Some(0))
}

/// Waits as the server does. Returns an error if the mount is told to stop.
fn wait(mount: &Mount) -> Result {
    let mut left_ms = mount.options.delay_ms.unwrap_or(0);
    loop {
        if mount.is_aborted.load(Relaxed) {
            return Err(ABORTED);
        }
        if left_ms == 0 && !mount.options.hold {
            return Ok(());
        }
        fsleep(Delta::from_millis(TURN_MS.into()));
        left_ms = left_ms.saturating_sub(TURN_MS);
    }
}

fn serve(mut subrequest: Subrequest<Ferrotest>, turn: u64) {
    let mount = subrequest.inode().super_block().data();
    let stats = mount.stats.clone();
    if mount.options.look {
        let mount = super::Arc::from(mount);
        let (key, position) = (subrequest.inode().key(), subrequest.position());
        if lent::look(&mount, key, position).is_err() {
            stats.wrong.fetch_add(1, Relaxed);
        }
    }
    if subrequest.inode().super_block().data().options.lend {
        let written = lent::serve(subrequest, turn).unwrap_or(0);
        stats.bytes.fetch_add(written, Relaxed);
        stats.pending.fetch_sub(1, Relaxed);
        return;
    }
    let end = answer(&mut subrequest, turn);
    stats.pending.fetch_sub(1, Relaxed);
    match end {
        Some(end) => subrequest.end(end),
        None => drop(subrequest),
    }
}

/// Writes the answer; `None` if the subrequest is to be dropped.
fn answer(subrequest: &mut Subrequest<Ferrotest>, turn: u64) -> Option<End> {
    let mount = subrequest.inode().super_block().data();
    if let Err(error) = wait(&mount) {
        return Some(End::Failed(error));
    }
    let options = &mount.options;
    if is_turn(options.fail_every, turn) {
        return Some(End::Failed(EIO));
    }
    let key = subrequest.inode().key();
    if options.stale && key.generation != u64::from(mount.generation.load(Relaxed)) {
        return Some(End::Failed(ESTALE));
    }
    let is_dropped = is_turn(options.drop_every, turn);
    let is_retried = is_turn(options.retry_every, turn);
    let size = subrequest.inode().size();
    let size = options.end_at.map_or(size, |end| size.min(end.into()));
    let left = size.saturating_sub(subrequest.position());
    let wanted = usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(subrequest.len());
    let mut bytes = wanted;
    if let Some(short) = options.short_bytes {
        bytes = bytes.min(short as usize);
    }
    if is_retried || is_dropped {
        bytes /= 2;
    }
    let stats = mount.stats.clone();
    let written = if mount.remote.is_some() {
        let mount = super::Arc::from(mount);
        match fetch(&mount, subrequest, key, bytes) {
            Ok(written) => written,
            // A server that goes away is tried again.
            Err(ECONNRESET) if subrequest.retries() < RETRIES_MAX => return Some(End::Retry),
            Err(error) => return Some(End::Failed(error)),
        }
    } else {
        write(subrequest, key, bytes)
    };
    stats.bytes.fetch_add(written as u64, Relaxed);
    if is_dropped {
        return None;
    }
    Some(match () {
        () if is_retried => End::Retry,
        () if written < wanted => End::Read,
        () if left <= written as u64 => End::EndOfFile,
        () => End::Read,
    })
}

/// Has the next bytes of the file from the server in user space; returns their number.
fn fetch(
    mount: &Mount,
    subrequest: &mut Subrequest<Ferrotest>,
    key: vfs_ext::Key,
    bytes: usize,
) -> Result<usize> {
    let remote = mount.remote.as_ref().ok_or(EINVAL)?;
    let position = subrequest.position();
    remote.read(key, position, bytes, &mut subrequest.destination())
}

/// Writes the next bytes of the file; returns their number.
fn write(subrequest: &mut Subrequest<Ferrotest>, key: vfs_ext::Key, bytes: usize) -> usize {
    let mut part = [0; 512];
    let mut written = 0;
    while written < bytes {
        let position = subrequest.position();
        let count = part.len().min(bytes - written);
        let Some(piece) = part.get_mut(..count) else {
            break;
        };
        tree::data(key, position, piece);
        let done = subrequest.destination().write(piece);
        written += done;
        if done < count {
            break;
        }
        if written % (256 << 10) == 0 {
            subrequest.progress();
        }
    }
    written
}
