// SPDX-License-Identifier: GPL-2.0

//! The files of a device with a sidecar: `ctl/devices/D/sidecar`.

use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sysfs::{
    Attribute,
    Directory, //
};

use super::{
    growth,
    scrub,
    volume::Volume, //
};
use crate::proto::control::UnknownWord;

static FILES: [Attribute<Volume>; 2] = [
    Attribute::rw(c"grow", growth::show, growth::store),
    Attribute::rw(c"scrub", scrub::show, scrub::store),
];

/// Creates the files of a device, in the folder of its export.
pub(super) fn files(export: &Directory<()>, volume: Arc<Volume>) -> Result<Directory<Volume>> {
    Directory::new(export, c"sidecar", &FILES, volume)
}

/// Parses what was written to a file, which knows these words.
///
/// # Errors
///
/// `EINVAL` for an unknown word, with a log line.
pub(super) fn command<C>(
    volume: &Volume,
    (file, words): (&str, &str),
    written: &str,
    parse: impl FnOnce(&[u8]) -> Result<C, UnknownWord>,
) -> Result<C> {
    parse(written.as_bytes()).map_err(|reason| {
        let name = volume.device().name().unwrap_or_default();
        pr_err!(
            "{name}: {file}: '{}' is not {words}: ignored\n",
            Escaped(written.as_bytes())
        );
        Error::from(reason.errno())
    })
}
