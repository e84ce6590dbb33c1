// SPDX-License-Identifier: GPL-2.0

//! The system calls. A key goes through the keyring of this process, which is gone when the process
//! ends: no other process sees it, and it is on no command line.

use std::{
    fs::File,
    io::Read,
    os::fd::{
        AsFd,
        OwnedFd, //
    },
    path::Path,
};

use linux_keyutils::{
    KeyRing,
    KeyRingIdentifier, //
};
use rustix::{
    fs::CWD,
    io::Errno,
    mount::{
        fsconfig_create,
        fsconfig_reconfigure,
        fsconfig_set_flag,
        fsconfig_set_string,
        fsmount,
        fsopen,
        fspick,
        mount_remount,
        move_mount,
        FsMountFlags,
        FsOpenFlags,
        FsPickFlags,
        MountAttrFlags,
        MountFlags,
        MoveMountFlags, //
    },
};

use crate::{
    options::Word,
    plan::{
        Key,
        Plan, //
    },
    Failure, //
};

/// The type of the file system.
pub const TYPE: &str = "gfarm";

/// Carries a plan out.
///
/// # Errors
///
/// Returns [`Failure::Mount`] with what the kernel says, or [`Failure::System`] if it takes no key.
pub fn carry_out(plan: &Plan) -> Result<(), Failure> {
    for key in [&plan.key, &plan.cache_key].into_iter().flatten() {
        keep(key)?;
    }
    if plan.is_remount {
        return change(plan);
    }
    let context = fsopen(TYPE, FsOpenFlags::FSOPEN_CLOEXEC).map_err(not_opened)?;
    fsconfig_set_string(context.as_fd(), "source", plan.source.as_str())
        .map_err(|errno| refused(&context, "the source", errno))?;
    pass(&context, &plan.words)?;
    fsconfig_create(context.as_fd()).map_err(|errno| refused(&context, "the mount", errno))?;
    let mount = fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        plan.attributes,
    )
    .map_err(|errno| refused(&context, "the mount", errno))?;
    move_mount(
        mount.as_fd(),
        "",
        CWD,
        plan.directory.as_path(),
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .map_err(|errno| at(&plan.directory, errno))
}

/// Changes a mount: its options and the attributes of the mount point.
fn change(plan: &Plan) -> Result<(), Failure> {
    let directory = plan.directory.as_path();
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_NO_AUTOMOUNT;
    let context = fspick(CWD, directory, flags).map_err(|errno| at(directory, errno))?;
    pass(&context, &plan.words)?;
    fsconfig_reconfigure(context.as_fd())
        .map_err(|errno| refused(&context, "the change", errno))?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | old_flags(plan.attributes);
    mount_remount(directory, flags, "").map_err(|errno| at(directory, errno))
}

/// Puts a key where the mount finds it.
fn keep(key: &Key) -> Result<(), Failure> {
    KeyRing::from_special_id(KeyRingIdentifier::Process, true)
        .and_then(|ring| ring.add_key(&key.description, key.line()))
        .map(drop)
        .map_err(|why| Failure::System(format!("the kernel does not take the key: {why}")))
}

fn pass(context: &OwnedFd, words: &[Word]) -> Result<(), Failure> {
    for word in words {
        let name = word.name.as_str();
        let passed = match word.value.as_deref() {
            Some(value) => fsconfig_set_string(context.as_fd(), name, value),
            None => fsconfig_set_flag(context.as_fd(), name),
        };
        passed.map_err(|errno| refused(context, &format!("option {name}"), errno))?;
    }
    Ok(())
}

fn not_opened(errno: Errno) -> Failure {
    Failure::Mount(match errno {
        Errno::NODEV => "the kernel has no file system gfarm: run `modprobe gfarm_ra`".to_owned(),
        Errno::PERM => "only root can mount: try sudo".to_owned(),
        errno => format!("the kernel opens no file system gfarm: {errno}"),
    })
}

fn at(directory: &Path, errno: Errno) -> Failure {
    Failure::Mount(format!("{}: {errno}", directory.display()))
}

/// Says what the kernel has against something: the lines of the context's log, or the error.
fn refused(context: &OwnedFd, what: &str, errno: Errno) -> Failure {
    let lines = log(context);
    Failure::Mount(match lines.as_slice() {
        [] => format!("the kernel refuses {what}: {errno}"),
        lines => format!("{} ({errno})", lines.join("; ")),
    })
}

/// Reads the log of a context, one line a read, each with its level and a space before it.
fn log(context: &OwnedFd) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(copy) = context.try_clone() else {
        return lines;
    };
    let mut file = File::from(copy);
    let mut room = [0; 4096];
    // The kernel keeps eight lines.
    for _ in 0..8 {
        let Ok(len @ 1..) = file.read(&mut room) else {
            break;
        };
        let line = String::from_utf8_lossy(room.get(..len).unwrap_or_default());
        let text = line.split_once(' ').map_or(&*line, |(_level, text)| text);
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// Returns the attributes in the form of `mount(2)`.
fn old_flags(attributes: MountAttrFlags) -> MountFlags {
    let pairs = [
        (MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
        (MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
        (
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            MountFlags::NODIRATIME,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW,
            MountFlags::NOSYMFOLLOW,
        ),
    ];
    pairs
        .into_iter()
        .filter(|(attribute, _)| attributes.contains(*attribute))
        .fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
}
