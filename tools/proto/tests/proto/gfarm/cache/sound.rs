// SPDX-License-Identifier: GPL-2.0

//! A holder gives nothing that it knows to be damaged, to whichever node, and however many ask at a
//! time.

use std::cell::RefCell;

use proto::gfarm::cache::{
    pages::PageSet,
    reply::Answer,
    request::{
        Ask,
        Request,
        Role,
        Wanted, //
    },
    responder::{
        serve_sound,
        HeldPages,
        Serve, //
    },
    sums::{
        Entry,
        SumTable,
        Verify,
        WAYS, //
    }, //
};

use super::{
    message::{
        replies,
        wanted, //
    },
    responder::{
        length,
        request,
        ID, //
    },
};

/// The answer where too much was sent lately.
const BUSY: Answer = Answer::Busy { wait_ms: 7 };

/// A request for the pages 0 to 7 and 255, with or without their sums.
fn asks(wants_sums: bool) -> Request {
    let honest = request(Role::Holder);
    let ask = Ask {
        wants_sums,
        ..*honest.ask()
    };
    let landing = honest.landing().copied();
    Request::new(ID, wanted(), (landing, replies()), ask, 100).unwrap()
}

/// The pages that a holder has, of which some are damaged, and those that it was told to drop.
struct Held {
    cached: PageSet,
    known: PageSet,
    damaged: PageSet,
    fetching: PageSet,
    dropped: PageSet,
    /// The pages that were taken last.
    taken: PageSet,
    compared: u32,
    /// The pages that were paid, and how many may be.
    paid: PageSet,
    payable: usize,
}

impl Held {
    /// The pages 0 to 7 and 255, whose sums are known.
    fn new(damaged: PageSet) -> Self {
        Self {
            cached: wanted().pages(),
            known: wanted().pages(),
            damaged,
            fetching: PageSet::EMPTY,
            dropped: PageSet::EMPTY,
            taken: PageSet::EMPTY,
            compared: 0,
            paid: PageSet::EMPTY,
            payable: usize::MAX,
        }
    }

    fn serve(&mut self, wants_sums: bool, verify: Verify) -> Serve {
        self.paid = PageSet::EMPTY;
        let fetching = self.fetching;
        serve_sound(&asks(wants_sums), fetching, length(4096), verify, self)
    }
}

impl HeldPages for Held {
    fn known(&mut self, wanted: &Wanted) -> PageSet {
        self.known.intersection(wanted.pages())
    }

    fn take(&mut self, wanted: &Wanted) -> Option<(PageSet, u64)> {
        self.taken = self.cached.intersection(wanted.pages());
        Some((self.taken, wanted.size_bytes()))
    }

    fn pay(&mut self, pages: PageSet) -> Result<(), Answer> {
        assert!(pages.is_disjoint(self.paid), "once");
        self.paid = self.paid.union(pages);
        match self.paid.len() <= self.payable {
            true => Ok(()),
            false => Err(BUSY),
        }
    }

    fn damaged(&mut self, wanted: &Wanted) -> PageSet {
        assert_eq!(wanted.pages(), self.taken, "what is sent is compared");
        self.compared += 1;
        let known = self.known.intersection(wanted.pages());
        self.damaged.intersection(known)
    }

    fn drop_pages(&mut self, held: &Wanted, damaged: PageSet) {
        assert_eq!(held.pages(), self.taken, "what was compared");
        assert!(damaged.is_subset(self.taken));
        self.dropped = self.dropped.union(damaged);
        // A task uses it, so it stays.
        let stays = PageSet::range(255, 1);
        self.cached = self.cached.difference(damaged.difference(stays));
    }
}

#[test]
fn what_a_holder_gives_is_compared_whoever_asks() {
    let bad = PageSet::range(6, 2).union(PageSet::range(255, 1));
    for wants_sums in [false, true] {
        let mut held = Held::new(bad);
        let given = held.serve(wants_sums, Verify::Given);
        assert_eq!(given, Serve::Send(PageSet::range(0, 6)), "{wants_sums}");
        assert_eq!((held.taken, held.dropped), (PageSet::range(0, 6), bad));
        for verify in [Verify::Off, Verify::Received] {
            let mut held = Held::new(bad);
            let expected = match (wants_sums, verify) {
                (true, Verify::Off) => Serve::Say(Answer::Miss),
                _ => Serve::Send(wanted().pages()),
            };
            assert_eq!(held.serve(wants_sums, verify), expected);
            assert_eq!(held.compared, 0);
        }
    }
    let mut held = Held::new(wanted().pages());
    assert_eq!(
        held.serve(false, Verify::Given),
        Serve::Say(Answer::Miss),
        "nothing is left"
    );
}

