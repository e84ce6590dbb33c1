// SPDX-License-Identifier: GPL-2.0

//! The options of a mount: they say how its server behaves.

use core::str;
use kernel::{
    prelude::*,
    str::CStr, //
};
use kernel_ext::text::c_string;
use vfs_ext::{
    OptionError,
    ShownOptions, //
};

/// The options of a mount.
#[derive(Default)]
pub(crate) struct Options {
    /// The generation of the files; a remount may change it.
    pub(crate) generation: Option<u32>,
    /// The milliseconds until a subrequest is answered.
    pub(crate) delay_ms: Option<u32>,
    /// The bytes of an answer at most; the rest is read again.
    pub(crate) short_bytes: Option<u32>,
    /// Every so many subrequests one fails with `EIO`.
    pub(crate) fail_every: Option<u32>,
    /// Every so many subrequests one asks for a retry after half of its bytes.
    pub(crate) retry_every: Option<u32>,
    /// Every so many subrequests one is dropped without an answer.
    pub(crate) drop_every: Option<u32>,
    /// The file ends here, also if its attributes have a greater size.
    pub(crate) end_at: Option<u32>,
    /// The bytes of a subrequest at most.
    pub(crate) read_bytes: Option<u32>,
    /// The pages that are read ahead.
    pub(crate) readahead_pages: Option<u32>,
    /// The milliseconds for which a name is taken to hold.
    pub(crate) assume_ms: Option<u32>,
    /// The port of a server in user space, which has the data.
    pub(crate) port: Option<u32>,
    /// Answers in the task that reads, not in a worker.
    pub(crate) inline: bool,
    /// Drops the cached data of a file when it is opened.
    pub(crate) forget: bool,
    /// Answers nothing until `umount -f`.
    pub(crate) hold: bool,
    /// Refuses data of a generation that is not that of the server.
    pub(crate) stale: bool,
    /// Has the kernel remember what the names of a directory stand for.
    pub(crate) remember: bool,
    /// Drops the cached data of a file before each read.
    pub(crate) doubt: bool,
    /// Answers with pages that come from several places.
    pub(crate) lend: bool,
    /// Looks at what is cached of a file before each answer.
    pub(crate) look: bool,
    /// The description of a key that the mount needs.
    pub(crate) secret: Option<kernel::str::CString>,
    /// A text without a meaning.
    label: Option<kernel::str::CString>,
}

impl Options {
    fn number(&mut self, name: &[u8]) -> Option<&mut Option<u32>> {
        Some(match name {
            b"generation" => &mut self.generation,
            b"delay_ms" => &mut self.delay_ms,
            b"short_bytes" => &mut self.short_bytes,
            b"fail_every" => &mut self.fail_every,
            b"retry_every" => &mut self.retry_every,
            b"drop_every" => &mut self.drop_every,
            b"end_at" => &mut self.end_at,
            b"read_bytes" => &mut self.read_bytes,
            b"readahead_pages" => &mut self.readahead_pages,
            b"assume_ms" => &mut self.assume_ms,
            b"port" => &mut self.port,
            _ => return None,
        })
    }

    fn flag(&mut self, name: &[u8]) -> Option<&mut bool> {
        Some(match name {
            b"inline" => &mut self.inline,
            b"forget" => &mut self.forget,
            b"hold" => &mut self.hold,
            b"stale" => &mut self.stale,
            b"remember" => &mut self.remember,
            b"doubt" => &mut self.doubt,
            b"lend" => &mut self.lend,
            b"look" => &mut self.look,
            _ => return None,
        })
    }

    /// Takes one option.
    pub(crate) fn set(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), OptionError> {
        if let Some(flag) = self.flag(name) {
            if value.is_some() {
                return Err(OptionError::Refused(c"takes no value"));
            }
            *flag = true;
            return Ok(());
        }
        if name == b"label" || name == b"secret" {
            let text = value.ok_or(OptionError::Refused(c"needs a value"))?;
            let text = c_string(text).map_err(|_| OptionError::Refused(c"not a text"))?;
            if name == b"label" {
                self.label = Some(text);
            } else {
                self.secret = Some(text);
            }
            return Ok(());
        }
        let number = self.number(name).ok_or(OptionError::Unknown)?;
        let parsed = value
            .and_then(|value| str::from_utf8(value).ok())
            .and_then(|value| value.parse().ok())
            .filter(|value| *value > 0);
        *number = Some(parsed.ok_or(OptionError::Refused(c"not a number above 0"))?);
        Ok(())
    }

    /// Shows what differs from the defaults.
    pub(crate) fn show(&self, generation: u32, shown: &mut ShownOptions<'_>) -> Result {
        shown.value(c"generation", fmt!("{generation}"))?;
        let numbers: [(&CStr, Option<u32>); 10] = [
            (c"delay_ms", self.delay_ms),
            (c"short_bytes", self.short_bytes),
            (c"fail_every", self.fail_every),
            (c"retry_every", self.retry_every),
            (c"drop_every", self.drop_every),
            (c"end_at", self.end_at),
            (c"read_bytes", self.read_bytes),
            (c"readahead_pages", self.readahead_pages),
            (c"assume_ms", self.assume_ms),
            (c"port", self.port),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                shown.value(name, fmt!("{number}"))?;
            }
        }
        for (name, is_set) in [
            (c"inline", self.inline),
            (c"forget", self.forget),
            (c"hold", self.hold),
            (c"stale", self.stale),
            (c"remember", self.remember),
            (c"doubt", self.doubt),
            (c"lend", self.lend),
            (c"look", self.look),
        ] {
            if is_set {
                shown.flag(name);
            }
        }
        if let Some(label) = &self.label {
            shown.text(c"label", label);
        }
        Ok(())
    }
}
