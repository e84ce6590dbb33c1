// SPDX-License-Identifier: GPL-2.0

//! The name that an open file goes by.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    call::Call,
    place::Place,
    setup::{
        Shown,
        LOG, //
    }, //
};
use crate::proto::{
    question::Kind,
    retry::Fault, //
};

/// A name by which a file is opened again, in memory of its own.
pub(super) struct Naming {
    pub(super) place: Arc<Place>,
    pub(super) opening: Arc<Call>,
}

impl Naming {
    /// Allocates it. May sleep.
    pub(super) fn new(place: &Arc<Place>) -> Result<Self> {
        Ok(Self {
            place: place.clone(),
            opening: Call::new(Kind::Open, place.path(None)?)?,
        })
    }
}

/// Writes a line about a file that cannot be read, as its attempts have failed for a reason;
/// without one no gfsd has an address here.
pub(super) fn warn_unreadable(place: &Place, reason: Option<Fault>) {
    let inum = place.inum();
    match (reason, LOG.allow()) {
        (_, None) => {}
        (None, _) => pr_warn!("file {} cannot be read: no gfsd has an address\n", inum),
        (Some(fault), _) => pr_warn!("file {} cannot be read: {}\n", inum, Shown(fault)),
    }
}