#[test]
fn pages_without_a_sum_go_to_who_asks_for_none() {
    let known = PageSet::range(0, 2);
    let mut held = Held::new(PageSet::EMPTY);
    held.known = known;
    assert_eq!(held.serve(true, Verify::Received), Serve::Send(known));
    assert_eq!(
        held.serve(false, Verify::Given),
        Serve::Send(wanted().pages())
    );
    held.known = PageSet::EMPTY;
    assert_eq!(held.serve(true, Verify::Received), Serve::Say(Answer::Miss));
    // They may be on their way.
    held.fetching = wanted().pages();
    assert_eq!(
        held.serve(true, Verify::Received),
        Serve::Keep(wanted().pages())
    );
    // Without sums nothing is waited for that would not be given.
    assert_eq!(held.serve(true, Verify::Off), Serve::Say(Answer::Miss));
}

#[test]
fn a_request_that_is_kept_has_nothing_compared() {
    let mut held = Held::new(PageSet::EMPTY);
    let missing = PageSet::range(255, 1);
    held.fetching = missing;
    held.cached = held.cached.difference(missing);
    for _ in 0..100 {
        assert_eq!(held.serve(true, Verify::Given), Serve::Keep(missing));
    }
    assert_eq!(held.compared, 0);
    held.cached = wanted().pages();
    assert_eq!(
        held.serve(true, Verify::Given),
        Serve::Send(wanted().pages())
    );
    assert_eq!(held.compared, 1);
}

#[test]
fn a_node_that_has_had_its_share_has_nothing_compared() {
    let (bad, count) = (PageSet::range(6, 2), wanted().pages().len());
    let mut held = Held::new(bad);
    held.payable = count - 1;
    assert_eq!(held.serve(false, Verify::Given), Serve::Say(BUSY));
    assert_eq!(held.compared, 0);
    held.payable = count;
    let good = wanted().pages().difference(bad);
    assert_eq!(held.serve(false, Verify::Given), Serve::Send(good));
}

/// A worker of a node, whose sums are those of all workers.
struct Worker<'t> {
    table: &'t RefCell<SumTable<Vec<Entry>>>,
    bad: PageSet,
    /// Serves another request, between the take and the look at what was taken.
    meanwhile: Option<Box<dyn FnOnce() + 't>>,
    is_dropped: bool,
}

impl HeldPages for Worker<'_> {
    fn known(&mut self, wanted: &Wanted) -> PageSet {
        self.table.borrow_mut().known(wanted)
    }

    fn take(&mut self, wanted: &Wanted) -> Option<(PageSet, u64)> {
        let taken = match self.is_dropped {
            true => wanted.pages().difference(self.bad),
            false => wanted.pages(),
        };
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        Some((taken, wanted.size_bytes()))
    }

    fn pay(&mut self, _pages: PageSet) -> Result<(), Answer> {
        Ok(())
    }

    fn damaged(&mut self, wanted: &Wanted) -> PageSet {
        let mut damaged = PageSet::EMPTY;
        for page in wanted.pages().iter() {
            let found = u32::from(self.bad.contains(page));
            if self.table.borrow_mut().is_damaged(wanted, page, found) {
                damaged.insert(page);
            }
        }
        damaged
    }

    fn drop_pages(&mut self, _held: &Wanted, _damaged: PageSet) {
        self.is_dropped = true;
    }
}

#[test]
fn two_nodes_that_ask_at_a_time_get_no_damaged_page() {
    let table = RefCell::new(SumTable::new(vec![Entry::EMPTY; WAYS]));
    table.borrow_mut().put(&wanted(), |_| 0);
    let bad = PageSet::range(6, 1);
    let good = wanted().pages().difference(bad);
    let worker = || Worker {
        table: &table,
        bad,
        meanwhile: None,
        is_dropped: false,
    };
    let serve = |worker: &mut Worker<'_>, wants_sums| {
        let request = asks(wants_sums);
        serve_sound(
            &request,
            PageSet::EMPTY,
            length(4096),
            Verify::Given,
            worker,
        )
    };
    for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut second = worker();
        // The first one has found the damage, and drops the page, which the second one has.
        second.meanwhile = Some(Box::new(move || {
            assert_eq!(
                serve(&mut worker(), one),
                Serve::Send(good),
                "the first one"
            );
        }));
        let given = serve(&mut second, other);
        assert_eq!(given, Serve::Send(good), "the second one");
    }
}
