// SPDX-License-Identifier: GPL-2.0

//! The replay, with all states in which the power can fail in it.

use std::io;

use pi_sidecar::{
    device::Device,
    volume::{
        Fault,
        OnDamage,
        Volume, //
    },
};
use proto::sidecar::{
    group,
    layout::SUPERBLOCK,
    record::Unit,
    recovery,
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
    setting::{
        Faults,
        Setting, //
    },
    Mistake, //
};

/// The answer that a reader gets for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// The data with this number.
    Version(u32),
    /// Zeroes of a block without data.
    Zeroes,
    /// The error of a block that was torn.
    Lost,
    /// The device does not have the block: it has not grown.
    Absent,
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
    /// The device that the superblock in a block describes; `None` if it is not of interest.
    fn load(&mut self, here: u64) -> Option<Result<Volume<Fast>, Fault>> {
        let is_known = self.shape.has_superblock();
        is_known.then(|| Volume::load_from(self, here, Fast(self.setting.mistake)))
    }

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
            first: 0,
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

    fn zero(&mut self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        match (self.flushes, self.setting.mistake) {
            (2, Mistake::MarkBeforePiBlocks) => {}
            _ => self.settle(),
        }
        Ok(())
    }
}

/// The outcome of a replay.
pub(crate) struct Recovered {
    /// The answers that readers get for each block of data.
    pub(crate) seen: Vec<Seen>,
    /// The images that a crash in the replay, or after it, can leave.
    pub(crate) images: Vec<Image>,
    /// The image at the end, if all of it is durable.
    pub(crate) end: Image,
    pub(crate) ring: Ring,
    /// The device is refused, and was repaired then.
    pub(crate) is_refused: bool,
    /// The answers that readers get if the superblock is repaired from its copy, if that can be
    /// used.
    pub(crate) repaired: Option<Vec<Seen>>,
}

/// Replays the journal of a device with `medium`, and `writes` in its cache. The device is that of
/// `volume`, or that which a superblock of interest describes.
pub(crate) fn recover(
    shape: &mut Shape,
    setting: &Setting,
    (medium, writes): (&Image, &[Write]),
) -> Recovered {
    let repaired = repair(shape, setting, (medium, writes));
    let mut device = Replayed {
        shape,
        medium: medium.clone(),
        writes: writes.to_vec(),
        setting,
        flushes: 0,
        images: crash_images_of_cache(medium, writes),
    };
    let loaded = device.load(SUPERBLOCK);
    let mut volume = loaded.map_or(setting.volume, |loaded| {
        loaded.unwrap_or_else(|fault| panic!("cannot be used: {fault}"))
    });
    let (mut on_damage, mut is_refused) = (OnDamage::Refuse, false);
    let ring = loop {
        match volume.replay(&mut device, on_damage) {
            Ok((_, ring)) => break ring,
            Err(Fault::Journal(recovery::Fault::Outgrown { .. })) if !is_refused => {
                let last = device.shape.layout.copy();
                volume = device.load(last).unwrap().unwrap();
                volume.save_to(&mut device, SUPERBLOCK).unwrap();
                is_refused = true;
            }
            Err(fault) if is_refused || setting.faults != Faults::All => {
                panic!("no replay: {fault}")
            }
            // The result of a repair counts as well.
            Err(_) => (on_damage, is_refused) = (OnDamage::Accept, true),
        }
    };
    let blocks = setting.data.iter();
    let seen = blocks
        .map(|block| see(&mut device, &volume, *block))
        .collect();
    let mut images = std::mem::take(&mut device.images);
    images.extend(crash_images(device.shape, &device.medium, &device.writes));
    images.sort_unstable();
    images.dedup();
    Recovered {
        seen,
        images,
        end: device.medium,
        ring,
        is_refused,
        repaired,
    }
}

/// Returns the answers that readers get if the superblock is lost, and is repaired from its copy in
/// the last block.
fn repair(
    shape: &mut Shape,
    setting: &Setting,
    (medium, writes): (&Image, &[Write]),
) -> Option<Vec<Seen>> {
    let last = shape.layout.copy();
    let mut device = Replayed {
        shape,
        medium: medium.clone(),
        writes: writes.to_vec(),
        setting,
        flushes: 0,
        images: Vec::new(),
    };
    let volume = device.load(last)?.ok()?;
    let replayed = volume.replay(&mut device, OnDamage::Refuse);
    replayed.unwrap_or_else(|fault| panic!("no replay after a repair: {fault}"));
    let blocks = setting.data.iter();
    Some(
        blocks
            .map(|block| see(&mut device, &volume, *block))
            .collect(),
    )
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

fn see(device: &mut Replayed<'_>, volume: &Volume<Fast>, block: u64) -> Seen {
    let (group, index) = group::place(block);
    let Some(at) = volume.layout().pi_block(group) else {
        return Seen::Absent;
    };
    let mut pi_block = [0; BLOCK_BYTES];
    device.read(at, &mut pi_block).unwrap();
    let mut data = [0; BLOCK_BYTES];
    device
        .read(volume.layout().data(block).unwrap().0, &mut data)
        .unwrap();
    let tuple = group::tuple(&pi_block, index);
    match volume.seal().check(&tuple, block, Fast::RIGHT.crc64(&data)) {
        // Those with which the device was formatted.
        Verdict::Good if data == [0; BLOCK_BYTES] => Seen::Zeroes,
        Verdict::Good => Seen::Version(version(&data)),
        Verdict::Unwritten => Seen::Zeroes,
        Verdict::Lost => Seen::Lost,
        Verdict::WrongGuard | Verdict::WrongReference => Seen::Bad,
    }
}
