// SPDX-License-Identifier: GPL-2.0

//! A queue pair for data, with the machine of the read that uses it.

use proto::gfarm::cache::{
    address::NodeId,
    fragment::FragmentLen,
    pages::PageSet,
    reassembly::{
        Move,
        Place, //
    },
    request::{
        Ask,
        RequestId,
        Wanted, //
    },
    requester::Requester,
    tags::Tags, //
};

use crate::{
    faults::LANES,
    message::{
        generation,
        sum,
        Fragment, //
    },
};

/// Receives that were posted for one request.
#[derive(Clone, Debug)]
pub(crate) struct Receives {
    pub(crate) qkey: u32,
    /// The pages over which they are laid, in their order.
    pub(crate) pages: Vec<u8>,
    /// The number of receives that have completed, and the memory of each slot.
    pub(crate) used: usize,
    pub(crate) slots: Vec<Option<Fragment>>,
}

/// A queue pair, and what it is used for.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The machine of the last read. It stays until the next one: what comes late finds it.
    pub(crate) machine: Option<Requester>,
    pub(crate) is_over: bool,
    pub(crate) tags: Tags,
    /// The read.
    pub(crate) read: u64,
    pub(crate) wanted: Option<Wanted>,
    pub(crate) began_us: u64,
    pub(crate) asks: u32,
    /// The timer that is valid.
    pub(crate) round: u32,
    /// The peer at which a request is counted.
    pub(crate) credit: Option<usize>,
    /// The request that is sent when the queue pair has its key.
    pub(crate) unsent: Option<(usize, Wanted, Ask)>,
    /// The commands to the firmware before the next request to a holder can be sent, and the time
    /// when a worker has given them, if it is to.
    pub(crate) commands: u64,
    pub(crate) keyed_ns: u64,
    /// The last request to an owner: to which node, and with which time limit.
    pub(crate) last: Option<(usize, RequestId, Wanted, u16)>,
    /// The holder that is asked, and for how many others it says that it waits.
    pub(crate) holder: Option<NodeId>,
    pub(crate) told_depth: u8,
    /// The receives that the device has, and those that it has no longer.
    pub(crate) posted: Option<Receives>,
    pub(crate) stopped: Option<Receives>,
    /// The memory of the pages that are wanted, part by part, in their order.
    pages: Vec<u8>,
    memory: Vec<Option<Fragment>>,
}

impl Lane {
    pub(crate) const fn new(number: u16) -> Self {
        Self {
            machine: None,
            is_over: true,
            tags: Tags::new(number, LANES),
            read: 0,
            wanted: None,
            began_us: 0,
            asks: 0,
            round: 0,
            credit: None,
            unsent: None,
            commands: 0,
            keyed_ns: 0,
            last: None,
            holder: None,
            told_depth: 0,
            posted: None,
            stopped: None,
            pages: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Takes a read of the node `me`, with the machine of the last one; `false` if its pages have
    /// too many fragments.
    pub(crate) fn begin(
        &mut self,
        me: NodeId,
        read: u64,
        wanted: Wanted,
        len: FragmentLen,
        now_us: u64,
    ) -> bool {
        let machine = self.machine.take();
        let mut machine = machine.unwrap_or_else(|| Requester::idle(me, len));
        if !machine.renew(&wanted) {
            return false;
        }
        let pages: Vec<u8> = wanted.pages().iter().collect();
        *self = Self {
            machine: Some(machine),
            is_over: false,
            read,
            wanted: Some(wanted),
            began_us: now_us,
            round: self.round + 1,
            memory: vec![None; pages.len() * len.per_page()],
            pages,
            tags: self.tags,
            commands: self.commands,
            keyed_ns: self.keyed_ns,
            ..Self::new(0)
        };
        true
    }

    /// Returns how long it takes until a request to a holder can be sent, and takes note of it.
    pub(crate) fn key(&mut self, now_ns: u64, command_ns: u64) -> u64 {
        let commands = std::mem::replace(&mut self.commands, 1);
        match self.keyed_ns {
            // No worker has looked at it since it was used.
            0 => commands * command_ns,
            keyed_ns => {
                self.keyed_ns = 0;
                keyed_ns.saturating_sub(now_ns)
            }
        }
    }

    /// Posts receives for pages.
    pub(crate) fn post(&mut self, qkey: u32, pages: PageSet, len: FragmentLen) {
        let pages: Vec<u8> = pages.iter().collect();
        self.posted = Some(Receives {
            qkey,
            used: 0,
            slots: vec![None; pages.len() * len.per_page()],
            pages,
        });
    }

    /// Carries out the moves of the machine, unless `skips`, and has what is in the slots as the
    /// content of the pages then.
    pub(crate) fn settle(&mut self, len: FragmentLen, skips: bool) {
        let (Some(mut receives), Some(machine)) = (self.stopped.take(), &mut self.machine) else {
            return;
        };
        let mut spare = None;
        while let Some(Move { from, to }) = machine.next_move() {
            let content = match from {
                Place::Slot(slot) => receives.slots[usize::from(slot)],
                Place::Spare => spare,
            };
            match to {
                _ if skips => {}
                Place::Slot(slot) => receives.slots[usize::from(slot)] = content,
                Place::Spare => spare = content,
            }
        }
        self.write(&receives, len);
    }

    /// The device has written to pages, whether the machine takes them or not.
    pub(crate) fn write(&mut self, receives: &Receives, len: FragmentLen) {
        for (rank, page) in receives.pages.iter().enumerate() {
            if let Ok(place) = self.pages.binary_search(page) {
                self.memory[len.of_page(place)].copy_from_slice(&receives.slots[len.of_page(rank)]);
            }
        }
    }

    /// Returns which of the pages that are complete do not have the sums that their holder tells.
    pub(crate) fn damaged(&self, complete: PageSet, len: FragmentLen) -> PageSet {
        let mut damaged = PageSet::EMPTY;
        let Some(machine) = &self.machine else {
            return damaged;
        };
        for (rank, page) in self.pages.iter().enumerate() {
            let mut parts = self.memory[len.of_page(rank)].iter().flatten();
            let first = parts.clone().next();
            let found = first.map(|part| sum(part.gen, part.chunk.into(), part.page));
            let found = found.filter(|_| parts.all(|part| !part.is_damaged));
            let has_sum = machine.sum(*page).is_none_or(|sum| found == Some(sum));
            if complete.contains(*page) && !has_sum {
                damaged.insert(*page);
            }
        }
        damaged
    }

    /// Looks whether pages have their bytes. Returns what is wrong.
    pub(crate) fn check(&self, got: PageSet, len: FragmentLen) -> Result<(), &'static str> {
        let Some(wanted) = self.wanted.filter(|w| got.is_subset(w.pages())) else {
            return Err("pages were taken that were not wanted");
        };
        let gen = generation(&wanted.id());
        for (rank, page) in self.pages.iter().enumerate() {
            if !got.contains(*page) {
                continue;
            }
            for (part, held) in self.memory[len.of_page(rank)].iter().enumerate() {
                let Some(held) = held else {
                    return Err("a page was taken without its bytes");
                };
                if held.is_damaged {
                    return Err("a page was taken whose memory had gone bad");
                }
                if held.gen != gen {
                    return Err("a page of another generation was taken");
                }
                let place = (u64::from(held.chunk), held.page, usize::from(held.part));
                if place != (wanted.chunk(), *page, part) {
                    return Err("a page was taken with the bytes of another place");
                }
            }
        }
        Ok(())
    }
}
