// SPDX-License-Identifier: GPL-2.0

//! Which requests are served: the order of the checks, and what each of them refuses.

use proto::gfarm::cache::{
    excluded::Excluded,
    fragment::FragmentLen,
    invalid::Invalid,
    pages::PageSet,
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
        receive,
        serve,
        Cached,
        Discarded,
        Sender,
        Serve,
        Unserved, //
    },
    window::ReplayWindow,
    wire::{
        open,
        seal,
        Head,
        Kind,
        Rejected, //
    }, //
};

use super::message::{
    forged,
    key,
    node,
    wanted, //
};

const ID: RequestId = RequestId {
    tag: 9,
    cookie: 0xc0_ffee,
};

fn length(bytes: u32) -> FragmentLen {
    FragmentLen::new(bytes).unwrap()
}

fn request(role: Role) -> Request {
    let landing = Landing::new(0x1234, 77, length(1024)).unwrap();
    let ask = Ask {
        role,
        is_retry: false,
        excluded: Excluded::NONE,
    };
    let landing = (role == Role::Holder).then_some(landing);
    Request::new(ID, wanted(), landing, ask, 50).unwrap()
}

/// A request from node 1 to node 2 with a number.
fn datagram(sequence: u64) -> [u8; REQUEST_LEN] {
    let request = request(Role::Holder);
    request.seal(node(1), node(2), sequence, &key()).unwrap()
}

/// Receives a datagram at node 2.
fn received(bytes: &[u8], is_known: bool, is_there: bool, window: &mut ReplayWindow) -> Received {
    let datagram = open(bytes, &key()).map_err(Refused::Rejected)?;
    let sender = is_known.then_some(Sender {
        is_at_its_address: is_there,
        window,
    });
    receive(&datagram, node(2), sender).map_err(Refused::Unserved)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Rejected(Rejected),
    Unserved(Unserved),
}

type Received = Result<Request, Refused>;

fn discarded(why: Discarded) -> Received {
    Err(Refused::Unserved(Unserved::Discarded(why)))
}

#[test]
fn an_honest_request_is_served_once() {
    let mut window = ReplayWindow::NEW;
    let bytes = datagram(5);
    let expected = request(Role::Holder);
    assert_eq!(received(&bytes, true, true, &mut window), Ok(expected));
    let again = received(&bytes, true, true, &mut window);
    assert_eq!(again, discarded(Discarded::Repeated));
    let earlier = received(&datagram(4), true, true, &mut window);
    assert_eq!(earlier, Ok(expected), "it was overtaken");
    assert_eq!(
        received(&datagram(0), true, true, &mut window),
        discarded(Discarded::Repeated)
    );
}

/// Ways in which a datagram is wrong, from the first check to the last.
const DAMAGES: [fn(&mut Vec<u8>); 5] = [
    // Magic, with the code that it needs.
    |bytes| {
        bytes[0] ^= 1;
        forged(bytes);
    },
    // Kind: a reply.
    |bytes| {
        bytes[6] = 2;
        forged(bytes);
    },
    // Receiver.
    |bytes| {
        bytes[16] ^= 1;
        forged(bytes);
    },
    // A field.
    |bytes| {
        bytes[150..152].fill(0);
        forged(bytes);
    },
    // The code.
    |bytes| *bytes.last_mut().unwrap() ^= 1,
];

#[test]
fn each_check_refuses_before_the_next_one_looks() {
    let damaged = |which: &[usize]| {
        let mut bytes = datagram(5).to_vec();
        for damage in which {
            DAMAGES[*damage](&mut bytes);
        }
        bytes
    };
    let mut window = ReplayWindow::NEW;
    let mut at = |which: &[usize], is_known, is_there| {
        received(&damaged(which), is_known, is_there, &mut window)
    };
    let rejected = |why| Err(Refused::Rejected(why));
    assert_eq!(
        at(&[0, 1, 2, 3, 4], false, false),
        rejected(Rejected::Magic)
    );
    assert_eq!(at(&[1, 2, 3, 4], false, false), rejected(Rejected::Code));
    assert_eq!(at(&[1, 2, 3], false, false), discarded(Discarded::Kind));
    assert_eq!(at(&[2, 3], false, false), discarded(Discarded::Receiver));
    assert_eq!(at(&[3], false, false), discarded(Discarded::Sender));
    assert_eq!(at(&[3], true, false), discarded(Discarded::Address));
    // What was refused so far has used no number up; an invalid request does.
    let invalid = Err(Refused::Unserved(Unserved::Invalid(ID, Invalid::Timeout)));
    assert_eq!(at(&[3], true, true), invalid);
    assert_eq!(at(&[3], true, true), discarded(Discarded::Repeated));
    assert_eq!(at(&[], true, true), discarded(Discarded::Repeated));
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
        let result = received(&out[..len], true, true, &mut ReplayWindow::default());
        assert_eq!(result, discarded(Discarded::Length));
    }
}

#[test]
fn a_datagram_to_no_node_is_no_request() {
    let mut bytes = datagram(5).to_vec();
    bytes[16..24].fill(0);
    forged(&mut bytes);
    let result = received(&bytes, true, true, &mut ReplayWindow::default());
    assert_eq!(result, discarded(Discarded::Receiver));
}

/// What is served of the pages 0 to 7 and 255 of a chunk.
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
