// SPDX-License-Identifier: GPL-2.0

//! Carries out what an array begins and tells.

use block_ext::{
    bdev::BlockDevice,
    bio::BioPool,
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    random, //
};
use seglog::{
    layout::SLOT_BYTES,
    members::{
        Members,
        MEMBERS, //
    },
    superblock::SUPERBLOCK_BYTES, //
};

use super::{
    core::{
        Event,
        ENDED_MAX, //
    },
    submit::{
        MemberIo,
        Operation,
        Submitter, //
    },
};
use crate::proto::{
    array::{
        Actions,
        Io, //
    },
    geometry::BLOCK_BYTES, //
};

/// The IOs that are begun however little memory there is: all, as those of a member that hangs do
/// not end.
// CAST: 256.
const BIOS_RESERVED: u16 = ENDED_MAX as u16;

/// News of an array since the engine last asked for them.
#[derive(Clone, Copy, Default)]
pub(super) struct Told {
    /// A bit for each slot whose batch is acknowledged.
    pub(super) acknowledged: u32,
    pub(super) is_flushed: bool,
    pub(super) failed: Members,
    pub(super) joined: Members,
}

/// The members of an array, and the memory of what it writes beside batches.
pub(super) struct Means {
    pub(super) devices: [Option<Arc<BlockDevice>>; MEMBERS],
    /// The submitters, one for each member; `None` until the array runs.
    pub(super) submitters: Option<[Arc<Submitter>; MEMBERS]>,
    bios: Arc<BioPool<MemberIo>>,
    superblocks: [Arc<PageBlock>; MEMBERS],
    /// The page of the table that is written, as it is made and as it is written.
    page: KVec<u8>,
    page_image: Arc<PageBlock>,
}

impl Means {
    /// Allocates the memory. Sleeps.
    pub(super) fn new(devices: [Option<Arc<BlockDevice>>; MEMBERS]) -> Result<Self> {
        let page = || -> Result<_> { Ok(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?) };
        Ok(Self {
            devices,
            submitters: None,
            bios: Arc::new(BioPool::new(BIOS_RESERVED)?, GFP_KERNEL)?,
            superblocks: [page()?, page()?, page()?],
            page: KVec::from_elem(0, BLOCK_BYTES, GFP_KERNEL)?,
            page_image: page()?,
        })
    }

    /// Exchanges the device of a member; returns the one before.
    pub(super) fn exchange(
        &mut self,
        member: usize,
        device: Option<Arc<BlockDevice>>,
    ) -> Option<Arc<BlockDevice>> {
        let place = self.devices.get_mut(member)?;
        core::mem::replace(place, device)
    }

    /// Begins an IO of a member.
    pub(super) fn submit(&self, (member, event): (usize, Event), what: Operation) {
        let submitter = self.submitters.as_ref().and_then(|all| all.get(member));
        let Some(submitter) = submitter else {
            // Before there are submitters nothing is begun.
            return;
        };
        let Some(Some(device)) = self.devices.get(member) else {
            // Only members that are there are written and read.
            return submitter.end(event);
        };
        MemberIo::begin(submitter, (device, &self.bios), event, what);
    }
}

/// A call of the array.
pub(super) struct Acting<'a> {
    pub(super) means: &'a mut Means,
    pub(super) told: &'a mut Told,
}

impl Acting<'_> {
    fn begin(
        &self,
        (member, io): (usize, Io),
        (op, flags, at): (Op, Flags, u64),
        data: Option<(&Arc<PageBlock>, usize)>,
    ) {
        let data = data.map(|(pages, len)| (pages.clone(), len));
        let event = Event::Array { io, member };
        let what = Operation {
            op,
            flags,
            at,
            data,
        };
        self.means.submit((member, event), what);
    }
}

impl Actions for Acting<'_> {
    fn write_superblock(&mut self, member: usize, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        let Some(pages) = self.means.superblocks.get(member) else {
            return;
        };
        // The rest of the slot stays zero.
        if pages.copy_in(0, bytes).is_ok() {
            let what = (Op::Write, Flags::FUA | Flags::META | Flags::SYNC, at);
            let data = Some((pages, SLOT_BYTES as usize));
            self.begin((member, Io::Superblock), what, data);
        }
    }

    fn page(&mut self) -> &mut [u8] {
        &mut self.means.page
    }

    fn write_page(&mut self, member: usize, at: u64) {
        let (page, image) = (&self.means.page, &self.means.page_image);
        if image.copy_in(0, page).is_ok() {
            let what = (Op::Write, Flags::META, at);
            self.begin((member, Io::Page), what, Some((image, page.len())));
        }
    }

    fn flush(&mut self, member: usize, io: Io) {
        self.begin((member, io), (Op::Flush, Flags::NONE, 0), None);
    }

    fn random(&mut self) -> u64 {
        random::number() | 1
    }

    fn acknowledged(&mut self, slot: usize) {
        self.told.acknowledged |= 1 << slot;
    }

    fn flushed(&mut self) {
        self.told.is_flushed = true;
    }

    fn failed(&mut self, members: Members) {
        self.told.failed = self.told.failed.or(members);
    }

    fn joined(&mut self, member: usize) {
        self.told.joined = self.told.joined.or(Members::of(member));
    }
}
