// SPDX-License-Identifier: GPL-2.0

//! Lookup of names, and whether what the kernel remembers of them holds.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno::ESTALE;
use vfs_ext::{
    Inode,
    InodeRef,
    Judge,
    Kind,
    Met,
    Name,
    SuperBlock,
    Validity, //
};

use super::{
    attributes::Told,
    inode,
    inode::InodeData,
    Gfarm, //
};
use crate::{
    net::Place,
    proto::{
        freshness::is_within,
        name,
        options::Options,
        setting::Setting, //
    }, //
};

/// The number of inodes of one number that a look-up meets before it gives up: others make new ones
/// meanwhile.
const INODES_MAX: usize = 4;

/// Returns the root, and makes the files of the mount.
pub(super) fn root(sb: &SuperBlock<Gfarm>) -> Result<InodeRef<'_, Gfarm>> {
    let mount = sb.data();
    let place = Place::root()?;
    let told = mount.client().attributes(&place, |seen| mount.told(seen))?;
    let root = sb.inode(told.key(), &told.attributes, || {
        InodeData::new(place.clone(), &told)
    })?;
    if root.kind() != Kind::Directory {
        return Err(EIO);
    }
    inode::observe(&root, &told, &place)?;
    mount.publish(sb.device_minor())?;
    Ok(root)
}

/// Returns the inode of an object that was found as `name` in a directory. `observe` takes what was
/// told of it.
pub(super) fn inode<'a>(
    dir: &'a Inode<Gfarm>,
    parent: &Arc<Place>,
    name: name::Name<'_>,
    told: &Told,
    observe: impl Fn(&Inode<Gfarm>, &Told, &Arc<Place>) -> Result,
) -> Result<InodeRef<'a, Gfarm>> {
    for _ in 0..INODES_MAX {
        let inode = dir.super_block().inode(told.key(), &told.attributes, || {
            let place = Place::new(parent, name, told.object())?;
            InodeData::new(place, told)
        })?;
        let place = inode.data().place_of(parent, name)?;
        match observe(&inode, told, &place) {
            // Those that have it open keep it; from now on it is not found by its number.
            Err(ESTALE) if inode.kind() == Kind::Regular => inode.unhash(),
            observed => return observed.map(|()| inode),
        }
    }
    Err(ESTALE)
}

/// Looks up a name that the kernel does not know; `None` if there is no such one. Sleeps, killable.
///
/// # Errors
///
/// `ENAMETOOLONG` or `EINVAL` for a name that Gfarm does not have, `ESTALE` if the directory is not
/// where it was, the server's error, and that of a wait that was ended.
pub(super) fn lookup<'a>(
    dir: &'a Inode<Gfarm>,
    name: &[u8],
) -> Result<Option<InodeRef<'a, Gfarm>>> {
    let name = name::Name::new(name).map_err(|reason| Error::from(reason.errno()))?;
    let sb = dir.super_block();
    let mount = sb.data();
    let parent = dir.data().place();
    let found = mount
        .client()
        .lookup(&parent, name, |seen| mount.told(seen))?;
    let Some(told) = found else {
        return Ok(None);
    };
    let found = inode(dir, &parent, name, &told, inode::observe)?;
    found.data().asked(&told);
    Ok(Some(found))
}

/// Returns whether a name still leads to the inode that the kernel remembers. Asks gfmd if the name
/// is too old, or is forced to be asked; then it sleeps, killable.
///
/// # Errors
///
/// Those of [`lookup`].
pub(super) fn revalidate(dir: &Inode<Gfarm>, name: &Name<'_, Gfarm>) -> Result<Validity> {
    let sb = dir.super_block();
    let mount = sb.data();
    let options = mount.options();
    let parent = dir.data().place();
    let child = name::Name::new(name.bytes).map_err(|reason| Error::from(reason.errno()))?;
    let met = Met {
        kind: name.inode.map(Inode::kind),
        age_ms: name.age_ms,
        is_forced: name.is_forced,
        is_opened: name.is_opened,
        user: name.user,
    };
    let asks = || {
        let is_granted = |file: &Inode<Gfarm>| file.data().is_granted(options);
        mount.judge(name.user) == Ok(Judge::Server) && !name.inode.is_some_and(is_granted)
    };
    if holds(options, &met, asks) {
        return Ok(Validity::Assumed);
    }
    let now = mount
        .client()
        .lookup(&parent, child, |seen| mount.told(seen))?;
    match (now, name.inode) {
        (Some(told), Some(inode)) => confirm(inode, &parent, child, &told),
        (None, None) => Ok(Validity::Confirmed),
        (None, Some(_)) | (Some(_), None) => Ok(Validity::Gone),
    }
}

/// Returns whether a name is taken to hold, without a question here. `asks` tells of a file whether
/// its open asks gfmd before the task is refused it: one that gfmd does not judge may be refused by
/// the mode of the file that the name has led to.
pub(super) fn holds(options: &Options, name: &Met, asks: impl FnOnce() -> bool) -> bool {
    let is_file = name.kind == Some(Kind::Regular);
    // The open asks by this name itself, and finds out if it leads to another file now.
    let is_asked = name.is_opened && is_file && asks();
    // Where there was no file, nothing but the question here finds one.
    let is_missed = name.is_opened && name.kind.is_none() && !options.is_nocto();
    let is_young = is_within(name.age_ms, options.get(Setting::Actimeo));
    !name.is_forced && (is_asked || is_young && !is_missed)
}

/// Returns whether a name still leads to `inode`, and takes its attributes.
fn confirm(
    inode: &Inode<Gfarm>,
    parent: &Arc<Place>,
    name: name::Name<'_>,
    told: &Told,
) -> Result<Validity> {
    if inode.key() != told.key() {
        return Ok(Validity::Gone);
    }
    let place = inode.data().place_of(parent, name)?;
    match inode::observe(inode, told, &place) {
        Ok(()) => {
            inode.data().asked(told);
            Ok(Validity::Confirmed)
        }
        Err(ESTALE) => Ok(Validity::Gone),
        Err(error) => Err(error),
    }
}
