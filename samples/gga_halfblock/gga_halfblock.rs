// SPDX-License-Identifier: GPL-2.0

//! Half blocks on three devices: the storage format, messages and life cycle of DOCA's GGA offload
//! application, as a program of the host. See `Documentation/gga-halfblock.md`.
//!
//! A block is compressed into its own size and cut into two halves, which go to the same place of
//! `data_1` and `data_2`; their parity goes to `data_p`. All three are overwritten in place: that
//! is the specification's design, and it has a write hole, which the tests show.
//!
//! Pure are [`stored`], [`stream`], [`matrix`], [`sbc`], [`control`], [`io_message`], [`states`].
//! The roles are [`target`], [`service`] with its [`worker`]s, and [`initiator`].

#![forbid(unsafe_code)]

pub mod commands;
pub mod control;
pub mod defect;
pub mod initiator;
pub mod io_message;
pub mod matrix;
pub mod members;
pub mod sbc;
pub mod service;
pub mod states;
pub mod statistics;
pub mod stored;
pub mod stream;
pub mod survey;
pub mod target;
pub mod worker;
