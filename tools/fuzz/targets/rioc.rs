// SPDX-License-Identifier: GPL-2.0

//! Long run of what `tools/rioc` holds for any bytes.

#![no_main]

#[path = "../../rioc/tests/format/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::any(bytes));
