// SPDX-License-Identifier: GPL-2.0

//! Pages that nodes give each other: of one state of the file, and of no older one than was read.

use super::{
    file,
    time,
    HOST, //
};
use proptest::prelude::*;
use proto::gfarm::{
    gfs::LiveAttr,
    identity::{
        Change,
        Closed,
        ContentId,
        Label,
        Observation,
        Verdict, //
    },
    replica::HostId,
};

/// A node that reads a file of one gfsd, and what it has cached: by page, the state that it is of.
struct Node {
    label: Label,
    dropped_at: u64,
    pages: [Option<u32>; PAGES],
    /// The state that it has read last, since gfmd has lost nothing.
    last: u32,
}

const PAGES: usize = 3;

impl Node {
    /// Drops the pages of another content, as the driver does.
    fn drop_outdated(&mut self) {
        if self.dropped_at != self.label.changes() {
            (self.dropped_at, self.pages) = (self.label.changes(), [None; PAGES]);
        }
    }

    fn fill(&mut self, page: usize, state: u32) {
        self.drop_outdated();
        self.pages[page] = Some(state);
        assert!(state >= self.last, "{state} after {}", self.last);
        self.last = state;
    }

    /// All that is cached is of one state, and that is the one which others are told.
    fn check(&self) {
        let mut states = self.pages.iter().flatten();
        if let Some(first) = states.next() {
            assert!(states.all(|state| state == first), "{:?}", self.pages);
            if let Some(id) = self.label.shared() {
                assert_eq!(id.mtime, time(*first));
            }
        }
    }
}

/// The file: its time of the last write is the number of its state.
struct Written {
    gen: u64,
    epoch: u32,
    live: u32,
    /// The state when it was closed last.
    closed: u32,
}

impl Written {
    fn seen(&self) -> Observation {
        Observation {
            mtime: time(self.closed),
            ..file(self.gen, self.epoch)
        }
    }

    fn told(&self) -> LiveAttr {
        LiveAttr {
            size: 3,
            atime: time(0),
            mtime: time(self.live),
        }
    }
}

/// A step of a node, of the writer or of gfmd.
fn step(written: &mut Written, nodes: &mut [Node; 3], (what, of, other, page): Step, asks: bool) {
    let closed = Closed {
        size: 3,
        mtime: time(written.closed),
    };
    match what {
        0 => written.live += 1,
        1 => (written.gen, written.closed) = (written.gen + 1, written.live),
        2 => {
            nodes[of].label.observe(written.seen(), None);
        }
        3 => {
            let label = &mut nodes[of].label;
            if asks {
                label.witness(HOST, &written.told());
            }
            let id = file(written.gen, written.epoch).id;
            let Some(ticket) = label.ticket(id, HOST) else {
                return;
            };
            let state = written.live;
            if label.judge(ticket, &written.told(), &closed) == Verdict::Accepted {
                nodes[of].fill(page, state);
            }
        }
        4 if of != other => {
            let (id, changes) = (nodes[of].label.shared(), nodes[of].label.changes());
            nodes[other].drop_outdated();
            let holder = nodes[other].label.shared();
            let (Some(id), true) = (id, id == holder) else {
                return;
            };
            let Some(state) = nodes[other].pages[page] else {
                return;
            };
            if asks {
                // Another read of the node has met a gfsd meanwhile.
                nodes[of].label.witness(HOST, &written.told());
            }
            if nodes[of].label.give(&id, changes) {
                nodes[of].fill(page, state);
            }
        }
        5 if written.gen > 1 => {
            // A slave that had not got the last generation takes over, and other bytes get its
            // number.
            (written.gen, written.epoch) = (written.gen - 1, written.epoch + 1);
            written.live += 1;
            written.closed = written.live;
            nodes.iter_mut().for_each(|node| node.last = 0);
        }
        _ => {}
    }
    for node in nodes {
        node.drop_outdated();
        node.check();
    }
}

type Step = (u8, usize, usize, usize);

