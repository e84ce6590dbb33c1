// SPDX-License-Identifier: GPL-2.0

//! Implementations of traits of the `kernel` crate, which only the crate of a type may provide; not
//! compiled on the host.

use ferro_proto::forward_display;

use crate::Defect;

forward_display! {
    Defect,
}
