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
    Kind,
    Name,
    SuperBlock,
    Validity, //
};

use super::{
    attributes::Told,
    node,
    node::Node,
    Gfarm, //
};
use crate::{
    net::Place,
    proto::{
        name,
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
        Node::new(place.clone(), &told)
    })?;
    if root.kind() != Kind::Directory {
        return Err(EIO);
    }
    node::observe(&root, &told, &place)?;
    mount.publish(sb.device_minor())?;
    Ok(root)
}

/// Returns the inode of an object that was found as `name` in a directory.
pub(super) fn inode<'a>(
    dir: &'a Inode<Gfarm>,
    parent: &Arc<Place>,
    name: name::Name<'_>,
    told: &Told,
) -> Result<InodeRef<'a, Gfarm>> {
    for _ in 0..INODES_MAX {
        let inode = dir.super_block().inode(told.key(), &told.attributes, || {
            let place = Place::new(parent, name, told.observed.id.inum)?;
            Node::new(place, told)
        })?;
        let place = inode.data().place_of(parent, name)?;
        match node::observe(&inode, told, &place) {
            // Those that have it open keep it; from now on it is not found by its number.
            Err(ESTALE) if inode.kind() == Kind::Regular => inode.unhash(),
            observed => return observed.map(|()| inode),
        }
    }
    Err(ESTALE)
}

/// Looks up a name that the kernel does not know.
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
    inode(dir, &parent, name, &told).map(Some)
}

/// Returns whether what the kernel remembers of a name still holds.
pub(super) fn revalidate(dir: &Inode<Gfarm>, name: &Name<'_, Gfarm>) -> Result<Validity> {
    let sb = dir.super_block();
    let mount = sb.data();
    let max_s = mount.options().get(Setting::Actimeo);
    let parent = dir.data().place();
    let child = name::Name::new(name.bytes).map_err(|reason| Error::from(reason.errno()))?;
    let file = name.inode.filter(|inode| inode.kind() == Kind::Regular);
    // The open asks by this name itself, and finds out if it leads to another file now.
    let is_asked = name.is_opened && file.is_some();
    // Where there was no file, nothing but the question here finds one.
    let is_missed = name.is_opened && name.inode.is_none();
    let is_young = u64::from(name.age_ms) < u64::from(max_s) * 1000;
    if !name.is_forced && (is_asked || is_young && !is_missed) {
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
    match node::observe(inode, told, &place) {
        Ok(()) => Ok(Validity::Confirmed),
        Err(ESTALE) => Ok(Validity::Gone),
        Err(error) => Err(error),
    }
}
