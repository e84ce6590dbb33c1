// SPDX-License-Identifier: GPL-2.0

//! The replay, with all states in which the power can fail in it.

use std::io;

use pi_sidecar::{
    device::Device,
    volume::OnDamage, //
};
use proto::sidecar::{
    group,
    record::Unit,
    ring::Ring,
    tuple::Verdict,
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        apply,
        crash_images,
        visible,
        Fast,
        Image,
        Shape,
        Write, //
    },
    world::Setting,
    Mistake, //
};

/// What a reader gets for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// The data with this number.
    Version(u32),
    /// Zeroes of a block without data.
    Zeroes,
    /// The error of a block that was torn.
    Lost,
    /// Another error.
    Bad,
}

/// The device under a replay.
pub(crate) struct Replayed<'a> {
    pub(crate) shape: &'a mut Shape,
    pub(crate) medium: Image,
    pub(crate) writes: Vec<Write>,
    pub(crate) setting: &'a Setting,
    flushes: u32,
    /// All that a crash can leave.
    images: Vec<Image>,
}

impl Replayed<'_> {
    fn settle(&mut self) {
        for write in std::mem::take(&mut self.writes) {
            apply(self.shape, &mut self.medium, &write);
        }
    }
}

impl Device for Replayed<'_> {
    fn blocks(&self) -> u64 {
        self.shape.layout.device_blocks()
    }

    fn unit(&self) -> Unit {
        self.setting.unit
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        let place = self.shape.place(block);
        let parts = visible(self.shape, &self.medium, &self.writes, place);
        self.shape.join(place, &parts, to);
        Ok(())
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        let place = self.shape.place(block);
        let parts = self.shape.split(place, from);
        self.writes.push(Write {
            place,
            parts,
            is_done: true,
        });
        self.images
            .extend(crash_images(self.shape, &self.medium, &self.writes));
        if fua || !self.setting.is_volatile {
            // What is older in the cache cannot be written any more.
            let writes = std::mem::take(&mut self.writes).into_iter();
            let (here, others): (Vec<_>, _) = writes.partition(|write| write.place == place);
            self.writes = others;
            for write in &here {
                apply(self.shape, &mut self.medium, write);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        match (self.flushes, self.setting.mistake) {
            (2, Mistake::MarkBeforeHomes) => {}
            _ => self.settle(),
        }
        Ok(())
    }
}

/// What a replay leads to.
pub(crate) struct Recovered {
    /// What readers get for each block of data.
    pub(crate) seen: Vec<Seen>,
    /// What a crash in the replay, or after it, can leave.
    pub(crate) images: Vec<Image>,
    /// What is on the device at the end, if all of it is durable.
    pub(crate) end: Image,
    pub(crate) ring: Ring,
}

/// Replays the journal of a device with `medium`, and `writes` in its cache.
pub(crate) fn recover(
    shape: &mut Shape,
    setting: &Setting,
    (medium, writes): (&Image, &[Write]),
) -> Recovered {
    let mut device = Replayed {
        shape,
        medium: medium.clone(),
        writes: writes.to_vec(),
        setting,
        flushes: 0,
        images: crash_images_of_cache(medium, writes),
    };
    let (outcome, ring) = setting
        .volume
        .replay(&mut device, OnDamage::Refuse)
        .unwrap_or_else(|fault| panic!("no replay: {fault}"));
    assert_eq!(outcome.missing, 0, "a record is missing");
    let blocks = setting.data.iter();
    let seen = blocks.map(|block| see(&mut device, *block)).collect();
    let mut images = std::mem::take(&mut device.images);
    images.extend(crash_images(device.shape, &device.medium, &device.writes));
    images.sort_unstable();
    images.dedup();
    Recovered {
        seen,
        images,
        end: device.medium,
        ring,
    }
}

fn crash_images_of_cache(medium: &Image, writes: &[Write]) -> Vec<Image> {
    // Without a cache the device starts as it is.
    if writes.is_empty() {
        vec![medium.clone()]
    } else {
        Vec::new()
    }
}

/// The number of the version that a block of data has: its first four bytes.
pub(crate) fn version(block: &Block) -> u32 {
    u32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

fn see(device: &mut Replayed<'_>, block: u64) -> Seen {
    let volume = device.setting.volume;
    let (group, index) = group::place(block);
    let mut home = [0; BLOCK_BYTES];
    device
        .read(volume.layout().home(group).unwrap(), &mut home)
        .unwrap();
    let mut data = [0; BLOCK_BYTES];
    device
        .read(volume.layout().data(block).unwrap().0, &mut data)
        .unwrap();
    let tuple = group::tuple(&home, index);
    match volume.seal().check(&tuple, block, Fast::RIGHT.crc64(&data)) {
        Verdict::Good => Seen::Version(version(&data)),
        Verdict::Unwritten => Seen::Zeroes,
        Verdict::Lost => Seen::Lost,
        Verdict::WrongGuard | Verdict::WrongReference => Seen::Bad,
    }
}
