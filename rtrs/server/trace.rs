// SPDX-License-Identifier: GPL-2.0

//! The records of this module's state machines: see [`rtrs_core::trace`].

rtrs_core::trace_log!();
