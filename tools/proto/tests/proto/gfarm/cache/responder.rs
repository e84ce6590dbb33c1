// SPDX-License-Identifier: GPL-2.0

//! Checks of a request: their order, and what each of them refuses.

use proto::gfarm::cache::{
    address::Group,
    excluded::Excluded,
    fragment::FragmentLen,
    members::{
        Members,
        PeerPlace, //
    },
    pages::PageSet,
    peer::{
        Claim,
        Peer,
        Record, //
    },
    reply::{
        Answer,
        Refusal, //
    },
    request::{
        Ask,
        Landing,
        Request,
        RequestId,
        Role,
        REQUEST_LEN, //
    },
    responder::{
        open,
        receive,
        serve,
        take_of_content,
        Cached,
        Discarded,
        Received,
        Refused,
        Serve, //
    },
    wire::{
        seal,
        Head,
        Kind,
        QpRole,
        Rejected, //
    }, //
};

use super::{
    address::address,
    message::{
        forged,
        key,
        node,
        replies,
        wanted, //
    },
};

pub(super) const ID: RequestId = RequestId {
    tag: 9,
    cookie: 0xc0_ffee,
};

pub(super) fn length(bytes: u32) -> FragmentLen {
    FragmentLen::new(bytes).unwrap()
}

pub(super) fn request(role: Role) -> Request {
    let landing = Landing::new(0x1234, 77, length(1024)).unwrap();
    let ask = Ask {
        role,
        is_retry: false,
        wants_sums: role == Role::Holder,
        excluded: Excluded::NONE,
    };
    let landing = (role == Role::Holder).then_some(landing);
    Request::new(ID, wanted(), (landing, replies()), ask, 50).unwrap()
}

/// A request from node 1 to node 2 with a number.
fn datagram(sequence: u64) -> [u8; REQUEST_LEN] {
    let request = request(Role::Holder);
    request.seal(node(1), node(2), sequence, &key()).unwrap()
}

/// The queue pair of node 1.
const QPN: u32 = 17;

/// The table of node 2, which knows node 1, or nobody.
fn table(is_known: bool) -> Table {
    let mut place = PeerPlace::EMPTY;
    if is_known {
        place = PeerPlace::of(Some(Peer::heard_of(&record(1), false, 1, 0)));
    }
    Members::new(record(2), vec![place], 0, 0)
}

fn record(n: u8) -> Record {
    Record {
        node: node(n.into()),
        address: address(n),
        boot: n.into(),
        claim: Claim::FIRST,
        group: Group::new(1).unwrap(),
    }
}

type Table = Members<Vec<PeerPlace>>;

/// Receives a datagram at the public queue pair of node 2, which has come from a queue pair of node
/// 1's port.
fn received(bytes: &[u8], table: &mut Table, qpn: u32) -> Taken {
    received_at(QpRole::Public, bytes, table, qpn)
}

