// SPDX-License-Identifier: GPL-2.0

//! Maps and unmaps devices: from the line that was written to `map_device` to a disk, and back.

use block_ext::disk::Disk;
use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    cpu,
    errno,
    ida::IdaId,
    sysfs::{
        Directory,
        Link, //
    },
    text, //
};

use super::{
    device::Device,
    disk,
    mapped_disk::Files,
    queue::Queue,
    session::Session,
    sysfs,
    Client, //
};
use crate::{
    proto::{
        control::{
            Remap,
            Unmap, //
        },
        device::Device as Remote,
        map::{
            link_name,
            Cpus,
            MapRequest, //
        },
        occasion::Occasion,
        refusal, //
    },
    shown::Shown,
};

/// Longest name of a file, and its NUL.
const LINK_NAME_LEN_MAX: usize = 256;

/// Maps a device as `line` says. Sleeps; the thread can be killed.
///
/// # Errors
///
/// The error for the writer of `map_device`: `EINVAL` for a line that does not parse, `EEXIST` for
/// a device that is mapped, those of the connection, and the server's error for its OPEN. Every
/// failure is logged once, with its reason.
pub(super) fn map(client: &Arc<Client>, line: &[u8]) -> Result {
    let cpus = Cpus {
        online: cpu::num_online_cpus(),
        possible: cpu::nr_cpu_ids(),
    };
    let request = MapRequest::parse(line, cpus).map_err(|reason| {
        pr_err!("map_device: {}\n", Shown(reason));
        Error::from(reason.errno())
    })?;
    let path = text::c_string(request.device_path)?;
    let name = text::c_string(request.sess_name)?;
    pr_info!(
        "mapping '{}' over session {} ({}, {} poll queues)\n",
        &*path,
        &*name,
        Shown(request.access_mode),
        request.nr_poll_queues
    );
    if client.has_device(&request) {
        return Err(exists(&path, &name));
    }
    let user = Session::get(client, &request)?;
    let id = client.number()?;
    let device = Device::new(user, path, request.access_mode, request.pi, id.get())?;
    let session = device.session().clone();
    session.add(device.clone()).inspect_err(|_| {
        exists(device.path(), session.name());
    })?;
    let opened = device.open(Remap::Same, Occasion::Asked);
    let mapped = match &opened {
        Ok(remote) => add_disk(&device, id, remote),
        Err(error) => Err(*error),
    };
    if let Err(error) = mapped {
        let refused = opened.err().and_then(|e| Errno::new(e.to_errno()));
        pr_err!(
            "map_device: '{}' over session {} is not mapped: {error:?}{}\n",
            device.path(),
            session.name(),
            refused.map_or("", refusal::cure)
        );
        if let Ok(unmap_state) = device.begin_unmap(Unmap::Force) {
            // Not by this thread: one that is killed does not hear what the server has opened.
            let _ = device.await_unmap(unmap_state);
        }
    }
    mapped?;
    // The disk has its files: it can be unmapped while the server does not answer.
    device.await_scan()
}

fn exists(path: &CStr, session: &CStr) -> Error {
    pr_err!("map_device: '{path}' is mapped over session {session} already\n");
    EEXIST
}

/// Adds the disk of `device`, which is open on the server.
fn add_disk(device: &Arc<Device>, id: IdaId, remote: &Remote) -> Result {
    let disk = disk::make(device, remote, id)?;
    // Before it is added: from then on user space uses it, and the session may be lost.
    device.attach((*disk).clone());
    let disk = disk.add()?;
    let (files, result) = match files(device, &disk) {
        Ok(files) => (Some(files), Ok(())),
        Err(error) => (None, Err(error)),
    };
    if result.is_ok() {
        log_mapped(device, remote);
    }
    // Also without its files: the caller unmaps it.
    device.show(disk, files);
    result
}

/// Creates the files of a disk.
fn files(device: &Arc<Device>, disk: &Disk<Queue>) -> Result<Files> {
    let directory = sysfs::files(disk, device.clone())?;
    Ok(Files::new(link(device, disk)?, directory))
}

/// Creates the link to the disk in `ctl/devices`.
fn link(device: &Device, disk: &Disk<Queue>) -> Result<Link<Directory<()>>> {
    let mut name = [0; LINK_NAME_LEN_MAX];
    let path = device.path().to_bytes();
    let session = device.session().name().to_bytes();
    let name = link_name(path, session, &mut name).ok_or(errno::ENAMETOOLONG)?;
    let devices = device.session().client().devices().ok_or(ENODEV)?;
    Link::new(devices, name, disk)
}

fn log_mapped(device: &Device, remote: &Remote) {
    if let Some(identity) = remote.identity {
        pr_info!(
            "{device}: the server knows the disk as {}\n",
            Shown(identity)
        );
    }
    pr_info!(
        "{device}: mapped as {} ({} sectors, blocks {}/{} bytes, write zeroes {}, discard {} \
         granularity {} alignment {} secure {} sectors, cache {}, fua {})\n",
        Shown(device.access()),
        remote.nsectors,
        remote.logical_block_size,
        remote.physical_block_size,
        remote.max_write_zeroes_sectors,
        remote.max_discard_sectors,
        remote.discard_granularity,
        remote.discard_alignment,
        remote.secure_discard,
        remote.writeback,
        remote.fua
    );
}

/// Unmaps all devices at module unload, when no new ones can be mapped.
pub(super) fn unmap_all(client: &Client) {
    while let Some(session) = client.first_session() {
        // First the session, so that requests and messages in flight end at once.
        session.disconnect();
        while let Some(device) = session.first_device() {
            if let Ok(unmap_state) = device.begin_unmap(Unmap::Force) {
                device.finish_unmap(unmap_state);
            }
        }
        session.await_end();
    }
}
