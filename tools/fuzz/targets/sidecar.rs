// SPDX-License-Identifier: GPL-2.0

//! Long run of the target `sidecar`.

#![no_main]

#[path = "../../proto/tests/proto/targets.rs"]
#[allow(dead_code, reason = "one target of several")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::sidecar(bytes));
