// SPDX-License-Identifier: GPL-2.0

//! The workers of a node: those that ask other nodes for its reads, and the one that reads from a
//! file server what these have not given.

use proto::gfarm::cache::pages::PageSet;

use crate::{
    scenario::Askers,
    world::World, //
};

/// The number of reads that a file server is asked for together, and the number of pages behind
/// which no further one joins them, as in the kernel (`net/stream.rs`).
const BATCH_MAX: usize = 8;
const BATCH_PAGES: usize = 1024;

impl World {
    /// Has a worker ask for a read that begins.
    pub(crate) fn begin_asking(&mut self, n: usize, number: u64) {
        match self.s.askers {
            Askers::Each => self.ask_for(n, number),
            Askers::One => {
                self.nodes[n].unasked.push_back(number);
                self.work(n);
            }
        }
    }

    fn ask_for(&mut self, n: usize, number: u64) {
        if let Some(read) = self.nodes[n].reads.get_mut(&number) {
            read.has_begun = true;
        }
        self.go_on(n, number);
    }

    /// Other nodes have been asked for a read; what is missing is read from a file server.
    pub(crate) fn asking_over(&mut self, n: usize, number: u64, is_missing: bool) {
        let node = &mut self.nodes[n];
        if node.asking == Some(number) {
            node.asking = None;
        }
        if is_missing {
            node.missing.push_back(number);
        } else {
            self.done(n, number);
        }
        self.work(n);
    }

    /// Has the worker of a node do what there is to do, unless it is at work.
    fn work(&mut self, n: usize) {
        while self.nodes[n].asking.is_none() && self.nodes[n].batch.is_empty() {
            let node = &mut self.nodes[n];
            let pages = |number: &u64| node.reads[number].missing.len();
            let is_full = node.missing.len() >= BATCH_MAX
                || node.missing.iter().map(pages).sum::<usize>() >= BATCH_PAGES;
            let next = if is_full {
                None
            } else {
                node.unasked.pop_front()
            };
            match next {
                Some(number) => {
                    node.asking = Some(number);
                    self.ask_for(n, number);
                }
                None if node.missing.is_empty() => return,
                None => self.fetch_batch(n),
            }
        }
    }

    /// Asks a file server for reads.
    fn fetch_batch(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let mut pages = 0;
        while node.batch.len() < BATCH_MAX && pages < BATCH_PAGES {
            let Some(number) = node.missing.pop_front() else {
                break;
            };
            pages += node.reads[&number].missing.len();
            node.batch.push(number);
        }
        for number in self.nodes[n].batch.clone() {
            let missing = self.nodes[n].reads[&number].missing;
            self.fetch(n, number, missing);
        }
    }

    /// A file server has given the pages of a read: readers see them when all of the batch is
    /// there.
    pub(crate) fn fetched(&mut self, n: usize, number: u64, pages: PageSet) {
        let node = &mut self.nodes[n];
        let Some(read) = node.reads.get_mut(&number) else {
            // The file was opened again.
            return;
        };
        read.missing = read.missing.difference(pages);
        let reads = &node.reads;
        if node.batch.iter().any(|of| !reads[of].missing.is_empty()) {
            return;
        }
        for number in std::mem::take(&mut node.batch) {
            self.done(n, number);
        }
        self.work(n);
    }

    /// The reads of a node leave: its workers have none.
    pub(crate) fn leave(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.unasked.clear();
        node.missing.clear();
        node.batch.clear();
        node.asking = None;
    }
}
