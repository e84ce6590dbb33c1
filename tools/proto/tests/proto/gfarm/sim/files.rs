// SPDX-License-Identifier: GPL-2.0

//! The files and their replicas: what is on the disks of the gfsds, and what gfmd knows.

use std::collections::BTreeMap;

use crate::chance::Chance;

/// The size of a page, in bytes.
pub(crate) const PAGE: usize = 16;

/// The number of files, and of gfsds.
pub(crate) const FILES: usize = 3;
pub(crate) const HOSTS: usize = 3;

/// One physical file: its pages, by the number of the write that made them.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) file: usize,
    pub(crate) pages: Vec<u64>,
    pub(crate) mtime: u64,
    /// All states that it was in.
    pub(crate) states: Vec<Vec<u64>>,
}

/// The file as gfmd knows it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) gen: u64,
    /// The writes that were closed, by page.
    pub(crate) closed: Vec<u64>,
    /// The time of the last one on the disk of the writer's gfsd; a replica has another.
    pub(crate) mtime: u64,
    /// The gfsd on which a writer has it open, and the pages left to write.
    pub(crate) writer: Option<(usize, usize)>,
}

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) files: Vec<File>,
    pub(crate) objects: Vec<Object>,
    /// The object of each file, by gfsd.
    pub(crate) replicas: Vec<BTreeMap<usize, usize>>,
    writes: u64,
    clock: u64,
}

/// The bytes of a page: which file, which page, which write; twice.
pub(crate) fn page_bytes(file: usize, page: usize, write: u64) -> [u8; PAGE] {
    let value = (file as u64) << 56 | (page as u64) << 40 | write;
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    bytes[8..].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// The length of a file: its last page is not full.
pub(crate) fn size(pages: usize, file: usize) -> usize {
    pages * PAGE - [0, 5, 8][file]
}

impl Files {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let mut files = Self {
            files: Vec::new(),
            objects: Vec::new(),
            replicas: vec![BTreeMap::new(); HOSTS],
            writes: 1,
            clock: 1,
        };
        for file in 0..FILES {
            let pages = vec![0; 2 + chance.below(6)];
            let closed = pages.clone();
            files.files.push(File {
                gen: 1,
                closed,
                mtime: files.clock + 1,
                writer: None,
            });
            let first = chance.below(HOSTS);
            for host in [first, (first + 1) % HOSTS] {
                files.replicate(file, host, pages.clone());
            }
        }
        files
    }

    pub(crate) fn replicate(&mut self, file: usize, host: usize, pages: Vec<u64>) {
        self.clock += 1;
        let states = vec![pages.clone()];
        self.objects.push(Object {
            file,
            pages,
            mtime: self.clock,
            states,
        });
        self.replicas[host].insert(file, self.objects.len() - 1);
    }

    /// All bytes of an object.
    pub(crate) fn bytes(&self, file: usize, object: usize) -> Vec<u8> {
        let pages = &self.objects[object].pages;
        let all = pages
            .iter()
            .enumerate()
            .flat_map(|(page, write)| page_bytes(file, page, *write));
        let mut bytes: Vec<u8> = all.collect();
        bytes.truncate(size(pages.len(), file));
        bytes
    }

    /// The gfsds from which gfmd lets a file be read.
    pub(crate) fn hosts(&self, file: usize) -> Vec<usize> {
        match self.files[file].writer {
            Some((host, _)) => vec![host],
            None => (0..HOSTS)
                .filter(|host| self.replicas[*host].contains_key(&file))
                .collect(),
        }
    }

    /// A writer that never closes a file writes one of its pages in place.
    pub(crate) fn write_on(&mut self, file: usize, chance: &mut Chance) {
        let [host, ..] = self.hosts(file)[..] else {
            panic!("f{file} is nowhere");
        };
        self.files[file].writer = Some((host, 1));
        self.write_page(file, host, chance);
    }

    fn write_page(&mut self, file: usize, host: usize, chance: &mut Chance) {
        (self.writes, self.clock) = (self.writes + 1, self.clock + 1);
        let object = &mut self.objects[self.replicas[host][&file]];
        let page = chance.below(object.pages.len());
        object.pages[page] = self.writes;
        object.mtime = self.clock;
        object.states.push(object.pages.clone());
    }

    /// A writer takes a step: it opens a file, writes a page in place, or closes it.
    pub(crate) fn write(
        &mut self,
        file: usize,
        is_up: impl Fn(usize) -> bool,
        chance: &mut Chance,
    ) {
        let Some((host, left)) = self.files[file].writer else {
            let hosts: Vec<usize> = self.hosts(file).into_iter().filter(|h| is_up(*h)).collect();
            if !hosts.is_empty() {
                let host = hosts[chance.below(hosts.len())];
                self.files[file].writer = Some((host, 1 + chance.below(4)));
            }
            return;
        };
        if !is_up(host) {
            return;
        }
        if left > 0 {
            self.write_page(file, host, chance);
            self.files[file].writer = Some((host, left - 1));
            return;
        }
        let object = &self.objects[self.replicas[host][&file]];
        let (pages, mtime) = (object.pages.clone(), object.mtime);
        let closed = &mut self.files[file];
        (closed.gen, closed.writer, closed.mtime) = (closed.gen + 1, None, mtime);
        closed.closed.clone_from(&pages);
        for other in (0..HOSTS).filter(|other| *other != host) {
            self.replicas[other].remove(&file);
        }
        self.replicate(file, (host + 1) % HOSTS, pages);
    }
}
