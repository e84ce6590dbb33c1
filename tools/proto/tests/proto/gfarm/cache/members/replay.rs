// SPDX-License-Identifier: GPL-2.0

//! Attacks with recorded datagrams, by one who can see and send packets, but has no key.

use proto::gfarm::cache::{
    excluded::Excluded,
    gossip::{
        Gossip,
        GossipWriter,
        BODY_LEN_MAX, //
    },
    have::Have,
    members::Ignored,
    pages::PageSet,
    peer::{
        Claim,
        Standing,
        FORGET_US, //
    },
    reply::{
        Answer,
        Reply, //
    },
    request::{
        Ask,
        Request,
        RequestId,
        Role, //
    },
    responder::{
        open,
        receive,
        Discarded,
        Received,
        Refused, //
    },
    wire::{
        peek,
        seal,
        Head,
        Kind,
        QpRole,
        DATAGRAM_LEN_MAX, //
    }, //
};

use super::{
    super::message::{
        key,
        replies,
        wanted, //
    },
    address,
    node,
    record,
    table,
    NodeId,
    Table, //
};

/// The fate of a datagram at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    NotRead(Refused),
    Discarded(Discarded),
    Ignored(Ignored),
    /// Taken, and `Hello` was answered or not.
    Taken(bool),
}

/// A datagram from node 1.
fn sealed(kind: Kind, to: Option<NodeId>, sequence: u64, body: &[u8]) -> Vec<u8> {
    let head = Head {
        kind,
        from: node(1),
        to,
        sequence,
    };
    let mut out = vec![0; DATAGRAM_LEN_MAX];
    let len = seal(&head, body, &key(), &mut out).unwrap();
    out.truncate(len);
    out
}

/// The body of a greeting or its answer by node 1, which tells of the nodes 11 to 22.
fn list(nonce: u32) -> Vec<u8> {
    let mut out = [0; BODY_LEN_MAX];
    let mut writer = GossipWriter::new(&mut out, nonce, record(1, Claim::FIRST));
    for n in 11..23 {
        assert!(writer.push(record(n, Claim::FIRST)));
    }
    writer.finish(0).to_vec()
}

/// A datagram of each kind from node 1.
fn each_kind(to: NodeId) -> [(Kind, Vec<u8>); 5] {
    let id = RequestId { tag: 1, cookie: 2 };
    let ask = Ask {
        role: Role::Owner,
        is_retry: false,
        wants_sums: false,
        excluded: Excluded::NONE,
    };
    let request = Request::new(id, wanted(), (None, replies()), ask, 50).unwrap();
    let reply = Reply {
        id,
        size_bytes: 0,
        credits: 1,
        answer: Answer::Miss,
    };
    let have = Have::new(wanted().id(), 2, PageSet::range(0, 1)).unwrap();
    [
        (
            Kind::Request,
            request.seal(node(1), to, 5, &key()).unwrap().to_vec(),
        ),
        (
            Kind::Reply,
            reply.seal(node(1), to, &key()).unwrap().to_vec(),
        ),
        (Kind::Hello, sealed(Kind::Hello, Some(to), 5, &list(7))),
        (Kind::Members, sealed(Kind::Members, Some(to), 5, &list(7))),
        (
            Kind::Have,
            sealed(Kind::Have, Some(to), 5, &have.to_bytes()),
        ),
    ]
}

/// A node takes a datagram that has come from where node 1 is to the queue pair of its kind.
fn take(me: &mut Table, bytes: &[u8], now_us: u64) -> Outcome {
    let role = peek(bytes).unwrap().head().kind.qp();
    take_at(me, role, bytes, now_us)
}

