// SPDX-License-Identifier: GPL-2.0

//! Work that a store does by itself on a log: its segments are collected.

use kernel::prelude::*;
use seglog::layout::COLUMN_BYTES_MAX;

use super::{
    engine::Engine,
    medium::Kept,
    one_device::{
        LogDevice,
        OneDevice, //
    },
};

/// The pause behind a segment that cannot be read, and behind many others, in milliseconds.
const PAUSE_MS: u32 = 20;
/// The segments that are collected without a pause.
const UNPAUSED: u32 = 256;

/// Memory for collecting.
pub(super) struct Upkeep<D: Kept> {
    device: OneDevice,
    column: KVVec<u8>,
    /// The segment, and whether a batch of it was read.
    victim: Option<(D::Victim, bool)>,
    /// Whether something of it could be read, so far.
    is_readable: bool,
    /// The segments that were collected.
    count: u32,
    /// A pause is due: what cannot be read, or moved, is not tried again at once.
    is_vain: bool,
}

impl<D: Kept> Upkeep<D> {
    /// Allocates it. Sleeps.
    pub(super) fn new(device: &LogDevice) -> Result<Self> {
        Ok(Self {
            device: OneDevice::new(device)?,
            column: KVVec::from_elem(0, COLUMN_BYTES_MAX, GFP_KERNEL)?,
            victim: None,
            is_readable: false,
            count: 0,
            is_vain: false,
        })
    }

    /// Returns the pause that is due before the next step, in milliseconds.
    pub(super) fn take_pause_ms(&mut self) -> Option<u32> {
        core::mem::take(&mut self.is_vain).then_some(PAUSE_MS)
    }

    /// Reads the next batch of the segment, without the lock of the engine; returns whether that is
    /// all for this step. Sleeps.
    pub(super) fn load(&mut self) -> bool {
        let Some((victim, is_loaded @ false)) = &mut self.victim else {
            return false;
        };
        *is_loaded = D::load(victim, &mut self.device, &mut self.column);
        self.is_readable |= *is_loaded;
        *is_loaded
    }

    /// Takes a step under the lock of the engine; returns whether the next one may follow. A store
    /// that `is_ending`, and has ended its last request, waits for nothing that is moved.
    pub(super) fn step(&mut self, engine: &mut Engine<D>, is_ending: bool) -> bool {
        engine.is_collecting = false;
        if is_ending && engine.is_idle() {
            return false;
        }
        let medium = engine.store.medium_mut();
        match &mut self.victim {
            None if medium.is_low() => {
                let victim = medium.begin_collecting();
                self.victim = victim.map(|victim| (victim, false));
                self.victim.is_some()
            }
            None => false,
            Some((ended, false)) => {
                medium.end_collecting(ended);
                self.count = self.count.wrapping_add(1);
                let is_readable = core::mem::take(&mut self.is_readable);
                self.is_vain = !is_readable || self.count % UNPAUSED == 0;
                self.victim = None;
                engine.try_again();
                true
            }
            Some((victim, is_loaded)) => {
                let from = (victim, &*self.column);
                *is_loaded = !D::collect(&mut engine.store, from, &mut engine.acting);
                engine.is_collecting = *is_loaded;
                let may_go_on = !*is_loaded;
                engine.settle();
                may_go_on
            }
        }
    }
}
