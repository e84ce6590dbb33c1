// SPDX-License-Identifier: GPL-2.0

//! The place of an object in the tree of gfmd.

use core::iter;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::proto::{
    attr::{
        FileId,
        Object, //
    },
    name::Name, //
};

/// The place of an object: its name in a directory, which has a place itself; and which object was
/// there when it was looked up. A place does not change; what is moved has another one.
pub(crate) struct Place {
    /// `None` for the root.
    parent: Option<Arc<Place>>,
    /// Empty for the root, else checked by [`Name::new`].
    name: KVec<u8>,
    /// `None` for the root.
    object: Option<Object>,
}

impl Place {
    /// Returns the place of the root, which may have any identity.
    pub(crate) fn root() -> Result<Arc<Self>> {
        let this = Self {
            parent: None,
            name: KVec::new(),
            object: None,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the place of an object, which is `name` in a directory.
    pub(crate) fn new(parent: &Arc<Self>, name: Name<'_>, object: Object) -> Result<Arc<Self>> {
        let mut bytes = KVec::new();
        bytes.extend_from_slice(name.as_bytes(), GFP_KERNEL)?;
        let this = Self {
            parent: Some(parent.clone()),
            name: bytes,
            object: Some(object),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Returns the names from the root to the object, or to a name in it, with a slash before each.
    pub(super) fn path(&self, below: Option<Name<'_>>) -> Result<KVec<u8>> {
        let last = below.map_or(&b""[..], Name::as_bytes);
        let above = || self.up().map(|place| &place.name[..]);
        let names = || Iterator::chain(iter::once(last), above());
        let len = names().fold(0, |len: usize, name| len.saturating_add(name.len() + 1));
        let mut path = KVec::from_elem(b'/', len, GFP_KERNEL)?;
        let mut end = len;
        for name in names() {
            let begin = end.saturating_sub(name.len());
            let place = path.get_mut(begin..end).unwrap_or_default();
            for (to, from) in place.iter_mut().zip(name) {
                *to = *from;
            }
            end = begin.saturating_sub(1);
        }
        Ok(path)
    }

    /// Returns the number of the object; 0 for the root.
    pub(super) fn inum(&self) -> u64 {
        self.object.map_or(0, |object| object.inum())
    }

    /// Returns whether the object has this identity: gfmd gives the number of a directory that is
    /// gone to the next object, which may be one that this user's neighbours may not look into.
    pub(super) fn has(&self, id: FileId) -> bool {
        // That of the root is not known.
        self.object.is_none_or(|object| object.is(id))
    }

    /// Returns whether this is the object with this identity in this directory, as far as one was
    /// walked to.
    pub(super) fn is_object(&self, dir: Option<FileId>, id: FileId) -> bool {
        let is_dir = match (&self.parent, dir) {
            (Some(parent), Some(dir)) => parent.has(dir),
            _ => true,
        };
        is_dir && self.has(id)
    }

    /// Returns whether this is the place of the root.
    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Returns whether this is `name` in that directory.
    pub(crate) fn is(&self, parent: &Arc<Self>, name: Name<'_>) -> bool {
        let here = self.parent.as_ref();
        here.is_some_and(|here| Arc::ptr_eq(here, parent)) && *self.name == *name.as_bytes()
    }

    /// Returns whether both are the same names from the root on.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let names = self.up().map(|place| &place.name[..]);
        names.eq(other.up().map(|place| &place.name[..]))
    }

    /// Iterates over the places from this one to the root.
    fn up(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |place| place.parent.as_deref())
    }
}

/// A long chain of directories is dropped without recursion: the stack of the kernel is small.
impl Drop for Place {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut last) = above.and_then(Arc::into_unique_or_drop) {
            above = last.parent.take();
        }
    }
}