/// A node takes a datagram that has come from where node 1 is to a queue pair, as the driver does.
fn take_at(me: &mut Table, role: QpRole, bytes: &[u8], now_us: u64) -> Outcome {
    let datagram = match open(bytes, role, me.me().node, &key()) {
        Ok(datagram) => datagram,
        Err(why) => return Outcome::NotRead(why),
    };
    let source = (address(1).port(), 17);
    let admit = |head: &Head| me.admit(head.from, source.0, source.1, head.sequence);
    match receive(&datagram, admit) {
        Err(why) => Outcome::Discarded(why),
        Ok(Received::Hello(hello, number)) => {
            let mut out = [0; BODY_LEN_MAX];
            match me.hello(&hello, source, number, now_us, &mut out) {
                Ok(answer) => Outcome::Taken(answer.is_some()),
                Err(why) => Outcome::Ignored(why),
            }
        }
        Ok(Received::Members(answer)) => match me.members(&answer, now_us) {
            Ok(()) => Outcome::Taken(false),
            Err(why) => Outcome::Ignored(why),
        },
        Ok(_) => Outcome::Taken(false),
    }
}

/// The nodes that a table knows, and how they are.
fn known(me: &Table) -> Vec<(Option<NodeId>, Option<Standing>)> {
    me.peers()
        .map(|peer| (peer.node(), peer.standing()))
        .collect()
}

#[test]
fn what_was_for_another_node_or_mount_counts_for_nothing() {
    // Node 1 is known or not; the datagrams were for node 3, or a mount before this one.
    for is_known in [false, true] {
        let mut me = table(0, 50);
        if is_known {
            let hello = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
            assert_eq!(take(&mut me, &hello, 0), Outcome::Taken(true));
        }
        let before = known(&me);
        for (kind, bytes) in each_kind(node(3)) {
            let dropped = Outcome::NotRead(Refused::Receiver);
            assert_eq!(take(&mut me, &bytes, 1), dropped, "{kind:?}");
            assert_eq!(known(&me), before, "{kind:?}");
        }
    }
}

/// A stranger who has seen a request knows the queue pair for replies, and sends there what was for
/// the public one, and the other way round.
#[test]
fn what_was_for_another_queue_pair_counts_for_nothing() {
    let mut me = table(0, 50);
    let hello = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
    assert_eq!(take(&mut me, &hello, 0), Outcome::Taken(true));
    let before = known(&me);
    for (kind, bytes) in each_kind(node(0)) {
        let other = match kind {
            Kind::Reply => QpRole::Public,
            _ => QpRole::Replies,
        };
        let dropped = Outcome::NotRead(Refused::QueuePair);
        assert_eq!(take_at(&mut me, other, &bytes, 1), dropped, "{kind:?}");
        assert_eq!(known(&me), before, "{kind:?}");
    }
    // Nor has it used a number up.
    let [(_, request), ..] = each_kind(node(0));
    assert_eq!(take(&mut me, &request, 2), Outcome::Taken(false));
}

#[test]
fn what_is_sent_again_counts_once() {
    let mut me = table(0, 50);
    let hello = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
    assert_eq!(take(&mut me, &hello, 0), Outcome::Taken(true));
    assert!(me.is_live(node(11)), "who has the key is believed");
    let again = Outcome::Ignored(Ignored::Repeated);
    assert_eq!(take(&mut me, &hello, 1), again);
    for (kind, bytes) in each_kind(node(0)) {
        let first = take(&mut me, &bytes, 2);
        let before = known(&me);
        let again = take(&mut me, &bytes, 3);
        match kind {
            // The number was used up by the request, the first of these.
            Kind::Hello => assert_eq!(first, Outcome::Ignored(Ignored::Repeated)),
            Kind::Members => assert_eq!(first, Outcome::Ignored(Ignored::Unasked)),
            Kind::Have => assert_eq!(first, Outcome::Discarded(Discarded::Repeated)),
            // The cookie of a reply is the reader's to look at.
            Kind::Request | Kind::Reply => assert_eq!(first, Outcome::Taken(false)),
        }
        if kind != Kind::Reply {
            assert_ne!(again, Outcome::Taken(false), "{kind:?}");
        }
        assert_eq!(known(&me), before, "{kind:?}");
    }
}