/// Receives a datagram at a queue pair of node 2.
fn received_at(role: QpRole, bytes: &[u8], table: &mut Table, qpn: u32) -> Taken {
    let datagram = open(bytes, role, node(2), &key()).map_err(Dropped::Refused)?;
    let admit = |head: &Head| table.admit(head.from, address(1).port(), qpn, head.sequence);
    match receive(&datagram, admit).map_err(Dropped::Discarded)? {
        Received::Request(from, request) => {
            assert_eq!(from, address(1).with(replies()));
            Ok(request)
        }
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    Refused(Refused),
    Discarded(Discarded),
}

type Taken = Result<Result<Request, RequestId>, Dropped>;

fn discarded(why: Discarded) -> Taken {
    Err(Dropped::Discarded(why))
}

#[test]
fn an_honest_request_is_served_once() {
    let mut table = table(true);
    let bytes = datagram(5);
    let expected = Ok(Ok(request(Role::Holder)));
    assert_eq!(received(&bytes, &mut table, QPN), expected);
    let again = received(&bytes, &mut table, QPN);
    assert_eq!(again, discarded(Discarded::Repeated));
    let earlier = received(&datagram(4), &mut table, QPN);
    assert_eq!(earlier, expected, "it was overtaken");
    let none = received(&datagram(0), &mut table, QPN);
    assert_eq!(none, discarded(Discarded::Repeated));
}

/// Ways in which a datagram is wrong, from the first check to the last.
const DAMAGES: [fn(&mut Vec<u8>); 4] = [
    // Magic, with the code that it needs.
    |bytes| {
        bytes[0] ^= 1;
        forged(bytes);
    },
    // Receiver.
    |bytes| {
        bytes[16] ^= 1;
        forged(bytes);
    },
    // The code.
    |bytes| *bytes.last_mut().unwrap() ^= 1,
    // A field: the time limit.
    |bytes| {
        bytes[TIMEOUT..TIMEOUT + 2].fill(0);
        forged(bytes);
    },
];

/// The place of the time limit in a request.
const TIMEOUT: usize = 162;

#[test]
fn each_check_refuses_before_the_next_one_looks() {
    let damaged = |which: &[usize]| {
        let mut bytes = datagram(5).to_vec();
        // The code is damaged last, as the other ways make it right.
        let (code, others): (Vec<usize>, Vec<usize>) = which.iter().partition(|d| **d == 2);
        for damage in others.into_iter().chain(code) {
            DAMAGES[damage](&mut bytes);
        }
        bytes
    };
    let (mut empty, mut known) = (table(false), table(true));
    let rejected = |why| Err(Dropped::Refused(Refused::Rejected(why)));
    let at = |which: &[usize], table: &mut Table, qpn| received(&damaged(which), table, qpn);
    let magic = at(&[0, 1, 2, 3], &mut empty, 18);
    assert_eq!(magic, rejected(Rejected::Magic));
    let elsewhere = received_at(QpRole::Replies, &damaged(&[1, 2, 3]), &mut empty, 18);
    assert_eq!(elsewhere, Err(Dropped::Refused(Refused::QueuePair)));
    let receiver = at(&[1, 2, 3], &mut empty, 18);
    assert_eq!(receiver, Err(Dropped::Refused(Refused::Receiver)));
    let code = at(&[2, 3], &mut empty, 18);
    assert_eq!(code, rejected(Rejected::Code));
    assert_eq!(at(&[3], &mut empty, 18), discarded(Discarded::Sender));
    assert_eq!(at(&[3], &mut known, 18), discarded(Discarded::Address));
    // What was refused so far has used no number up; an invalid request does.
    assert_eq!(at(&[3], &mut known, QPN), Ok(Err(ID)));
    assert_eq!(at(&[3], &mut known, QPN), discarded(Discarded::Repeated));
    assert_eq!(at(&[], &mut known, QPN), discarded(Discarded::Repeated));
}

#[test]
fn a_request_that_names_no_queue_pair_for_replies_is_not_answered() {
    let wrong = [(0u32, 1u32), (1, 1), (1 << 24, 1), (2, 0), (2, 1 << 31)];
    for (qpn, qkey) in wrong {
        let mut bytes = datagram(5).to_vec();
        bytes[168..172].copy_from_slice(&qpn.to_le_bytes());
        bytes[172..176].copy_from_slice(&qkey.to_le_bytes());
        forged(&mut bytes);
        let result = received(&bytes, &mut table(true), QPN);
        assert_eq!(result, discarded(Discarded::Body), "{qpn} {qkey}");
    }
}

#[test]
fn each_kind_comes_to_its_queue_pair() {
    for kind in [
        Kind::Request,
        Kind::Reply,
        Kind::Hello,
        Kind::Members,
        Kind::Have,
    ] {
        let head = Head {
            kind,
            from: node(1),
            to: Some(node(2)),
            sequence: 5,
        };
        let mut out = [0; 1024];
        let len = seal(&head, &[], &key(), &mut out).unwrap();
        let at = |role| open(&out[..len], role, node(2), &key()).map(|datagram| datagram.head);
        let (here, there) = match kind {
            Kind::Reply => (QpRole::Replies, QpRole::Public),
            _ => (QpRole::Public, QpRole::Replies),
        };
        assert_eq!(at(here), Ok(head));
        assert_eq!(at(there), Err(Refused::QueuePair), "{kind:?}");
    }
}

#[test]
fn a_request_of_another_length_is_not_answered() {
    let head = Head {
        kind: Kind::Request,
        from: node(1),
        to: Some(node(2)),
        sequence: 5,
    };
    let honest = datagram(5);
    let body = &honest[32..REQUEST_LEN - 8];
    for len in [0, 1, body.len() - 1] {
        let mut out = [0; 1024];
        let len = seal(&head, &body[..len], &key(), &mut out).unwrap();
        let result = received(&out[..len], &mut table(true), QPN);
        assert_eq!(result, discarded(Discarded::Body));
    }
}

#[test]
fn a_datagram_to_no_node_is_no_request() {
    let mut bytes = datagram(5).to_vec();
    bytes[16..24].fill(0);
    forged(&mut bytes);
    let result = received(&bytes, &mut table(true), QPN);
    assert_eq!(result, Err(Dropped::Refused(Refused::Receiver)));
}

/// Returns what is served of the pages 0 to 7 and 255 of a chunk.
fn served(held: PageSet, fetching: PageSet) -> Serve {
    let cached = Cached {
        size_bytes: wanted().size_bytes(),
        held,
        fetching,
    };
    serve(&request(Role::Holder), Some(&cached), length(4096))
}

#[test]
fn pages_that_are_there_are_sent() {
    let none = PageSet::EMPTY;
    let every = PageSet::range(0, 256);
    assert_eq!(served(every, none), Serve::Send(wanted().pages()));
    let some = PageSet::range(4, 100);
    assert_eq!(served(some, none), Serve::Send(PageSet::range(4, 4)));
    assert_eq!(served(none, none), Serve::Say(Answer::Miss));
    assert_eq!(
        served(PageSet::range(8, 247), none),
        Serve::Say(Answer::Miss)
    );
}

#[test]
fn a_request_for_pages_that_are_being_fetched_is_kept() {
    let none = PageSet::EMPTY;
    let every = PageSet::range(0, 256);
    let some = PageSet::range(4, 100);
    assert_eq!(served(none, every), Serve::Keep(wanted().pages()));
    assert_eq!(
        served(some, every),
        Serve::Keep(wanted().pages().difference(some))
    );
    assert_eq!(served(every, every), Serve::Send(wanted().pages()));
    assert_eq!(
        served(every, PageSet::range(8, 100)),
        Serve::Send(wanted().pages())
    );
}

#[test]
fn another_content_is_a_miss() {
    let every = PageSet::range(0, 256);
    let holder = request(Role::Holder);
    assert_eq!(serve(&holder, None, length(4096)), Serve::Say(Answer::Miss));
    for size_bytes in [0, wanted().size_bytes() - 1, wanted().size_bytes() + 1] {
        let cached = Cached {
            size_bytes,
            held: every,
            fetching: every,
        };
        let answer = serve(&holder, Some(&cached), length(4096));
        assert_eq!(answer, Serve::Say(Answer::Miss));
    }
}

#[test]
fn fragments_that_no_datagram_holds_are_refused() {
    let holder = request(Role::Holder);
    let cached = Cached {
        size_bytes: wanted().size_bytes(),
        held: PageSet::range(0, 256),
        fetching: PageSet::EMPTY,
    };
    let refused = Serve::Say(Answer::Refused(Refusal::FragmentLen));
    assert_eq!(serve(&holder, Some(&cached), length(512)), refused);
    assert_eq!(serve(&holder, None, length(512)), refused);
    let sent = Serve::Send(wanted().pages());
    assert_eq!(serve(&holder, Some(&cached), length(1024)), sent);
}

#[test]
fn what_is_asked_of_an_owner_is_no_holders_to_serve() {
    for role in [Role::Owner, Role::NamedOwner] {
        let answer = serve(&request(role), None, length(4096));
        assert_eq!(answer, Serve::Say(Answer::Refused(Refusal::Invalid)));
    }
}

/// The pages of a file in the page cache, and what happens to them meanwhile: the label changes,
/// and then each page is dropped and filled anew.
struct Cache {
    /// The number of the content, and how often it has changed.
    label: (u64, u64),
    pages: [Option<u64>; 2],
    steps: usize,
}

impl Cache {
    /// All that happens: another content, and the number of the wanted one again, as after a loss
    /// of the last numbers.
    const STEPS: usize = 8;

    fn step(&mut self) {
        let (content, changes) = self.label;
        match self.steps % 4 {
            0 => self.label = (3 - content, changes + 1),
            1 => self.pages = [None; 2],
            // Each content is told by its count: the first one again is not the same.
            page => self.pages[page - 2] = Some(changes),
        }
        self.steps += 1;
    }
}

/// Other tasks work between any two steps of a holder: it gives no page of another content.
#[test]
fn no_page_of_another_content_is_taken() {
    use std::cell::{
        Cell,
        RefCell, //
    };

    let (mut given, mut refused) = (0, 0);
    // Turns of others before each step of the holder: two looks at the label, two pages.
    for schedule in 0..9usize.pow(4) {
        let work = [0, 1, 2, 3].map(|n| schedule / 9usize.pow(n) % 9);
        if work.iter().sum::<usize>() > Cache::STEPS {
            continue;
        }
        let (cache, at) = (
            RefCell::new(Cache {
                label: (1, 0),
                pages: [Some(0); 2],
                steps: 0,
            }),
            Cell::new(0),
        );
        let others = || {
            (0..work[at.replace(at.get() + 1)]).for_each(|_| cache.borrow_mut().step());
        };
        let first = Cell::new(None);
        let label = || {
            others();
            let (content, changes) = cache.borrow().label;
            // As with the driver: it does not count until the pages of the last one were dropped.
            let is_dropped = cache.borrow().steps % 4 != 1;
            let label = (content == 1 && is_dropped).then_some(changes);
            first.set(first.get().or(label));
            label
        };
        let take = || {
            let page = |n: usize| {
                others();
                cache.borrow().pages[n]
            };
            let pages = [page(0), page(1)];
            pages.iter().any(Option::is_some).then_some(pages)
        };
        match take_of_content(label, take) {
            Some(pages) => {
                given += 1;
                let mut pages = pages.iter().flatten();
                assert!(pages.all(|of| Some(*of) == first.get()), "{work:?}");
            }
            None => refused += 1,
        }
    }
    assert!(
        given > 10 && refused > 100,
        "{given} given, {refused} refused"
    );
}
