// SPDX-License-Identifier: GPL-2.0

//! Generations: what may be cached, and what must be dropped.

use proptest::prelude::*;
use proto::gfarm::{
    attr::{
        FileId,
        FileType,
        Time, //
    },
    gfs::LiveAttr,
    identity::{
        Asked,
        Change,
        Closed,
        ContentId,
        Label,
        Observation,
        Ticket,
        Verdict, //
    },
    replica::HostId,
};

/// A gfsd that tells the same as gfmd.
const HOST: HostId = HostId(7);

/// Returns whether a read that ends now may fill pages.
fn accepts(label: &Label, ticket: Ticket) -> bool {
    let mtime = Time { sec: 1, nsec: 2 };
    let live = LiveAttr {
        size: 3,
        atime: mtime,
        mtime,
    };
    let closed = Closed { size: 3, mtime };
    let mut label = *label;
    label.judge(ticket, &live, &closed) == Verdict::Accepted
}

fn file(gen: u64, epoch: u32) -> Observation {
    let id = FileId { inum: 7, gen };
    let file_type = FileType::Regular;
    let mtime = time(0);
    Observation {
        id,
        mtime,
        file_type,
        asked: Asked { epoch, number: 0 },
    }
}

const fn time(nsec: u32) -> Time {
    Time { sec: 1, nsec }
}

#[test]
fn a_rewritten_file_is_not_read_from_the_cache() {
    let mut label = Label::new(file(3, 1));
    let ticket = label.ticket(file(3, 1).id, HOST).unwrap();
    assert_eq!(label.observe(file(3, 1), None), Change::Same);
    assert!(accepts(&label, ticket));
    assert_eq!(label.changes(), 0);
    assert_eq!(label.observe(file(4, 1), None), Change::Rewritten);
    assert_eq!(label.changes(), 1, "pages of 0 are dropped");
    assert!(!accepts(&label, ticket), "bytes of 3 are not those of 4");
    assert_eq!(label.id(), file(4, 1).id);
    assert_eq!(
        label.ticket(file(3, 1).id, HOST),
        None,
        "an old descriptor is opened again"
    );
    assert!(accepts(&label, label.ticket(file(4, 1).id, HOST).unwrap()));
}

#[test]
fn a_late_reply_changes_nothing() {
    let mut label = Label::new(file(4, 2));
    for late in [file(3, 2), file(5, 1), file(4, 1)] {
        assert_eq!(label.observe(late, None), Change::Overtaken);
        assert_eq!(label.id(), file(4, 2).id);
    }
}

#[test]
fn after_a_restart_of_gfmd_any_other_number_is_news() {
    let mut label = Label::new(file(4, 1));
    let ticket = label.ticket(file(4, 1).id, HOST).unwrap();
    assert_eq!(label.observe(file(4, 2), None), Change::Same);
    assert!(accepts(&label, ticket));
    assert_eq!(label.observe(file(3, 3), None), Change::Rewritten);
    // The number comes again, for other bytes.
    assert_eq!(label.observe(file(4, 3), None), Change::Rewritten);
    assert!(!accepts(&label, ticket));
}

#[test]
fn another_object_is_another_inode() {
    let other = FileId { inum: 8, gen: 9 };
    for seen in [
        Observation {
            id: other,
            ..file(3, 1)
        },
        Observation {
            file_type: FileType::Directory,
            ..file(3, 1)
        },
    ] {
        let mut label = Label::new(file(3, 1));
        assert_eq!(label.observe(seen, None), Change::Replaced);
        assert_eq!(label.id(), file(3, 1).id);
    }
    for file_type in [FileType::Directory, FileType::SymbolicLink] {
        let of = |gen| Observation {
            file_type,
            ..file(gen, 1)
        };
        let mut label = Label::new(of(0));
        assert_eq!(label.observe(of(0), None), Change::Same);
        assert_eq!(
            label.observe(of(1), None),
            Change::Replaced,
            "a number that is used again"
        );
    }
}

/// The answer to a question with this number, after the owner has set the time so often.
fn numbered(number: u64) -> Observation {
    Observation {
        mtime: time(u32::try_from(number).unwrap()),
        asked: Asked { epoch: 1, number },
        ..file(3, 1)
    }
}

proptest! {
    /// Tasks take the answers to their questions in any order: what other nodes are asked for is
    /// what the last of these questions was told, and what is shown is what the last one of a task
    /// was told that was not killed before it showed it.
    #[test]
    fn answers_that_overtake_each_other_put_nothing_older_back(
        taken in prop::collection::vec((1..9u64, any::<bool>()), 1..20),
    ) {
        let (mut label, mut shown) = (Label::new(numbered(0)), numbered(0));
        for (count, (number, is_killed)) in taken.iter().enumerate() {
            let seen = numbered(*number);
            prop_assert_eq!(label.observe(seen, None), Change::Same);
            if label.shows(seen.asked) && !is_killed {
                label.showed(seen.asked);
                shown = seen;
            }
            let last = |all| taken[..=count].iter().filter(|t| all || !t.1).map(|t| t.0).max();
            prop_assert_eq!(shown, numbered(last(false).unwrap_or(0)));
            prop_assert_eq!(label.shared().unwrap().mtime, numbered(last(true).unwrap()).mtime);
        }
    }

    /// In any order of replies, a page is filled with bytes of the label only, and what
    /// one process has shown is not taken back.
    #[test]
    fn no_page_has_bytes_of_another_generation(
        steps in prop::collection::vec((0..4u64, 0..3u32, any::<bool>()), 1..40),
    ) {
        let mut label = Label::new(file(1, 0));
        let mut reads = Vec::new();
        let (mut cached, mut newest) = (None, (0, 1u64));
        for (gen, epoch, is_read) in steps {
            let id = file(gen, epoch).id;
            if is_read {
                reads.extend(label.ticket(id, HOST).map(|ticket| (ticket, gen)));
                continue;
            }
            let before = label;
            match label.observe(file(gen, epoch), None) {
                Change::Rewritten => cached = None,
                Change::Same => prop_assert_eq!(label.id(), before.id()),
                Change::Overtaken => prop_assert_eq!(label, before),
                Change::Replaced => prop_assert!(false),
            }
            newest = newest.max((epoch, gen));
            for (ticket, gen) in reads.drain(..) {
                if accepts(&label, ticket) {
                    prop_assert!(cached.is_none_or(|cached| cached == gen));
                    cached = Some(gen);
                }
            }
            prop_assert!(cached.is_none_or(|cached| cached == label.id().gen));
            let (_, gen) = newest;
            prop_assert_eq!(label.id().gen, gen, "close to open");
        }
    }
}

