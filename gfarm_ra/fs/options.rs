// SPDX-License-Identifier: GPL-2.0

//! The options of a mount, as they come one by one.

use ferro_proto::forward_display;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    }, //
};
use vfs_ext::{
    MountContext,
    OptionError, //
};

use crate::proto::{
    id_map::{
        Maps,
        Text, //
    },
    options::{
        OptionError as Reason,
        Options, //
    }, //
};

forward_display! {
    Maps<Bytes>,
    Options,
    Reason<'_>,
}

/// The entries of a map.
#[derive(Default, PartialEq)]
pub(crate) struct Bytes(KVVec<u8>);

impl Text for Bytes {
    fn get(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes, GFP_KERNEL).is_ok()
    }
}

/// Returns the options that are in force if none is given. They pass through the stack here, and
/// not below the work with them.
#[inline(never)]
fn defaults() -> Result<UniqueArc<Options>> {
    Ok(UniqueArc::new_uninit(GFP_KERNEL)?.write(Options::default()))
}

/// The options that were given so far. They are on the heap: they are too large for the stack.
#[derive(Default)]
pub(crate) struct Collected {
    options: Option<UniqueArc<Options>>,
    maps: Maps<Bytes>,
}

impl Collected {
    /// Takes one option.
    pub(super) fn set(
        &mut self,
        context: &MountContext<'_>,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), OptionError> {
        let taken = match self.maps.set(name, value) {
            Some(taken) => taken,
            None => {
                let options = self.options().map_err(|_| {
                    context.fail(fmt!("out of memory"));
                    OptionError::Explained
                })?;
                options.set(name, value)
            }
        };
        match taken {
            Ok(()) => Ok(()),
            Err(Reason::Unknown(_)) => Err(OptionError::Unknown),
            Err(reason) => {
                context.fail(fmt!("{reason}"));
                Err(OptionError::Explained)
            }
        }
    }

    fn options(&mut self) -> Result<&mut Options> {
        if self.options.is_none() {
            self.options = Some(defaults()?);
        }
        self.options.as_deref_mut().ok_or(ENOMEM)
    }

    /// Returns the options, if those that are required were given, and all have an effect.
    pub(super) fn finish(
        mut self,
        context: &MountContext<'_>,
    ) -> Result<(Arc<Options>, Maps<Bytes>)> {
        if let Err(reason) = self.options()?.check() {
            context.fail(fmt!("{reason}"));
            return Err(reason.errno().into());
        }
        Ok((self.options.ok_or(EINVAL)?.into(), self.maps))
    }

    /// Checks the options of a remount: none, or those that are in force. `mount(8)` gives all that
    /// `/proc/mounts` shows, so the descriptions of keys may be missing.
    pub(super) fn check_same(
        self,
        context: &MountContext<'_>,
        in_force: &Options,
        maps: &Maps<Bytes>,
    ) -> Result {
        let is_none = self.options.is_none() && self.maps.is_empty();
        let options = self.options;
        let is_shown = options.is_none_or(|given| given.is_shown_as(in_force));
        if is_none || (is_shown && self.maps == *maps) {
            return Ok(());
        }
        context.fail(fmt!("options cannot be changed by a remount"));
        Err(EINVAL)
    }
}
