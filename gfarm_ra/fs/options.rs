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

use crate::proto::options::{
    OptionError as Reason,
    Options, //
};

forward_display! {
    Options,
    Reason<'_>,
}

/// Returns the options that are in force if none is given. They pass through the stack here, and
/// not below the work with them.
#[inline(never)]
fn defaults() -> Result<UniqueArc<Options>> {
    Ok(UniqueArc::new_uninit(GFP_KERNEL)?.write(Options::default()))
}

/// The options that were given so far. They are on the heap: they are too large for the stack.
#[derive(Default)]
pub(crate) struct Collected(Option<UniqueArc<Options>>);

impl Collected {
    /// Takes one option.
    pub(super) fn set(
        &mut self,
        context: &MountContext<'_>,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), OptionError> {
        let options = self.options().map_err(|_| {
            context.fail(fmt!("out of memory"));
            OptionError::Explained
        })?;
        match options.set(name, value) {
            Ok(()) => Ok(()),
            Err(Reason::Unknown(_)) => Err(OptionError::Unknown),
            Err(reason) => {
                context.fail(fmt!("{reason}"));
                Err(OptionError::Explained)
            }
        }
    }

    fn options(&mut self) -> Result<&mut Options> {
        if self.0.is_none() {
            self.0 = Some(defaults()?);
        }
        self.0.as_deref_mut().ok_or(ENOMEM)
    }

    /// Returns the options, if those that are required were given, and all have an effect.
    pub(super) fn finish(mut self, context: &MountContext<'_>) -> Result<Arc<Options>> {
        if let Err(reason) = self.options()?.check() {
            context.fail(fmt!("{reason}"));
            return Err(reason.errno().into());
        }
        self.0.map(Into::into).ok_or(EINVAL)
    }

    /// Checks the options of a remount: none, or those that are in force. `mount(8)` gives all that
    /// `/proc/mounts` shows, so the descriptions of keys may be missing.
    pub(super) fn check_same(self, context: &MountContext<'_>, in_force: &Options) -> Result {
        if self.0.is_none_or(|given| given.is_shown_as(in_force)) {
            return Ok(());
        }
        context.fail(fmt!("options cannot be changed by a remount"));
        Err(EINVAL)
    }
}