#[test]
fn a_write_in_place_drops_the_pages_of_the_gfsd() {
    let live = |size, nsec| LiveAttr {
        size,
        atime: Time { sec: 0, nsec },
        mtime: Time {
            sec: 1,
            nsec: nsec / 10,
        },
    };
    let mut label = Label::new(file(3, 1));
    let ticket = label.ticket(file(3, 1).id, HOST).unwrap();
    let (one, two) = (HostId(1), HostId(2));
    assert_eq!(label.live_size(), None);
    assert_eq!(label.witness(one, &live(10, 0)), Change::Same);
    assert_eq!(label.live_size(), Some(10));
    // Another gfsd has its own time; the time of a read says nothing.
    assert_eq!(label.witness(two, &live(10, 50)), Change::Same);
    assert_eq!(label.witness(one, &live(10, 9)), Change::Same);
    assert!(accepts(&label, ticket));
    let mut longer = label;
    assert_eq!(longer.witness(two, &live(11, 50)), Change::Rewritten);
    assert_eq!((longer.live_size(), longer.changes()), (Some(11), 1));
    assert!(!accepts(&longer, ticket));
    assert_eq!(label.witness(one, &live(10, 10)), Change::Rewritten);
    assert!(!accepts(&label, ticket));
    assert_eq!(label.id(), file(3, 1).id);
    // What was known of the other is forgotten with its pages.
    assert_eq!(label.witness(two, &live(10, 70)), Change::Same);
    assert_eq!(label.witness(one, &live(10, 10)), Change::Same);
}

#[test]
fn more_gfsds_than_are_remembered_start_anew() {
    let mut label = Label::new(file(3, 1));
    let live = LiveAttr {
        size: 1,
        atime: Time { sec: 0, nsec: 0 },
        mtime: Time { sec: 0, nsec: 0 },
    };
    for host in 0..8 {
        assert_eq!(label.witness(HostId(host), &live), Change::Same);
    }
    assert_eq!(label.witness(HostId(8), &live), Change::Rewritten);
    assert_eq!(label.witness(HostId(8), &live), Change::Same);
    assert_eq!(label.witness(HostId(7), &live), Change::Same);
}

#[test]
fn first_bytes_count_if_the_gfsd_agrees_with_gfmd() {
    let time = |nsec| Time { sec: 5, nsec };
    let live = |size, nsec| LiveAttr {
        size,
        atime: time(99),
        mtime: time(nsec),
    };
    let closed = Closed {
        size: 10,
        mtime: time(1),
    };
    let (id, one, two) = (file(3, 1).id, HostId(1), HostId(2));
    let fresh = Label::new(file(3, 1));
    for (told, verdict) in [
        (live(10, 1), Verdict::Accepted),
        (live(11, 1), Verdict::Again),
        (live(10, 2), Verdict::Again),
    ] {
        let mut label = fresh;
        let ticket = label.ticket(id, one).unwrap();
        assert_eq!(label.judge(ticket, &told, &closed), verdict);
        // The next read has an answer before it.
        let ticket = label.ticket(id, one).unwrap();
        let mut written = label;
        assert_eq!(label.judge(ticket, &told, &closed), Verdict::Accepted);
        let later = written.judge(ticket, &live(10, 3), &closed);
        assert_eq!(later, Verdict::Outdated);
    }
    // What another reader has learned of the gfsd meanwhile was not known before this read.
    let mut label = fresh;
    let ticket = label.ticket(id, one).unwrap();
    assert_eq!(label.witness(one, &live(10, 2)), Change::Same);
    assert_eq!(label.judge(ticket, &live(10, 2), &closed), Verdict::Again);
    // Another gfsd is another file.
    let ticket = label.ticket(id, two).unwrap();
    assert_eq!(label.judge(ticket, &live(10, 2), &closed), Verdict::Again);
    assert_eq!(fresh.ticket(FileId { inum: 7, gen: 4 }, one), None);
}

#[test]
fn a_gfsd_is_asked_before_a_read_that_would_cost_more() {
    const FEW: usize = 64 << 10;
    let mut label = Label::new(file(3, 1));
    let host = HostId(1);
    assert!(!label.asks_first(host, FEW, true));
    assert!(
        label.asks_first(host, FEW, false),
        "the last file was another"
    );
    assert!(label.asks_first(host, FEW + 1, true));
    let time = Time { sec: 0, nsec: 0 };
    let live = LiveAttr {
        size: 1,
        atime: time,
        mtime: time,
    };
    label.witness(host, &live);
    assert!(!label.asks_first(host, FEW + 1, false), "it has told");
    assert!(label.asks_first(HostId(2), FEW + 1, false));
}

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
