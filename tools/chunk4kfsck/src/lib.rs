// SPDX-License-Identifier: GPL-2.0

//! Checks a file or a device of chunks (`lib/chunk4k/`), and says which are bad. Reads only.

pub mod checksums;
pub mod rules;
pub mod scan;
pub mod show;