/// The first greeting of a mount to a node whose number it does not know is good for ever: it has a
/// right code and no receiver.
#[test]
fn a_recorded_greeting_brings_no_one_back() {
    let mut me = table(0, 50);
    let recorded = sealed(Kind::Hello, None, 4, &list(7));
    for turn in 0..3 {
        assert_eq!(take(&mut me, &recorded, turn), Outcome::Taken(true));
        assert!(me.peers().all(|peer| !peer.is_live()), "turn {turn}");
        assert!(me.peers().all(|peer| peer.node() == Some(node(1))));
    }
    // Its sender is probed, and forgotten as it does not answer.
    let (mut out, mut now_us, mut probes) = ([0; BODY_LEN_MAX], 3, 0);
    while now_us < 10_000_000 {
        while let Some(hello) = me.poll(now_us, now_us << 32, &mut out) {
            assert_eq!(hello.to, address(1));
            let told = Gossip::parse(hello.body, node(0)).unwrap();
            assert_eq!(told.records().count(), 0, "nobody is told of anyone");
            probes += 1;
        }
        now_us += 10_000;
    }
    assert_eq!((probes, me.peers().count()), (4, 0));
    let recorded_news = sealed(Kind::Hello, None, 4, &list(8));
    assert_eq!(take(&mut me, &recorded_news, now_us), Outcome::Taken(true));
    // A member's own greeting without a receiver does not change what is believed of it, either.
    let hello = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
    take(&mut me, &hello, now_us);
    let before = known(&me);
    assert!(me.is_live(node(1)));
    assert_eq!(take(&mut me, &recorded, now_us), Outcome::Taken(true));
    assert_eq!(known(&me), before);
}

/// A node that is forgotten takes its numbers along, so that what it has sent to this very mount is
/// new again.
#[test]
fn a_node_that_was_forgotten_has_to_answer() {
    let mut me = table(0, 50);
    let recorded = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
    assert_eq!(take(&mut me, &recorded, 0), Outcome::Taken(true));
    // All die, as they answer no probe, and are forgotten.
    let (mut out, mut now_us) = ([0; BODY_LEN_MAX], 0);
    while me.peers().count() != 0 {
        assert!(now_us < 2 * FORGET_US, "{:?}", known(&me));
        while me.poll(now_us, now_us << 32, &mut out).is_some() {}
        now_us += 100_000;
    }
    assert_eq!(take(&mut me, &recorded, now_us), Outcome::Taken(true));
    assert_eq!(
        known(&me),
        [(Some(node(1)), None)],
        "it has to answer a probe"
    );
    // The node is back indeed: it answers, and its messages count from then on.
    let hello = me.poll(now_us, 0xabcd << 32, &mut out).unwrap();
    assert_eq!((hello.to, hello.node), (address(1), Some(node(1))));
    let nonce = Gossip::parse(hello.body, node(0)).unwrap().nonce();
    let answer = sealed(Kind::Members, Some(node(0)), 6, &list(nonce));
    assert_eq!(take(&mut me, &answer, now_us), Outcome::Taken(false));
    assert!(me.is_live(node(1)) && me.is_live(node(11)));
}

/// Another mount has taken the queue pair of a dead one: it takes no message for that one.
#[test]
fn who_is_in_the_place_of_a_dead_node_is_found() {
    let mut me = table(0, 50);
    let hello = sealed(Kind::Hello, Some(node(0)), 4, &list(7));
    take(&mut me, &hello, 0);
    let (mut out, mut now_us, mut named, mut unnamed) = ([0; BODY_LEN_MAX], 0, 0, 0);
    while unnamed == 0 {
        assert!(now_us < 60_000_000);
        while let Some(hello) = me.poll(now_us, now_us << 32, &mut out) {
            match hello.node {
                _ if hello.to != address(1) => {}
                Some(to) => named += u32::from(to == node(1)),
                None => {
                    unnamed += 1;
                    assert!(!me.is_live(node(1)), "while it lives, it is named");
                    break;
                }
            }
        }
        now_us += 10_000;
    }
    assert!(named >= 4, "{named}");
}
