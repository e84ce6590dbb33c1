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

/// What the options that begin like this are for, which is no part of this version.
const INFINIBAND: &[u8] = b"ib_";

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
            // Valid or not: what has no effect is not accepted in silence.
            Ok(()) | Err(Reason::Setting(..) | Reason::Value { .. })
                if name.starts_with(INFINIBAND) =>
            {
                Err(OptionError::Refused(
                    c"needs the page cache service of a later version",
                ))
            }
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
            self.0 = Some(UniqueArc::new(Options::default(), GFP_KERNEL)?);
        }
        self.0.as_deref_mut().ok_or(ENOMEM)
    }

    /// Returns the options, if those that are required were given.
    pub(super) fn finish(mut self, context: &MountContext<'_>) -> Result<Arc<Options>> {
        if let Err(reason) = self.options()?.check() {
            context.fail(fmt!("{reason}"));
            return Err(reason.errno().into());
        }
        self.0.map(Into::into).ok_or(EINVAL)
    }

    /// Checks the options of a remount: none, or those that are in force. `mount(8)` gives all that
    /// `/proc/mounts` shows, so the description of the key may be missing.
    pub(super) fn check_same(self, context: &MountContext<'_>, in_force: &Options) -> Result {
        if self.0.is_none_or(|given| given.is_shown_as(in_force)) {
            return Ok(());
        }
        context.fail(fmt!("options cannot be changed by a remount"));
        Err(EINVAL)
    }
}