proptest! {
    /// Nodes give each other pages of a file that is written in its place, closed, and whose last
    /// generations gfmd loses: none ever has pages of two states, and time does not run backwards.
    #[test]
    fn no_node_has_pages_of_two_states(
        steps in prop::collection::vec(
            ((0..6u8, 0..3usize, 0..3usize, 0..PAGES), any::<bool>()),
            1..80,
        ),
    ) {
        let mut written = Written { gen: 1, epoch: 1, live: 1, closed: 1 };
        let mut nodes = [0; 3].map(|_| Node {
            label: Label::new(written.seen()),
            dropped_at: 0,
            pages: [None; PAGES],
            last: 0,
        });
        for (of, asks) in steps {
            step(&mut written, &mut nodes, of, asks);
        }
    }
}

#[test]
fn pages_of_an_older_state_are_neither_asked_for_nor_kept() {
    let live = |nsec| LiveAttr {
        size: 3,
        atime: time(0),
        mtime: time(nsec),
    };
    let id = |nsec| ContentId {
        file: file(3, 1).id,
        mtime: time(nsec),
    };
    // A reader that has met the gfsd asks for what that has: a holder of the old state has a miss.
    let mut label = Label::new(file(3, 1));
    assert_eq!(label.shared(), Some(id(0)), "as gfmd has told");
    assert_eq!(label.witness(HOST, &live(5)), Change::Same);
    assert_eq!(label.shared(), Some(id(5)));
    // One that has begun with old pages drops them at its first read from the gfsd.
    let mut label = Label::new(file(3, 1));
    assert!(label.give(&id(0), 0));
    assert_eq!(label.witness(HOST, &live(5)), Change::Rewritten);
    assert_eq!(label.shared(), Some(id(5)));
    assert!(!label.give(&id(0), 0), "those that come late");
    // One that has seen a write knows of a writer: it gives nothing until the next generation.
    assert_eq!(label.witness(HOST, &live(6)), Change::Rewritten);
    assert_eq!(label.shared(), None);
    assert_eq!(label.observe(file(3, 1), None), Change::Same);
    assert_eq!(label.shared(), None);
    assert_eq!(label.observe(file(4, 1), None), Change::Rewritten);
    assert_eq!(label.shared().map(|id| id.file.gen), Some(4));
    // Two gfsds with times of their own have perhaps two states.
    let mut label = Label::new(file(3, 1));
    label.witness(HOST, &live(0));
    assert_eq!(label.witness(HostId(8), &live(1)), Change::Same);
    assert_eq!(label.shared(), None);
    // An equal number after a loss of gfmd is another content; a time that was set is not.
    let at = |epoch, nsec| Observation {
        mtime: time(nsec),
        ..file(3, epoch)
    };
    let mut label = Label::new(at(1, 0));
    assert_eq!(label.observe(at(1, 9), None), Change::Same);
    assert_eq!(label.shared(), Some(id(9)));
    assert_eq!(label.observe(at(2, 9), None), Change::Same);
    assert_eq!(label.observe(at(3, 8), None), Change::Rewritten);
}

/// A gfsd has told of a later write than gfmd, which has begun anew with the number that the label
/// has: pages of the state that gfmd knows are older than what was read.
#[test]
fn nothing_older_is_asked_for_after_a_loss_of_gfmd() {
    let at = |epoch, nsec| Observation {
        mtime: time(nsec),
        ..file(3, epoch)
    };
    let live = |nsec| LiveAttr {
        size: 3,
        atime: time(0),
        mtime: time(nsec),
    };
    for (told, is_shared) in [(None, true), (Some(2), true), (Some(3), false)] {
        let mut label = Label::new(at(1, 1));
        if let Some(nsec) = told {
            assert_eq!(label.witness(HOST, &live(nsec)), Change::Same);
        }
        assert_eq!(label.observe(at(2, 2), None), Change::Rewritten);
        assert_eq!(label.shared().is_some(), is_shared, "{told:?}");
    }
}
