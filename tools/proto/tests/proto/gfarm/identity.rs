// SPDX-License-Identifier: GPL-2.0

//! Generations: what may be cached, and what must be dropped.

mod sharing;

use proptest::prelude::*;
use proto::gfarm::{
    attr::{
        FileId,
        FileType,
        Object,
        Time, //
    },
    gfs::LiveAttr,
    identity::{
        Asked,
        Change,
        Closed,
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
    let size = label.live_size().unwrap_or(3);
    let live = LiveAttr {
        size,
        atime: mtime,
        mtime,
    };
    let closed = Closed { size, mtime };
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

#[test]
fn a_directory_is_not_the_next_object_with_its_number() {
    let id = |inum, gen| FileId { inum, gen };
    for file_type in [FileType::Directory, FileType::SymbolicLink] {
        let object = Object::new(id(7, 3), file_type);
        assert!(object.is(id(7, 3)));
        assert!(!object.is(id(7, 4)), "{file_type:?}: made after its end");
        assert!(!object.is(id(8, 3)));
        let seen = Observation {
            file_type,
            ..file(3, 1)
        };
        assert_eq!(Label::new(seen).object(), object);
    }
    let written = Object::new(id(7, 3), FileType::Regular);
    assert!(written.is(id(7, 4)), "another content of a file");
    assert!(!written.is(id(8, 3)));
    assert_eq!(written.inum(), 7);
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

    /// Fills a page with bytes of the label only, in any order of replies, and takes nothing back
    /// that one process has shown.
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
fn gfsds_that_tell_different_sizes_have_no_pages_beside_each_other() {
    let live = |size| LiveAttr {
        size,
        atime: time(0),
        mtime: time(0),
    };
    let closed = Closed {
        size: 5000,
        mtime: time(0),
    };
    let id = file(3, 1).id;
    let (one, two) = (HostId(1), HostId(2));
    // A writer has cut the file at one of them, or has made it longer.
    for size in [100, 10_000] {
        let mut label = Label::new(file(3, 1));
        assert_eq!(label.witness(one, &live(5000)), Change::Same);
        let changes = label.changes();
        assert_eq!(label.witness(two, &live(size)), Change::Rewritten);
        assert_eq!(label.live_size(), Some(size));
        assert_ne!(label.changes(), changes, "pages of the other are dropped");
        assert_eq!(label.shared(), None, "a writer has the file open");
        // Who goes from one to the other each time reads twice, and never again and again.
        for host in [one, two].into_iter().cycle().take(40) {
            let told = live(if host == one { 5000 } else { size });
            let mut next = label.ticket(id, host);
            let mut reads = 0;
            while let Some(ticket) = next {
                reads += 1;
                let verdict = label.judge(ticket, &told, &closed);
                assert!(verdict == Verdict::Accepted || again(verdict).is_some());
                next = again(verdict);
            }
            assert!(reads <= 2, "{reads} reads");
            assert_eq!(label.live_size(), Some(told.size), "of the accepted bytes");
        }
    }
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
    for (told, is_accepted) in [
        (live(10, 1), true),
        (live(11, 1), false),
        (live(10, 2), false),
    ] {
        let mut label = fresh;
        let ticket = label.ticket(id, one).unwrap();
        let verdict = label.judge(ticket, &told, &closed);
        assert_eq!(
            (verdict == Verdict::Accepted, again(verdict).is_none()),
            (is_accepted, is_accepted)
        );
        // The next read has an answer before it.
        let ticket = label.ticket(id, one).unwrap();
        let mut written = label;
        assert_eq!(label.judge(ticket, &told, &closed), Verdict::Accepted);
        assert!(again(written.judge(ticket, &live(10, 3), &closed)).is_some());
    }
    // What another reader has learned of the gfsd meanwhile was not known before this read.
    let mut label = fresh;
    let ticket = label.ticket(id, one).unwrap();
    assert_eq!(label.witness(one, &live(10, 2)), Change::Same);
    assert!(again(label.judge(ticket, &live(10, 2), &closed)).is_some());
    // Another gfsd is another file.
    let ticket = label.ticket(id, two).unwrap();
    assert!(again(label.judge(ticket, &live(10, 2), &closed)).is_some());
    assert_eq!(fresh.ticket(FileId { inum: 7, gen: 4 }, one), None);
}

/// Returns the ticket of the read that follows at once.
fn again(verdict: Verdict) -> Option<Ticket> {
    match verdict {
        Verdict::Again(next) => Some(next),
        _ => None,
    }
}

#[test]
fn bytes_that_are_written_meanwhile_are_read_again_at_once() {
    let live = |nsec| LiveAttr {
        size: 10,
        atime: Time { sec: 0, nsec: 0 },
        mtime: Time { sec: 5, nsec },
    };
    let closed = Closed {
        size: 10,
        mtime: live(1).mtime,
    };
    let id = file(3, 1).id;
    let mut label = Label::new(file(3, 1));
    label.witness(HOST, &live(1));
    let first = label.ticket(id, HOST).unwrap();
    let next = again(label.judge(first, &live(2), &closed)).expect("a read at once");
    // By what was told behind the last read, whatever was written before it.
    assert_eq!(label.judge(next, &live(2), &closed), Verdict::Accepted);

    let mut next = Some(first);
    let mut reads = 0;
    while let Some(ticket) = next {
        reads += 1;
        next = again(label.judge(ticket, &live(10 + reads), &closed));
    }
    assert!((2..100).contains(&reads), "not without end: {reads}");

    // A descriptor of another content than that of the label is of no use, nor is one of a process
    // of gfmd that is gone.
    for seen in [file(4, 1), file(3, 2)] {
        let ticket = label.ticket(id, HOST).unwrap();
        let mut other = label;
        other.observe(seen, None);
        let verdict = other.judge(ticket, &live(200), &closed);
        assert_eq!(verdict, Verdict::Outdated, "{seen:?}");
    }
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
